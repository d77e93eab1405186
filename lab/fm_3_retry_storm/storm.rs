//! A thousand jobs fail together, as when a service that all of them call is down. When do they come back?

use onceward_core::decide::{Call, Create, ErrorReport};
use onceward_core::time::Time;
use onceward_core::value::Value;
use onceward_engine::{Leased, Submission, Wanted};
use onceward_store::{ListQuery, Store as _};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use crate::stage::books::whole;
use crate::stage::play::{Play, on_each, time};

const JOBS: usize = 1_000;
/// Failures that a job may have.
const BUDGET: usize = 3;
const SECOND: i64 = 1_000_000;

async fn create_all(play: &Play) {
    let fields = Map::from_iter([("budget".to_owned(), json!(BUDGET))]);
    let create = Create { lifecycle: "execution.job".into(), id: None, owner: None, fields, payload: None };
    let all = vec![Submission::new(&user("ann"), Call::Create(create)); JOBS];
    let made = play.engine.submit_all(all).await.expect("taken on");
    assert!(made.iter().all(Result::is_ok));
}

async fn lease_all(play: &Play) -> Vec<Leased> {
    let wanted = Wanted { most: JOBS, ..Wanted::one("execution.job", "w") };
    play.engine.lease(&worker("bob"), &wanted).await.expect("leasing")
}

async fn fail_all(play: &Play, held: Vec<Leased>) {
    let down =
        ErrorReport { code: "down".into(), message: "no route".into(), retryable: Some(true), retry_after: None };
    let reports = held.iter().map(|held| {
        let (record, token) = (held.record.id, held.token);
        Submission::new(&worker("bob"), Call::Fail { record, token, error: down.clone() })
    });
    let told = play.engine.submit_all(reports.collect()).await.expect("taken on");
    assert!(told.iter().all(Result::is_ok));
}

/// When each job that waits may be leased again, in microseconds after this time; and how many have ended.
async fn ready_after(play: &Play, now: Time) -> (Vec<i64>, usize) {
    let page = play.store().list(&ListQuery { limit: JOBS, ..ListQuery::default() }).await.expect("all jobs");
    let (failed, waiting): (Vec<_>, Vec<_>) =
        page.records.iter().partition(|record| record.state_name().as_ref() == "FAILED");
    let after = waiting.iter().map(|record| match record.field("readyAt") {
        Some(Value::Time(at)) => at.micros() - now.micros(),
        _ => 0,
    });
    (after.collect(), failed.len())
}

/// The most that come back within any tenth of a second on the clock's grid.
fn thickest(after: &[i64]) -> usize {
    let mut tenths = std::collections::BTreeMap::<i64, usize>::new();
    for at in after {
        *tenths.entry(at.div_euclid(SECOND / 10)).or_default() += 1;
    }
    tenths.into_values().max().unwrap_or(0)
}

/// Without backoff and jitter all of them are back at once, and again, until the last try is spent in the very same instant.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_all_at_once() {
    on_each(async |play| {
        create_all(play).await;
        for round in 1..=BUDGET {
            let held = lease_all(play).await;
            assert_eq!(held.len(), JOBS, "round {round}: all of them, at the same instant");
            fail_all(play, held).await;
        }
        assert_eq!(ready_after(play, time(0)).await.1, JOBS, "every try of every job is gone, and no time has passed");
    });
    println!("lab: {} calls of a service that is down, all in one instant", JOBS * BUDGET);
}

/// Without the budget they come back for ever.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_without_end() {
    on_each(async |play| {
        create_all(play).await;
        for round in 0..2 * BUDGET {
            play.at(i64::try_from(round).expect("small") * 1_000);
            let held = lease_all(play).await;
            assert_eq!(held.len(), JOBS);
            fail_all(play, held).await;
        }
        assert_eq!(ready_after(play, time(0)).await.1, 0, "none has ended");
    });
    println!("lab: {} tries where {} were allowed, and no end", 2 * BUDGET * JOBS, BUDGET * JOBS);
}

/// FM-3: they wait, longer each time, spread over a second, and after their budget they have ended.
#[test]
fn prevented_spread_and_bounded() {
    on_each(async |play| {
        create_all(play).await;
        let mut tries = 0;
        for round in 1..=BUDGET {
            let start = i64::try_from(round).expect("small") * 1_000;
            play.at(start);
            let held = lease_all(play).await;
            assert_eq!(held.len(), JOBS);
            tries += held.len();
            fail_all(play, held).await;
            assert!(lease_all(play).await.is_empty(), "round {round}: none at once");
            let (after, failed) = ready_after(play, time(start)).await;
            if round == BUDGET {
                assert_eq!((after.len(), failed), (0, JOBS), "the budget ends it");
                break;
            }
            assert_eq!((after.len(), failed), (JOBS, 0));
            // One second, then two; and up to one more, of chance.
            let least = SECOND << (round - 1);
            assert!(after.iter().all(|at| (least..least + SECOND).contains(at)), "round {round}");
            // A hundred on average: more than two hundred never come by chance.
            assert!(thickest(&after) < 2 * JOBS / 10, "round {round}: {}", thickest(&after));
        }
        assert_eq!(tries, BUDGET * JOBS);
        whole(play.store()).await.expect("whole");
    });
    println!("lab: {JOBS} retries spread over a second, waits double, {BUDGET} tries each and FAILED");
}
