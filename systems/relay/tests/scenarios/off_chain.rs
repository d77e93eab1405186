//! REL-20, REL-6: which money leaves by a transaction, and which never does. A sender's bare word confirms nothing that came over
//! a chain.

use onceward_core::value::RecordId;
use onceward_testkit::{Stage, user};
use serde_json::{Value, json};

use super::{
    PRICE, WALLET, agent, alice, cancelled, confirm, depositor, fund, open, settlement, sign, signature, stage, total,
    trusted, tx, usdc, win, won,
};

/// A refund, asked for.
fn refund(stage: &mut Stage, job: RecordId) -> RecordId {
    stage.fire(job, "refund", &alice()).ok();
    settlement(stage, job, "refund")
}

/// No word of a sender confirms it; it stays where it is, goes back and is sent as ever.
#[track_caller]
fn wants_a_transaction(stage: &mut Stage, settlement: RecordId, nonce: i64) {
    let (held, outside) = (stage.hold(settlement), usdc(stage, "chain"));
    assert_eq!(stage.field(settlement, "on_chain"), true);
    let lease = stage.lease(settlement, "w1");
    stage.commit(&lease, json!({})).refused(409, "not_signed");
    stage.commit(&lease, json!({ "tx_hash": null })).refused(409, "not_signed");
    confirm(stage, &lease, nonce).refused(409, "not_signed");
    assert_eq!((stage.state(settlement).as_str(), stage.hold(settlement)), ("sending", held));
    stage.fail(&lease, "503").ok();
    stage.pass_for(stage.until(settlement, "ready_at"));
    let lease = stage.lease(settlement, "w2");
    sign(stage, &lease, nonce).ok();
    stage.commit(&lease, json!({})).refused(409, "another_transaction");
    assert_eq!((stage.hold(settlement), usdc(stage, "chain")), (held, outside), "nothing has moved");
    confirm(stage, &lease, nonce).ok();
    assert_eq!(stage.state(settlement), "confirmed");
    assert_eq!((stage.hold(settlement), usdc(stage, "chain")), (0, outside + held));
}

/// Nothing is signed for it and no transaction confirms it; the sender's word does.
#[track_caller]
fn wants_no_transaction(stage: &mut Stage, settlement: RecordId) {
    let (held, outside) = (stage.hold(settlement), usdc(stage, "chain"));
    assert_eq!(stage.field(settlement, "on_chain"), false);
    let lease = stage.lease(settlement, "w1");
    sign(stage, &lease, 1).refused(409, "off_chain");
    confirm(stage, &lease, 1).refused(409, "off_chain");
    assert_eq!((stage.state(settlement).as_str(), stage.hold(settlement)), ("sending", held));
    stage.commit(&lease, json!({})).ok();
    assert_eq!((stage.state(settlement).as_str(), stage.field(settlement, "tx_hash")), ("confirmed", Value::Null));
    assert_eq!((stage.hold(settlement), usdc(stage, "chain")), (0, outside + held));
}

/// REL-20, REL-18: a payout of money that came over a chain is confirmed by the signed transaction alone.
#[test]
fn a_payout_wants_its_transaction() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    let payout = settlement(&stage, job, "payout");
    wants_a_transaction(&mut stage, payout, 1);
}

/// REL-20, REL-21: so is what was paid above the price.
#[test]
fn an_overpayment_wants_its_transaction() {
    let mut stage = stage();
    let job = open(&mut stage);
    fund(&mut stage, job, &tx(1, PRICE + 5)).ok();
    win(&mut stage, job, "bob");
    let overpaid = settlement(&stage, job, "overpaid");
    wants_a_transaction(&mut stage, overpaid, 1);
}

/// REL-20, REL-6, REL-7: so is a refund, and no mark says that it was sent before it was; also of a deposit that came after
/// the job was cancelled.
#[test]
fn a_refund_wants_its_transaction() {
    let mut stage = stage();
    let late = open(&mut stage);
    stage.fire(late, "cancel", &alice()).ok();
    fund(&mut stage, late, &tx(9, PRICE)).ok();
    for (nonce, job) in [(1, cancelled(&mut stage)), (2, late)] {
        let refund = refund(&mut stage, job);
        let lease = stage.lease(refund, "w1");
        stage.commit(&lease, json!({})).refused(409, "not_signed");
        assert_eq!(stage.field(job, "refund_tx_hash"), "pending");
        stage.give_back(&lease).ok();
        stage.pass_for(stage.until(refund, "ready_at"));
        wants_a_transaction(&mut stage, refund, nonce);
        assert_eq!(stage.field(job, "refund_tx_hash"), signature(nonce)["tx_hash"]);
    }
    assert_eq!((usdc(&stage, "chain"), total(&stage)), (0, 0));
}

/// REL-20, REL-6, REL-7: what was taken on trust goes back without a transaction, and the mark says `off-chain`; also where the
/// job had been cancelled before.
#[test]
fn a_refund_off_chain() {
    let mut stage = stage();
    let job = trusted(&mut stage);
    stage.fire(job, "cancel", &alice()).ok();
    let late = open(&mut stage);
    stage.fire(late, "cancel", &alice()).ok();
    fund(&mut stage, late, &super::on_trust(77)).ok();
    for job in [job, late] {
        let refund = refund(&mut stage, job);
        wants_no_transaction(&mut stage, refund);
        assert_eq!(stage.field(job, "refund_tx_hash"), "off-chain");
    }
    assert_eq!((usdc(&stage, "chain"), depositor(&stage), total(&stage)), (0, 0, 0));
}

/// REL-20, REL-18: a payout out of a deposit taken on trust is confirmed without a signature, and by no transaction.
#[test]
fn a_payout_off_chain() {
    let mut stage = stage();
    let job = trusted(&mut stage);
    win(&mut stage, job, "bob");
    let payout = settlement(&stage, job, "payout");
    wants_no_transaction(&mut stage, payout);
    assert_eq!((usdc(&stage, "chain"), total(&stage)), (-2_000_000, 0));
}

/// REL-20, REL-18: winnings that waited for a wallet want a transaction as soon as any part of them came over a chain, in
/// whatever order; once they have left, what comes later is judged by itself.
#[test]
fn what_waited_goes_as_it_came() {
    for (deposits, on_chain) in
        [(&[false, false][..], false), (&[true][..], true), (&[true, false][..], true), (&[false, true][..], true)]
    {
        let mut stage = stage();
        for over_a_chain in deposits {
            let job = if *over_a_chain { super::funded(&mut stage) } else { trusted(&mut stage) };
            win(&mut stage, job, "dave");
        }
        let dave = agent(&stage, "dave");
        assert_eq!(stage.field(dave, "on_chain"), on_chain, "{deposits:?}");
        stage.fire(dave, "edit", &user("dave")).with("wallet", WALLET).ok();
        let payout = stage.all("relay.settlement")[0].id;
        if on_chain {
            wants_a_transaction(&mut stage, payout, 1);
        } else {
            wants_no_transaction(&mut stage, payout);
        }
        assert_eq!(stage.field(dave, "on_chain"), false, "nothing waits");
        let job = trusted(&mut stage);
        win(&mut stage, job, "dave");
        let payout = settlement(&stage, job, "payout");
        wants_no_transaction(&mut stage, payout);
        assert_eq!(total(&stage), 0);
    }
}
