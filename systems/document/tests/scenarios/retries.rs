//! DOC-4, DOC-5, DOC-6, DOC-9, DOC-10, DOC-11, DOC-17: failures, retries and error codes.

use onceward_core::time::Duration;
use serde_json::json;

use super::{create_job_on_last_attempt, create_queued_job, create_retrying_job, create_running_job, new_simulator};

const RETRYABLE_CODES: [&str; 4] = ["TIMEOUT", "SYSTEM_TRANSIENT", "QUEUE_OVERLOAD", "DEPENDENCY_UNAVAILABLE"];

const TERMINAL_CODES: [&str; 15] = [
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

/// DOC-5: while fewer than three retries have been used.
#[test]
fn retryable_failure_enters_retrying_and_counts_one() {
    for failures in 1..=3 {
        let mut stage = new_simulator();
        let id = create_retrying_job(&mut stage, failures);
        assert_eq!(stage.state(id), "RETRYING");
        assert_eq!(stage.field(id, "retryCount"), failures);
        assert_eq!(stage.field(id, "errorType"), "RETRYABLE");
        assert_eq!(stage.field(id, "lastError"), "it failed: TIMEOUT");
    }
}

/// DOC-9, DOC-4, DOC-5: the retry count stays at three.
#[test]
fn fourth_retryable_failure_fails_job() {
    let mut stage = new_simulator();
    let lease = create_job_on_last_attempt(&mut stage);
    assert_eq!((stage.state(lease.record).as_str(), stage.field(lease.record, "retryCount")), ("RUNNING", json!(3)));
    stage.fail(&lease, "TIMEOUT").expect_ok();
    assert_eq!(stage.state(lease.record), "FAILED");
    assert_eq!(stage.field(lease.record, "retryCount"), 3);
    assert_eq!(stage.field(lease.record, "errorType"), "RETRYABLE");
    assert_eq!(stage.field(lease.record, "lastError"), "it failed: TIMEOUT");
}

/// DOC-9
#[test]
fn third_retry_can_succeed() {
    let mut stage = new_simulator();
    let lease = create_job_on_last_attempt(&mut stage);
    stage.commit(&lease, json!(null)).expect_ok();
    assert_eq!(stage.state(lease.record), "SUCCEEDED");
    assert_eq!(stage.field(lease.record, "retryCount"), 3);
    assert_eq!(stage.field(lease.record, "lastError"), json!(null));
}

/// DOC-6: to the microsecond, for every retry.
#[test]
fn retry_delay_is_exactly_one_second() {
    for failures in 1..=3 {
        let mut stage = new_simulator();
        let id = create_retrying_job(&mut stage, failures);
        stage.advance_by(Duration::from_micros(999_999));
        assert_eq!(stage.state(id), "RETRYING");
        stage.try_lease(id, "w2").expect_not_leasable();
        stage.advance_by(Duration::from_micros(1));
        assert_eq!(stage.state(id), "QUEUED");
    }
}

/// DOC-6: the lease call itself fires the due timer.
#[test]
fn lease_after_delay_succeeds_without_scheduler() {
    let mut stage = new_simulator();
    let id = create_retrying_job(&mut stage, 1);
    stage.advance_without_engine("1s");
    stage.try_lease(id, "w2").expect_ok();
    assert_eq!(stage.state(id), "RUNNING");
}

/// DOC-10
#[test]
fn retryable_code_is_retried_whatever_worker_says() {
    for code in RETRYABLE_CODES {
        for is_retryable in [true, false] {
            let mut stage = new_simulator();
            let lease = create_running_job(&mut stage);
            stage.fail(&lease, code).retryable(is_retryable).expect_ok();
            assert_eq!(stage.state(lease.record), "RETRYING", "{code}");
            assert_eq!(stage.field(lease.record, "errorType"), "RETRYABLE", "{code}");
        }
    }
}

/// DOC-10: a lost lease counts as a timeout.
#[test]
fn lost_lease_costs_one_retry() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.advance_by(Duration::from_micros(30_000_000 - 1));
    assert_eq!(stage.state(lease.record), "RUNNING");
    stage.advance_by(Duration::from_micros(1));
    assert_eq!(stage.state(lease.record), "RETRYING");
    assert_eq!(stage.field(lease.record, "retryCount"), 1);
    assert_eq!(stage.field(lease.record, "errorType"), "RETRYABLE");
    assert_ne!(stage.field(lease.record, "lastError"), json!(null));
}

/// DOC-4, DOC-10
#[test]
fn lost_lease_on_last_attempt_fails_job() {
    let mut stage = new_simulator();
    let lease = create_job_on_last_attempt(&mut stage);
    stage.advance("30s");
    assert_eq!(stage.state(lease.record), "FAILED");
}

/// DOC-11, DOC-4
#[test]
fn terminal_code_fails_job_whatever_worker_says() {
    for code in TERMINAL_CODES {
        for is_retryable in [true, false] {
            let mut stage = new_simulator();
            let lease = create_running_job(&mut stage);
            stage.fail(&lease, code).retryable(is_retryable).expect_ok();
            assert_eq!(stage.state(lease.record), "FAILED", "{code}");
            assert_eq!(stage.field(lease.record, "retryCount"), 0, "{code}");
            assert_eq!(stage.field(lease.record, "errorType"), "TERMINAL", "{code}");
        }
    }
}

/// DOC-11
#[test]
fn unlisted_code_follows_worker_and_defaults_to_terminal() {
    for (is_retryable, state) in [(Some(true), "RETRYING"), (Some(false), "FAILED"), (None, "FAILED")] {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        let attempt = stage.fail(&lease, "SOMETHING_NEW");
        match is_retryable {
            Some(is_retryable) => attempt.retryable(is_retryable).expect_ok(),
            None => attempt.expect_ok(),
        };
        assert_eq!(stage.state(lease.record), state);
    }
}

/// DOC-17: with the usual delay of one second.
#[test]
fn yield_enters_retrying_and_costs_one_retry() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.yield_job(&lease).expect_ok();
    assert_eq!(stage.state(lease.record), "RETRYING");
    assert_eq!(stage.field(lease.record, "retryCount"), 1);
    stage.advance("1s");
    assert_eq!(stage.state(lease.record), "QUEUED");
}

/// DOC-17, DOC-4
#[test]
fn yield_on_last_attempt_fails_job() {
    let mut stage = new_simulator();
    let lease = create_job_on_last_attempt(&mut stage);
    stage.yield_job(&lease).expect_ok();
    assert_eq!(stage.state(lease.record), "FAILED");
}

/// DOC-17
#[test]
fn timeout_is_retryable_and_processing_timeout_terminal() {
    for (code, state) in [("TIMEOUT", "RETRYING"), ("PROCESSING_TIMEOUT", "FAILED")] {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        stage.fail(&lease, code).expect_ok();
        assert_eq!(stage.state(lease.record), state);
    }
}

/// DOC-4
#[test]
fn terminal_code_after_retries_fails_job() {
    let mut stage = new_simulator();
    let id = create_retrying_job(&mut stage, 2);
    stage.advance("1s");
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "CORRUPT_DATA").expect_ok();
    assert_eq!(stage.state(id), "FAILED");
    assert_eq!(stage.field(id, "retryCount"), 2);
    assert_eq!(stage.field(id, "errorType"), "TERMINAL");
}

/// DOC-5: the failure counts although its message is truncated.
#[test]
fn long_error_message_is_truncated() {
    let mut stage = new_simulator();
    let id = create_queued_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "TIMEOUT").message(&"x".repeat(5_000)).expect_ok();
    assert_eq!(stage.field(id, "lastError"), "x".repeat(1_000));
}

/// DOC-12: on a retry and on the final failure.
#[test]
fn error_without_message_is_shown_by_its_code() {
    for (code, state) in [("TIMEOUT", "RETRYING"), ("CORRUPT_DATA", "FAILED")] {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        stage.fail(&lease, code).message("").expect_ok();
        assert_eq!(stage.state(lease.record), state);
        assert_eq!(stage.field(lease.record, "lastError"), code);
        assert_eq!(stage.field(lease.record, "errorCode"), code);
    }
}
