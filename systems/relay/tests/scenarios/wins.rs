//! REL-3: the first pass wins, in one operation, and no other ever does.

use onceward_core::value::RecordId;
use onceward_testkit::{Lease, Stage};
use serde_json::{Value, json};

use super::{
    PRICE, agent, depositor, fund, funded, judged, open, rate, settlement, stage, submitted, total, tx, usdc, verdict,
};

/// REL-3, REL-13, REL-18: a pass resolves the job: winner, result, payout, fee, reputation and the end of all other
/// submissions, in one operation.
#[test]
fn a_pass_wins_everything_at_once() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let winner = judged(&mut stage, job, "bob");
    let rival = judged(&mut stage, job, "carol");
    let unread = submitted(&mut stage, job, "dave");
    let changes = stage.commit(&winner, verdict(80)).changes();
    assert_eq!(changes.records.len(), 6, "two submissions failed, one passed; job, agent and settlement");
    assert_eq!((stage.state(job).as_str(), stage.state(winner.record).as_str()), ("resolved", "passed"));
    assert_eq!(stage.field(job, "winner_id"), "bob");
    assert_eq!(stage.field(job, "result_data"), winner.record.to_string());
    assert_eq!((stage.field(winner.record, "score"), stage.field(winner.record, "reason")), (json!(80), Value::Null));
    for other in [rival.record, unread] {
        assert_eq!(stage.state(other), "failed");
        assert_eq!(stage.field(other, "reason"), "another_won");
    }
    let payout = settlement(&stage, job, "payout");
    assert_eq!((stage.hold(job), stage.hold(payout), usdc(&stage, "fee")), (0, 8_000_000, 2_000_000));
    assert_eq!((rate(&stage, "bob"), rate(&stage, "carol")), (json!(1.0), json!(0.0)));
}

/// The job is resolved by the first of these, and the second has lost.
#[track_caller]
fn first_wins(stage: &mut Stage, job: RecordId, first: &Lease, second: &Lease) {
    stage.commit(first, verdict(81)).ok();
    stage.commit(second, verdict(100)).lease_lost();
    assert_eq!(stage.field(job, "result_data"), first.record.to_string());
    assert_eq!((stage.state(first.record).as_str(), stage.state(second.record).as_str()), ("passed", "failed"));
    assert_eq!(stage.field(second.record, "reason"), "another_won");
    assert_eq!(stage.field(second.record, "score"), Value::Null, "a late verdict leaves no trace");
    settlement(stage, job, "payout");
    assert_eq!(usdc(stage, "fee"), PRICE - PRICE * 80 / 100, "paid once");
}

/// REL-3, REL-12: two pass, in either order: who comes first wins, and the other verdict changes nothing.
#[test]
fn two_pass_in_either_order() {
    for swapped in [false, true] {
        let mut stage = stage();
        let job = funded(&mut stage);
        let bob = judged(&mut stage, job, "bob");
        let carol = judged(&mut stage, job, "carol");
        let (first, second) = if swapped { (carol, bob) } else { (bob, carol) };
        first_wins(&mut stage, job, &first, &second);
        stage.pass("1s");
        stage.commit(&second, verdict(100)).lease_lost();
    }
}

/// REL-3, REL-12: two pass at one moment, one operation upon the other. In one batch: crates/engine/tests/engine/relay.rs.
#[test]
fn two_pass_at_one_moment() {
    for swapped in [false, true] {
        let mut stage = stage();
        let job = funded(&mut stage);
        let submissions = [submitted(&mut stage, job, "bob"), submitted(&mut stage, job, "bob")];
        let [older, newer] = submissions.map(|submission| stage.lease(submission, "w1"));
        let now = stage.now();
        let (first, second) = if swapped { (newer, older) } else { (older, newer) };
        first_wins(&mut stage, job, &first, &second);
        assert_eq!(stage.now(), now);
        assert_eq!(stage.field(agent(&stage, "bob"), "passed"), 1, "one win, though both were Bob's");
    }
}

/// REL-12: the winner's own word, said again, is the same answer and nothing more.
#[test]
fn a_verdict_told_twice_pays_once() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let lease = judged(&mut stage, job, "bob");
    stage.commit(&lease, verdict(90)).ok();
    stage.commit(&lease, verdict(90)).repeated();
    assert_eq!((stage.all("relay.settlement").len(), usdc(&stage, "fee")), (1, 2_000_000));
}

/// REL-3, REL-18: 80 and 20 of a price that does not divide: the worker's part is rounded down, the fee is the rest, and
/// nothing is left over.
#[test]
fn nothing_is_left_over() {
    for (price, worker, fee) in [
        (1_000_003, 800_002, 200_001),
        (100_000, 80_000, 20_000),
        (100_001, 80_000, 20_001),
        (100_004, 80_003, 20_001),
        (1_000_000_000_000, 800_000_000_000, 200_000_000_000),
    ] {
        let mut stage = stage();
        let job = super::post(&mut stage).with("price", price).ok();
        super::pay(&mut stage, job);
        let lease = judged(&mut stage, job, "bob");
        stage.commit(&lease, verdict(80)).ok();
        let payout = settlement(&stage, job, "payout");
        assert_eq!((stage.field(payout, "amount"), usdc(&stage, "fee")), (json!(worker), fee), "{price}");
        assert_eq!(worker + fee, price);
        assert_eq!((stage.hold(job), depositor(&stage), total(&stage)), (0, 0, 0));
    }
}

/// REL-21, REL-19, REL-18: what was paid above the price goes back to the depositor when the job resolves; worker and fee
/// share the price alone.
#[test]
fn an_overpayment_goes_back() {
    let mut stage = stage();
    let job = open(&mut stage);
    fund(&mut stage, job, &tx(1, PRICE + 123)).ok();
    assert_eq!((stage.hold(job), stage.field(job, "deposit")), (PRICE + 123, json!(PRICE + 123)));
    let lease = judged(&mut stage, job, "bob");
    stage.commit(&lease, verdict(80)).ok();
    let (payout, overpaid) = (settlement(&stage, job, "payout"), settlement(&stage, job, "overpaid"));
    assert_eq!((stage.hold(payout), stage.hold(overpaid), usdc(&stage, "fee")), (8_000_000, 123, 2_000_000));
    assert_eq!(stage.field(overpaid, "address"), super::DEPOSITOR);
    super::settle(&mut stage, overpaid, 1);
    super::settle(&mut stage, payout, 2);
    assert_eq!(
        (usdc(&stage, "chain"), depositor(&stage), total(&stage)),
        (-2_000_000, 0, 0),
        "the fee is all that stays"
    );
}

/// REL-12, REL-4: a verdict that comes after the expiry changes nothing, though nobody had noticed the expiry yet.
#[test]
fn a_verdict_after_expiry() {
    let mut stage = stage();
    let job = funded(&mut stage);
    stage.pass("86370s");
    let lease = judged(&mut stage, job, "bob");
    stage.doze("30s");
    stage.commit(&lease, verdict(100)).lease_lost();
    assert_eq!((stage.state(job).as_str(), stage.state(lease.record).as_str()), ("expired", "failed"));
    assert_eq!(stage.field(lease.record, "reason"), "job_expired");
    assert_eq!((depositor(&stage), usdc(&stage, "fee")), (PRICE, 0));
}

/// REL-3: in the last moment before the expiry it still wins.
#[test]
fn a_verdict_in_the_last_moment() {
    let mut stage = stage();
    let job = funded(&mut stage);
    stage.pass("86370s");
    let lease = judged(&mut stage, job, "bob");
    stage.doze_for(onceward_core::time::Duration::from_micros(30_000_000 - 1));
    stage.commit(&lease, verdict(100)).ok();
    stage.pass("1s");
    assert_eq!(stage.state(job), "resolved");
}

/// REL-12, REL-5: a verdict that comes after a cancel changes nothing. The job could be cancelled because the submission had
/// failed, and failed it stays.
#[test]
fn a_verdict_after_cancel() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let lease = judged(&mut stage, job, "bob");
    stage.fire(job, "cancel", &super::alice()).refused(409, "judging");
    stage.lost(&lease).ok();
    stage.fire(job, "cancel", &super::alice()).ok();
    stage.commit(&lease, verdict(100)).lease_lost();
    assert_eq!((stage.state(job).as_str(), stage.field(lease.record, "reason")), ("cancelled", json!("restarted")));
    assert_eq!((depositor(&stage), usdc(&stage, "fee")), (PRICE, 0));
}

/// REL-3: nobody resolves a job by hand, and resolved is an end.
#[test]
fn a_resolved_job_stays_resolved() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let submission = submitted(&mut stage, job, "bob");
    for who in [super::alice(), onceward_testkit::user("bob"), onceward_testkit::operator("olga")] {
        stage.fire(job, "resolve", &who).with("submission", submission.to_string()).not_allowed();
    }
    let lease = stage.lease(submission, "w1");
    stage.commit(&lease, verdict(100)).ok();
    assert!(stage.record(job).is_final());
    stage.pass("2d");
    assert_eq!(stage.state(job), "resolved");
    for event in ["cancel", "refund", "claim", "unclaim"] {
        stage.fire(job, event, &super::alice()).wrong_state("resolved", event);
    }
}
