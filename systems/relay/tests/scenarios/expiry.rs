//! REL-4: a job whose time is over.

use onceward_core::time::Duration;

use super::{PRICE, alice, claim, depositor, expired, funded, judged, stage, submitted, total, usdc, verdict};

/// REL-4, REL-12, REL-18, REL-21: at its expiry, to the microsecond, the job expires by itself: all that was judged has
/// failed, and the escrow stands to the depositor's credit.
#[test]
fn a_job_expires_on_time() {
    let mut stage = stage();
    let job = funded(&mut stage);
    stage.pass("86370s");
    let unread = submitted(&mut stage, job, "bob");
    let read = judged(&mut stage, job, "carol");
    stage.pass_for(Duration::from_micros(30_000_000 - 1));
    assert_eq!((stage.state(job).as_str(), stage.hold(job)), ("funded", PRICE));
    stage.pass_for(Duration::from_micros(1));
    assert_eq!(stage.state(job), "expired");
    for submission in [unread, read.record] {
        assert_eq!(stage.state(submission), "failed");
        assert_eq!(stage.field(submission, "reason"), "job_expired");
    }
    assert_eq!((stage.hold(job), depositor(&stage), usdc(&stage, "fee"), total(&stage)), (0, PRICE, 0, 0));
}

/// REL-4: nobody finds an overdue job funded, even if nothing was awake to expire it.
#[test]
fn nobody_sees_an_overdue_job_funded() {
    let mut stage = stage();
    let job = funded(&mut stage);
    claim(&mut stage, job, "bob").ok();
    stage.doze("1d");
    stage.fire(job, "cancel", &alice()).wrong_state("expired", "cancel");
    assert_eq!((stage.state(job).as_str(), depositor(&stage)), ("expired", PRICE));
}

/// REL-4: an expired job stays so, and nothing but its refund can still happen.
#[test]
fn expired_is_an_end() {
    let mut stage = stage();
    let job = expired(&mut stage);
    assert!(stage.record(job).is_final());
    for event in ["cancel", "claim", "unclaim"] {
        stage.fire(job, event, &alice()).wrong_state("expired", event);
    }
    let expiry = super::later(&stage, "1d");
    stage.fire(job, "edit", &alice()).with("expiry", expiry).wrong_state("expired", "edit");
    super::submit(&mut stage, job, "bob").refused(409, "job_not_funded");
}

/// REL-4, REL-3: a job that resolved in time does not expire later.
#[test]
fn a_resolved_job_does_not_expire() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let lease = judged(&mut stage, job, "bob");
    stage.commit(&lease, verdict(80)).ok();
    stage.pass("2d");
    assert_eq!((stage.state(job).as_str(), depositor(&stage)), ("resolved", 0));
}
