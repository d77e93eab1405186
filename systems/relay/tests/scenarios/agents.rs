//! Registration: the id by which everything finds an agent.

use onceward_core::value::RecordId;
use onceward_testkit::{Attempt, Stage, operator, user};
use serde_json::{Value, json};

use super::{WALLET, agent, alice, claim, later, open, pay, register, stage, submitted, won};

/// REL-9, REL-13: an agent registers under an id of its own, with or without a wallet, and has no record yet.
#[test]
fn an_agent_registers() {
    let mut stage = stage();
    let erin = register(&mut stage, "erin").with("name", "Erin").with("wallet", WALLET).ok();
    assert_eq!(stage.state(erin), "registered");
    assert_eq!((stage.field(erin, "claims"), stage.field(erin, "completion_rate")), (json!(0), Value::Null));
    register(&mut stage, "erin").refused(409, "key_taken");
    stage.create("relay.agent", &operator("olga")).with("agent_id", "erin").refused(409, "key_taken");
    stage.create("relay.agent", &operator("olga")).with("agent_id", "frank").ok();
}

/// REL-9: nobody registers another's id, with a wallet that would take the other's winnings.
#[test]
fn nobody_takes_anothers_id() {
    let mut stage = stage();
    stage.create("relay.agent", &user("mallory")).with("agent_id", "erin").with("wallet", WALLET).not_allowed();
    register(&mut stage, "erin").ok();
    let erin = agent(&stage, "erin");
    stage.fire(erin, "edit", &user("mallory")).with("wallet", WALLET).not_allowed();
    stage.fire(erin, "edit", &operator("olga")).with("wallet", WALLET).not_allowed();
}

/// The server registers Erin for her.
fn erin(stage: &mut Stage) -> Attempt<'_> {
    stage.create("relay.agent", &operator("olga")).with("agent_id", "erin")
}

/// REL-9: ids, names and wallets have a shape.
#[test]
fn what_an_agent_says_is_bounded() {
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
        let mut stage = stage();
        let attempt = stage.create("relay.agent", &operator("olga")).with("agent_id", name);
        if fits {
            attempt.ok();
        } else {
            attempt.bad_input();
        }
    }
    let mut stage = stage();
    for wallet in
        ["", "0x", &WALLET[2..], &WALLET[..41], &format!("{WALLET}0"), "0xGAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]
    {
        erin(&mut stage).with("wallet", wallet).bad_input();
    }
    erin(&mut stage).with("name", "x".repeat(101)).bad_input();
    erin(&mut stage).with("name", "").bad_input();
    erin(&mut stage).with("on_chain", true).bad_input();
    erin(&mut stage).with("claims", 5).bad_input();
    erin(&mut stage).with("name", "x".repeat(100)).ok();
    let erin = agent(&stage, "erin");
    stage.fire(erin, "edit", &user("erin")).with("name", "E").ok();
}

/// An agent edits itself; its id and its record are not its to write.
#[test]
fn an_agent_edits_itself() {
    let mut stage = stage();
    let bob = agent(&stage, "bob");
    stage.fire(bob, "edit", &user("bob")).with("name", "Bob").ok();
    assert_eq!((stage.field(bob, "name"), stage.field(bob, "wallet")), (json!("Bob"), json!(WALLET)));
    stage.fire(bob, "edit", &user("bob")).with("wallet", Value::Null).ok();
    assert_eq!(stage.field(bob, "wallet"), Value::Null);
    for given in [json!({ "agent_id": "bobby" }), json!({ "passed": 9 }), json!({ "completion_rate": 1.0 })] {
        stage.fire(bob, "edit", &user("bob")).with_all(given).bad_input();
    }
}

/// Something happens to these where they stand: they have changed, and are in their states since the same time as before.
#[track_caller]
fn stay<const N: usize>(stage: &mut Stage, ids: [RecordId; N], happens: impl FnOnce(&mut Stage)) {
    let before = ids.map(|id| stage.record(id));
    stage.doze("1s");
    happens(stage);
    for before in before {
        let after = stage.record(before.id);
        assert_eq!((after.state, after.entered_at), (before.state, before.entered_at), "{}", before.id);
        assert!(after.version > before.version, "nothing happened to {}", before.id);
    }
}

/// REL-3, REL-9, REL-13, REL-14, REL-18: what happens to a record where it stands does not make it new. An agent is registered since
/// it registered, whatever it edits, claims or wins; a job is open since it was posted and funded since it was paid for; and
/// a submission is judged since it was handed in, whenever an oracle takes it.
#[test]
fn what_stays_is_there_since_it_came() {
    let mut stage = stage();
    let [bob, dave] = ["bob", "dave"].map(|name| agent(&stage, name));
    stay(&mut stage, [dave], |stage| {
        stage.fire(dave, "edit", &user("dave")).with("name", "Dave").ok();
    });
    let job = open(&mut stage);
    stay(&mut stage, [job], |stage| {
        stage.fire(job, "edit", &alice()).with("title", "A tanka").ok();
    });
    pay(&mut stage, job);
    let expiry = later(&stage, "2d");
    stay(&mut stage, [job], |stage| {
        stage.fire(job, "edit", &alice()).with("expiry", expiry).ok();
    });
    stay(&mut stage, [job, bob], |stage| {
        claim(stage, job, "bob").ok();
    });
    stay(&mut stage, [job, bob], |stage| {
        stage.fire(job, "unclaim", &user("bob")).ok();
    });
    let submission = submitted(&mut stage, job, "dave");
    stay(&mut stage, [submission], |stage| {
        stage.lease(submission, "w1");
    });
    // Into the hold of one who has no wallet, out of it when there is one, and past it.
    stay(&mut stage, [dave], |stage| {
        won(stage, "dave");
    });
    stay(&mut stage, [dave], |stage| {
        stage.fire(dave, "edit", &user("dave")).with("wallet", WALLET).ok();
    });
    stay(&mut stage, [bob], |stage| {
        won(stage, "bob");
    });
}
