//! EXE-12 to EXE-15: commits.

use onceward_core::record::ExecutionStatus::{Aborted, Committed, Done};
use onceward_core::time::Duration;
use serde_json::json;

use super::{create_job, new_simulator};

/// EXE-12, EXE-15, INV-1: with a lease of one second and work of two, both workers finish and one effect is stored.
#[test]
fn commit_of_second_worker_wins_and_first_is_told() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let first = stage.lease(id, "a");
    stage.start(&first).expect_ok();
    stage.advance("30s");
    stage.advance("2s");
    let second = stage.lease(id, "b");
    stage.start(&second).expect_ok();
    stage.commit(&second, json!({ "by": "b" })).expect_ok();
    stage.commit(&first, json!({ "by": "a" })).expect_already_committed(&second);
    assert_eq!(stage.effects(id).len(), 1);
    assert_eq!(stage.effects(id)[0].result, json!({ "by": "b" }));
    assert_eq!(stage.effects(id)[0].token, second.token);
    assert_eq!((stage.status(&first), stage.status(&second)), (Aborted, Done));
}

/// EXE-12, INV-1: no failure, yield, second lease or timer changes the job between commit and finish.
#[test]
fn committed_job_accepts_only_finish() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.commit_only(&lease, json!(1)).expect_ok();
    stage.fail(&lease, "HICCUP").retryable(true).expect_already_committed(&lease);
    stage.yield_job(&lease).expect_already_committed(&lease);
    stage.try_lease(id, "w2").run().expect_refusal();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Committed, "RUNNING"));
    stage.finish(&lease).expect_ok();
    assert_eq!(stage.effects(id).len(), 1);
}

/// EXE-13
#[test]
fn commit_changes_execution_effect_and_job_in_one_version() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    let version = stage.record(id).version;
    let changes = stage.commit_only(&lease, json!({ "pages": 3 })).expect_changes();
    assert_eq!(changes.effects.len(), 1);
    assert_eq!(changes.executions.len(), 1);
    assert_eq!(changes.records.len(), 1);
    assert_eq!(changes.records[0].after.version, version + 1);
    assert_eq!(changes.records[0].after.committed_token, Some(lease.token));
    assert_eq!(stage.effects(id)[0].result, json!({ "pages": 3 }));
}

/// EXE-13
#[test]
fn commit_with_finish_is_one_version() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    let version = stage.record(id).version;
    stage.commit(&lease, json!(null)).expect_ok();
    assert_eq!(stage.record(id).version, version + 1);
    assert_eq!(stage.state(id), "SUCCEEDED");
    assert_eq!(stage.status(&lease), Done);
}

/// EXE-13
#[test]
fn attempts_without_commit_leave_no_effect() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    for _ in 0..4 {
        let lease = stage.lease(id, "w1");
        stage.start(&lease).expect_ok();
        stage.advance("30s");
        assert!(stage.effects(id).is_empty());
        stage.advance("10m");
    }
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).expect_ok();
    assert_eq!(stage.effects(id).len(), 1);
}

/// EXE-14
#[test]
fn crash_before_commit_retries_job() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let crashed = stage.lease(id, "w1");
    stage.start(&crashed).expect_ok();
    stage.lose_lease(&crashed).expect_ok();
    assert_eq!(stage.state(id), "PENDING");
    stage.advance("2s");
    let next = stage.lease(id, "w2");
    stage.commit(&next, json!(null)).expect_ok();
    assert_eq!((stage.state(id).as_str(), stage.effects(id).len()), ("SUCCEEDED", 1));
}

/// EXE-14: no worker runs the job again, and the effect is not applied again.
#[test]
fn crash_after_commit_is_finished_at_lease_end() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.advance("10s");
    stage.commit_only(&lease, json!(null)).expect_ok();
    stage.advance_by(Duration::from_micros(20_000_000 - 1));
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Committed, "RUNNING"));
    stage.advance_by(Duration::from_micros(1));
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Done, "SUCCEEDED"));
    assert_eq!((stage.effects(id).len(), stage.record(id).attempt), (1, 1));
}

/// EXE-14
#[test]
fn lost_lease_after_commit_finishes_job() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.commit_only(&lease, json!(null)).expect_ok();
    stage.lose_lease(&lease).expect_ok();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Done, "SUCCEEDED"));
}

/// EXE-14
#[test]
fn finish_after_recovery_is_repeated_answer() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.commit_only(&lease, json!(null)).expect_ok();
    stage.advance_without_engine("31s");
    stage.finish(&lease).expect_repeated();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Done, "SUCCEEDED"));
}

/// EXE-15
#[test]
fn duplicate_execution_after_commit_changes_nothing() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let duplicate = stage.lease(id, "a");
    stage.advance("1m");
    let winner = stage.lease(id, "b");
    stage.commit_only(&winner, json!(null)).expect_ok();
    let version = stage.record(id).version;
    stage.try_lease(id, "c").expect_already_committed(&winner);
    stage.start(&duplicate).run().expect_refusal();
    stage.heartbeat(&duplicate).run().expect_refusal();
    stage.commit(&duplicate, json!(null)).expect_already_committed(&winner);
    stage.fail(&duplicate, "HICCUP").run().expect_refusal();
    assert_eq!(stage.record(id).version, version);
    assert_eq!(stage.status(&duplicate), Aborted);
    stage.finish(&winner).expect_ok();
    stage.try_lease(id, "c").expect_already_committed(&winner);
}
