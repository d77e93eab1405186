//! DOC-7 and DOC-16: cancel and exhaust.

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
    assert_eq!(stage.field(lease.record, "cancelRequested"), false);
}

/// DOC-16
#[test]
fn cancel_of_final_job_is_refused() {
    let mut stage = new_simulator();
    let (succeeded, failed) = (create_running_job(&mut stage), create_running_job(&mut stage));
    stage.commit(&succeeded, json!(null)).expect_ok();
    stage.fail(&failed, "CORRUPT_DATA").expect_ok();
    stage.fire(succeeded.record, "cancel", &user("alice")).expect_wrong_state("SUCCEEDED", "cancel");
    stage.fire(failed.record, "cancel", &operator("olga")).expect_wrong_state("FAILED", "cancel");
    assert_eq!(stage.field(failed.record, "lastError"), "it failed: CORRUPT_DATA");
}

/// DOC-16: the job stays running, and a second cancel changes nothing.
#[test]
fn cancel_of_running_job_sets_stop_in_heartbeat() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    assert!(!stage.heartbeat(&lease).expect_changes().stop_requested);
    stage.fire(lease.record, "cancel", &user("alice")).expect_ok();
    assert_eq!(stage.state(lease.record), "RUNNING");
    stage.fire(lease.record, "cancel", &operator("olga")).expect_unchanged();
    assert!(stage.heartbeat(&lease).expect_changes().stop_requested);
    stage.yield_job(&lease).expect_ok();
    assert_cancelled(&stage, lease.record);
}

/// DOC-16
#[test]
fn cancelled_running_job_fails_when_lease_expires() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.advance("10s");
    stage.fire(lease.record, "cancel", &user("alice")).expect_ok();
    stage.advance("19s");
    assert_eq!(stage.state(lease.record), "RUNNING");
    stage.advance("1s");
    assert_cancelled(&stage, lease.record);
    assert_eq!(stage.field(lease.record, "retryCount"), 0);
}

/// DOC-16
#[test]
fn commit_after_cancel_succeeds() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.fire(lease.record, "cancel", &user("alice")).expect_ok();
    stage.commit(&lease, json!(null)).expect_ok();
    assert_eq!(stage.state(lease.record), "SUCCEEDED");
    assert_eq!(
        (stage.field(lease.record, "lastError"), stage.field(lease.record, "errorType")),
        (json!(null), json!(null))
    );
}

/// DOC-16: a terminal failure is reported unchanged.
#[test]
fn retryable_failure_after_cancel_is_not_retried() {
    let mut stage = new_simulator();
    let (transient, broken) = (create_running_job(&mut stage), create_running_job(&mut stage));
    for lease in [&transient, &broken] {
        stage.fire(lease.record, "cancel", &user("alice")).expect_ok();
    }
    stage.fail(&transient, "TIMEOUT").expect_ok();
    assert_cancelled(&stage, transient.record);
    stage.fail(&broken, "CORRUPT_DATA").expect_ok();
    assert_eq!(stage.state(broken.record), "FAILED");
    assert_eq!(stage.field(broken.record, "lastError"), "it failed: CORRUPT_DATA");
}

/// DOC-16
#[test]
fn cancel_on_last_attempt_is_reported_as_cancelled() {
    let mut stage = new_simulator();
    let lease = create_job_on_last_attempt(&mut stage);
    stage.fire(lease.record, "cancel", &user("alice")).expect_ok();
    stage.yield_job(&lease).expect_ok();
    assert_cancelled(&stage, lease.record);
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
