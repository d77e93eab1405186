//! The edges of who is let in: the owner of somebody else's record, an oracle, and another record that is no caller at all.

use onceward_core::value::RecordId;
use onceward_testkit::{Stage, operator, systems, user};
use serde_json::json;

use super::{
    PRICE, WALLET, agent, alice, cancelled, dressed, funded, judged, open, post, settlement, signature, stage, tx, won,
};

/// Another record, which sends whatever it is told to.
const BOSS: &str = r#"
language  = 1
lifecycle = "test.boss"
about     = "Sends what a record's own people may send"

[states]
there = { about = "at hand", rest = true }

[fields]
job        = { type = "ref", to = "relay.job" }
agent      = { type = "ref", to = "relay.agent" }
settlement = { type = "ref", to = "relay.settlement", optional = true }
dispute    = { type = "ref", to = "relay.dispute", optional = true }

[access]
read = ["anyone"]

[[on.create]]
go   = "-> there"
take = ["job", "agent", "settlement", "dispute"]

[[on.post]]
go    = "there"
spawn = [{ lifecycle = "relay.job", fields = { title = "'t'", description = "'d'", price = "100000" } }]

[[on.register]]
go    = "there"
spawn = [{ lifecycle = "relay.agent", fields = { agent_id = "'zoe'" } }]

[[on.complain]]
go    = "there"
spawn = [{ lifecycle = "relay.dispute", fields = { job = "record.job", reason = "'so there'" } }]

[[on.edit]]
go      = "there"
cascade = [{ to = "record.job", event = "edit", input = { expiry = "now + duration('9d')" } }]

[[on.fund]]
go      = "there"
input   = { tx_hash = "string" }
cascade = [{ to = "record.job", event = "fund", input = { tx_hash = "input.tx_hash" } }]

[[on.claim]]
go      = "there"
cascade = [{ to = "record.job", event = "claim" }]

[[on.unclaim]]
go      = "there"
cascade = [{ to = "record.job", event = "unclaim" }]

[[on.cancel]]
go      = "there"
cascade = [{ to = "record.job", event = "cancel" }]

[[on.refund]]
go      = "there"
cascade = [{ to = "record.job", event = "refund" }]

[[on.rename]]
go      = "there"
cascade = [{ to = "record.agent", event = "edit", input = { name = "'Zoe'" } }]

[[on.rewire]]
go      = "there"
cascade = [{ to = "record.agent", event = "edit", input = { wallet = "'0xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'" } }]

[[on.forget]]
go      = "there"
cascade = [{ to = "record.agent", event = "unclaimed" }]

[[on.sent]]
go      = "there"
cascade = [{ to = "record.job", event = "refund_sent", input = { tx_hash = "'sent'" } }]

[[on.sign]]
go      = "there"
input   = { nonce = "int", raw_tx = "string", tx_hash = "string" }
cascade = [{ to = "record.settlement", event = "sign", input = { nonce = "input.nonce", raw_tx = "input.raw_tx", tx_hash = "input.tx_hash" } }]

[[on.uphold]]
go      = "there"
cascade = [{ to = "record.dispute", event = "uphold", input = { finding = "'yes'" } }]

[[on.dismiss]]
go      = "there"
cascade = [{ to = "record.dispute", event = "dismiss", input = { finding = "'no'" } }]
"#;

fn with_a_boss() -> Stage {
    dressed(Stage::new(systems::load_with("relay", &[("boss.toml", BOSS)])))
}

/// One that knows these records.
fn boss(stage: &mut Stage, known: &[(&str, RecordId)]) -> RecordId {
    let olga = operator("olga");
    let new = stage.create("test.boss", &olga);
    known.iter().fold(new, |new, (name, id)| new.with(name, id.to_string())).ok()
}

/// REL-8, REL-9, REL-20, REL-21: what agents, senders and operators do they do themselves; no other record does it for them.
/// REL-6: and none says of a job that is not over that its refund was sent.
#[test]
fn no_record_speaks_for_its_people() {
    let mut stage = with_a_boss();
    let (open, running, over) = (open(&mut stage), funded(&mut stage), cancelled(&mut stage));
    let withdrawn = super::open(&mut stage);
    stage.fire(withdrawn, "cancel", &alice()).ok();
    let resolved = won(&mut stage, "bob");
    won(&mut stage, "dave");
    let payout = settlement(&stage, resolved, "payout");
    stage.lease(payout, "w1");
    let complaint = json!({ "job": resolved.to_string(), "reason": "not a haiku" });
    let dispute = stage.create("relay.dispute", &alice()).with_all(complaint).ok();
    let (dave, nobody) = (agent(&stage, "dave"), user("nobody"));
    for job in [open, running, over, withdrawn, resolved] {
        let known = [("job", job), ("agent", dave), ("settlement", payout), ("dispute", dispute)];
        let before = known.map(|(_, id)| stage.record(id).version);
        let boss = boss(&mut stage, &known);
        for event in ["edit", "claim", "unclaim", "cancel", "refund", "rename", "rewire", "uphold", "dismiss"] {
            stage.fire(boss, event, &nobody).unchanged();
        }
        stage.fire(boss, "fund", &nobody).with("tx_hash", tx(0xfff, PRICE)).unchanged();
        stage.fire(boss, "sign", &nobody).with_all(signature(1)).unchanged();
        for event in ["post", "register", "complain"] {
            stage.fire(boss, event, &nobody).refused(409, "spawn_not_taken");
        }
        if job != over && job != withdrawn {
            stage.fire(boss, "sent", &nobody).unchanged();
        }
        assert_eq!(known.map(|(_, id)| stage.record(id).version), before);
    }
}

/// REL-3, REL-6, REL-12, REL-13: what records tell each other no caller tells them: not whose they are, not whom they are about,
/// no operator, and not the oracle that is at work.
#[test]
fn nobody_speaks_for_a_record() {
    let mut stage = stage();
    let (job, over) = (funded(&mut stage), cancelled(&mut stage));
    let lease = judged(&mut stage, job, "bob");
    let bob = agent(&stage, "bob");
    let of = |id: RecordId| id.to_string();
    for (record, event, told) in [
        (job, "resolve", json!({ "submission": of(lease.record) })),
        (over, "refund_sent", json!({ "tx_hash": "off-chain" })),
        (bob, "claimed", json!({})),
        (bob, "unclaimed", json!({})),
        (bob, "won", json!({ "job": of(job), "amount": 1, "on_chain": false })),
        (lease.record, "discard", json!({ "reason": "job_cancelled" })),
    ] {
        for who in [alice(), user("bob"), user("mallory"), operator("olga"), lease.worker.clone()] {
            stage.fire(record, event, &who).with_all(told.clone()).not_allowed();
        }
    }
    let oracle = stage.fire(lease.record, "discard", &lease.worker).token(lease.token);
    oracle.with("reason", "job_cancelled").not_allowed();
}

/// REL-12: a submission's states are called what the contract calls them, also the one in which nothing waits.
#[test]
fn the_contract_names_the_states() {
    let stage = stage();
    let states = &stage.definition("relay.submission").states;
    let names: Vec<&str> = states.iter().map(|state| &*state.name).collect();
    assert_eq!(names, ["pending", "judging", "passed", "failed"]);
}

/// REL-13: nobody has fewer claims than none, whoever takes one back.
#[test]
fn claims_are_not_below_nothing() {
    let mut stage = with_a_boss();
    let (job, carol) = (open(&mut stage), agent(&stage, "carol"));
    let boss = boss(&mut stage, &[("job", job), ("agent", carol)]);
    stage.fire(boss, "forget", &user("nobody")).refused(422, "fault");
    assert_eq!(stage.field(carol, "claims"), 0);
}

/// REL-9: an agent that the server has registered is its own, not the server's.
#[test]
fn a_registered_agent_belongs_to_itself() {
    let mut stage = stage();
    let erin = stage.create("relay.agent", &operator("olga")).with("agent_id", "erin").ok();
    stage.fire(erin, "edit", &user("olga")).with("name", "Mine").not_allowed();
    stage.fire(erin, "edit", &user("erin")).with("name", "Erin").ok();
    won(&mut stage, "erin");
    stage.fire(erin, "edit", &user("erin")).with("wallet", WALLET).ok();
    won(&mut stage, "erin");
    let payouts = stage.all("relay.settlement");
    assert!(payouts.len() == 2 && payouts.iter().all(|payout| *payout.owner == *"erin"), "nor are its winnings");
}

/// REL-10: a job asks for a rate between none and all, both ends included, and for nothing a little beyond them.
#[test]
fn a_rate_lies_between_0_and_1() {
    let mut stage = stage();
    for (least, fits) in [(0.0, true), (1.0, true), (-0.01, false), (1.01, false)] {
        let attempt = post(&mut stage).with("min_reputation", least);
        if fits {
            attempt.ok();
        } else {
            attempt.bad_input();
        }
    }
}
