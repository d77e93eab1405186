//! REL-6, REL-7, REL-8: the deposit goes back to where it came from, once.

use onceward_testkit::{operator, user};
use serde_json::{Value, json};

use super::{
    DEPOSITOR, PRICE, alice, cancelled, confirm, depositor, expired, fund, open, settlement, sign, signature, stage,
    total, tx, usdc,
};

/// REL-6, REL-18, REL-20: an expired and a cancelled job are refunded alike: the mark is `pending` while the money is on its
/// way, and then the transaction. The state does not change.
#[test]
fn a_refund_goes_its_way() {
    for end in [expired, cancelled] {
        let mut stage = stage();
        let job = end(&mut stage);
        let end_state = stage.state(job);
        assert_eq!((stage.field(job, "refund_tx_hash"), depositor(&stage)), (Value::Null, PRICE));
        stage.fire(job, "refund", &alice()).ok();
        let refund = settlement(&stage, job, "refund");
        assert_eq!(stage.field(job, "refund_tx_hash"), "pending");
        assert_eq!((depositor(&stage), stage.hold(refund), usdc(&stage, "chain")), (0, PRICE, -PRICE));
        assert_eq!((stage.field(refund, "address"), stage.field(refund, "amount")), (json!(DEPOSITOR), json!(PRICE)));
        let lease = stage.lease(refund, "w1");
        sign(&mut stage, &lease, 4).ok();
        assert_eq!(stage.field(job, "refund_tx_hash"), "pending", "signed is not sent");
        confirm(&mut stage, &lease, 4).ok();
        assert_eq!(stage.field(job, "refund_tx_hash"), signature(4)["tx_hash"]);
        assert_eq!(stage.state(job), end_state);
        assert_eq!((stage.hold(refund), usdc(&stage, "chain"), total(&stage)), (0, 0, 0));
    }
}

/// REL-6: asked twice, it is made once; and asked again when it is done, too. At once: crates/engine/tests/engine/relay.rs.
#[test]
fn a_refund_asked_twice() {
    for end in [expired, cancelled] {
        let mut stage = stage();
        let job = end(&mut stage);
        stage.fire(job, "refund", &alice()).ok();
        stage.fire(job, "refund", &alice()).refused(409, "already_refunded");
        let refund = settlement(&stage, job, "refund");
        super::settle(&mut stage, refund, 1);
        stage.fire(job, "refund", &alice()).refused(409, "already_refunded");
        assert_eq!(stage.all("relay.settlement").len(), 1);
    }
}

/// REL-6, REL-19: the whole deposit returns, also what was above the price.
#[test]
fn an_overpaid_deposit_returns_whole() {
    let mut stage = stage();
    let job = open(&mut stage);
    fund(&mut stage, job, &tx(1, PRICE + 77)).ok();
    stage.fire(job, "cancel", &alice()).ok();
    stage.fire(job, "refund", &alice()).ok();
    assert_eq!(stage.hold(settlement(&stage, job, "refund")), PRICE + 77);
}

/// REL-6: one depositor's jobs do not get into each other's refunds.
#[test]
fn each_job_returns_its_own() {
    let mut stage = stage();
    let small = open(&mut stage);
    fund(&mut stage, small, &tx(1, PRICE)).ok();
    let large = open(&mut stage);
    fund(&mut stage, large, &tx(2, 3 * PRICE)).ok();
    for job in [small, large] {
        stage.fire(job, "cancel", &alice()).ok();
    }
    assert_eq!(depositor(&stage), 4 * PRICE);
    stage.fire(large, "refund", &alice()).ok();
    assert_eq!(depositor(&stage), PRICE);
    stage.fire(small, "refund", &alice()).ok();
    assert_eq!(depositor(&stage), 0);
}

/// REL-7, REL-6: what could not be sent stays pending, and is tried until it is confirmed, however often that is.
#[test]
fn a_refund_is_tried_until_it_is_confirmed() {
    let mut stage = stage();
    let job = expired(&mut stage);
    stage.fire(job, "refund", &alice()).ok();
    let refund = settlement(&stage, job, "refund");
    for tries in 1..=50 {
        let lease = stage.lease(refund, "w1");
        stage.fail(&lease, "503").retryable(false).ok();
        assert_eq!((stage.state(refund).as_str(), stage.field(refund, "tries")), ("due", json!(tries)));
        assert_eq!((stage.field(job, "refund_tx_hash"), stage.hold(refund)), (json!("pending"), PRICE));
        stage.pass_for(stage.until(refund, "ready_at"));
    }
    super::settle(&mut stage, refund, 9);
    assert_eq!(stage.field(job, "refund_tx_hash"), signature(9)["tx_hash"]);
}

/// REL-7: a job that was never funded has nothing to refund, and one that resolved or runs is none to ask for it.
#[test]
fn nothing_to_refund() {
    let mut stage = stage();
    let job = open(&mut stage);
    stage.fire(job, "refund", &alice()).wrong_state("open", "refund");
    stage.fire(job, "cancel", &alice()).ok();
    stage.fire(job, "refund", &alice()).refused(400, "nothing_to_refund");
    let job = super::funded(&mut stage);
    stage.fire(job, "refund", &alice()).wrong_state("funded", "refund");
    let job = super::won(&mut stage, "bob");
    stage.fire(job, "refund", &alice()).wrong_state("resolved", "refund");
}

/// REL-8, REL-6: only the buyer asks for it, and nobody but the settlement says that it was sent.
#[test]
fn only_the_buyer_asks() {
    let mut stage = stage();
    let job = expired(&mut stage);
    for who in [user("bob"), user("mallory"), operator("olga")] {
        stage.fire(job, "refund", &who).not_allowed();
    }
    for who in [alice(), operator("olga")] {
        stage.fire(job, "refund_sent", &who).with("tx_hash", "off-chain").not_allowed();
    }
}
