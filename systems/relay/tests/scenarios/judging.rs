//! REL-12, REL-14, REL-21: judging of submissions and the ways to fail.

use onceward_core::time::Duration;
use serde_json::{Value, json};

use super::{
    alice, claim_and_submit, create_funded_job, depositor_balance, lease_submission, new_simulator, post_job, verdict,
};

/// REL-12, REL-16: with score, steps and reason; the job stays funded.
#[test]
fn score_below_threshold_fails_submission() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let lease = lease_submission(&mut stage, job, "bob");
    stage.commit(&lease, verdict(79)).expect_ok();
    assert_eq!(stage.state(lease.record), "failed");
    assert_eq!(stage.field(lease.record, "reason"), "below_threshold");
    assert_eq!(stage.field(lease.record, "score"), 79);
    assert_eq!(stage.field(lease.record, "steps"), verdict(79)["steps"]);
    assert_eq!((stage.state(job).as_str(), stage.hold_balance(job)), ("funded", super::JOB_PRICE_MICRO_USDC));
    let second_lease = lease_submission(&mut stage, job, "bob");
    stage.commit(&second_lease, verdict(80)).expect_ok();
    assert_eq!(stage.state(job), "resolved");
}

/// REL-3, REL-16: a score equal to the threshold passes.
#[test]
fn score_is_compared_with_job_threshold() {
    for (threshold, score, state) in [
        (80, 80, "passed"),
        (80, 79, "failed"),
        (95, 94, "failed"),
        (95, 95, "passed"),
        (100, 100, "passed"),
        (1, 0, "failed"),
    ] {
        let mut stage = new_simulator();
        let job = post_job(&mut stage).with("threshold", threshold).expect_ok();
        super::fund_exactly(&mut stage, job);
        let lease = lease_submission(&mut stage, job, "bob");
        stage.commit(&lease, verdict(score)).expect_ok();
        assert_eq!(stage.state(lease.record), state, "{score} at {threshold}");
    }
}

/// REL-12, REL-16: a verdict needs a score from 0 to 100 and its steps.
#[test]
fn invalid_verdict_is_rejected_and_can_be_retried() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let lease = lease_submission(&mut stage, job, "bob");
    for bad in [
        json!(null),
        json!({}),
        verdict(101),
        verdict(-1),
        json!({ "score": 99.5, "steps": [] }),
        json!({ "steps": [] }),
        json!({ "score": 100 }),
        json!({ "score": 100, "steps": "x".repeat(64 * 1024 - 1) }),
    ] {
        stage.commit(&lease, bad).expect_bad_input();
    }
    assert_eq!(stage.state(lease.record), "judging");
    let longest = json!("x".repeat(64 * 1024 - 2));
    stage.commit(&lease, json!({ "score": 100, "steps": longest })).expect_ok();
    assert_eq!(stage.field(lease.record, "steps"), longest);
}

/// REL-12, REL-15, REL-17: a blocked submission and an oracle error fail finally.
#[test]
fn oracle_failure_fails_submission_with_reason() {
    for (code, reason) in [("guard_blocked", "guard_blocked"), ("timeout", "oracle_error"), ("500", "oracle_error")] {
        let mut stage = new_simulator();
        let job = create_funded_job(&mut stage);
        let lease = lease_submission(&mut stage, job, "bob");
        stage.fail(&lease, code).retryable(true).expect_ok();
        assert_eq!(stage.state(lease.record), "failed");
        assert_eq!(stage.field(lease.record, "reason"), reason);
        assert_eq!(stage.field(lease.record, "score"), Value::Null);
        stage.try_lease(lease.record, "w2").expect_not_leasable();
        assert_eq!(stage.state(job), "funded");
    }
}

/// REL-14, REL-12: at once.
#[test]
fn lost_or_yielded_lease_fails_submission() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let lost = lease_submission(&mut stage, job, "bob");
    let yielded = lease_submission(&mut stage, job, "bob");
    let unleased = claim_and_submit(&mut stage, job, "bob");
    stage.lose_lease(&lost).expect_ok();
    stage.yield_job(&yielded).expect_ok();
    for lease in [&lost, &yielded] {
        assert_eq!(stage.state(lease.record), "failed");
        assert_eq!(stage.field(lease.record, "reason"), "restarted");
        stage.commit(lease, verdict(100)).expect_lease_lost();
    }
    assert_eq!(stage.state(unleased), "judging", "a submission without a lease stays in judging");
}

/// REL-14, REL-12: after one minute, as after a restart.
#[test]
fn oracle_without_heartbeat_fails_submission_after_lease() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let lease = lease_submission(&mut stage, job, "bob");
    stage.advance("50s");
    stage.heartbeat(&lease).expect_ok();
    stage.advance_by(Duration::from_micros(60_000_000 - 1));
    assert_eq!(stage.state(lease.record), "judging");
    stage.advance_by(Duration::from_micros(1));
    assert_eq!(stage.state(lease.record), "failed");
    assert_eq!(stage.field(lease.record, "reason"), "restarted");
}

/// REL-14
#[test]
fn submission_is_leased_to_one_oracle() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let lease = lease_submission(&mut stage, job, "bob");
    stage.try_lease(lease.record, "w2").expect_not_leasable();
    assert_eq!(stage.state(lease.record), "judging");
}

/// REL-21, REL-12: with a reason; the job can then be cancelled.
#[test]
fn unjudged_submission_fails_after_one_hour() {
    let mut stage = new_simulator();
    let job = post_job(&mut stage).with("expiry", Value::Null).expect_ok();
    super::fund_exactly(&mut stage, job);
    let submission = claim_and_submit(&mut stage, job, "bob");
    stage.advance_by(Duration::from_micros(3_600_000_000 - 1));
    assert_eq!(stage.state(submission), "judging");
    stage.fire(job, "cancel", &alice()).expect_refusal(409, "judging");
    stage.advance_by(Duration::from_micros(1));
    assert_eq!(stage.state(submission), "failed");
    assert_eq!(stage.field(submission, "reason"), "no_oracle");
    stage.fire(job, "cancel", &alice()).expect_ok();
    assert_eq!(depositor_balance(&stage), super::JOB_PRICE_MICRO_USDC);
}

/// REL-21
#[test]
fn cancel_after_judging_timeout_succeeds_without_scheduler() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let submission = claim_and_submit(&mut stage, job, "bob");
    stage.advance_without_engine("1h");
    stage.fire(job, "cancel", &alice()).expect_ok();
    assert_eq!(stage.field(submission, "reason"), "no_oracle");
    assert_eq!(stage.state(job), "cancelled");
}

/// REL-4, REL-12: even if both timers fire late.
#[test]
fn job_expiry_before_judging_timeout_sets_failure_reason() {
    let mut stage = new_simulator();
    let soon = stage.now().checked_add("30m".parse().expect("a duration")).expect("a time");
    let job = post_job(&mut stage).with("expiry", soon.to_string()).expect_ok();
    super::fund_exactly(&mut stage, job);
    let submission = claim_and_submit(&mut stage, job, "bob");
    stage.advance_without_engine("2h");
    stage.fire(job, "cancel", &alice()).expect_refusal(409, "wrong_state");
    assert_eq!((stage.state(job), stage.state(submission)), ("expired".into(), "failed".into()));
    assert_eq!(stage.field(submission, "reason"), "job_expired");
}

/// REL-21, REL-17, REL-12: an oracle that leases at the last moment has its full time, but heartbeats do not extend it.
#[test]
fn judging_time_is_bounded_despite_heartbeats() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let submission = claim_and_submit(&mut stage, job, "bob");
    stage.advance_by(Duration::from_micros(3_600_000_000 - 1));
    let lease = stage.lease(submission, "w1");
    for _ in 0..3 {
        stage.advance("40s");
        stage.heartbeat(&lease).expect_ok();
    }
    stage.advance_by(Duration::from_micros(30_000_000 - 1));
    assert_eq!(stage.state(submission), "judging");
    stage.advance_by(Duration::from_micros(1));
    assert_eq!(stage.state(submission), "failed");
    assert_eq!(stage.field(submission, "reason"), "oracle_error");
    stage.commit(&lease, verdict(100)).expect_lease_lost();
}

/// REL-12
#[test]
fn event_on_final_submission_is_refused() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let failed = lease_submission(&mut stage, job, "bob");
    stage.commit(&failed, verdict(1)).expect_ok();
    let passed = lease_submission(&mut stage, job, "bob");
    stage.commit(&passed, verdict(99)).expect_ok();
    for (lease, state) in [(failed, "failed"), (passed, "passed")] {
        assert!(stage.record(lease.record).is_final(), "{state} is declared final");
        stage.try_lease(lease.record, "w2").expect_not_leasable();
        stage.fail(&lease, "500").run().expect_refusal();
        stage
            .fire(lease.record, "discard", &alice())
            .with("reason", "job_expired")
            .expect_wrong_state(state, "discard");
        stage.advance("2d");
        assert_eq!(stage.state(lease.record), state);
    }
}
