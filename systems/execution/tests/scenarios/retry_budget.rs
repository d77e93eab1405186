//! EXE-10, EXE-11 and the job's side of EXE-7: retries, backoff and the retry budget.

use onceward_core::time::Duration;
use onceward_testkit::{Simulator, user};
use serde_json::json;

use super::{create_job, create_job_with_budget, new_simulator};

/// Asserts a backoff of `seconds` plus less than one second of jitter.
#[track_caller]
fn assert_backoff(stage: &Simulator, id: onceward_core::value::RecordId, seconds: i64) {
    let wait = stage.time_until(id, "readyAt");
    let (min_wait, max_wait) = (Duration::from_secs(seconds), Duration::from_secs(seconds + 1));
    assert!(min_wait <= wait && wait < max_wait, "waits {wait}, not {min_wait} plus jitter");
}

/// EXE-10
#[test]
fn event_on_final_job_is_refused() {
    let mut stage = new_simulator();
    let (succeeded, failed) = (create_job(&mut stage), create_job(&mut stage));
    let (succeeded_lease, failed_lease) = (stage.lease(succeeded, "w1"), stage.lease(failed, "w1"));
    stage.commit(&succeeded_lease, json!(null)).expect_ok();
    stage.fail(&failed_lease, "BROKEN").expect_ok();
    let finished_at = Some(stage.now());
    for (id, state, lease) in [(succeeded, "SUCCEEDED", &succeeded_lease), (failed, "FAILED", &failed_lease)] {
        assert_eq!(stage.state(id), state);
        assert_eq!(stage.record(id).finished_at, finished_at);
        stage.try_lease(id, "w2").expect_not_leasable();
        stage.lose_lease(lease).expect_repeated();
        stage.heartbeat(lease).run().expect_refusal();
        stage.advance("1h");
        assert_eq!(stage.state(id), state);
        assert_eq!(stage.record(id).attempt, 1);
    }
}

/// EXE-11: ends the job whatever budget is left; an unclassified error counts as terminal.
#[test]
fn terminal_error_fails_job() {
    for is_retryable in [Some(false), None] {
        let mut stage = new_simulator();
        let id = create_job_with_budget(&mut stage, 100);
        let lease = stage.lease(id, "w1");
        let attempt = stage.fail(&lease, "BROKEN").message("no such font");
        match is_retryable {
            Some(is_retryable) => attempt.retryable(is_retryable).expect_ok(),
            None => attempt.expect_ok(),
        };
        assert_eq!(stage.state(id), "FAILED");
        assert_eq!(stage.field(id, "lastError"), "no such font");
        assert_eq!(stage.field(id, "failures"), 1);
    }
}

/// EXE-11
#[test]
fn job_fails_when_failures_reach_budget() {
    for budget in [1, 2, 5] {
        let mut stage = new_simulator();
        let id = create_job_with_budget(&mut stage, budget);
        for failure in 1..=budget {
            stage.advance("1h");
            let lease = stage.lease(id, "w1");
            stage.fail(&lease, "HICCUP").retryable(true).expect_ok();
            let expected_state = if failure < budget { "PENDING" } else { "FAILED" };
            assert_eq!(stage.state(id), expected_state, "after failure {failure} of {budget}");
            assert_eq!(stage.field(id, "failures"), failure);
        }
    }
}

/// EXE-11: a job that kills every worker spends its budget on lost leases.
#[test]
fn poison_pill_fails_after_budget() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    for death in 1..=5 {
        stage.lease(id, &format!("victim-{death}"));
        stage.advance("30s");
        assert_eq!(stage.state(id), if death < 5 { "PENDING" } else { "FAILED" }, "after crash {death}");
        stage.advance("10m");
    }
    assert_eq!(stage.record(id).attempt, 5);
    assert_eq!(stage.executions(id).len(), 5);
}

/// EXE-11, EXE-7: from one second up, with less than one second of jitter.
#[test]
fn retry_backoff_doubles_up_to_limit() {
    let mut stage = new_simulator();
    let id = create_job_with_budget(&mut stage, 100);
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        let lease = stage.lease(id, "w1");
        stage.fail(&lease, "HICCUP").retryable(true).expect_ok();
        assert_backoff(&stage, id, seconds);
        let wait = stage.time_until(id, "readyAt");
        stage.advance_by(Duration::from_micros(wait.micros() - 1));
        stage.try_lease(id, "w1").expect_not_leasable();
        stage.advance_by(Duration::from_micros(1));
    }
}

/// EXE-7
#[test]
fn jitter_spreads_retries() {
    let mut stage = new_simulator();
    let waits: std::collections::BTreeSet<Duration> = (0..20)
        .map(|_| {
            let id = create_job(&mut stage);
            let lease = stage.lease(id, "w1");
            stage.fail(&lease, "HICCUP").retryable(true).expect_ok();
            stage.time_until(id, "readyAt")
        })
        .collect();
    assert!(waits.len() > 15, "twenty jobs were retried at only {} times", waits.len());
}

/// EXE-7
#[test]
fn longer_retry_after_extends_backoff() {
    for (retry_after, seconds) in [("10s", 10), ("500ms", 1)] {
        let mut stage = new_simulator();
        let id = create_job(&mut stage);
        let lease = stage.lease(id, "w1");
        stage.fail(&lease, "BUSY").retryable(true).retry_after(retry_after).expect_ok();
        assert_backoff(&stage, id, seconds);
    }
}

/// EXE-7: a yielded job is ready again within a second.
#[test]
fn yield_costs_no_budget() {
    let mut stage = new_simulator();
    let id = create_job_with_budget(&mut stage, 1);
    for _ in 0..10 {
        let lease = stage.lease(id, "w1");
        stage.yield_job(&lease).expect_ok();
        assert_eq!(stage.state(id), "PENDING");
        assert_eq!(stage.field(id, "failures"), 0);
        assert_backoff(&stage, id, 0);
        stage.advance("1s");
    }
    assert_eq!(stage.field(id, "yields"), 10);
}

/// EXE-7, EXE-11
#[test]
fn yields_over_one_hundred_count_as_failures() {
    let mut stage = new_simulator();
    let id = create_job_with_budget(&mut stage, 2);
    for yield_count in 1..=102 {
        let lease = stage.lease(id, "w1");
        stage.yield_job(&lease).expect_ok();
        let expected_state = if yield_count < 102 { "PENDING" } else { "FAILED" };
        assert_eq!(stage.state(id), expected_state, "after yield {yield_count}");
        stage.advance("1m");
    }
    assert_eq!(stage.field(id, "yields"), 100);
    assert_eq!(stage.field(id, "failures"), 2);
}

/// EXE-11
#[test]
fn last_error_is_truncated_and_cleared_on_success() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "HICCUP").retryable(true).message(&"é".repeat(1_001)).expect_ok();
    assert_eq!(stage.field(id, "lastError"), "é".repeat(1_000));
    stage.advance("2s");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).expect_ok();
    assert_eq!(stage.field(id, "lastError"), json!(null));
}

/// EXE-11: a job has no events other than its workers' reports.
#[test]
fn undeclared_event_is_refused() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    for event in ["cancel", "fail_now", "succeed"] {
        stage.fire(id, event, &user("alice")).expect_refusal(404, "unknown_event");
    }
}
