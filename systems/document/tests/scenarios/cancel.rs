//! DOC-7 and DOC-16: cancel and exhaust.

use onceward_core::record::ExecutionStatus;
use onceward_testkit::{Simulator, operator, user};
use serde_json::json;

use super::{
    create_job, create_job_on_last_attempt, create_queued_job, create_retrying_job, create_running_job, new_simulator,
};
use onceward_core::value::RecordId;

#[track_caller]
fn assert_cancelled(stage: &Simulator, id: RecordId) {
    assert_eq!(stage.state(id), "FAILED");
    assert_eq!(stage.field(id, "lastError"), "cancelled");
    assert_eq!(stage.field(id, "errorCode"), "CANCELLED");
    assert_eq!(stage.field(id, "errorType"), "TERMINAL");
}

/// DOC-16, DOC-7: by its owner or an operator.
#[test]
fn waiting_job_is_cancelled_at_once() {
    for caller in [user("alice"), operator("olga")] {
        let fixtures: [fn(&mut Simulator) -> RecordId; 3] =
            [create_job, create_queued_job, |stage| create_retrying_job(stage, 1)];
        for fixture in fixtures {
            let mut stage = new_simulator();
            let id = fixture(&mut stage);
            stage.fire(id, "cancel", &caller).expect_ok();
            assert_cancelled(&stage, id);
            assert_eq!(stage.record(id).finished_at, Some(stage.now()));
            stage.advance("1h");
            assert_cancelled(&stage, id);
        }
    }
}

/// DOC-16: to a stranger the job does not exist.
#[test]
fn only_owner_or_operator_may_cancel() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.fire(lease.record, "cancel", &user("mallory")).expect_not_found();
    stage.fire(lease.record, "cancel", &lease.worker).token(lease.token).expect_not_allowed();
    assert_eq!(stage.state(lease.record), "RUNNING");
}

/// DOC-16: after the commit the effect stands, also while the execution is still open.
#[test]
fn cancel_of_final_job_is_refused() {
    let mut stage = new_simulator();
    let leases: Vec<_> = (0..3).map(|_| create_running_job(&mut stage)).collect();
    stage.commit(&leases[0], json!({ "pages": 2 })).expect_ok();
    stage.commit_only(&leases[1], json!({ "pages": 2 })).expect_ok();
    for lease in &leases[..2] {
        for caller in [user("alice"), operator("olga")] {
            stage.fire(lease.record, "cancel", &caller).expect_already_committed(lease);
        }
        assert_eq!(stage.state(lease.record), "SUCCEEDED");
        assert_eq!(stage.effects(lease.record)[0].result, json!({ "pages": 2 }));
    }
    stage.fail(&leases[2], "CORRUPT_DATA").expect_ok();
    stage.fire(leases[2].record, "cancel", &operator("olga")).expect_wrong_state("FAILED", "cancel");
    assert_eq!(stage.field(leases[2].record, "lastError"), "it failed: CORRUPT_DATA");
}

/// DOC-16: by its owner or an operator, on the first and on the last attempt. The execution is aborted, its token is
/// stale, and no later report changes the job.
#[test]
fn running_job_is_cancelled_at_once_and_its_token_is_stale() {
    for caller in [user("alice"), operator("olga")] {
        for fixture in [create_running_job, create_job_on_last_attempt] {
            let mut stage = new_simulator();
            let lease = fixture(&mut stage);
            let retries = stage.field(lease.record, "retryCount");
            stage.fire(lease.record, "cancel", &caller).expect_ok();
            assert_cancelled(&stage, lease.record);
            assert_eq!(stage.record(lease.record).finished_at, Some(stage.now()));
            assert_eq!(stage.execution(&lease).status, ExecutionStatus::Aborted);
            stage.heartbeat(&lease).expect_lease_lost();
            stage.commit(&lease, json!(null)).expect_lease_lost();
            stage.fail(&lease, "TIMEOUT").expect_lease_lost();
            stage.yield_job(&lease).expect_lease_lost();
            stage.advance("1h");
            assert_cancelled(&stage, lease.record);
            assert_eq!(stage.field(lease.record, "retryCount"), retries, "a cancel is not retried");
            assert!(stage.effects(lease.record).is_empty());
        }
    }
}

/// DOC-7
#[test]
fn exhaust_fails_queued_job_with_message_or_default() {
    let mut stage = new_simulator();
    let (with_message, without_message) = (create_queued_job(&mut stage), create_queued_job(&mut stage));
    stage.fire(with_message, "exhaust", &operator("olga")).with("message", "no disk left").expect_ok();
    assert_eq!(stage.state(with_message), "FAILED");
    assert_eq!(stage.field(with_message, "lastError"), "no disk left");
    assert_eq!(stage.field(with_message, "errorType"), "TERMINAL");
    stage.fire(without_message, "exhaust", &operator("olga")).expect_ok();
    assert_eq!(stage.field(without_message, "lastError"), "resources exhausted");
    assert_eq!(stage.field(without_message, "errorCode"), "RESOURCES_EXHAUSTED");
}

/// DOC-7
#[test]
fn exhaust_requires_operator_queued_state_and_bounded_message() {
    let mut stage = new_simulator();
    let id = create_queued_job(&mut stage);
    stage.fire(id, "exhaust", &user("alice")).expect_not_allowed();
    stage.fire(id, "exhaust", &operator("olga")).with("message", "x".repeat(1_001)).expect_bad_input();
    stage.fire(id, "exhaust", &operator("olga")).with("why", "x").expect_bad_input();
    let lease = stage.lease(id, "w1");
    stage.fire(id, "exhaust", &operator("olga")).expect_wrong_state("RUNNING", "exhaust");
    stage.fail(&lease, "TIMEOUT").expect_ok();
    stage.fire(id, "exhaust", &operator("olga")).expect_wrong_state("RETRYING", "exhaust");
}
