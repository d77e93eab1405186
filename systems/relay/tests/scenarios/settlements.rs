//! REL-20: money that leaves. Signed, kept, sent, confirmed; and what happens to winnings with nowhere to go.

use onceward_core::time::Duration;
use onceward_testkit::{Stage, operator, systems, user, worker};
use serde_json::{Value, json};

use super::{
    DEPOSITOR, PRICE, WALLET, agent, cancelled, confirm, dressed, rate, settle, settlement, sign, signature, stage,
    total, usdc, won,
};

const OTHER_WALLET: &str = "0xBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB";

/// REL-20, REL-3, REL-18: a payout is a job of its own, for the winner's wallet; confirmed, it is on the chain.
#[test]
fn a_payout_is_sent() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    let payout = settlement(&stage, job, "payout");
    assert_eq!(stage.state(payout), "due");
    assert_eq!((stage.field(payout, "address"), stage.field(payout, "amount")), (json!(WALLET), json!(8_000_000)));
    assert_eq!(*stage.record(payout).owner, *"bob");
    let lease = stage.lease(payout, "w1");
    assert_eq!(stage.state(payout), "sending");
    sign(&mut stage, &lease, 1).ok();
    confirm(&mut stage, &lease, 1).ok();
    assert_eq!(stage.state(payout), "confirmed");
    assert!(stage.record(payout).is_final());
    assert_eq!((stage.hold(payout), usdc(&stage, "chain"), usdc(&stage, "agent:bob")), (0, -2_000_000, 0));
}

/// REL-20: a sender that dies after signing leaves hash and nonce behind; the next one sends the same transaction, and
/// cannot sign another.
#[test]
fn a_crash_sends_the_same_again() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    let payout = settlement(&stage, job, "payout");
    let first = stage.lease(payout, "w1");
    sign(&mut stage, &first, 7).ok();
    stage.lost(&first).ok();
    assert_eq!(stage.state(payout), "due");
    for (field, value) in signature(7).as_object().expect("an object") {
        assert_eq!(stage.field(payout, field), *value, "{field}");
    }
    stage.pass("3s");
    let second = stage.lease(payout, "w2");
    sign(&mut stage, &second, 8).refused(409, "already_signed");
    sign(&mut stage, &second, 7).refused(409, "already_signed");
    confirm(&mut stage, &second, 8).refused(409, "another_transaction");
    stage.commit(&second, json!({})).refused(409, "another_transaction");
    confirm(&mut stage, &first, 7).lease_lost();
    confirm(&mut stage, &second, 7).ok();
    assert_eq!((stage.state(payout).as_str(), usdc(&stage, "chain")), ("confirmed", -2_000_000));
}

/// REL-20: nothing is confirmed that was not signed and kept before.
#[test]
fn nothing_is_sent_unsigned() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    let lease = stage.lease(settlement(&stage, job, "payout"), "w1");
    confirm(&mut stage, &lease, 1).refused(409, "not_signed");
    stage.commit(&lease, json!({})).refused(409, "not_signed");
    stage.commit(&lease, json!({ "tx_hash": "x".repeat(66) })).refused(409, "not_signed");
    stage.commit(&lease, json!({ "tx_hash": "x".repeat(67) })).bad_input();
    assert_eq!((stage.state(lease.record).as_str(), stage.hold(lease.record)), ("sending", 8_000_000));
    sign(&mut stage, &lease, 1).ok();
    confirm(&mut stage, &lease, 1).ok();
}

/// REL-20: what is confirmed is signed no more, though its sender has not closed its work yet.
#[test]
fn nothing_is_signed_afterwards() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    let lease = stage.lease(settlement(&stage, job, "payout"), "w1");
    sign(&mut stage, &lease, 1).ok();
    stage.commit_only(&lease, json!({ "tx_hash": signature(1)["tx_hash"] })).ok();
    sign(&mut stage, &lease, 2).wrong_state("confirmed", "sign");
    stage.finish(&lease).ok();
}

/// REL-20: a nonce is used once, over all settlements and for ever.
#[test]
fn a_nonce_is_used_once() {
    let mut stage = stage();
    let jobs = [won(&mut stage, "bob"), won(&mut stage, "carol")];
    let [first, second] = jobs.map(|job| settlement(&stage, job, "payout"));
    settle(&mut stage, first, 1);
    let lease = stage.lease(second, "w1");
    sign(&mut stage, &lease, 1).refused(409, "nonce_taken");
    sign(&mut stage, &lease, 2).ok();
    confirm(&mut stage, &lease, 2).ok();
}

/// REL-20: only the sender that holds the lease signs, and what it signs has a shape.
#[test]
fn only_the_sender_signs() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    let payout = settlement(&stage, job, "payout");
    let by = |stage: &mut Stage, who: &onceward_core::record::Actor| {
        stage.fire(payout, "sign", who).with_all(signature(1)).outcome().refusal().status
    };
    assert_eq!(by(&mut stage, &user("bob")), 409, "nobody sends yet");
    let lease = stage.lease(payout, "w1");
    assert_eq!(by(&mut stage, &user("bob")), 403);
    assert_eq!(by(&mut stage, &operator("olga")), 403);
    assert_eq!(by(&mut stage, &user("alice")), 404, "nor is it anybody else's to see");
    assert_eq!(by(&mut stage, &worker("w2")), 404);
    for (field, bad) in
        [("nonce", json!(-1)), ("tx_hash", json!("0x12")), ("raw_tx", json!("")), ("raw_tx", json!("x".repeat(8193)))]
    {
        sign(&mut stage, &lease, 1).with(field, bad).bad_input();
    }
    for field in ["nonce", "tx_hash", "raw_tx"] {
        sign(&mut stage, &lease, 1).with(field, Value::Null).bad_input();
    }
    sign(&mut stage, &lease, 0).with("raw_tx", "x".repeat(8192)).ok();
    confirm(&mut stage, &lease, 0).ok();
    let job = won(&mut stage, "carol");
    let lease = stage.lease(settlement(&stage, job, "payout"), "w1");
    sign(&mut stage, &lease, 1).with("raw_tx", "x").ok();
}

/// REL-20, REL-7: a sender that fails, falls silent or gives it back: it is due again after a pause that doubles up to ten
/// minutes.
#[test]
fn a_failed_sending_comes_back() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    let payout = settlement(&stage, job, "payout");
    for (tries, seconds) in
        [(1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 512), (10, 600), (11, 600)]
    {
        let lease = stage.lease(payout, "w1");
        match tries % 3 {
            0 => stage.pass("60s"),
            1 => drop(stage.fail(&lease, "503").ok()),
            _ => drop(stage.give_back(&lease).ok()),
        }
        assert_eq!((stage.state(payout).as_str(), stage.field(payout, "tries")), ("due", json!(tries)));
        let wait = stage.until(payout, "ready_at");
        assert!(
            Duration::from_secs(seconds) <= wait && wait < Duration::from_secs(seconds + 1),
            "{tries}: waits {wait}"
        );
        stage.try_lease(payout, "w2").not_leasable();
        stage.pass_for(wait);
    }
    settle(&mut stage, payout, 1);
}

/// A record that settles a job's refund whenever it is told to.
const MAKER: &str = r#"
language  = 1
lifecycle = "test.maker"
about     = "Makes settlements"

[states]
there = { about = "at hand", rest = true }

[fields]
job     = { type = "ref", to = "relay.job" }
address = { type = "string" }
amount  = { type = "int", default = 1 }

[[on.create]]
go   = "-> there"
take = ["job", "address", "amount"]

[[on.make]]
go    = "there"
spawn = [{ lifecycle = "relay.settlement", fields = { kind = "refund", job = "record.job", address = "record.address", amount = "record.amount", on_chain = "true" } }]
"#;

/// REL-20, REL-6: of each kind a job has one settlement; not even another record makes a second, and callers make none.
#[test]
fn a_job_is_settled_once() {
    let mut stage = dressed(Stage::new(systems::load_with("relay", &[("maker.toml", MAKER)])));
    let job = cancelled(&mut stage);
    cancelled(&mut stage);
    stage.fire(job, "refund", &user("alice")).ok();
    let given = json!({ "job": job.to_string(), "address": DEPOSITOR });
    let maker = stage.create("test.maker", &user("alice")).with_all(given.clone()).ok();
    stage.fire(maker, "make", &user("alice")).refused(409, "already_settling");
    for who in [user("alice"), operator("olga"), worker("w1")] {
        let by_hand = stage.create("relay.settlement", &who).with_all(given.clone());
        by_hand.with("kind", "overpaid").with("amount", 1).with("on_chain", false).not_allowed();
    }
    assert_eq!(stage.all("relay.settlement").len(), 1);
}

/// REL-20: what leaves goes to an address of at most 42 characters, and is more than nothing.
#[test]
fn a_settlement_says_where_and_how_much() {
    for (address, amount, fits) in
        [(DEPOSITOR.to_owned(), 1, true), (DEPOSITOR.to_owned(), 0, false), (format!("{DEPOSITOR}0"), 1, false)]
    {
        let mut stage = dressed(Stage::new(systems::load_with("relay", &[("maker.toml", MAKER)])));
        let job = cancelled(&mut stage);
        let given = json!({ "job": job.to_string(), "address": address, "amount": amount });
        let maker = stage.create("test.maker", &user("alice")).with_all(given).ok();
        let attempt = stage.fire(maker, "make", &user("alice"));
        if fits {
            attempt.ok();
        } else {
            attempt.refused(409, "spawn_not_taken");
        }
        assert_eq!(stage.all("relay.settlement").len(), usize::from(fits));
    }
}

/// REL-18, REL-3, REL-13: what a worker without a wallet wins is kept for it: no settlement, and the ledger shows where it is.
#[test]
fn a_worker_with_no_wallet_is_owed() {
    let mut stage = stage();
    won(&mut stage, "dave");
    won(&mut stage, "dave");
    let dave = agent(&stage, "dave");
    assert!(stage.all("relay.settlement").is_empty());
    assert_eq!((stage.hold(dave), usdc(&stage, "agent:dave"), usdc(&stage, "fee")), (16_000_000, 0, 4_000_000));
    assert_eq!((rate(&stage, "dave"), total(&stage)), (json!(1.0), 0));
    stage.fire(dave, "edit", &user("dave")).with("name", "Dave").ok();
    assert_eq!((stage.hold(dave), stage.field(dave, "name")), (16_000_000, json!("Dave")));
}

/// REL-18, REL-20: the edit that brings a wallet sends everything that was owed, in one settlement; later wins go on as usual.
#[test]
fn a_wallet_brings_what_was_owed() {
    let mut stage = stage();
    won(&mut stage, "dave");
    won(&mut stage, "dave");
    let dave = agent(&stage, "dave");
    let edit = stage.fire(dave, "edit", &user("dave")).with("wallet", WALLET).with("name", "Dave");
    let changes = edit.changes();
    assert_eq!(changes.records.len(), 2, "the agent and one settlement, however much there was");
    let all = stage.all("relay.settlement");
    assert_eq!((all.len(), all[0].hold, stage.hold(dave)), (1, 16_000_000, 0));
    assert_eq!((stage.field(all[0].id, "kind"), stage.field(all[0].id, "address")), (json!("payout"), json!(WALLET)));
    assert_eq!((*all[0].owner).to_owned(), "dave");
    assert_eq!((stage.field(dave, "wallet"), stage.field(dave, "name")), (json!(WALLET), json!("Dave")));
    settle(&mut stage, all[0].id, 1);
    stage.fire(dave, "edit", &user("dave")).with("wallet", OTHER_WALLET).ok();
    assert_eq!(stage.all("relay.settlement").len(), 1, "nothing more was owed");
    let job = won(&mut stage, "dave");
    assert_eq!(stage.hold(settlement(&stage, job, "payout")), 8_000_000);
    assert_eq!((usdc(&stage, "chain"), total(&stage)), (-3 * PRICE + 16_000_000, 0));
}

/// REL-20: a settlement goes to the wallet that the worker had when it was made.
#[test]
fn a_later_wallet_is_for_later_wins() {
    let mut stage = stage();
    let before = won(&mut stage, "bob");
    let bob = agent(&stage, "bob");
    stage.fire(bob, "edit", &user("bob")).with("wallet", OTHER_WALLET).ok();
    let after = won(&mut stage, "bob");
    assert_eq!(stage.field(settlement(&stage, before, "payout"), "address"), WALLET);
    assert_eq!(stage.field(settlement(&stage, after, "payout"), "address"), OTHER_WALLET);
    stage.fire(bob, "edit", &user("bob")).with("wallet", Value::Null).ok();
    won(&mut stage, "bob");
    assert_eq!(stage.hold(bob), 8_000_000, "without a wallet again");
}
