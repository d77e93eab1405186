//! Boundary cases: callers that own another record, oracles, and events sent by other records.

use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, operator, systems, user};
use serde_json::json;

use super::{
    JOB_PRICE_MICRO_USDC, WALLET_ADDRESS, alice, create_cancelled_job, create_funded_job, create_open_job,
    create_won_job, find_agent, find_settlement, lease_submission, new_simulator, post_job, signature_input, tx_hash,
    with_chain_and_agents,
};

/// A record that sends the named event to another record.
const FORWARDER_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.boss"
about     = "Sends events of the record's owner and operators"

[states]
there = { about = "open", rest = true }

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

fn simulator_with_forwarder() -> Simulator {
    with_chain_and_agents(Simulator::new(systems::load_with_files("relay", &[("boss.toml", FORWARDER_LIFECYCLE)])))
}

/// Creates a forwarder that references these records.
fn create_forwarder(stage: &mut Simulator, targets: &[(&str, RecordId)]) -> RecordId {
    let olga = operator("olga");
    let creation = stage.create("test.boss", &olga);
    targets.iter().fold(creation, |new, (name, id)| new.with(name, id.to_string())).expect_ok()
}

/// REL-8, REL-9, REL-20, REL-21: a record cannot act for agents, senders and operators. REL-6: nor can it mark the
/// refund of a live job as sent.
#[test]
fn cascade_from_other_record_cannot_act_for_people() {
    let mut stage = simulator_with_forwarder();
    let (open, running, cancelled_job) =
        (create_open_job(&mut stage), create_funded_job(&mut stage), create_cancelled_job(&mut stage));
    let withdrawn = super::create_open_job(&mut stage);
    stage.fire(withdrawn, "cancel", &alice()).expect_ok();
    let resolved = create_won_job(&mut stage, "bob");
    create_won_job(&mut stage, "dave");
    let payout = find_settlement(&stage, resolved, "payout");
    stage.lease(payout, "w1");
    let complaint = json!({ "job": resolved.to_string(), "reason": "not a haiku" });
    let dispute = stage.create("relay.dispute", &alice()).with_all(complaint).expect_ok();
    let (dave, stranger) = (find_agent(&stage, "dave"), user("stranger"));
    for job in [open, running, cancelled_job, withdrawn, resolved] {
        let targets = [("job", job), ("agent", dave), ("settlement", payout), ("dispute", dispute)];
        let before = targets.map(|(_, id)| stage.record(id).version);
        let forwarder = create_forwarder(&mut stage, &targets);
        for event in ["edit", "claim", "unclaim", "cancel", "refund", "rename", "rewire", "uphold", "dismiss"] {
            stage.fire(forwarder, event, &stranger).expect_unchanged();
        }
        stage
            .fire(forwarder, "fund", &stranger)
            .with("tx_hash", tx_hash(0xfff, JOB_PRICE_MICRO_USDC))
            .expect_unchanged();
        stage.fire(forwarder, "sign", &stranger).with_all(signature_input(1)).expect_unchanged();
        for event in ["post", "register", "complain"] {
            stage.fire(forwarder, event, &stranger).expect_refusal(409, "spawn_not_taken");
        }
        if job != cancelled_job && job != withdrawn {
            stage.fire(forwarder, "sent", &stranger).expect_unchanged();
        }
        assert_eq!(targets.map(|(_, id)| stage.record(id).version), before);
    }
}

/// REL-3, REL-6, REL-12, REL-13: not even the records' owners, parties, operators or the leasing oracle may send them.
#[test]
fn record_only_events_are_refused_to_callers() {
    let mut stage = new_simulator();
    let (job, over) = (create_funded_job(&mut stage), create_cancelled_job(&mut stage));
    let lease = lease_submission(&mut stage, job, "bob");
    let bob = find_agent(&stage, "bob");
    let id_text = |id: RecordId| id.to_string();
    for (record, event, input) in [
        (job, "resolve", json!({ "submission": id_text(lease.record) })),
        (over, "refund_sent", json!({ "tx_hash": "off-chain" })),
        (bob, "claimed", json!({})),
        (bob, "unclaimed", json!({})),
        (bob, "won", json!({ "job": id_text(job), "amount": 1, "on_chain": false })),
        (lease.record, "discard", json!({ "reason": "job_cancelled" })),
    ] {
        for caller in [alice(), user("bob"), user("mallory"), operator("olga"), lease.worker.clone()] {
            stage.fire(record, event, &caller).with_all(input.clone()).expect_not_allowed();
        }
    }
    let discard = stage.fire(lease.record, "discard", &lease.worker).token(lease.token);
    discard.with("reason", "job_cancelled").expect_not_allowed();
}

/// REL-12
#[test]
fn submission_states_match_contract() {
    let stage = new_simulator();
    let states = &stage.lifecycle("relay.submission").states;
    let names: Vec<&str> = states.iter().map(|state| &*state.name).collect();
    assert_eq!(names, ["pending", "judging", "passed", "failed"]);
}

/// REL-13
#[test]
fn claims_below_zero_are_a_fault() {
    let mut stage = simulator_with_forwarder();
    let (job, carol) = (create_open_job(&mut stage), find_agent(&stage, "carol"));
    let forwarder = create_forwarder(&mut stage, &[("job", job), ("agent", carol)]);
    stage.fire(forwarder, "forget", &user("stranger")).expect_refusal(422, "fault");
    assert_eq!(stage.field(carol, "claims"), 0);
}

/// REL-9
#[test]
fn agent_registered_by_operator_owns_itself() {
    let mut stage = new_simulator();
    let erin = stage.create("relay.agent", &operator("olga")).with("agent_id", "erin").expect_ok();
    stage.fire(erin, "edit", &user("olga")).with("name", "Mine").expect_not_allowed();
    stage.fire(erin, "edit", &user("erin")).with("name", "Erin").expect_ok();
    create_won_job(&mut stage, "erin");
    stage.fire(erin, "edit", &user("erin")).with("wallet", WALLET_ADDRESS).expect_ok();
    create_won_job(&mut stage, "erin");
    let payouts = stage.records_of("relay.settlement");
    assert!(payouts.len() == 2 && payouts.iter().all(|payout| *payout.owner == *"erin"), "nor its winnings");
}

/// REL-10: both bounds are included.
#[test]
fn min_reputation_is_between_zero_and_one() {
    let mut stage = new_simulator();
    for (min_reputation, fits) in [(0.0, true), (1.0, true), (-0.01, false), (1.01, false)] {
        let attempt = post_job(&mut stage).with("min_reputation", min_reputation);
        if fits {
            attempt.expect_ok();
        } else {
            attempt.expect_bad_input();
        }
    }
}
