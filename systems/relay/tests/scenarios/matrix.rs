//! Transition matrix of the five lifecycles: every event in every state by every caller.

use onceward_testkit::matrix::{AllowedTransition, LifecycleMatrix, MatrixTrial};
use onceward_testkit::{Simulator, operator, user};
use serde_json::{Map, Value, json};

use super::{
    JOB_PRICE_MICRO_USDC, alice, claim_and_submit, claim_job, create_cancelled_job, create_expired_job,
    create_funded_job, create_open_job, create_won_job, find_agent, find_settlement, lease_submission, sign_settlement,
    signature_input, tx_hash, verdict, with_chain_and_agents,
};

/// An id that no record has.
const MISSING_RECORD_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn json_object(json: Value) -> Map<String, Value> {
    match json {
        Value::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}

fn fire_trial(event: &str, input: Value) -> MatrixTrial {
    MatrixTrial::Fire { event: event.to_owned(), input: json_object(input) }
}

/// All transitions of the requirement. `agent` is a registered agent other than the buyer; Bob has claimed where the
/// state says so.
const ALLOWED_JOB_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "owner, agent", "open"),
    ("open", "edit expiry=\"2027-01-01T00:00:00Z\"", "owner", "open"),
    ("open: in time", "FUND", "owner", "funded"),
    ("open: overdue", "FUND", "owner", "expired"),
    ("open", "cancel", "owner", "cancelled"),
    ("funded", "edit expiry=\"2027-01-01T00:00:00Z\"", "owner", "funded"),
    ("funded: fresh", "claim", "agent", "funded"),
    ("funded: claimed", "unclaim", "agent", "funded"),
    ("funded: fresh", "cancel", "owner", "cancelled"),
    ("funded: claimed", "cancel", "owner", "cancelled"),
    ("funded", "time", "engine", "expired"),
    ("expired: not refunded", "refund", "owner", "expired"),
    ("cancelled: not refunded", "refund", "owner", "cancelled"),
    ("cancelled: never funded", "FUND", "owner", "cancelled"),
    // Sent by the settlement of the refund.
    ("expired", "refund_sent tx_hash=\"off-chain\"", "record", "expired"),
    ("cancelled", "refund_sent tx_hash=\"off-chain\"", "record", "cancelled"),
];

/// REL-1, REL-2, REL-4, REL-5, REL-6, REL-7, REL-8, REL-9, REL-21
#[test]
fn only_allowed_job_transitions_happen() {
    let fund_input = json!({ "tx_hash": tx_hash(0xfff, JOB_PRICE_MICRO_USDC) });
    let name = fire_trial("fund", fund_input.clone()).name();
    let allowed: Vec<AllowedTransition<'_>> = ALLOWED_JOB_TRANSITIONS
        .iter()
        .map(|(from, trial, by, to)| (*from, if *trial == "FUND" { &name } else { *trial }, *by, *to))
        .collect();
    let spawned = [("title", "'t'"), ("description", "'d'"), ("price", "100000")];
    LifecycleMatrix::new("relay", "relay.job", &spawned, with_chain_and_agents)
        .with_caller("agent", user("bob"))
        .with_create_input(
            json_object(json!({ "title": "t", "description": "d", "price": JOB_PRICE_MICRO_USDC })),
            None,
        )
        .with_trial(fire_trial("fund", fund_input))
        .with_trial(fire_trial("edit", json!({ "expiry": "2027-01-01T00:00:00Z" })))
        .with_trial(fire_trial("resolve", json!({ "submission": MISSING_RECORD_ID })))
        .with_trial(fire_trial("refund_sent", json!({ "tx_hash": "off-chain" })))
        .with_scene("open: in time", create_open_job)
        .with_scene("open: overdue", |stage| {
            let job = create_open_job(stage);
            stage.advance("1d");
            job
        })
        .with_scene("funded: fresh", create_funded_job)
        .with_scene("funded: claimed", |stage| {
            let job = create_funded_job(stage);
            claim_job(stage, job, "bob").expect_ok()
        })
        .with_scene("funded: judging", |stage| {
            let job = create_funded_job(stage);
            claim_and_submit(stage, job, "bob");
            job
        })
        .with_scene("resolved", |stage| create_won_job(stage, "bob"))
        .with_scene("expired: not refunded", create_expired_job)
        .with_scene("expired: refund pending", |stage| {
            let job = create_expired_job(stage);
            stage.fire(job, "refund", &alice()).expect_ok()
        })
        .with_scene("cancelled: never funded", |stage| {
            let job = create_open_job(stage);
            stage.fire(job, "cancel", &alice()).expect_ok()
        })
        .with_scene("cancelled: not refunded", create_cancelled_job)
        .with_scene("cancelled: refunded", |stage| {
            let job = create_cancelled_job(stage);
            stage.fire(job, "refund", &alice()).expect_ok();
            let refund = find_settlement(stage, job, "refund");
            super::send_settlement(stage, refund, 1);
            job
        })
        .assert_only_allowed(&allowed);
}

const ALLOWED_SUBMISSION_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "owner", "judging"),
    ("judging: unread", "lease", "operator, worker, another worker", "judging"),
    ("judging: unread", "time", "engine", "failed"),
    ("judging", "discard reason=\"job_cancelled\"", "record", "failed"),
    ("judging: read", "start", "worker", "judging"),
    ("judging: read", "heartbeat", "worker", "judging"),
    ("judging: read", "commit", "worker", "passed"),
    ("judging: read", "commit and finish", "worker", "passed"),
    ("judging: read", "fail guard_blocked", "worker", "failed"),
    ("judging: read", "fail 503", "worker", "failed"),
    ("judging: read", "yield", "worker", "failed"),
    ("judging: read", "lost", "engine", "failed"),
    ("judging: read", "time", "engine", "failed"),
    // The submission's state does not change: its execution is still open after the verdict.
    ("passed: not closed", "heartbeat", "worker", "passed"),
    ("passed: not closed", "finish", "worker", "passed"),
    ("passed: not closed", "commit and finish", "worker", "passed"),
    ("passed: not closed", "lost", "engine", "passed"),
    ("passed: not closed", "time", "engine", "passed"),
];

/// REL-12, REL-14, REL-21
#[test]
fn only_allowed_submission_transitions_happen() {
    let create_passed_submission = |stage: &mut Simulator| {
        let job = create_funded_job(stage);
        let lease = lease_submission(stage, job, "alice2");
        stage.commit_only(&lease, verdict(90)).expect_ok();
        lease
    };
    LifecycleMatrix::new("relay", "relay.submission", &[("job", "record.target.job")], with_claimed_job)
        .with_owner(user("alice2"))
        .with_caller("buyer", alice())
        .with_create_input(json_object(json!({ "job": PRESET_JOB_ID })), Some(b"five, seven, five"))
        .with_trial(fire_trial("discard", json!({ "reason": "job_cancelled" })))
        .with_work_trials(&verdict(90), &["guard_blocked", "503"])
        .with_scene("judging: unread", |stage| {
            let job = create_funded_job(stage);
            claim_and_submit(stage, job, "alice2")
        })
        .with_scene("judging: read", |stage| {
            let job = create_funded_job(stage);
            lease_submission(stage, job, "alice2")
        })
        .with_scene("passed: not closed", create_passed_submission)
        .with_scene("passed: closed", move |stage| {
            let lease = create_passed_submission(stage);
            stage.finish(&lease).expect_ok();
            lease
        })
        .with_scene("failed", |stage| {
            let job = create_funded_job(stage);
            let lease = lease_submission(stage, job, "alice2");
            stage.commit(&lease, verdict(10)).expect_ok();
            lease
        })
        .assert_only_allowed(ALLOWED_SUBMISSION_TRANSITIONS);
}

/// The job that exists before each trial.
const PRESET_JOB_ID: &str = "01a1e0cb-9200-7000-8000-000000000001";

/// Registers a worker for Alice's jobs that has claimed one.
fn with_claimed_job(stage: Simulator) -> Simulator {
    let mut stage = with_chain_and_agents(stage);
    super::register_agent(&mut stage, "alice2").expect_ok();
    let id = serde_json::from_value(json!(PRESET_JOB_ID)).expect("an id");
    let job = super::post_job(&mut stage).id(id).expect_ok();
    super::fund_exactly(&mut stage, job);
    claim_job(&mut stage, job, "alice2").expect_ok();
    stage
}

/// Adds a job that Bob has won.
fn with_won_job(stage: Simulator) -> Simulator {
    let mut stage = with_claimed_job(stage);
    let job = stage.records_of("relay.job")[0].id;
    let lease = lease_submission(&mut stage, job, "bob");
    stage.commit(&lease, verdict(90)).expect_ok();
    stage
}

/// REL-3, REL-9, REL-13, REL-21
#[test]
fn only_allowed_agent_transitions_happen() {
    let wallet = fire_trial("edit", json!({ "wallet": super::WALLET_ADDRESS }));
    let edit = wallet.name();
    LifecycleMatrix::new("relay", "relay.agent", &[("agent_id", "'erin'")], with_claimed_job)
        .with_create_input(json_object(json!({ "agent_id": "olga" })), None)
        .with_caller("self", user("alice2"))
        .with_caller("new agent", user("olga"))
        .with_trial(wallet)
        .with_trial(fire_trial("won", json!({ "job": PRESET_JOB_ID, "amount": 5, "on_chain": true })))
        .with_scene("registered: new", |stage| {
            super::register_agent(stage, "alice3").expect_ok();
            find_agent(stage, "alice3")
        })
        .with_scene("registered: claimed", |stage| find_agent(stage, "alice2"))
        .assert_only_allowed(&[
            ("nothing", "create", "operator, new agent", "registered"),
            ("registered: claimed", &edit, "self", "registered"),
            ("registered", "claimed", "record", "registered"),
            ("registered: claimed", "unclaimed", "record", "registered"),
        ]);
}

const ALLOWED_SETTLEMENT_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "record", "due"),
    ("due", "lease", "operator, worker, another worker", "sending"),
    ("sending", "start", "worker", "sending"),
    ("sending", "heartbeat", "worker", "sending"),
    ("sending: unsigned", "SIGN", "worker", "sending"),
    ("sending: signed", "commit", "worker", "confirmed"),
    ("sending: signed", "commit and finish", "worker", "confirmed"),
    ("sending", "fail 503", "worker", "due"),
    ("sending", "yield", "worker", "due"),
    ("sending", "lost", "engine", "due"),
    ("sending", "time", "engine", "due"),
    // The settlement's state does not change: its execution is still open after the commit.
    ("confirmed: not closed", "heartbeat", "worker", "confirmed"),
    ("confirmed: not closed", "finish", "worker", "confirmed"),
    ("confirmed: not closed", "commit and finish", "worker", "confirmed"),
    ("confirmed: not closed", "lost", "engine", "confirmed"),
    ("confirmed: not closed", "time", "engine", "confirmed"),
];

/// REL-7, REL-20
#[test]
fn only_allowed_settlement_transitions_happen() {
    let name = fire_trial("sign", signature_input(1)).name();
    let allowed: Vec<AllowedTransition<'_>> = ALLOWED_SETTLEMENT_TRANSITIONS
        .iter()
        .map(|(from, trial, by, to)| (*from, if *trial == "SIGN" { &name } else { *trial }, *by, *to))
        .collect();
    let create_due_settlement = |stage: &mut Simulator| {
        create_cancelled_job(stage);
        let job = create_cancelled_job(stage);
        stage.fire(job, "refund", &alice()).expect_ok();
        find_settlement(stage, job, "refund")
    };
    let create_signed_settlement = move |stage: &mut Simulator| {
        let id = create_due_settlement(stage);
        let lease = stage.lease(id, "w1");
        sign_settlement(stage, &lease, 1).expect_ok();
        lease
    };
    let create_confirmed_settlement = move |stage: &mut Simulator| {
        let lease = create_signed_settlement(stage);
        stage.commit_only(&lease, json!({ "tx_hash": signature_input(1)["tx_hash"] })).expect_ok();
        lease
    };
    let spawned = [
        ("kind", "'overpaid'"),
        ("job", "record.target.job"),
        ("address", "record.target.address"),
        ("amount", "1"),
        ("on_chain", "true"),
    ];
    LifecycleMatrix::new("relay", "relay.settlement", &spawned, with_chain_and_agents)
        .with_create_input(
            json_object(json!({ "kind": "payout", "address": super::WALLET_ADDRESS, "amount": 1, "on_chain": true })),
            None,
        )
        .with_trial(fire_trial("sign", signature_input(1)))
        .with_work_trials(&json!({ "tx_hash": signature_input(1)["tx_hash"] }), &["503"])
        .with_scene("due", create_due_settlement)
        .with_scene("sending: unsigned", move |stage| {
            let id = create_due_settlement(stage);
            stage.lease(id, "w1")
        })
        .with_scene("sending: signed", create_signed_settlement)
        .with_scene("sending: off-chain", |stage| {
            let job = super::create_trusted_job(stage);
            stage.fire(job, "cancel", &alice()).expect_ok();
            stage.fire(job, "refund", &alice()).expect_ok();
            let refund = find_settlement(stage, job, "refund");
            stage.lease(refund, "w1")
        })
        .with_scene("confirmed: not closed", create_confirmed_settlement)
        .with_scene("confirmed: closed", move |stage| {
            let lease = create_confirmed_settlement(stage);
            stage.finish(&lease).expect_ok();
            lease
        })
        .assert_only_allowed(&allowed);
}

/// REL-21
#[test]
fn only_allowed_dispute_transitions_happen() {
    let create_open_dispute = |stage: &mut Simulator| {
        let job = create_won_job(stage, "bob");
        stage.create("relay.dispute", &alice()).with("job", job.to_string()).with("reason", "prose").expect_ok()
    };
    let create_closed_dispute = move |stage: &mut Simulator, event: &str| {
        let id = create_open_dispute(stage);
        stage.fire(id, event, &operator("olga")).with("finding", "so").expect_ok()
    };
    LifecycleMatrix::new("relay", "relay.dispute", &[("job", "record.target.job"), ("reason", "'x'")], with_won_job)
        .with_caller("winner", user("bob"))
        .with_create_input(json_object(json!({ "job": PRESET_JOB_ID, "reason": "prose" })), None)
        .with_trial(fire_trial("uphold", json!({ "finding": "so" })))
        .with_trial(fire_trial("dismiss", json!({ "finding": "so" })))
        .with_scene("opened", create_open_dispute)
        .with_scene("upheld", move |stage| create_closed_dispute(stage, "uphold"))
        .with_scene("dismissed", move |stage| create_closed_dispute(stage, "dismiss"))
        .assert_only_allowed(&[
            ("nothing", "create", "owner, winner", "opened"),
            ("opened", "uphold finding=\"so\"", "operator", "upheld"),
            ("opened", "dismiss finding=\"so\"", "operator", "dismissed"),
        ]);
}
