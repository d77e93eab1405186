//! EXE-12 to EXE-15: the commit boundary.

use onceward_core::record::ExecutionStatus::{Aborted, Committed, Done};
use onceward_core::time::Duration;
use serde_json::json;

use super::{job, stage};

/// EXE-12, EXE-15, INV-1: a lease of one second, work of two, and a second worker: both finish, one effect lands, and the
/// loser is told.
#[test]
fn two_workers_one_effect() {
    let mut stage = stage();
    let id = job(&mut stage);
    let first = stage.lease(id, "a");
    stage.start(&first).ok();
    stage.pass("30s");
    stage.pass("2s");
    let second = stage.lease(id, "b");
    stage.start(&second).ok();
    stage.commit(&second, json!({ "by": "b" })).ok();
    stage.commit(&first, json!({ "by": "a" })).already_committed(&second);
    assert_eq!(stage.effects(id).len(), 1);
    assert_eq!(stage.effects(id)[0].result, json!({ "by": "b" }));
    assert_eq!(stage.effects(id)[0].token, second.token);
    assert_eq!((stage.status(&first), stage.status(&second)), (Aborted, Done));
}

/// EXE-12, INV-1: between commit and finish nothing else moves the job: no failure, no yield, no second lease, no time.
#[test]
fn a_committed_job_can_only_finish() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.commit_only(&lease, json!(1)).ok();
    stage.fail(&lease, "HICCUP").retryable(true).already_committed(&lease);
    stage.give_back(&lease).already_committed(&lease);
    stage.try_lease(id, "w2").outcome().refusal();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Committed, "RUNNING"));
    stage.finish(&lease).ok();
    assert_eq!(stage.effects(id).len(), 1);
}

/// EXE-13: the commit is one operation: execution, effect and job change in it together, under one version.
#[test]
fn a_commit_is_all_in_one() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    let version = stage.record(id).version;
    let changes = stage.commit_only(&lease, json!({ "pages": 3 })).changes();
    assert_eq!(changes.effects.len(), 1);
    assert_eq!(changes.executions.len(), 1);
    assert_eq!(changes.records.len(), 1);
    assert_eq!(changes.records[0].after.version, version + 1);
    assert_eq!(changes.records[0].after.committed, Some(lease.token));
    assert_eq!(stage.effects(id)[0].result, json!({ "pages": 3 }));
}

/// EXE-13: commit and finish in one call are one operation and one version too.
#[test]
fn commit_and_finish_in_one_call() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    let version = stage.record(id).version;
    stage.commit(&lease, json!(null)).ok();
    assert_eq!(stage.record(id).version, version + 1);
    assert_eq!(stage.state(id), "SUCCEEDED");
    assert_eq!(stage.status(&lease), Done);
}

/// EXE-13: preparing may be repeated as often as it fails; only the commit leaves anything.
#[test]
fn preparing_leaves_nothing() {
    let mut stage = stage();
    let id = job(&mut stage);
    for _ in 0..4 {
        let lease = stage.lease(id, "w1");
        stage.start(&lease).ok();
        stage.pass("30s");
        assert!(stage.effects(id).is_empty());
        stage.pass("10m");
    }
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).ok();
    assert_eq!(stage.effects(id).len(), 1);
}

/// EXE-14: a crash before the commit: the job is tried again.
#[test]
fn a_crash_before_the_commit_is_retried() {
    let mut stage = stage();
    let id = job(&mut stage);
    let crashed = stage.lease(id, "w1");
    stage.start(&crashed).ok();
    stage.lost(&crashed).ok();
    assert_eq!(stage.state(id), "PENDING");
    stage.pass("2s");
    let next = stage.lease(id, "w2");
    stage.commit(&next, json!(null)).ok();
    assert_eq!((stage.state(id).as_str(), stage.effects(id).len()), ("SUCCEEDED", 1));
}

/// EXE-14: a crash between commit and finish: when the lease ends the engine finishes it; nobody works again, and the
/// effect is not applied again.
#[test]
fn a_crash_after_the_commit_is_finished() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.pass("10s");
    stage.commit_only(&lease, json!(null)).ok();
    stage.pass_for(Duration::from_micros(20_000_000 - 1));
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Committed, "RUNNING"));
    stage.pass_for(Duration::from_micros(1));
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Done, "SUCCEEDED"));
    assert_eq!((stage.effects(id).len(), stage.record(id).attempt), (1, 1));
}

/// EXE-14: known dead at once, it is finished at once.
#[test]
fn a_worker_known_dead_after_its_commit_is_finished_for() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.commit_only(&lease, json!(null)).ok();
    stage.lost(&lease).ok();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Done, "SUCCEEDED"));
}

/// EXE-14: a worker that comes to finish after recovery did hears that it is done.
#[test]
fn finishing_what_recovery_finished_is_nothing_new() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.commit_only(&lease, json!(null)).ok();
    stage.doze("31s");
    stage.finish(&lease).repeated();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Done, "SUCCEEDED"));
}

/// EXE-15: whoever else was sent the job meets the committed record and changes nothing.
#[test]
fn a_duplicate_does_nothing() {
    let mut stage = stage();
    let id = job(&mut stage);
    let duplicate = stage.lease(id, "a");
    stage.pass("1m");
    let winner = stage.lease(id, "b");
    stage.commit_only(&winner, json!(null)).ok();
    let version = stage.record(id).version;
    stage.try_lease(id, "c").already_committed(&winner);
    stage.start(&duplicate).outcome().refusal();
    stage.heartbeat(&duplicate).outcome().refusal();
    stage.commit(&duplicate, json!(null)).already_committed(&winner);
    stage.fail(&duplicate, "HICCUP").outcome().refusal();
    assert_eq!(stage.record(id).version, version);
    assert_eq!(stage.status(&duplicate), Aborted);
    stage.finish(&winner).ok();
    stage.try_lease(id, "c").already_committed(&winner);
}
