//! The clock steps far forward and back while leases are held and timers are pending.

use onceward_core::decide::{Call, FailureReport};
use onceward_core::time::Time;
use onceward_store::Store as _;
use onceward_testkit::user;
use serde_json::json;

use crate::support::lab_engine::{LabEngine, WAIT_TIMEOUT, on_each_store, on_sqlite, time_at};
use crate::support::store_checks::verify_against_log;

const YEAR_SECS: i64 = 365 * 86_400;

/// A leases. The clock jumps ahead by a year, A's lease expires and B leases the job. The clock steps back to a time
/// within A's lease. Returns the replies to both heartbeats.
async fn heartbeat_after_clock_jump(lab: &LabEngine) -> [String; 2] {
    let id = lab.create_charge().await;
    let a = lab.lease("A", "lab.charge", 30).await.expect("job is ready");
    lab.set_clock(YEAR_SECS);
    assert_eq!(lab.state(id).await, "waiting");
    let b = lab.lease("B", "lab.charge", 30).await.expect("expired job is ready again");
    assert_eq!((b.record.id, b.token.0), (id, 2));
    lab.set_clock(10);
    [lab.heartbeat("A", &a).await, lab.heartbeat("B", &b).await]
}

/// If only the clock decides, the step back revives the lost lease, and two workers hold one job.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_clock_jump_gives_two_holders() {
    on_each_store(async |lab| assert_eq!(heartbeat_after_clock_jump(lab).await, ["ok", "ok"]));
    println!("lab: 2 workers hold one job");
}

/// A job is queued while the clock is ahead, and the job before it in its lane ends after the clock was set back.
/// Returns whether the second job can be leased once its time has come again.
async fn can_lease_second_in_lane(lab: &LabEngine) -> bool {
    let first = lab.create("lab.lane", json!({ "lane": "a" })).await;
    lab.set_clock(100);
    let second = lab.create("lab.lane", json!({ "lane": "a" })).await;
    lab.set_clock(10);
    let held = lab.lease("A", "lab.lane", 30).await.expect("the first");
    assert_eq!(held.record.id, first);
    let done = Call::Commit { record: first, token: held.token, result: json!("done"), finish: true };
    assert_eq!(lab.report("A", done).await, "ok");
    lab.set_clock(1_000);
    lab.lease("B", "lab.lane", 30).await.is_some_and(|held| held.record.id == second)
}

/// Without the safeguard, a job whose time has not come again leaves its lane and is never leased.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_ordered_job_is_never_leased() {
    on_sqlite(async |lab| assert!(!can_lease_second_in_lane(lab).await));
    println!("lab: a ready job is skipped and never leased");
}

/// FM-7
#[test]
fn prevented_lost_lease_stays_lost_after_clock_step_back() {
    on_each_store(async |lab| {
        assert_eq!(heartbeat_after_clock_jump(lab).await, ["lease_lost", "ok"]);
        assert!(
            lab.lease("C", "lab.charge", 30).await.is_none(),
            "no third worker gets it: the lease stays valid after the step back"
        );
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: 1 worker holds the job; the other gets lease_lost");
}

/// FM-7: the job was queued while the clock was ahead.
#[test]
fn prevented_ordered_job_is_leased_after_clock_step_back() {
    on_each_store(async |lab| assert!(can_lease_second_in_lane(lab).await));
    println!("lab: the job is leased once it is ready again");
}

/// Leases, fails, leases again and commits a job while the clock jumps. Returns the times of its log entries.
async fn log_times(lab: &LabEngine) -> Vec<Time> {
    let id = lab.create_charge().await;
    lab.set_clock(YEAR_SECS);
    let held = lab.lease("A", "lab.charge", 30).await.expect("job is ready");
    lab.set_clock(10);
    let error = FailureReport { code: "tired".into(), message: "".into(), retryable: Some(true), retry_after: None };
    assert_eq!(lab.report("A", Call::Fail { record: id, token: held.token, error }).await, "ok");
    lab.set_clock(2 * YEAR_SECS);
    let held = lab.lease("B", "lab.charge", 30).await.expect("expired job is ready again");
    lab.set_clock(0);
    assert_eq!(lab.commit("B", &held, "B").await, "ok");
    let history = lab.store().history(id, 0, 100).await.expect("the history is readable");
    assert_eq!(history.len(), 5, "created, leased, failed, leased, committed");
    history.iter().map(|entry| entry.at).collect()
}

/// If the engine decides an operation at a time before the record's last change, the record's log runs backwards.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_log_times_run_backwards() {
    on_each_store(async |lab| {
        let [_, leased, failed, ..] = log_times(lab).await[..] else { panic!("at least three entries") };
        assert_eq!((leased, failed), (time_at(YEAR_SECS), time_at(10)));
    });
    println!("lab: the times in a record's log decrease by a year");
}

/// FM-7, INV-3
#[test]
fn prevented_log_times_never_run_backwards() {
    on_each_store(async |lab| {
        assert_eq!(log_times(lab).await, [0, YEAR_SECS, YEAR_SECS, 2 * YEAR_SECS, 2 * YEAR_SECS].map(time_at));
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: the times in every record's log never decrease");
}

/// FM-7: some timers were set while the clock was wrong.
#[test]
fn recovered_every_timer_fires_once_after_clock_jumps() {
    on_each_store(async |lab| {
        let mut alarms = Vec::new();
        for (now, at) in [(0, 60), (YEAR_SECS, YEAR_SECS + 60), (0, 120), (-YEAR_SECS, 30), (10, YEAR_SECS + 60)] {
            lab.set_clock(now);
            alarms.push(lab.create("lab.alarm", json!({ "at": time_at(at).to_string() })).await);
        }
        // Far ahead, back, and finally due: no timer may fire twice or be skipped.
        for now in [100, 0, 2 * YEAR_SECS, 50, 2 * YEAR_SECS] {
            lab.set_clock(now);
            lab.engine.wake_all();
            for id in &alarms {
                lab.state(*id).await;
            }
        }
        let mut stream = lab.engine.stream(&user("ann"), 0);
        let mut fired = std::collections::BTreeMap::<_, usize>::new();
        while fired.values().sum::<usize>() < alarms.len() {
            let entry = tokio::time::timeout(WAIT_TIMEOUT, stream.next())
                .await
                .expect("before the timeout")
                .expect("reading")
                .expect("open");
            if entry.version > 1 {
                *fired.entry(entry.record).or_default() += 1;
            }
        }
        assert_eq!(fired.len(), alarms.len(), "each timer once: {fired:?}");
        for id in alarms {
            assert_eq!(lab.state(id).await, "rang");
        }
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: 5 of 5 timers fired, each once, after 5 jumps");
}
