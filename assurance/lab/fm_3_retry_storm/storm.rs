//! A thousand jobs fail at the same moment, as if a service that all of them call is down. Tests when they are retried.

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::time::Time;
use onceward_core::value::Value;
use onceward_engine::{LeaseRequest, LeasedJob, Submission};
use onceward_store::{ListQuery, Store as _};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use crate::support::lab_engine::{LabEngine, on_each_store, time_at};
use crate::support::store_checks::verify_against_log;

const JOB_COUNT: usize = 1_000;
/// The `budget` of each job.
const MAX_FAILURES: usize = 3;
const SECOND_MICROS: i64 = 1_000_000;

async fn create_all(lab: &LabEngine) {
    let fields = Map::from_iter([("budget".to_owned(), json!(MAX_FAILURES))]);
    let create = CreateRecord { lifecycle: "execution.job".into(), id: None, owner: None, fields, payload: None };
    let all = vec![Submission::new(&user("ann"), Call::Create(create)); JOB_COUNT];
    let made = lab.engine.submit_all(all).await.expect("created");
    assert!(made.iter().all(Result::is_ok));
}

async fn lease_all(lab: &LabEngine) -> Vec<LeasedJob> {
    let lease_request = LeaseRequest { max_jobs: JOB_COUNT, ..LeaseRequest::single_job("execution.job", "w") };
    lab.engine.lease(&worker("bob"), &lease_request).await.expect("leasing")
}

async fn fail_all(lab: &LabEngine, held: Vec<LeasedJob>) {
    let down =
        FailureReport { code: "down".into(), message: "no route".into(), retryable: Some(true), retry_after: None };
    let reports = held.iter().map(|held| {
        let (record, token) = (held.record.id, held.token);
        Submission::new(&worker("bob"), Call::Fail { record, token, error: down.clone() })
    });
    let replies = lab.engine.submit_all(reports.collect()).await.expect("created");
    assert!(replies.iter().all(Result::is_ok));
}

/// Returns after how many microseconds each pending job becomes ready, and how many jobs have ended.
async fn ready_after(lab: &LabEngine, now: Time) -> (Vec<i64>, usize) {
    let page = lab.store().list(&ListQuery { limit: JOB_COUNT, ..ListQuery::default() }).await.expect("all jobs");
    let (failed, waiting): (Vec<_>, Vec<_>) =
        page.records.iter().partition(|record| record.state_name().as_ref() == "FAILED");
    let after = waiting.iter().map(|record| match record.field("readyAt") {
        Some(Value::Time(at)) => at.micros() - now.micros(),
        _ => 0,
    });
    (after.collect(), failed.len())
}

/// Returns the largest number of retries in any tenth of a second.
fn max_per_tenth_second(after: &[i64]) -> usize {
    let mut tenths = std::collections::BTreeMap::<i64, usize>::new();
    for at in after {
        *tenths.entry(at.div_euclid(SECOND_MICROS / 10)).or_default() += 1;
    }
    tenths.into_values().max().unwrap_or(0)
}

/// Without backoff and jitter all jobs retry at once, until every attempt is used up in the same instant.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_all_jobs_retry_in_same_instant() {
    on_each_store(async |lab| {
        create_all(lab).await;
        for round in 1..=MAX_FAILURES {
            let held = lease_all(lab).await;
            assert_eq!(held.len(), JOB_COUNT, "round {round}: all jobs at the same instant");
            fail_all(lab, held).await;
        }
        assert_eq!(ready_after(lab, time_at(0)).await.1, JOB_COUNT, "all attempts are used up at the same instant");
    });
    println!("lab: {} calls of a service that is down, all at the same instant", JOB_COUNT * MAX_FAILURES);
}

/// Without the budget the jobs retry forever.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_jobs_retry_without_end() {
    on_each_store(async |lab| {
        create_all(lab).await;
        for round in 0..2 * MAX_FAILURES {
            lab.set_clock(i64::try_from(round).expect("small") * 1_000);
            let held = lease_all(lab).await;
            assert_eq!(held.len(), JOB_COUNT);
            fail_all(lab, held).await;
        }
        assert_eq!(ready_after(lab, time_at(0)).await.1, 0, "no job has ended");
    });
    println!(
        "lab: {} attempts where {} were allowed, without end",
        2 * MAX_FAILURES * JOB_COUNT,
        MAX_FAILURES * JOB_COUNT
    );
}

/// FM-3: each delay is longer than the last and has a second of jitter, and the jobs end after their budget.
#[test]
fn prevented_retries_are_spread_and_bounded() {
    on_each_store(async |lab| {
        create_all(lab).await;
        let mut tries = 0;
        for round in 1..=MAX_FAILURES {
            let start = i64::try_from(round).expect("small") * 1_000;
            lab.set_clock(start);
            let held = lease_all(lab).await;
            assert_eq!(held.len(), JOB_COUNT);
            tries += held.len();
            fail_all(lab, held).await;
            assert!(lease_all(lab).await.is_empty(), "round {round}: no retry at once");
            let (after, failed) = ready_after(lab, time_at(start)).await;
            if round == MAX_FAILURES {
                assert_eq!((after.len(), failed), (0, JOB_COUNT), "the budget is used up");
                break;
            }
            assert_eq!((after.len(), failed), (JOB_COUNT, 0));
            // A backoff of one second, then two, plus up to one second of jitter.
            let min = SECOND_MICROS << (round - 1);
            assert!(after.iter().all(|at| (min..min + SECOND_MICROS).contains(at)), "round {round}");
            // A hundred on average. More than two hundred is practically impossible at random.
            assert!(
                max_per_tenth_second(&after) < 2 * JOB_COUNT / 10,
                "round {round}: {}",
                max_per_tenth_second(&after)
            );
        }
        assert_eq!(tries, MAX_FAILURES * JOB_COUNT);
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: {JOB_COUNT} retries spread over a second, delays double, FAILED after {MAX_FAILURES} attempts each");
}
