//! Registration and profile of agents.

use onceward_core::value::RecordId;
use onceward_testkit::{SimulatedCall, Simulator, operator, user};
use serde_json::{Value, json};

use super::{
    WALLET_ADDRESS, alice, claim_and_submit, claim_job, create_open_job, create_won_job, find_agent, fund_exactly,
    new_simulator, register_agent, time_from_now,
};

/// REL-9, REL-13: with or without a wallet; a new agent has no completion rate.
#[test]
fn agent_registers_once_under_own_id() {
    let mut stage = new_simulator();
    let erin = register_agent(&mut stage, "erin").with("name", "Erin").with("wallet", WALLET_ADDRESS).expect_ok();
    assert_eq!(stage.state(erin), "registered");
    assert_eq!((stage.field(erin, "claims"), stage.field(erin, "completion_rate")), (json!(0), Value::Null));
    register_agent(&mut stage, "erin").expect_refusal(409, "key_taken");
    stage.create("relay.agent", &operator("olga")).with("agent_id", "erin").expect_refusal(409, "key_taken");
    stage.create("relay.agent", &operator("olga")).with("agent_id", "frank").expect_ok();
}

/// REL-9: otherwise the caller could set a wallet that receives the agent's winnings.
#[test]
fn registering_foreign_agent_id_is_refused() {
    let mut stage = new_simulator();
    stage
        .create("relay.agent", &user("mallory"))
        .with("agent_id", "erin")
        .with("wallet", WALLET_ADDRESS)
        .expect_not_allowed();
    register_agent(&mut stage, "erin").expect_ok();
    let erin = find_agent(&stage, "erin");
    stage.fire(erin, "edit", &user("mallory")).with("wallet", WALLET_ADDRESS).expect_not_allowed();
    stage.fire(erin, "edit", &operator("olga")).with("wallet", WALLET_ADDRESS).expect_not_allowed();
}

/// Registers Erin as an operator.
fn register_erin(stage: &mut Simulator) -> SimulatedCall<'_> {
    stage.create("relay.agent", &operator("olga")).with("agent_id", "erin")
}

/// REL-9
#[test]
fn agent_fields_are_validated() {
    for (name, fits) in [
        ("abc".to_owned(), true),
        ("A-b_9".to_owned(), true),
        ("x".repeat(100), true),
        ("ab".to_owned(), false),
        ("x".repeat(101), false),
        ("a b c".to_owned(), false),
        ("räuber".to_owned(), false),
        ("abc\n".to_owned(), false),
    ] {
        let mut stage = new_simulator();
        let attempt = stage.create("relay.agent", &operator("olga")).with("agent_id", name);
        if fits {
            attempt.expect_ok();
        } else {
            attempt.expect_bad_input();
        }
    }
    let mut stage = new_simulator();
    for wallet in [
        "",
        "0x",
        &WALLET_ADDRESS[2..],
        &WALLET_ADDRESS[..41],
        &format!("{WALLET_ADDRESS}0"),
        "0xGAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ] {
        register_erin(&mut stage).with("wallet", wallet).expect_bad_input();
    }
    register_erin(&mut stage).with("name", "x".repeat(101)).expect_bad_input();
    register_erin(&mut stage).with("name", "").expect_bad_input();
    register_erin(&mut stage).with("on_chain", true).expect_bad_input();
    register_erin(&mut stage).with("claims", 5).expect_bad_input();
    register_erin(&mut stage).with("name", "x".repeat(100)).expect_ok();
    let erin = find_agent(&stage, "erin");
    stage.fire(erin, "edit", &user("erin")).with("name", "E").expect_ok();
}

#[test]
fn agent_edits_only_its_own_profile_fields() {
    let mut stage = new_simulator();
    let bob = find_agent(&stage, "bob");
    stage.fire(bob, "edit", &user("bob")).with("name", "Bob").expect_ok();
    assert_eq!((stage.field(bob, "name"), stage.field(bob, "wallet")), (json!("Bob"), json!(WALLET_ADDRESS)));
    stage.fire(bob, "edit", &user("bob")).with("wallet", Value::Null).expect_ok();
    assert_eq!(stage.field(bob, "wallet"), Value::Null);
    for given in [json!({ "agent_id": "bobby" }), json!({ "passed": 9 }), json!({ "completion_rate": 1.0 })] {
        stage.fire(bob, "edit", &user("bob")).with_all(given).expect_bad_input();
    }
}

/// Asserts that `action` changes these records but not their state or `entered_at`.
#[track_caller]
fn assert_entered_at_unchanged<const N: usize>(
    stage: &mut Simulator,
    ids: [RecordId; N],
    action: impl FnOnce(&mut Simulator),
) {
    let before = ids.map(|id| stage.record(id));
    stage.advance_without_engine("1s");
    action(stage);
    for before in before {
        let after = stage.record(before.id);
        assert_eq!((after.state, after.entered_at), (before.state, before.entered_at), "{}", before.id);
        assert!(after.version > before.version, "{} did not change", before.id);
    }
}

/// REL-3, REL-9, REL-13, REL-14, REL-18: for edits, claims and wins of an agent, edits of an open or funded job, and
/// leases of a submission.
#[test]
fn internal_transition_keeps_entered_at() {
    let mut stage = new_simulator();
    let [bob, dave] = ["bob", "dave"].map(|name| find_agent(&stage, name));
    assert_entered_at_unchanged(&mut stage, [dave], |stage| {
        stage.fire(dave, "edit", &user("dave")).with("name", "Dave").expect_ok();
    });
    let job = create_open_job(&mut stage);
    assert_entered_at_unchanged(&mut stage, [job], |stage| {
        stage.fire(job, "edit", &alice()).with("title", "A tanka").expect_ok();
    });
    fund_exactly(&mut stage, job);
    let expiry = time_from_now(&stage, "2d");
    assert_entered_at_unchanged(&mut stage, [job], |stage| {
        stage.fire(job, "edit", &alice()).with("expiry", expiry).expect_ok();
    });
    assert_entered_at_unchanged(&mut stage, [job, bob], |stage| {
        claim_job(stage, job, "bob").expect_ok();
    });
    assert_entered_at_unchanged(&mut stage, [job, bob], |stage| {
        stage.fire(job, "unclaim", &user("bob")).expect_ok();
    });
    let submission = claim_and_submit(&mut stage, job, "dave");
    assert_entered_at_unchanged(&mut stage, [submission], |stage| {
        stage.lease(submission, "w1");
    });
    // Winnings go into the hold of an agent without a wallet, leave it with the wallet, and then bypass it.
    assert_entered_at_unchanged(&mut stage, [dave], |stage| {
        create_won_job(stage, "dave");
    });
    assert_entered_at_unchanged(&mut stage, [dave], |stage| {
        stage.fire(dave, "edit", &user("dave")).with("wallet", WALLET_ADDRESS).expect_ok();
    });
    assert_entered_at_unchanged(&mut stage, [bob], |stage| {
        create_won_job(stage, "bob");
    });
}
