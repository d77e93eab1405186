//! IMG-4, IMG-5, IMG-11, IMG-12: failures, backoff and dead letters.

use onceward_core::time::Duration;
use onceward_testkit::Simulator;
use serde_json::json;

use super::{
    create_failed_job, create_queued_job, create_running_job, image_result, new_simulator, order_image, user_credits,
};
use onceward_core::value::RecordId;

/// Asserts a backoff of `seconds` plus less than one second of jitter.
#[track_caller]
fn assert_backoff(stage: &Simulator, id: RecordId, seconds: i64) {
    let wait = stage.time_until(id, "retryAt");
    let (min_wait, max_wait) = (Duration::from_secs(seconds), Duration::from_secs(seconds + 1));
    assert!(min_wait <= wait && wait < max_wait, "waits {wait}, not {min_wait} plus jitter");
}

/// IMG-4: the failure is counted and a retry is scheduled.
#[test]
fn server_error_fails_job_and_keeps_hold() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.fail(&lease, "503").message("overloaded").expect_ok();
    assert_eq!(stage.state(lease.record), "failed");
    assert_eq!(stage.field(lease.record, "retryCount"), 1);
    assert_eq!(stage.field(lease.record, "lastError"), "overloaded");
    assert_eq!((user_credits(&stage, "alice"), stage.hold_balance(lease.record)), (95, 5));
}

/// IMG-4: like a timeout.
#[test]
fn lost_lease_and_yield_count_as_failures() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.advance_by(Duration::from_micros(60_000_000 - 1));
    assert_eq!(stage.state(lease.record), "running");
    stage.advance_by(Duration::from_micros(1));
    assert_eq!(stage.state(lease.record), "failed");
    assert_eq!(stage.field(lease.record, "retryCount"), 1);
    assert_backoff(&stage, lease.record, 2);
    stage.advance("3s");
    let lease = stage.lease(lease.record, "w2");
    stage.yield_job(&lease).expect_ok();
    assert_eq!(stage.field(lease.record, "retryCount"), 2);
    assert_backoff(&stage, lease.record, 4);
}

/// IMG-5: to the microsecond.
#[test]
fn failed_job_is_queued_exactly_when_backoff_ends() {
    let mut stage = new_simulator();
    let lease = create_failed_job(&mut stage, 1);
    let wait = stage.time_until(lease.record, "retryAt");
    stage.advance_by(Duration::from_micros(wait.micros() - 1));
    assert_eq!(stage.state(lease.record), "failed");
    stage.advance_by(Duration::from_micros(1));
    assert_eq!(stage.state(lease.record), "queued");
    let lease = stage.lease(lease.record, "w2");
    stage.commit(&lease, image_result(&lease)).expect_ok();
    assert_eq!(stage.state(lease.record), "completed");
    assert_eq!(stage.field(lease.record, "lastError"), json!(null));
}

/// IMG-11: three retries, after 2, 4 and 8 seconds plus jitter; the fourth failure is counted too.
#[test]
fn fourth_failure_is_dead_letter() {
    let mut stage = new_simulator();
    let id = create_queued_job(&mut stage);
    for (failures, seconds) in [(1, 2), (2, 4), (3, 8)] {
        let lease = stage.lease(id, "w1");
        stage.fail(&lease, "500").expect_ok();
        assert_eq!(stage.state(id), "failed");
        assert_eq!(stage.field(id, "retryCount"), failures);
        assert_backoff(&stage, id, seconds);
        stage.advance_by(stage.time_until(id, "retryAt"));
        assert_eq!(stage.state(id), "queued");
    }
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "500").expect_ok();
    assert_eq!(stage.state(id), "dead_letter");
    assert_eq!(stage.field(id, "retryCount"), 4);
}

/// IMG-11
#[test]
fn third_retry_can_complete() {
    let mut stage = new_simulator();
    let lease = create_failed_job(&mut stage, 3);
    stage.advance("10s");
    let lease = stage.lease(lease.record, "w1");
    stage.commit(&lease, image_result(&lease)).expect_ok();
    assert_eq!(stage.state(lease.record), "completed");
    assert_eq!(stage.field(lease.record, "retryCount"), 3);
}

/// IMG-5, IMG-13: through `failed`; the credits are refunded.
#[test]
fn last_failure_moves_to_dead_letter_in_one_operation() {
    let mut stage = new_simulator();
    let lease = create_failed_job(&mut stage, 3);
    stage.advance("10s");
    let lease = stage.lease(lease.record, "w1");
    let version = stage.record(lease.record).version;
    let changes = stage.fail(&lease, "504").expect_changes();
    assert_eq!(changes.records.len(), 1);
    let events: Vec<_> = changes.records[0].transitions.iter().map(|(event, _)| event.to_string()).collect();
    assert_eq!(events, ["fail", "enter"]);
    assert_eq!(stage.record(lease.record).version, version + 1);
    assert_eq!(stage.state(lease.record), "dead_letter");
    assert_eq!((user_credits(&stage, "alice"), stage.hold_balance(lease.record)), (100, 0));
    assert_eq!(stage.next_timer_due(lease.record), None);
}

/// IMG-11, IMG-5: a shorter `Retry-After` is ignored; up to an hour the job waits and is queued again.
#[test]
fn longer_retry_after_extends_backoff() {
    for (retry_after, seconds) in [("20s", 20), ("2m", 120), ("1s", 2), ("2s", 2), ("1h", 3_600)] {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        stage.fail(&lease, "429").retry_after(retry_after).expect_ok();
        assert_eq!(stage.state(lease.record), "failed", "{retry_after}");
        assert_backoff(&stage, lease.record, seconds);
        stage.advance_by(stage.time_until(lease.record, "retryAt"));
        assert_eq!(stage.state(lease.record), "queued", "{retry_after}");
    }
}

/// IMG-11, IMG-5, IMG-13: the provider is not called before its time. The job ends at once, refunds the credits and no
/// longer counts as the owner's active job.
#[test]
fn retry_after_over_one_hour_is_dead_letter() {
    for retry_after in ["3601s", "7d", "365d"] {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        stage.fail(&lease, "429").message("closed").retry_after(retry_after).expect_ok();
        assert_eq!(stage.state(lease.record), "dead_letter", "{retry_after}");
        assert_eq!(stage.field(lease.record, "lastError"), "closed");
        assert_eq!(stage.field(lease.record, "retryCount"), 1);
        assert_eq!(
            (user_credits(&stage, "alice"), stage.hold_balance(lease.record), stage.next_timer_due(lease.record)),
            (100, 0, None)
        );
        order_image(&mut stage, "a dog").expect_ok();
    }
}

/// IMG-11
#[test]
fn jitter_spreads_retries() {
    let mut stage = new_simulator();
    let waits: std::collections::BTreeSet<Duration> = (0..20)
        .map(|number| {
            let name = format!("user-{number}");
            super::grant_credits(&mut stage, &name, 5);
            let id = stage.create("image.job", &onceward_testkit::user(&name)).payload(b"a cat").expect_ok();
            let lease = stage.lease(id, "w1");
            stage.fail(&lease, "500").expect_ok();
            stage.time_until(id, "retryAt")
        })
        .collect();
    assert!(waits.len() > 15, "twenty jobs were retried at only {} times", waits.len());
}

/// IMG-12, IMG-4: whatever the worker reports.
#[test]
fn retryable_codes_fail_job_for_retry() {
    for code in ["429", "500", "502", "503", "504", "timeout"] {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        stage.fail(&lease, code).retryable(false).expect_ok();
        assert_eq!(stage.state(lease.record), "failed", "{code}");
    }
}

/// IMG-12, IMG-5, IMG-13: at once, counted as one failure.
#[test]
fn terminal_codes_are_dead_letter_and_refunded() {
    for code in ["400", "401", "403"] {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        stage.fail(&lease, code).retryable(true).expect_ok();
        assert_eq!(stage.state(lease.record), "dead_letter", "{code}");
        assert_eq!(stage.field(lease.record, "retryCount"), 1, "{code}");
        assert_eq!(user_credits(&stage, "alice"), 100, "{code}");
    }
}

/// IMG-12
#[test]
fn unlisted_code_follows_worker_and_defaults_to_terminal() {
    for (is_retryable, state) in [(Some(true), "failed"), (Some(false), "dead_letter"), (None, "dead_letter")] {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        let attempt = stage.fail(&lease, "418");
        match is_retryable {
            Some(is_retryable) => attempt.retryable(is_retryable).expect_ok(),
            None => attempt.expect_ok(),
        };
        assert_eq!(stage.state(lease.record), state);
    }
}

/// IMG-5
#[test]
fn dead_letter_does_not_block_new_job() {
    let mut stage = new_simulator();
    super::create_dead_letter(&mut stage);
    order_image(&mut stage, "a dog").expect_ok();
}
