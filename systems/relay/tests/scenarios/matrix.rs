//! Every state, every event, every caller, for the five lifecycles.

use onceward_testkit::matrix::{Allowed, Matrix, Trial};
use onceward_testkit::{Stage, operator, user};
use serde_json::{Map, Value, json};

use super::{
    PRICE, agent, alice, cancelled, claim, dressed, expired, funded, judged, open, settlement, sign, signature,
    submitted, tx, verdict, won,
};

/// An id that no record has.
const NOBODY: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn given(json: Value) -> Map<String, Value> {
    match json {
        Value::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}

fn fire(event: &str, input: Value) -> Trial {
    Trial::Fire { event: event.to_owned(), input: given(input) }
}

/// Typed from the requirement. An agent is anybody registered who is not the buyer; Bob has claimed where it says so.
const JOB: &[Allowed<'static>] = &[
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
    // Said by the one settlement that a refund makes.
    ("expired", "refund_sent tx_hash=\"off-chain\"", "record", "expired"),
    ("cancelled", "refund_sent tx_hash=\"off-chain\"", "record", "cancelled"),
];

/// REL-1, REL-2, REL-4, REL-5, REL-6, REL-7, REL-8, REL-9, REL-21: these moves happen, and no other does.
#[test]
fn every_state_event_and_caller_of_a_job() {
    let paid = json!({ "tx_hash": tx(0xfff, PRICE) });
    let name = fire("fund", paid.clone()).name();
    let allowed: Vec<Allowed<'_>> = JOB
        .iter()
        .map(|(from, trial, by, to)| (*from, if *trial == "FUND" { &name } else { *trial }, *by, *to))
        .collect();
    let spawned = [("title", "'t'"), ("description", "'d'"), ("price", "100000")];
    Matrix::new("relay", "relay.job", &spawned, dressed)
        .caller("agent", user("bob"))
        .given(given(json!({ "title": "t", "description": "d", "price": PRICE })), None)
        .trial(fire("fund", paid))
        .trial(fire("edit", json!({ "expiry": "2027-01-01T00:00:00Z" })))
        .trial(fire("resolve", json!({ "submission": NOBODY })))
        .trial(fire("refund_sent", json!({ "tx_hash": "off-chain" })))
        .scene("open: in time", open)
        .scene("open: overdue", |stage| {
            let job = open(stage);
            stage.pass("1d");
            job
        })
        .scene("funded: fresh", funded)
        .scene("funded: claimed", |stage| {
            let job = funded(stage);
            claim(stage, job, "bob").ok()
        })
        .scene("funded: judging", |stage| {
            let job = funded(stage);
            submitted(stage, job, "bob");
            job
        })
        .scene("resolved", |stage| won(stage, "bob"))
        .scene("expired: not refunded", expired)
        .scene("expired: refund pending", |stage| {
            let job = expired(stage);
            stage.fire(job, "refund", &alice()).ok()
        })
        .scene("cancelled: never funded", |stage| {
            let job = open(stage);
            stage.fire(job, "cancel", &alice()).ok()
        })
        .scene("cancelled: not refunded", cancelled)
        .scene("cancelled: refunded", |stage| {
            let job = cancelled(stage);
            stage.fire(job, "refund", &alice()).ok();
            let refund = settlement(stage, job, "refund");
            super::settle(stage, refund, 1);
            job
        })
        .check(&allowed);
}

const SUBMISSION: &[Allowed<'static>] = &[
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
    // Not a move of the submission: its oracle's execution is still to be closed after the verdict.
    ("passed: not closed", "heartbeat", "worker", "passed"),
    ("passed: not closed", "finish", "worker", "passed"),
    ("passed: not closed", "commit and finish", "worker", "passed"),
    ("passed: not closed", "lost", "engine", "passed"),
    ("passed: not closed", "time", "engine", "passed"),
];

/// REL-12, REL-14, REL-21: a submission is judged once, and nothing but its job's end fails it from outside.
#[test]
fn every_state_event_and_caller_of_a_submission() {
    let passed = |stage: &mut Stage| {
        let job = funded(stage);
        let lease = judged(stage, job, "alice2");
        stage.commit_only(&lease, verdict(90)).ok();
        lease
    };
    Matrix::new("relay", "relay.submission", &[("job", "record.target.job")], with_a_job)
        .owner_is(user("alice2"))
        .caller("buyer", alice())
        .given(given(json!({ "job": JOB_ID })), Some(b"five, seven, five"))
        .trial(fire("discard", json!({ "reason": "job_cancelled" })))
        .works(&verdict(90), &["guard_blocked", "503"])
        .scene("judging: unread", |stage| {
            let job = funded(stage);
            submitted(stage, job, "alice2")
        })
        .scene("judging: read", |stage| {
            let job = funded(stage);
            judged(stage, job, "alice2")
        })
        .scene("passed: not closed", passed)
        .scene("passed: closed", move |stage| {
            let lease = passed(stage);
            stage.finish(&lease).ok();
            lease
        })
        .scene("failed", |stage| {
            let job = funded(stage);
            let lease = judged(stage, job, "alice2");
            stage.commit(&lease, verdict(10)).ok();
            lease
        })
        .check(SUBMISSION);
}

/// The job that is there before any scene begins.
const JOB_ID: &str = "01a1e0cb-9200-7000-8000-000000000001";

/// With a worker for Alice's jobs, who has claimed one.
fn with_a_job(stage: Stage) -> Stage {
    let mut stage = dressed(stage);
    super::register(&mut stage, "alice2").ok();
    let id = serde_json::from_value(json!(JOB_ID)).expect("an id");
    let job = super::post(&mut stage).id(id).ok();
    super::pay(&mut stage, job);
    claim(&mut stage, job, "alice2").ok();
    stage
}

/// With a job that Bob has won.
fn with_a_winner(stage: Stage) -> Stage {
    let mut stage = with_a_job(stage);
    let job = stage.all("relay.job")[0].id;
    let lease = judged(&mut stage, job, "bob");
    stage.commit(&lease, verdict(90)).ok();
    stage
}

/// REL-3, REL-9, REL-13, REL-21: an agent registers and edits itself; the rest is its jobs' to tell.
#[test]
fn every_state_event_and_caller_of_an_agent() {
    let wallet = fire("edit", json!({ "wallet": super::WALLET }));
    let edit = wallet.name();
    Matrix::new("relay", "relay.agent", &[("agent_id", "'erin'")], with_a_job)
        .given(given(json!({ "agent_id": "olga" })), None)
        .caller("self", user("alice2"))
        .caller("new one", user("olga"))
        .trial(wallet)
        .trial(fire("won", json!({ "job": JOB_ID, "amount": 5, "on_chain": true })))
        .scene("registered: new", |stage| {
            super::register(stage, "alice3").ok();
            agent(stage, "alice3")
        })
        .scene("registered: claimed", |stage| agent(stage, "alice2"))
        .check(&[
            ("nothing", "create", "operator, new one", "registered"),
            ("registered: claimed", &edit, "self", "registered"),
            ("registered", "claimed", "record", "registered"),
            ("registered: claimed", "unclaimed", "record", "registered"),
        ]);
}

const SETTLEMENT: &[Allowed<'static>] = &[
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
    // Not a move of the settlement: its sender's execution is still to be closed after the commit.
    ("confirmed: not closed", "heartbeat", "worker", "confirmed"),
    ("confirmed: not closed", "finish", "worker", "confirmed"),
    ("confirmed: not closed", "commit and finish", "worker", "confirmed"),
    ("confirmed: not closed", "lost", "engine", "confirmed"),
    ("confirmed: not closed", "time", "engine", "confirmed"),
];

/// REL-7, REL-20: a settlement is sent until it is confirmed, and confirmed only as it was signed.
#[test]
fn every_state_event_and_caller_of_a_settlement() {
    let name = fire("sign", signature(1)).name();
    let allowed: Vec<Allowed<'_>> = SETTLEMENT
        .iter()
        .map(|(from, trial, by, to)| (*from, if *trial == "SIGN" { &name } else { *trial }, *by, *to))
        .collect();
    let due = |stage: &mut Stage| {
        cancelled(stage);
        let job = cancelled(stage);
        stage.fire(job, "refund", &alice()).ok();
        settlement(stage, job, "refund")
    };
    let signed = move |stage: &mut Stage| {
        let id = due(stage);
        let lease = stage.lease(id, "w1");
        sign(stage, &lease, 1).ok();
        lease
    };
    let confirmed = move |stage: &mut Stage| {
        let lease = signed(stage);
        stage.commit_only(&lease, json!({ "tx_hash": signature(1)["tx_hash"] })).ok();
        lease
    };
    let spawned = [
        ("kind", "'overpaid'"),
        ("job", "record.target.job"),
        ("address", "record.target.address"),
        ("amount", "1"),
        ("on_chain", "true"),
    ];
    Matrix::new("relay", "relay.settlement", &spawned, dressed)
        .given(given(json!({ "kind": "payout", "address": super::WALLET, "amount": 1, "on_chain": true })), None)
        .trial(fire("sign", signature(1)))
        .works(&json!({ "tx_hash": signature(1)["tx_hash"] }), &["503"])
        .scene("due", due)
        .scene("sending: unsigned", move |stage| {
            let id = due(stage);
            stage.lease(id, "w1")
        })
        .scene("sending: signed", signed)
        .scene("sending: off-chain", |stage| {
            let job = super::trusted(stage);
            stage.fire(job, "cancel", &alice()).ok();
            stage.fire(job, "refund", &alice()).ok();
            let refund = settlement(stage, job, "refund");
            stage.lease(refund, "w1")
        })
        .scene("confirmed: not closed", confirmed)
        .scene("confirmed: closed", move |stage| {
            let lease = confirmed(stage);
            stage.finish(&lease).ok();
            lease
        })
        .check(&allowed);
}

/// REL-21: a dispute is opened by a party and closed by an operator.
#[test]
fn every_state_event_and_caller_of_a_dispute() {
    let opened = |stage: &mut Stage| {
        let job = won(stage, "bob");
        stage.create("relay.dispute", &alice()).with("job", job.to_string()).with("reason", "prose").ok()
    };
    let closed = move |stage: &mut Stage, event: &str| {
        let id = opened(stage);
        stage.fire(id, event, &operator("olga")).with("finding", "so").ok()
    };
    Matrix::new("relay", "relay.dispute", &[("job", "record.target.job"), ("reason", "'x'")], with_a_winner)
        .caller("winner", user("bob"))
        .given(given(json!({ "job": JOB_ID, "reason": "prose" })), None)
        .trial(fire("uphold", json!({ "finding": "so" })))
        .trial(fire("dismiss", json!({ "finding": "so" })))
        .scene("opened", opened)
        .scene("upheld", move |stage| closed(stage, "uphold"))
        .scene("dismissed", move |stage| closed(stage, "dismiss"))
        .check(&[
            ("nothing", "create", "owner, winner", "opened"),
            ("opened", "uphold finding=\"so\"", "operator", "upheld"),
            ("opened", "dismiss finding=\"so\"", "operator", "dismissed"),
        ]);
}
