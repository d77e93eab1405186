//! REL-20: settlements are signed, stored, sent and confirmed; winnings without a wallet are held.

use onceward_core::time::Duration;
use onceward_testkit::{Simulator, operator, systems, user, worker};
use serde_json::{Value, json};

use super::{
    DEPOSITOR_ADDRESS, JOB_PRICE_MICRO_USDC, WALLET_ADDRESS, account_balance, completion_rate, confirm_settlement,
    create_cancelled_job, create_won_job, find_agent, find_settlement, new_simulator, send_settlement, sign_settlement,
    signature_input, total_balance, with_chain_and_agents,
};

const OTHER_WALLET_ADDRESS: &str = "0xBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB";

/// REL-20, REL-3, REL-18: the settlement is a job of its own.
#[test]
fn payout_is_sent_to_winner_wallet() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    let payout = find_settlement(&stage, job, "payout");
    assert_eq!(stage.state(payout), "due");
    assert_eq!(
        (stage.field(payout, "address"), stage.field(payout, "amount")),
        (json!(WALLET_ADDRESS), json!(8_000_000))
    );
    assert_eq!(*stage.record(payout).owner, *"bob");
    let lease = stage.lease(payout, "w1");
    assert_eq!(stage.state(payout), "sending");
    sign_settlement(&mut stage, &lease, 1).expect_ok();
    confirm_settlement(&mut stage, &lease, 1).expect_ok();
    assert_eq!(stage.state(payout), "confirmed");
    assert!(stage.record(payout).is_final());
    assert_eq!(
        (stage.hold_balance(payout), account_balance(&stage, "chain"), account_balance(&stage, "agent:bob")),
        (0, -2_000_000, 0)
    );
}

/// REL-20: hash and nonce are stored, so the next sender cannot sign another transaction.
#[test]
fn sender_after_crash_reuses_signed_transaction() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    let payout = find_settlement(&stage, job, "payout");
    let first = stage.lease(payout, "w1");
    sign_settlement(&mut stage, &first, 7).expect_ok();
    stage.lose_lease(&first).expect_ok();
    assert_eq!(stage.state(payout), "due");
    for (field, value) in signature_input(7).as_object().expect("a JSON object") {
        assert_eq!(stage.field(payout, field), *value, "{field}");
    }
    stage.advance("3s");
    let second = stage.lease(payout, "w2");
    sign_settlement(&mut stage, &second, 8).expect_refusal(409, "already_signed");
    sign_settlement(&mut stage, &second, 7).expect_refusal(409, "already_signed");
    confirm_settlement(&mut stage, &second, 8).expect_refusal(409, "another_transaction");
    stage.commit(&second, json!({})).expect_refusal(409, "another_transaction");
    confirm_settlement(&mut stage, &first, 7).expect_lease_lost();
    confirm_settlement(&mut stage, &second, 7).expect_ok();
    assert_eq!((stage.state(payout).as_str(), account_balance(&stage, "chain")), ("confirmed", -2_000_000));
}

/// REL-20
#[test]
fn confirm_without_signature_is_refused() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    let lease = stage.lease(find_settlement(&stage, job, "payout"), "w1");
    confirm_settlement(&mut stage, &lease, 1).expect_refusal(409, "not_signed");
    stage.commit(&lease, json!({})).expect_refusal(409, "not_signed");
    stage.commit(&lease, json!({ "tx_hash": "x".repeat(66) })).expect_refusal(409, "not_signed");
    stage.commit(&lease, json!({ "tx_hash": "x".repeat(67) })).expect_bad_input();
    assert_eq!((stage.state(lease.record).as_str(), stage.hold_balance(lease.record)), ("sending", 8_000_000));
    sign_settlement(&mut stage, &lease, 1).expect_ok();
    confirm_settlement(&mut stage, &lease, 1).expect_ok();
}

/// REL-20: also while the execution is still open.
#[test]
fn sign_after_confirmation_is_refused() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    let lease = stage.lease(find_settlement(&stage, job, "payout"), "w1");
    sign_settlement(&mut stage, &lease, 1).expect_ok();
    stage.commit_only(&lease, json!({ "tx_hash": signature_input(1)["tx_hash"] })).expect_ok();
    sign_settlement(&mut stage, &lease, 2).expect_wrong_state("confirmed", "sign");
    stage.finish(&lease).expect_ok();
}

/// REL-20: over all settlements, also ended ones.
#[test]
fn reused_nonce_is_refused() {
    let mut stage = new_simulator();
    let jobs = [create_won_job(&mut stage, "bob"), create_won_job(&mut stage, "carol")];
    let [first, second] = jobs.map(|job| find_settlement(&stage, job, "payout"));
    send_settlement(&mut stage, first, 1);
    let lease = stage.lease(second, "w1");
    sign_settlement(&mut stage, &lease, 1).expect_refusal(409, "nonce_taken");
    sign_settlement(&mut stage, &lease, 2).expect_ok();
    confirm_settlement(&mut stage, &lease, 2).expect_ok();
}

/// REL-20
#[test]
fn sign_requires_lease_holder_and_valid_input() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    let payout = find_settlement(&stage, job, "payout");
    let sign_as = |stage: &mut Simulator, caller: &onceward_core::record::Actor| {
        stage.fire(payout, "sign", caller).with_all(signature_input(1)).run().expect_refusal().status
    };
    assert_eq!(sign_as(&mut stage, &user("bob")), 409, "no sender has leased it");
    let lease = stage.lease(payout, "w1");
    assert_eq!(sign_as(&mut stage, &user("bob")), 403);
    assert_eq!(sign_as(&mut stage, &operator("olga")), 403);
    assert_eq!(sign_as(&mut stage, &user("alice")), 404, "invisible to other users");
    assert_eq!(sign_as(&mut stage, &worker("w2")), 404);
    for (field, bad) in
        [("nonce", json!(-1)), ("tx_hash", json!("0x12")), ("raw_tx", json!("")), ("raw_tx", json!("x".repeat(8193)))]
    {
        sign_settlement(&mut stage, &lease, 1).with(field, bad).expect_bad_input();
    }
    for field in ["nonce", "tx_hash", "raw_tx"] {
        sign_settlement(&mut stage, &lease, 1).with(field, Value::Null).expect_bad_input();
    }
    sign_settlement(&mut stage, &lease, 0).with("raw_tx", "x".repeat(8192)).expect_ok();
    confirm_settlement(&mut stage, &lease, 0).expect_ok();
    let job = create_won_job(&mut stage, "carol");
    let lease = stage.lease(find_settlement(&stage, job, "payout"), "w1");
    sign_settlement(&mut stage, &lease, 1).with("raw_tx", "x").expect_ok();
}

/// REL-20, REL-7: after a failure, a lost lease or a yield; the backoff doubles up to ten minutes.
#[test]
fn failed_send_is_retried_with_backoff() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    let payout = find_settlement(&stage, job, "payout");
    for (tries, seconds) in
        [(1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128), (8, 256), (9, 512), (10, 600), (11, 600)]
    {
        let lease = stage.lease(payout, "w1");
        match tries % 3 {
            0 => stage.advance("60s"),
            1 => drop(stage.fail(&lease, "503").expect_ok()),
            _ => drop(stage.yield_job(&lease).expect_ok()),
        }
        assert_eq!((stage.state(payout).as_str(), stage.field(payout, "tries")), ("due", json!(tries)));
        let wait = stage.time_until(payout, "ready_at");
        assert!(
            Duration::from_secs(seconds) <= wait && wait < Duration::from_secs(seconds + 1),
            "{tries}: waits {wait}"
        );
        stage.try_lease(payout, "w2").expect_not_leasable();
        stage.advance_by(wait);
    }
    send_settlement(&mut stage, payout, 1);
}

/// A record that spawns a settlement for a job's refund.
const SETTLEMENT_MAKER_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.maker"
about     = "Spawns settlements"

[states]
there = { about = "open", rest = true }

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

/// REL-20, REL-6: neither records nor callers can create one.
#[test]
fn second_settlement_of_same_kind_is_refused() {
    let mut stage = with_chain_and_agents(Simulator::new(systems::load_with_files(
        "relay",
        &[("maker.toml", SETTLEMENT_MAKER_LIFECYCLE)],
    )));
    let job = create_cancelled_job(&mut stage);
    create_cancelled_job(&mut stage);
    stage.fire(job, "refund", &user("alice")).expect_ok();
    let fields = json!({ "job": job.to_string(), "address": DEPOSITOR_ADDRESS });
    let maker = stage.create("test.maker", &user("alice")).with_all(fields.clone()).expect_ok();
    stage.fire(maker, "make", &user("alice")).expect_refusal(409, "already_settling");
    for caller in [user("alice"), operator("olga"), worker("w1")] {
        let creation = stage.create("relay.settlement", &caller).with_all(fields.clone());
        creation.with("kind", "overpaid").with("amount", 1).with("on_chain", false).expect_not_allowed();
    }
    assert_eq!(stage.records_of("relay.settlement").len(), 1);
}

/// REL-20: at most 42 characters, and more than 0.
#[test]
fn settlement_address_and_amount_are_bounded() {
    for (address, amount, fits) in [
        (DEPOSITOR_ADDRESS.to_owned(), 1, true),
        (DEPOSITOR_ADDRESS.to_owned(), 0, false),
        (format!("{DEPOSITOR_ADDRESS}0"), 1, false),
    ] {
        let mut stage = with_chain_and_agents(Simulator::new(systems::load_with_files(
            "relay",
            &[("maker.toml", SETTLEMENT_MAKER_LIFECYCLE)],
        )));
        let job = create_cancelled_job(&mut stage);
        let fields = json!({ "job": job.to_string(), "address": address, "amount": amount });
        let maker = stage.create("test.maker", &user("alice")).with_all(fields).expect_ok();
        let attempt = stage.fire(maker, "make", &user("alice"));
        if fits {
            attempt.expect_ok();
        } else {
            attempt.expect_refusal(409, "spawn_not_taken");
        }
        assert_eq!(stage.records_of("relay.settlement").len(), usize::from(fits));
    }
}

/// REL-18, REL-3, REL-13: no settlement is created.
#[test]
fn winnings_without_wallet_stay_in_agent_hold() {
    let mut stage = new_simulator();
    create_won_job(&mut stage, "dave");
    create_won_job(&mut stage, "dave");
    let dave = find_agent(&stage, "dave");
    assert!(stage.records_of("relay.settlement").is_empty());
    assert_eq!(
        (stage.hold_balance(dave), account_balance(&stage, "agent:dave"), account_balance(&stage, "fee")),
        (16_000_000, 0, 4_000_000)
    );
    assert_eq!((completion_rate(&stage, "dave"), total_balance(&stage)), (json!(1.0), 0));
    stage.fire(dave, "edit", &user("dave")).with("name", "Dave").expect_ok();
    assert_eq!((stage.hold_balance(dave), stage.field(dave, "name")), (16_000_000, json!("Dave")));
}

/// REL-18, REL-20: in one settlement; later wins are settled as usual.
#[test]
fn adding_wallet_settles_all_held_winnings() {
    let mut stage = new_simulator();
    create_won_job(&mut stage, "dave");
    create_won_job(&mut stage, "dave");
    let dave = find_agent(&stage, "dave");
    let edit = stage.fire(dave, "edit", &user("dave")).with("wallet", WALLET_ADDRESS).with("name", "Dave");
    let changes = edit.expect_changes();
    assert_eq!(changes.records.len(), 2, "the agent and one settlement for all winnings");
    let all = stage.records_of("relay.settlement");
    assert_eq!((all.len(), all[0].hold, stage.hold_balance(dave)), (1, 16_000_000, 0));
    assert_eq!(
        (stage.field(all[0].id, "kind"), stage.field(all[0].id, "address")),
        (json!("payout"), json!(WALLET_ADDRESS))
    );
    assert_eq!((*all[0].owner).to_owned(), "dave");
    assert_eq!((stage.field(dave, "wallet"), stage.field(dave, "name")), (json!(WALLET_ADDRESS), json!("Dave")));
    send_settlement(&mut stage, all[0].id, 1);
    stage.fire(dave, "edit", &user("dave")).with("wallet", OTHER_WALLET_ADDRESS).expect_ok();
    assert_eq!(stage.records_of("relay.settlement").len(), 1, "no further settlement");
    let job = create_won_job(&mut stage, "dave");
    assert_eq!(stage.hold_balance(find_settlement(&stage, job, "payout")), 8_000_000);
    assert_eq!((account_balance(&stage, "chain"), total_balance(&stage)), (-3 * JOB_PRICE_MICRO_USDC + 16_000_000, 0));
}

/// REL-20
#[test]
fn settlement_keeps_wallet_of_its_creation() {
    let mut stage = new_simulator();
    let before = create_won_job(&mut stage, "bob");
    let bob = find_agent(&stage, "bob");
    stage.fire(bob, "edit", &user("bob")).with("wallet", OTHER_WALLET_ADDRESS).expect_ok();
    let after = create_won_job(&mut stage, "bob");
    assert_eq!(stage.field(find_settlement(&stage, before, "payout"), "address"), WALLET_ADDRESS);
    assert_eq!(stage.field(find_settlement(&stage, after, "payout"), "address"), OTHER_WALLET_ADDRESS);
    stage.fire(bob, "edit", &user("bob")).with("wallet", Value::Null).expect_ok();
    create_won_job(&mut stage, "bob");
    assert_eq!(stage.hold_balance(bob), 8_000_000, "without a wallet again");
}
