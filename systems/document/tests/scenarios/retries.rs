//! DOC-4, DOC-5, DOC-6, DOC-9, DOC-10, DOC-11, DOC-17: failures, which of them come back, and how often.

use onceward_core::time::Duration;
use serde_json::json;

use super::{last_chance, queued, retrying, running, stage};

const RETRYABLE: [&str; 4] = ["TIMEOUT", "SYSTEM_TRANSIENT", "QUEUE_OVERLOAD", "DEPENDENCY_UNAVAILABLE"];

const TERMINAL: [&str; 15] = [
    "BLOB_NOT_FOUND",
    "UNSUPPORTED_FORMAT",
    "CORRUPT_DATA",
    "OCR_FAILURE",
    "SIZE_EXCEEDED",
    "NORMALIZE_FAILED",
    "SCHEMA_ID_MISSING",
    "SCHEMA_NOT_FOUND",
    "MISSING_REQUIRED_FIELD",
    "AMBIGUOUS_FIELD",
    "TRANSFORM_ERROR",
    "VALIDATION_FAILED",
    "PROCESSING_TIMEOUT",
    "CONFIGURATION",
    "LIMIT_EXCEEDED",
];

/// DOC-5: each retryable failure enters RETRYING and counts one, while there are fewer than three.
#[test]
fn a_retryable_failure_counts_one() {
    for failures in 1..=3 {
        let mut stage = stage();
        let id = retrying(&mut stage, failures);
        assert_eq!(stage.state(id), "RETRYING");
        assert_eq!(stage.field(id, "retryCount"), failures);
        assert_eq!(stage.field(id, "errorType"), "RETRYABLE");
        assert_eq!(stage.field(id, "lastError"), "it failed: TIMEOUT");
    }
}

/// DOC-9, DOC-4, DOC-5: the third retryable failure is retried, the fourth ends it, with the count at three.
#[test]
fn the_fourth_failure_is_the_last() {
    let mut stage = stage();
    let lease = last_chance(&mut stage);
    assert_eq!((stage.state(lease.record).as_str(), stage.field(lease.record, "retryCount")), ("RUNNING", json!(3)));
    stage.fail(&lease, "TIMEOUT").ok();
    assert_eq!(stage.state(lease.record), "FAILED");
    assert_eq!(stage.field(lease.record, "retryCount"), 3);
    assert_eq!(stage.field(lease.record, "errorType"), "RETRYABLE");
    assert_eq!(stage.field(lease.record, "lastError"), "it failed: TIMEOUT");
}

/// DOC-9: at its last chance a job can still succeed.
#[test]
fn the_third_retry_may_succeed() {
    let mut stage = stage();
    let lease = last_chance(&mut stage);
    stage.commit(&lease, json!(null)).ok();
    assert_eq!(stage.state(lease.record), "SUCCEEDED");
    assert_eq!(stage.field(lease.record, "retryCount"), 3);
    assert_eq!(stage.field(lease.record, "lastError"), json!(null));
}

/// DOC-6: the delay is one second, to the microsecond, whichever retry it is.
#[test]
fn the_delay_is_one_second() {
    for failures in 1..=3 {
        let mut stage = stage();
        let id = retrying(&mut stage, failures);
        stage.pass_for(Duration::from_micros(999_999));
        assert_eq!(stage.state(id), "RETRYING");
        stage.try_lease(id, "w2").not_leasable();
        stage.pass_for(Duration::from_micros(1));
        assert_eq!(stage.state(id), "QUEUED");
    }
}

/// DOC-6: whoever asks first after the delay finds it queued, even where the engine slept.
#[test]
fn the_delay_ends_though_nobody_looks() {
    let mut stage = stage();
    let id = retrying(&mut stage, 1);
    stage.doze("1s");
    stage.try_lease(id, "w2").ok();
    assert_eq!(stage.state(id), "RUNNING");
}

/// DOC-10: these codes are retryable, whatever the worker says of them.
#[test]
fn transient_errors_are_retried() {
    for code in RETRYABLE {
        for word in [true, false] {
            let mut stage = stage();
            let lease = running(&mut stage);
            stage.fail(&lease, code).retryable(word).ok();
            assert_eq!(stage.state(lease.record), "RETRYING", "{code}");
            assert_eq!(stage.field(lease.record, "errorType"), "RETRYABLE", "{code}");
        }
    }
}

/// DOC-10: a lost lease is a time-out: it comes back and costs a retry.
#[test]
fn a_lost_lease_is_a_timeout() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.pass_for(Duration::from_micros(30_000_000 - 1));
    assert_eq!(stage.state(lease.record), "RUNNING");
    stage.pass_for(Duration::from_micros(1));
    assert_eq!(stage.state(lease.record), "RETRYING");
    assert_eq!(stage.field(lease.record, "retryCount"), 1);
    assert_eq!(stage.field(lease.record, "errorType"), "RETRYABLE");
    assert_ne!(stage.field(lease.record, "lastError"), json!(null));
}

/// DOC-4, DOC-10: and when no retries are left it ends the job.
#[test]
fn a_lost_lease_can_be_the_last() {
    let mut stage = stage();
    let lease = last_chance(&mut stage);
    stage.pass("30s");
    assert_eq!(stage.state(lease.record), "FAILED");
}

/// DOC-11, DOC-4: these codes end it at once with no retry, whatever the worker says of them.
#[test]
fn terminal_errors_end_it() {
    for code in TERMINAL {
        for word in [true, false] {
            let mut stage = stage();
            let lease = running(&mut stage);
            stage.fail(&lease, code).retryable(word).ok();
            assert_eq!(stage.state(lease.record), "FAILED", "{code}");
            assert_eq!(stage.field(lease.record, "retryCount"), 0, "{code}");
            assert_eq!(stage.field(lease.record, "errorType"), "TERMINAL", "{code}");
        }
    }
}

/// DOC-11: of a code that nobody listed the worker's word counts, and silence means terminal.
#[test]
fn an_unknown_code_is_what_the_worker_says() {
    for (word, state) in [(Some(true), "RETRYING"), (Some(false), "FAILED"), (None, "FAILED")] {
        let mut stage = stage();
        let lease = running(&mut stage);
        let attempt = stage.fail(&lease, "SOMETHING_NEW");
        match word {
            Some(word) => attempt.retryable(word).ok(),
            None => attempt.ok(),
        };
        assert_eq!(stage.state(lease.record), state);
    }
}

/// DOC-17: a yield goes by way of RETRYING, costs a retry and waits the second.
#[test]
fn a_yield_costs_a_retry() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.give_back(&lease).ok();
    assert_eq!(stage.state(lease.record), "RETRYING");
    assert_eq!(stage.field(lease.record, "retryCount"), 1);
    stage.pass("1s");
    assert_eq!(stage.state(lease.record), "QUEUED");
}

/// DOC-17, DOC-4: a fourth yield has no retry to cost.
#[test]
fn a_fourth_yield_ends_it() {
    let mut stage = stage();
    let lease = last_chance(&mut stage);
    stage.give_back(&lease).ok();
    assert_eq!(stage.state(lease.record), "FAILED");
}

/// DOC-17: TIMEOUT passes, `PROCESSING_TIMEOUT` does not.
#[test]
fn the_two_timeouts_differ() {
    for (code, state) in [("TIMEOUT", "RETRYING"), ("PROCESSING_TIMEOUT", "FAILED")] {
        let mut stage = stage();
        let lease = running(&mut stage);
        stage.fail(&lease, code).ok();
        assert_eq!(stage.state(lease.record), state);
    }
}

/// DOC-4: a terminal error ends it also when retries came before.
#[test]
fn a_terminal_error_after_retries_ends_it() {
    let mut stage = stage();
    let id = retrying(&mut stage, 2);
    stage.pass("1s");
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "CORRUPT_DATA").ok();
    assert_eq!(stage.state(id), "FAILED");
    assert_eq!(stage.field(id, "retryCount"), 2);
    assert_eq!(stage.field(id, "errorType"), "TERMINAL");
}

/// DOC-5: a message longer than the field is cut, not refused: the failure counts all the same.
#[test]
fn a_long_message_is_cut() {
    let mut stage = stage();
    let id = queued(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "TIMEOUT").message(&"x".repeat(5_000)).ok();
    assert_eq!(stage.field(id, "lastError"), "x".repeat(1_000));
}
