//! REL-4: expiry of jobs.

use onceward_core::time::Duration;

use super::{
    JOB_PRICE_MICRO_USDC, account_balance, alice, claim_and_submit, claim_job, create_expired_job, create_funded_job,
    depositor_balance, lease_submission, new_simulator, total_balance, verdict,
};

/// REL-4, REL-12, REL-18, REL-21: to the microsecond; submissions in judging fail, and the escrow is credited to the
/// depositor.
#[test]
fn funded_job_expires_exactly_at_expiry() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    stage.advance("86370s");
    let unleased_submission = claim_and_submit(&mut stage, job, "bob");
    let leased_submission = lease_submission(&mut stage, job, "carol");
    stage.advance_by(Duration::from_micros(30_000_000 - 1));
    assert_eq!((stage.state(job).as_str(), stage.hold_balance(job)), ("funded", JOB_PRICE_MICRO_USDC));
    stage.advance_by(Duration::from_micros(1));
    assert_eq!(stage.state(job), "expired");
    for submission in [unleased_submission, leased_submission.record] {
        assert_eq!(stage.state(submission), "failed");
        assert_eq!(stage.field(submission, "reason"), "job_expired");
    }
    assert_eq!(
        (stage.hold_balance(job), depositor_balance(&stage), account_balance(&stage, "fee"), total_balance(&stage)),
        (0, JOB_PRICE_MICRO_USDC, 0, 0)
    );
}

/// REL-4
#[test]
fn overdue_job_reads_as_expired_without_scheduler() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    claim_job(&mut stage, job, "bob").expect_ok();
    stage.advance_without_engine("1d");
    stage.fire(job, "cancel", &alice()).expect_wrong_state("expired", "cancel");
    assert_eq!((stage.state(job).as_str(), depositor_balance(&stage)), ("expired", JOB_PRICE_MICRO_USDC));
}

/// REL-4: except for its refund.
#[test]
fn event_on_expired_job_is_refused() {
    let mut stage = new_simulator();
    let job = create_expired_job(&mut stage);
    assert!(stage.record(job).is_final());
    for event in ["cancel", "claim", "unclaim"] {
        stage.fire(job, event, &alice()).expect_wrong_state("expired", event);
    }
    let expiry = super::time_from_now(&stage, "1d");
    stage.fire(job, "edit", &alice()).with("expiry", expiry).expect_wrong_state("expired", "edit");
    super::submit_work(&mut stage, job, "bob").expect_refusal(409, "job_not_funded");
}

/// REL-4, REL-3
#[test]
fn resolved_job_does_not_expire() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let lease = lease_submission(&mut stage, job, "bob");
    stage.commit(&lease, verdict(80)).expect_ok();
    stage.advance("2d");
    assert_eq!((stage.state(job).as_str(), depositor_balance(&stage)), ("resolved", 0));
}
