//! REL-2, REL-5, REL-8: the buyer withdraws.

use onceward_testkit::{operator, user};

use super::{PRICE, alice, cancelled, claim, depositor, funded, judged, open, stage, submitted, total, usdc, verdict};

/// REL-2, REL-7: an open job is cancelled and leaves nothing to refund.
#[test]
fn an_open_job_is_cancelled() {
    let mut stage = stage();
    let job = open(&mut stage);
    stage.fire(job, "cancel", &alice()).ok();
    assert_eq!((stage.state(job).as_str(), usdc(&stage, "chain")), ("cancelled", 0));
    assert!(stage.record(job).is_final());
    stage.fire(job, "refund", &alice()).refused(400, "nothing_to_refund");
    assert_eq!(stage.field(job, "refund_tx_hash"), serde_json::json!(null));
}

/// REL-5, REL-18, REL-21: a funded job that nobody is judged for is cancelled, and the escrow stands to the depositor's credit
/// at once, before any refund.
#[test]
fn a_funded_job_is_cancelled() {
    let mut stage = stage();
    let job = funded(&mut stage);
    claim(&mut stage, job, "bob").ok();
    let lease = judged(&mut stage, job, "bob");
    stage.commit(&lease, verdict(10)).ok();
    stage.fire(job, "cancel", &alice()).ok();
    assert_eq!(stage.state(job), "cancelled");
    assert!(stage.record(job).is_final());
    assert_eq!((stage.hold(job), depositor(&stage), total(&stage)), (0, PRICE, 0));
    assert_eq!(stage.field(lease.record, "reason"), "below_threshold", "what had failed keeps its reason");
}

/// REL-5: not while any submission is judged, whether an oracle has begun or not.
#[test]
fn not_while_somebody_is_judged() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let unread = submitted(&mut stage, job, "bob");
    stage.fire(job, "cancel", &alice()).refused(409, "judging");
    let lease = stage.lease(unread, "w1");
    stage.fire(job, "cancel", &alice()).refused(409, "judging");
    assert_eq!((stage.state(job).as_str(), stage.state(unread).as_str()), ("funded", "judging"));
    stage.fail(&lease, "500").ok();
    stage.fire(job, "cancel", &alice()).ok();
}

/// REL-5, REL-3: a cancel and a pass at the same moment: whichever is first, the other finds things changed.
#[test]
fn a_cancel_after_the_win_is_too_late() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let lease = judged(&mut stage, job, "bob");
    stage.commit(&lease, verdict(80)).ok();
    stage.fire(job, "cancel", &alice()).wrong_state("resolved", "cancel");
}

/// REL-8, REL-2, REL-5: only the buyer cancels.
#[test]
fn only_the_buyer_cancels() {
    let mut stage = stage();
    for job in [open(&mut stage), funded(&mut stage)] {
        for who in [user("bob"), user("mallory"), operator("olga")] {
            stage.fire(job, "cancel", &who).not_allowed();
        }
    }
}

/// REL-5: a cancelled job stays so.
#[test]
fn cancelled_is_an_end() {
    let mut stage = stage();
    let job = cancelled(&mut stage);
    stage.pass("2d");
    assert_eq!(stage.state(job), "cancelled");
    for event in ["cancel", "claim", "unclaim"] {
        stage.fire(job, event, &alice()).wrong_state("cancelled", event);
    }
}
