//! The clock steps far forward and back again, while leases are held and timers wait.

use onceward_core::decide::{Call, ErrorReport};
use onceward_core::time::Time;
use onceward_store::Store as _;
use onceward_testkit::user;
use serde_json::json;

use crate::stage::books::whole;
use crate::stage::play::{LONG, Play, on_each, on_sqlite, time};

const YEAR: i64 = 365 * 86_400;

/// A leases; the clock jumps a year ahead, the lease is over and B has the job; the clock is set right again, and by it A's lease
/// would still last. What both are told.
async fn forward_and_back(play: &Play) -> [String; 2] {
    let id = play.charge().await;
    let a = play.lease("A", "lab.charge", 30).await.expect("the job");
    play.at(YEAR);
    assert_eq!(play.state(id).await, "waiting");
    let b = play.lease("B", "lab.charge", 30).await.expect("the job again");
    assert_eq!((b.record.id, b.token.0), (id, 2));
    play.at(10);
    [play.heartbeat("A", &a).await, play.heartbeat("B", &b).await]
}

/// Where a lease is judged by the clock alone, the step back makes a lost one good again: two workers hold one job.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_two_holders() {
    on_each(async |play| assert_eq!(forward_and_back(play).await, ["ok", "ok"]));
    println!("lab: 2 workers hold one job");
}

/// A job came to wait while the clock was ahead; the one before it in its lane is done after the clock was set back. Whether it
/// can be leased when its time has come again.
async fn after_the_one_before(play: &Play) -> bool {
    let first = play.create("lab.lane", json!({ "lane": "a" })).await;
    play.at(100);
    let second = play.create("lab.lane", json!({ "lane": "a" })).await;
    play.at(10);
    let held = play.lease("A", "lab.lane", 30).await.expect("the first");
    assert_eq!(held.record.id, first);
    let done = Call::Commit { record: first, token: held.token, result: json!("done"), finish: true };
    assert_eq!(play.report("A", done).await, "ok");
    play.at(1_000);
    play.lease("B", "lab.lane", 30).await.is_some_and(|held| held.record.id == second)
}

/// Where a job whose time has not come again only leaves its lane, it is passed over, and stays so.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_a_job_is_forgotten() {
    on_sqlite(async |play| assert!(!after_the_one_before(play).await));
    println!("lab: a waiting job is passed over, and never handed out");
}

/// FM-7: a lease that was lost stays lost, whatever the clock says later.
#[test]
fn prevented_one_holder() {
    on_each(async |play| {
        assert_eq!(forward_and_back(play).await, ["lease_lost", "ok"]);
        assert!(
            play.lease("C", "lab.charge", 30).await.is_none(),
            "nor does a third get it: the lease outlives the step back"
        );
        whole(play.store()).await.expect("whole");
    });
    println!("lab: 1 worker holds the job; the other: lease_lost");
}

/// FM-7: no job is passed over for having come while the clock was ahead.
#[test]
fn prevented_no_job_is_forgotten() {
    on_each(async |play| assert!(after_the_one_before(play).await));
    println!("lab: the job is handed out when its time has come again");
}

/// A job leased and given up, leased and committed, while the clock jumps to and fro: the times of its log.
async fn times(play: &Play) -> Vec<Time> {
    let id = play.charge().await;
    play.at(YEAR);
    let held = play.lease("A", "lab.charge", 30).await.expect("the job");
    play.at(10);
    let error = ErrorReport { code: "tired".into(), message: "".into(), retryable: Some(true), retry_after: None };
    assert_eq!(play.report("A", Call::Fail { record: id, token: held.token, error }).await, "ok");
    play.at(2 * YEAR);
    let held = play.lease("B", "lab.charge", 30).await.expect("the job again");
    play.at(0);
    assert_eq!(play.commit("B", &held, "B").await, "ok");
    let history = play.store().history(id, 0, 100).await.expect("its history");
    assert_eq!(history.len(), 5, "created, leased, failed, leased, committed");
    history.iter().map(|entry| entry.at).collect()
}

/// Where an operation is decided before the record's own log, that log runs backwards.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_a_log_runs_backwards() {
    on_each(async |play| {
        let [_, leased, failed, ..] = times(play).await[..] else { panic!("three entries at least") };
        assert_eq!((leased, failed), (time(YEAR), time(10)));
    });
    println!("lab: a record's log runs back by a year");
}

/// FM-7, INV-3: a record's log goes forward in time whatever the clock does, so that it can be read as what happened.
#[test]
fn prevented_the_log_goes_forward() {
    on_each(async |play| {
        assert_eq!(times(play).await, [0, YEAR, YEAR, 2 * YEAR, 2 * YEAR].map(time));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: every record's log goes forward");
}

/// FM-7: alarms, some of them set while the clock was wrong, all ring, each once.
#[test]
fn recovered_every_alarm_rings() {
    on_each(async |play| {
        let mut alarms = Vec::new();
        for (now, at) in [(0, 60), (YEAR, YEAR + 60), (0, 120), (-YEAR, 30), (10, YEAR + 60)] {
            play.at(now);
            alarms.push(play.create("lab.alarm", json!({ "at": time(at).to_string() })).await);
        }
        // Far ahead, back, and there at last: whoever rang must not ring again, and nobody is left out.
        for now in [100, 0, 2 * YEAR, 50, 2 * YEAR] {
            play.at(now);
            play.engine.wake();
            for id in &alarms {
                play.state(*id).await;
            }
        }
        let mut stream = play.engine.stream(&user("ann"), 0);
        let mut rang = std::collections::BTreeMap::<_, usize>::new();
        while rang.values().sum::<usize>() < alarms.len() {
            let entry =
                tokio::time::timeout(LONG, stream.next()).await.expect("in time").expect("reading").expect("open");
            if entry.version > 1 {
                *rang.entry(entry.record).or_default() += 1;
            }
        }
        assert_eq!(rang.len(), alarms.len(), "each once: {rang:?}");
        for id in alarms {
            assert_eq!(play.state(id).await, "rang");
        }
        whole(play.store()).await.expect("whole");
    });
    println!("lab: 5 of 5 timers rang, each once, after 5 jumps");
}
