//! REL-2, REL-5, REL-8: cancellation by the buyer.

use onceward_testkit::{operator, user};

use super::{
    JOB_PRICE_MICRO_USDC, account_balance, alice, claim_and_submit, claim_job, create_cancelled_job, create_funded_job,
    create_open_job, depositor_balance, lease_submission, new_simulator, total_balance, verdict,
};

/// REL-2, REL-7
#[test]
fn cancelled_open_job_has_nothing_to_refund() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    stage.fire(job, "cancel", &alice()).expect_ok();
    assert_eq!((stage.state(job).as_str(), account_balance(&stage, "chain")), ("cancelled", 0));
    assert!(stage.record(job).is_final());
    stage.fire(job, "refund", &alice()).expect_refusal(400, "nothing_to_refund");
    assert_eq!(stage.field(job, "refund_tx_hash"), serde_json::json!(null));
}

/// REL-5, REL-18, REL-21: at once, before any refund, if no submission is being judged.
#[test]
fn cancel_of_funded_job_credits_depositor() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    claim_job(&mut stage, job, "bob").expect_ok();
    let lease = lease_submission(&mut stage, job, "bob");
    stage.commit(&lease, verdict(10)).expect_ok();
    stage.fire(job, "cancel", &alice()).expect_ok();
    assert_eq!(stage.state(job), "cancelled");
    assert!(stage.record(job).is_final());
    assert_eq!(
        (stage.hold_balance(job), depositor_balance(&stage), total_balance(&stage)),
        (0, JOB_PRICE_MICRO_USDC, 0)
    );
    assert_eq!(stage.field(lease.record, "reason"), "below_threshold", "a failed submission keeps its reason");
}

/// REL-5: whether an oracle has leased the submission or not.
#[test]
fn cancel_while_judging_is_refused() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let submission = claim_and_submit(&mut stage, job, "bob");
    stage.fire(job, "cancel", &alice()).expect_refusal(409, "judging");
    let lease = stage.lease(submission, "w1");
    stage.fire(job, "cancel", &alice()).expect_refusal(409, "judging");
    assert_eq!((stage.state(job).as_str(), stage.state(submission).as_str()), ("funded", "judging"));
    stage.fail(&lease, "500").expect_ok();
    stage.fire(job, "cancel", &alice()).expect_ok();
}

/// REL-5, REL-3: if a cancel and a passing verdict coincide, the later one is refused.
#[test]
fn cancel_of_resolved_job_is_refused() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let lease = lease_submission(&mut stage, job, "bob");
    stage.commit(&lease, verdict(80)).expect_ok();
    stage.fire(job, "cancel", &alice()).expect_wrong_state("resolved", "cancel");
}

/// REL-8, REL-2, REL-5
#[test]
fn cancel_requires_buyer() {
    let mut stage = new_simulator();
    for job in [create_open_job(&mut stage), create_funded_job(&mut stage)] {
        for caller in [user("bob"), user("mallory"), operator("olga")] {
            stage.fire(job, "cancel", &caller).expect_not_allowed();
        }
    }
}

/// REL-5
#[test]
fn event_on_cancelled_job_is_refused() {
    let mut stage = new_simulator();
    let job = create_cancelled_job(&mut stage);
    stage.advance("2d");
    assert_eq!(stage.state(job), "cancelled");
    for event in ["cancel", "claim", "unclaim"] {
        stage.fire(job, event, &alice()).expect_wrong_state("cancelled", event);
    }
}
