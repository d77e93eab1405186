//! DOC-7 and DOC-16: ends that come from outside.

use onceward_testkit::{Stage, operator, user};
use serde_json::json;

use super::{created, last_chance, queued, retrying, running, stage};
use onceward_core::value::RecordId;

#[track_caller]
fn is_cancelled(stage: &Stage, id: RecordId) {
    assert_eq!(stage.state(id), "FAILED");
    assert_eq!(stage.field(id, "lastError"), "cancelled");
    assert_eq!(stage.field(id, "errorType"), "TERMINAL");
}

/// DOC-16, DOC-7: what waits is cancelled at once, by its owner or an operator.
#[test]
fn what_waits_is_cancelled_at_once() {
    for who in [user("alice"), operator("olga")] {
        let waiting: [fn(&mut Stage) -> RecordId; 3] = [created, queued, |stage| retrying(stage, 1)];
        for make in waiting {
            let mut stage = stage();
            let id = make(&mut stage);
            stage.fire(id, "cancel", &who).ok();
            is_cancelled(&stage, id);
            assert_eq!(stage.record(id).finished_at, Some(stage.now()));
            stage.pass("1h");
            is_cancelled(&stage, id);
        }
    }
}

/// DOC-16: nobody else cancels; to a stranger there is nothing to cancel.
#[test]
fn strangers_cancel_nothing() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.fire(lease.record, "cancel", &user("mallory")).not_found();
    stage.fire(lease.record, "cancel", &lease.worker).token(lease.token).not_allowed();
    assert_eq!(stage.field(lease.record, "cancelRequested"), false);
}

/// DOC-16: what is final cannot be cancelled.
#[test]
fn what_is_over_is_not_cancelled() {
    let mut stage = stage();
    let (won, lost) = (running(&mut stage), running(&mut stage));
    stage.commit(&won, json!(null)).ok();
    stage.fail(&lost, "CORRUPT_DATA").ok();
    stage.fire(won.record, "cancel", &user("alice")).wrong_state("SUCCEEDED", "cancel");
    stage.fire(lost.record, "cancel", &operator("olga")).wrong_state("FAILED", "cancel");
    assert_eq!(stage.field(lost.record, "lastError"), "it failed: CORRUPT_DATA");
}

/// DOC-16: a running job is asked to stop by its next heartbeat, and is running until it does. Asking twice is asking once.
#[test]
fn a_running_job_is_asked_to_stop() {
    let mut stage = stage();
    let lease = running(&mut stage);
    assert!(!stage.heartbeat(&lease).changes().stop);
    stage.fire(lease.record, "cancel", &user("alice")).ok();
    assert_eq!(stage.state(lease.record), "RUNNING");
    stage.fire(lease.record, "cancel", &operator("olga")).unchanged();
    assert!(stage.heartbeat(&lease).changes().stop);
    stage.give_back(&lease).ok();
    is_cancelled(&stage, lease.record);
}

/// DOC-16: a worker that never asks loses its lease, and that ends the job.
#[test]
fn a_cancelled_job_ends_with_its_lease() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.pass("10s");
    stage.fire(lease.record, "cancel", &user("alice")).ok();
    stage.pass("19s");
    assert_eq!(stage.state(lease.record), "RUNNING");
    stage.pass("1s");
    is_cancelled(&stage, lease.record);
    assert_eq!(stage.field(lease.record, "retryCount"), 0);
}

/// DOC-16: a commit that still arrives wins.
#[test]
fn a_commit_beats_a_cancel() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.fire(lease.record, "cancel", &user("alice")).ok();
    stage.commit(&lease, json!(null)).ok();
    assert_eq!(stage.state(lease.record), "SUCCEEDED");
    assert_eq!(
        (stage.field(lease.record, "lastError"), stage.field(lease.record, "errorType")),
        (json!(null), json!(null))
    );
}

/// DOC-16: a failure that would have been retried is not, once the job is to stop; a terminal one is told as it was.
#[test]
fn a_failure_after_a_cancel_is_not_retried() {
    let mut stage = stage();
    let (transient, broken) = (running(&mut stage), running(&mut stage));
    for lease in [&transient, &broken] {
        stage.fire(lease.record, "cancel", &user("alice")).ok();
    }
    stage.fail(&transient, "TIMEOUT").ok();
    is_cancelled(&stage, transient.record);
    stage.fail(&broken, "CORRUPT_DATA").ok();
    assert_eq!(stage.state(broken.record), "FAILED");
    assert_eq!(stage.field(broken.record, "lastError"), "it failed: CORRUPT_DATA");
}

/// DOC-16: cancelled at its last chance, it is cancelled, not out of retries.
#[test]
fn a_cancel_at_the_last_chance() {
    let mut stage = stage();
    let lease = last_chance(&mut stage);
    stage.fire(lease.record, "cancel", &user("alice")).ok();
    stage.give_back(&lease).ok();
    is_cancelled(&stage, lease.record);
}

/// DOC-7: an operator who has nothing left to run it on fails a queued job, and says why or is spoken for.
#[test]
fn exhaustion_fails_a_queued_job() {
    let mut stage = stage();
    let (told, silent) = (queued(&mut stage), queued(&mut stage));
    stage.fire(told, "exhaust", &operator("olga")).with("message", "no disk left").ok();
    assert_eq!(stage.state(told), "FAILED");
    assert_eq!(stage.field(told, "lastError"), "no disk left");
    assert_eq!(stage.field(told, "errorType"), "TERMINAL");
    stage.fire(silent, "exhaust", &operator("olga")).ok();
    assert_eq!(stage.field(silent, "lastError"), "resources exhausted");
}

/// DOC-7: only a queued one, only an operator, and a message keeps to its bounds.
#[test]
fn exhaustion_is_bounded() {
    let mut stage = stage();
    let id = queued(&mut stage);
    stage.fire(id, "exhaust", &user("alice")).not_allowed();
    stage.fire(id, "exhaust", &operator("olga")).with("message", "x".repeat(1_001)).bad_input();
    stage.fire(id, "exhaust", &operator("olga")).with("why", "x").bad_input();
    let lease = stage.lease(id, "w1");
    stage.fire(id, "exhaust", &operator("olga")).wrong_state("RUNNING", "exhaust");
    stage.fail(&lease, "TIMEOUT").ok();
    stage.fire(id, "exhaust", &operator("olga")).wrong_state("RETRYING", "exhaust");
}
