//! REL-3: the first passing verdict wins, in one operation.

use onceward_core::value::RecordId;
use onceward_testkit::{SimulatedLease, Simulator};
use serde_json::{Value, json};

use super::{
    JOB_PRICE_MICRO_USDC, account_balance, claim_and_submit, completion_rate, create_funded_job, create_open_job,
    depositor_balance, find_agent, find_settlement, fund_job, lease_submission, new_simulator, total_balance, tx_hash,
    verdict,
};

/// REL-3, REL-13, REL-18: winner, result, payout, fee, completion rate and the end of all other submissions.
#[test]
fn passing_verdict_resolves_job_in_one_operation() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let winner = lease_submission(&mut stage, job, "bob");
    let rival = lease_submission(&mut stage, job, "carol");
    let unleased = claim_and_submit(&mut stage, job, "dave");
    let changes = stage.commit(&winner, verdict(80)).expect_changes();
    assert_eq!(changes.records.len(), 6, "two failed submissions, one passed; job, agent and settlement");
    assert_eq!((stage.state(job).as_str(), stage.state(winner.record).as_str()), ("resolved", "passed"));
    assert_eq!(stage.field(job, "winner_id"), "bob");
    assert_eq!(stage.field(job, "result_data"), winner.record.to_string());
    assert_eq!((stage.field(winner.record, "score"), stage.field(winner.record, "reason")), (json!(80), Value::Null));
    for other in [rival.record, unleased] {
        assert_eq!(stage.state(other), "failed");
        assert_eq!(stage.field(other, "reason"), "another_won");
    }
    let payout = find_settlement(&stage, job, "payout");
    assert_eq!(
        (stage.hold_balance(job), stage.hold_balance(payout), account_balance(&stage, "fee")),
        (0, 8_000_000, 2_000_000)
    );
    assert_eq!((completion_rate(&stage, "bob"), completion_rate(&stage, "carol")), (json!(1.0), json!(0.0)));
}

/// Asserts that the first verdict resolves the job and the second changes nothing.
#[track_caller]
fn assert_first_wins(stage: &mut Simulator, job: RecordId, first: &SimulatedLease, second: &SimulatedLease) {
    stage.commit(first, verdict(81)).expect_ok();
    stage.commit(second, verdict(100)).expect_lease_lost();
    assert_eq!(stage.field(job, "result_data"), first.record.to_string());
    assert_eq!((stage.state(first.record).as_str(), stage.state(second.record).as_str()), ("passed", "failed"));
    assert_eq!(stage.field(second.record, "reason"), "another_won");
    assert_eq!(stage.field(second.record, "score"), Value::Null, "a late verdict changes nothing");
    find_settlement(stage, job, "payout");
    assert_eq!(account_balance(stage, "fee"), JOB_PRICE_MICRO_USDC - JOB_PRICE_MICRO_USDC * 80 / 100, "paid once");
}

/// REL-3, REL-12: in either order.
#[test]
fn first_of_two_passing_verdicts_wins() {
    for is_swapped in [false, true] {
        let mut stage = new_simulator();
        let job = create_funded_job(&mut stage);
        let bob = lease_submission(&mut stage, job, "bob");
        let carol = lease_submission(&mut stage, job, "carol");
        let (first, second) = if is_swapped { (carol, bob) } else { (bob, carol) };
        assert_first_wins(&mut stage, job, &first, &second);
        stage.advance("1s");
        stage.commit(&second, verdict(100)).expect_lease_lost();
    }
}

/// REL-3, REL-12: one operation right after the other. In one batch: crates/engine/tests/engine/relay.rs.
#[test]
fn first_of_two_simultaneous_verdicts_wins() {
    for is_swapped in [false, true] {
        let mut stage = new_simulator();
        let job = create_funded_job(&mut stage);
        let submissions = [claim_and_submit(&mut stage, job, "bob"), claim_and_submit(&mut stage, job, "bob")];
        let [older, newer] = submissions.map(|submission| stage.lease(submission, "w1"));
        let now = stage.now();
        let (first, second) = if is_swapped { (newer, older) } else { (older, newer) };
        assert_first_wins(&mut stage, job, &first, &second);
        assert_eq!(stage.now(), now);
        assert_eq!(stage.field(find_agent(&stage, "bob"), "passed"), 1, "one win, although both are Bob's");
    }
}

/// REL-12
#[test]
fn repeated_verdict_pays_once() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let lease = lease_submission(&mut stage, job, "bob");
    stage.commit(&lease, verdict(90)).expect_ok();
    stage.commit(&lease, verdict(90)).expect_repeated();
    assert_eq!((stage.records_of("relay.settlement").len(), account_balance(&stage, "fee")), (1, 2_000_000));
}

/// REL-3, REL-18: 80 percent of a price that does not divide evenly.
#[test]
fn payout_is_rounded_down_and_fee_is_the_rest() {
    for (price, worker, fee) in [
        (1_000_003, 800_002, 200_001),
        (100_000, 80_000, 20_000),
        (100_001, 80_000, 20_001),
        (100_004, 80_003, 20_001),
        (1_000_000_000_000, 800_000_000_000, 200_000_000_000),
    ] {
        let mut stage = new_simulator();
        let job = super::post_job(&mut stage).with("price", price).expect_ok();
        super::fund_exactly(&mut stage, job);
        let lease = lease_submission(&mut stage, job, "bob");
        stage.commit(&lease, verdict(80)).expect_ok();
        let payout = find_settlement(&stage, job, "payout");
        assert_eq!((stage.field(payout, "amount"), account_balance(&stage, "fee")), (json!(worker), fee), "{price}");
        assert_eq!(worker + fee, price);
        assert_eq!((stage.hold_balance(job), depositor_balance(&stage), total_balance(&stage)), (0, 0, 0));
    }
}

/// REL-21, REL-19, REL-18: worker and fee share only the price.
#[test]
fn overpayment_returns_to_depositor_on_resolve() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC + 123)).expect_ok();
    assert_eq!(
        (stage.hold_balance(job), stage.field(job, "deposit")),
        (JOB_PRICE_MICRO_USDC + 123, json!(JOB_PRICE_MICRO_USDC + 123))
    );
    let lease = lease_submission(&mut stage, job, "bob");
    stage.commit(&lease, verdict(80)).expect_ok();
    let (payout, overpaid) = (find_settlement(&stage, job, "payout"), find_settlement(&stage, job, "overpaid"));
    assert_eq!(
        (stage.hold_balance(payout), stage.hold_balance(overpaid), account_balance(&stage, "fee")),
        (8_000_000, 123, 2_000_000)
    );
    assert_eq!(stage.field(overpaid, "address"), super::DEPOSITOR_ADDRESS);
    super::send_settlement(&mut stage, overpaid, 1);
    super::send_settlement(&mut stage, payout, 2);
    assert_eq!(
        (account_balance(&stage, "chain"), depositor_balance(&stage), total_balance(&stage)),
        (-2_000_000, 0, 0),
        "only the fee stays"
    );
}

/// REL-12, REL-4: also before the scheduler has expired the job.
#[test]
fn verdict_after_expiry_changes_nothing() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    stage.advance("86370s");
    let lease = lease_submission(&mut stage, job, "bob");
    stage.advance_without_engine("30s");
    stage.commit(&lease, verdict(100)).expect_lease_lost();
    assert_eq!((stage.state(job).as_str(), stage.state(lease.record).as_str()), ("expired", "failed"));
    assert_eq!(stage.field(lease.record, "reason"), "job_expired");
    assert_eq!((depositor_balance(&stage), account_balance(&stage, "fee")), (JOB_PRICE_MICRO_USDC, 0));
}

/// REL-3
#[test]
fn verdict_just_before_expiry_wins() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    stage.advance("86370s");
    let lease = lease_submission(&mut stage, job, "bob");
    stage.advance_without_engine_by(onceward_core::time::Duration::from_micros(30_000_000 - 1));
    stage.commit(&lease, verdict(100)).expect_ok();
    stage.advance("1s");
    assert_eq!(stage.state(job), "resolved");
}

/// REL-12, REL-5: the job could be cancelled because the submission had failed.
#[test]
fn verdict_after_cancel_changes_nothing() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let lease = lease_submission(&mut stage, job, "bob");
    stage.fire(job, "cancel", &super::alice()).expect_refusal(409, "judging");
    stage.lose_lease(&lease).expect_ok();
    stage.fire(job, "cancel", &super::alice()).expect_ok();
    stage.commit(&lease, verdict(100)).expect_lease_lost();
    assert_eq!((stage.state(job).as_str(), stage.field(lease.record, "reason")), ("cancelled", json!("restarted")));
    assert_eq!((depositor_balance(&stage), account_balance(&stage, "fee")), (JOB_PRICE_MICRO_USDC, 0));
}

/// REL-3
#[test]
fn resolve_by_caller_and_events_after_resolve_are_refused() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let submission = claim_and_submit(&mut stage, job, "bob");
    for caller in [super::alice(), onceward_testkit::user("bob"), onceward_testkit::operator("olga")] {
        stage.fire(job, "resolve", &caller).with("submission", submission.to_string()).expect_not_allowed();
    }
    let lease = stage.lease(submission, "w1");
    stage.commit(&lease, verdict(100)).expect_ok();
    assert!(stage.record(job).is_final());
    stage.advance("2d");
    assert_eq!(stage.state(job), "resolved");
    for event in ["cancel", "refund", "claim", "unclaim"] {
        stage.fire(job, event, &super::alice()).expect_wrong_state("resolved", event);
    }
}
