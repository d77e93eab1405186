//! REL-20, REL-6: on-chain deposits leave only by a transaction, off-chain deposits without one.

use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, user};
use serde_json::{Value, json};

use super::{
    JOB_PRICE_MICRO_USDC, WALLET_ADDRESS, account_balance, alice, confirm_settlement, create_cancelled_job,
    create_open_job, create_trusted_job, create_won_job, depositor_balance, find_agent, find_settlement, fund_job,
    new_simulator, sign_settlement, signature_input, total_balance, tx_hash, win_job,
};

/// Requests a refund and returns its settlement.
fn request_refund(stage: &mut Simulator, job: RecordId) -> RecordId {
    stage.fire(job, "refund", &alice()).expect_ok();
    find_settlement(stage, job, "refund")
}

/// Asserts that a commit without a transaction is refused and that the settlement can then be sent as usual.
#[track_caller]
fn assert_needs_transaction(stage: &mut Simulator, settlement: RecordId, nonce: i64) {
    let (held, chain_balance) = (stage.hold_balance(settlement), account_balance(stage, "chain"));
    assert_eq!(stage.field(settlement, "on_chain"), true);
    let lease = stage.lease(settlement, "w1");
    stage.commit(&lease, json!({})).expect_refusal(409, "not_signed");
    stage.commit(&lease, json!({ "tx_hash": null })).expect_refusal(409, "not_signed");
    confirm_settlement(stage, &lease, nonce).expect_refusal(409, "not_signed");
    assert_eq!((stage.state(settlement).as_str(), stage.hold_balance(settlement)), ("sending", held));
    stage.fail(&lease, "503").expect_ok();
    stage.advance_by(stage.time_until(settlement, "ready_at"));
    let lease = stage.lease(settlement, "w2");
    sign_settlement(stage, &lease, nonce).expect_ok();
    stage.commit(&lease, json!({})).expect_refusal(409, "another_transaction");
    assert_eq!((stage.hold_balance(settlement), account_balance(stage, "chain")), (held, chain_balance), "no transfer");
    confirm_settlement(stage, &lease, nonce).expect_ok();
    assert_eq!(stage.state(settlement), "confirmed");
    assert_eq!((stage.hold_balance(settlement), account_balance(stage, "chain")), (0, chain_balance + held));
}

/// Asserts that a signature and a transaction are refused and that a commit without them confirms the settlement.
#[track_caller]
fn assert_needs_no_transaction(stage: &mut Simulator, settlement: RecordId) {
    let (held, chain_balance) = (stage.hold_balance(settlement), account_balance(stage, "chain"));
    assert_eq!(stage.field(settlement, "on_chain"), false);
    let lease = stage.lease(settlement, "w1");
    sign_settlement(stage, &lease, 1).expect_refusal(409, "off_chain");
    confirm_settlement(stage, &lease, 1).expect_refusal(409, "off_chain");
    assert_eq!((stage.state(settlement).as_str(), stage.hold_balance(settlement)), ("sending", held));
    stage.commit(&lease, json!({})).expect_ok();
    assert_eq!((stage.state(settlement).as_str(), stage.field(settlement, "tx_hash")), ("confirmed", Value::Null));
    assert_eq!((stage.hold_balance(settlement), account_balance(stage, "chain")), (0, chain_balance + held));
}

/// REL-20, REL-18
#[test]
fn payout_of_chain_deposit_requires_transaction() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    let payout = find_settlement(&stage, job, "payout");
    assert_needs_transaction(&mut stage, payout, 1);
}

/// REL-20, REL-21
#[test]
fn overpayment_of_chain_deposit_requires_transaction() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC + 5)).expect_ok();
    win_job(&mut stage, job, "bob");
    let overpaid = find_settlement(&stage, job, "overpaid");
    assert_needs_transaction(&mut stage, overpaid, 1);
}

/// REL-20, REL-6, REL-7: the job is not marked as refunded before; also for a deposit after the cancel.
#[test]
fn refund_of_chain_deposit_requires_transaction() {
    let mut stage = new_simulator();
    let late = create_open_job(&mut stage);
    stage.fire(late, "cancel", &alice()).expect_ok();
    fund_job(&mut stage, late, &tx_hash(9, JOB_PRICE_MICRO_USDC)).expect_ok();
    for (nonce, job) in [(1, create_cancelled_job(&mut stage)), (2, late)] {
        let refund = request_refund(&mut stage, job);
        let lease = stage.lease(refund, "w1");
        stage.commit(&lease, json!({})).expect_refusal(409, "not_signed");
        assert_eq!(stage.field(job, "refund_tx_hash"), "pending");
        stage.yield_job(&lease).expect_ok();
        stage.advance_by(stage.time_until(refund, "ready_at"));
        assert_needs_transaction(&mut stage, refund, nonce);
        assert_eq!(stage.field(job, "refund_tx_hash"), signature_input(nonce)["tx_hash"]);
    }
    assert_eq!((account_balance(&stage, "chain"), total_balance(&stage)), (0, 0));
}

/// REL-20, REL-6, REL-7: the refund is marked `off-chain`; also for a deposit after the cancel.
#[test]
fn refund_of_trusted_deposit_needs_no_transaction() {
    let mut stage = new_simulator();
    let job = create_trusted_job(&mut stage);
    stage.fire(job, "cancel", &alice()).expect_ok();
    let late = create_open_job(&mut stage);
    stage.fire(late, "cancel", &alice()).expect_ok();
    fund_job(&mut stage, late, &super::trusted_deposit_hash(77)).expect_ok();
    for job in [job, late] {
        let refund = request_refund(&mut stage, job);
        assert_needs_no_transaction(&mut stage, refund);
        assert_eq!(stage.field(job, "refund_tx_hash"), "off-chain");
    }
    assert_eq!((account_balance(&stage, "chain"), depositor_balance(&stage), total_balance(&stage)), (0, 0, 0));
}

/// REL-20, REL-18
#[test]
fn payout_of_trusted_deposit_needs_no_transaction() {
    let mut stage = new_simulator();
    let job = create_trusted_job(&mut stage);
    win_job(&mut stage, job, "bob");
    let payout = find_settlement(&stage, job, "payout");
    assert_needs_no_transaction(&mut stage, payout);
    assert_eq!((account_balance(&stage, "chain"), total_balance(&stage)), (-2_000_000, 0));
}

/// REL-20, REL-18: in any order of deposits. After the winnings have left, later ones are judged on their own.
#[test]
fn held_winnings_require_transaction_if_any_part_was_on_chain() {
    for (deposits, on_chain) in
        [(&[false, false][..], false), (&[true][..], true), (&[true, false][..], true), (&[false, true][..], true)]
    {
        let mut stage = new_simulator();
        for is_on_chain in deposits {
            let job = if *is_on_chain { super::create_funded_job(&mut stage) } else { create_trusted_job(&mut stage) };
            win_job(&mut stage, job, "dave");
        }
        let dave = find_agent(&stage, "dave");
        assert_eq!(stage.field(dave, "on_chain"), on_chain, "{deposits:?}");
        stage.fire(dave, "edit", &user("dave")).with("wallet", WALLET_ADDRESS).expect_ok();
        let payout = stage.records_of("relay.settlement")[0].id;
        if on_chain {
            assert_needs_transaction(&mut stage, payout, 1);
        } else {
            assert_needs_no_transaction(&mut stage, payout);
        }
        assert_eq!(stage.field(dave, "on_chain"), false, "nothing is held");
        let job = create_trusted_job(&mut stage);
        win_job(&mut stage, job, "dave");
        let payout = find_settlement(&stage, job, "payout");
        assert_needs_no_transaction(&mut stage, payout);
        assert_eq!(total_balance(&stage), 0);
    }
}
