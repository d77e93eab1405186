//! The relay system, played: each test reads like the rule it cites. The rules stand in `systems/relay/README.md`.

mod agents;
mod cancelling;
mod claims;
mod disputes;
mod edges;
mod expiry;
mod funding;
mod judging;
mod matrix;
mod money;
mod off_chain;
mod posting;
mod refunds;
mod settlements;
mod submitting;
mod wins;

use onceward_core::decide::Question;
use onceward_core::record::Actor;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_testkit::{Attempt, Lease, Stage, systems, user};
use serde_json::{Value, json};

/// Ten USDC.
const PRICE: i64 = 10_000_000;
/// Who sends the deposits, as the chain's log says.
const DEPOSITOR: &str = "0xd0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0";
const WALLET: &str = "0xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A stage with a chain, on which Alice buys, Bob and Carol work, and Dave works without a wallet.
fn stage() -> Stage {
    dressed(systems::stage("relay"))
}

fn dressed(stage: Stage) -> Stage {
    let mut stage = stage.answer("relay.job", "deposit", chain);
    for name in ["alice", "bob", "carol"] {
        register(&mut stage, name).with("wallet", WALLET).ok();
    }
    register(&mut stage, "dave").ok();
    stage
}

fn register<'s>(stage: &'s mut Stage, name: &str) -> Attempt<'s> {
    stage.create("relay.agent", &user(name)).with("agent_id", name)
}

/// A transaction: which one, and how much it brought.
fn tx(number: u32, amount: i64) -> String {
    format!("0x{number:032x}{amount:032x}")
}

/// A deposit that was taken on trust: no chain has seen it.
fn on_trust(number: u32) -> String {
    format!("trust me {number}")
}

/// A chain on which every transaction of more than nothing is deep enough; and, beside it, deposits taken on trust.
fn chain(question: &Question, _: Option<&[u8]>) -> Value {
    let hash = question.arguments["tx_hash"].as_str().expect("a hash").to_lowercase();
    if let Some(number) = hash.strip_prefix("trust me ") {
        let tx_hash = tx(number.parse().expect("a number"), 0);
        let amount = &question.arguments["at_least"];
        return json!({ "ok": true, "on_chain": false, "amount": amount, "sender": DEPOSITOR, "tx_hash": tx_hash });
    }
    let amount = hash.get(34..).and_then(|digits| i64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    let tx_hash = if amount == 0 { tx(0, 0) } else { hash };
    json!({ "ok": amount > 0, "on_chain": true, "amount": amount, "sender": DEPOSITOR, "tx_hash": tx_hash })
}

fn alice() -> Actor {
    user("alice")
}

/// A time so far from now, as callers write it.
fn later(stage: &Stage, length: &str) -> String {
    let length: Duration = length.parse().expect("a duration, as 30s");
    stage.now().checked_add(length).expect("a time that can be written").to_string()
}

/// Alice posts a job that runs for a day.
fn post(stage: &mut Stage) -> Attempt<'_> {
    let expiry = later(stage, "1d");
    stage.create("relay.job", &alice()).with_all(json!({
        "title": "A haiku", "description": "About relays", "price": PRICE, "expiry": expiry
    }))
}

fn open(stage: &mut Stage) -> RecordId {
    post(stage).ok()
}

fn fund<'s>(stage: &'s mut Stage, job: RecordId, hash: &str) -> Attempt<'s> {
    stage.fire(job, "fund", &alice()).with("tx_hash", hash)
}

/// Paid for, to the cent, by a transaction of its own.
fn pay(stage: &mut Stage, job: RecordId) -> RecordId {
    let Value::Number(price) = stage.field(job, "price") else { panic!("a price is a number") };
    let number = u32::try_from(stage.log().len()).expect("a short play");
    fund(stage, job, &tx(number, price.as_i64().expect("whole"))).ok()
}

fn funded(stage: &mut Stage) -> RecordId {
    let job = open(stage);
    pay(stage, job)
}

/// Paid for without a chain.
fn trusted(stage: &mut Stage) -> RecordId {
    let job = open(stage);
    let number = u32::try_from(stage.log().len()).expect("a short play");
    fund(stage, job, &on_trust(number)).ok()
}

fn claim<'s>(stage: &'s mut Stage, job: RecordId, who: &str) -> Attempt<'s> {
    stage.fire(job, "claim", &user(who))
}

fn submit<'s>(stage: &'s mut Stage, job: RecordId, who: &str) -> Attempt<'s> {
    stage.create("relay.submission", &user(who)).with("job", job.to_string()).payload(b"five, seven, five")
}

/// They claim the job if they have not yet, and hand something in.
fn submitted(stage: &mut Stage, job: RecordId, who: &str) -> RecordId {
    let claimed = stage.field(job, "participants").as_array().is_some_and(|all| all.contains(&json!(who)));
    if !claimed {
        claim(stage, job, who).ok();
    }
    submit(stage, job, who).ok()
}

/// The oracle has begun.
fn judged(stage: &mut Stage, job: RecordId, who: &str) -> Lease {
    let submission = submitted(stage, job, who);
    stage.lease(submission, "w1")
}

fn verdict(score: i64) -> Value {
    json!({ "score": score, "steps": [{ "step": 1, "name": "guard", "passed": true }] })
}

/// A job that this worker has won.
fn won(stage: &mut Stage, who: &str) -> RecordId {
    let job = funded(stage);
    win(stage, job, who)
}

fn win(stage: &mut Stage, job: RecordId, who: &str) -> RecordId {
    let lease = judged(stage, job, who);
    stage.commit(&lease, verdict(100)).ok();
    job
}

fn cancelled(stage: &mut Stage) -> RecordId {
    let job = funded(stage);
    stage.fire(job, "cancel", &alice()).ok()
}

fn expired(stage: &mut Stage) -> RecordId {
    let job = funded(stage);
    stage.pass("1d");
    job
}

/// The one settlement of a job of this kind.
#[track_caller]
fn settlement(stage: &Stage, job: RecordId, kind: &str) -> RecordId {
    let all = stage.linked(job, "relay.settlement", "job");
    let of_kind: Vec<_> = all.into_iter().filter(|id| stage.field(*id, "kind") == kind).collect();
    assert_eq!(of_kind.len(), 1, "one {kind} for the job");
    of_kind[0]
}

fn signature(nonce: i64) -> Value {
    json!({ "nonce": nonce, "raw_tx": "0x02f8b1", "tx_hash": tx(nonce.try_into().expect("small"), 0) })
}

fn sign<'s>(stage: &'s mut Stage, lease: &Lease, nonce: i64) -> Attempt<'s> {
    stage.fire(lease.record, "sign", &lease.worker).token(lease.token).with_all(signature(nonce))
}

fn confirm<'s>(stage: &'s mut Stage, lease: &Lease, nonce: i64) -> Attempt<'s> {
    stage.commit(lease, json!({ "tx_hash": signature(nonce)["tx_hash"] }))
}

/// Signed, sent and confirmed.
fn settle(stage: &mut Stage, settlement: RecordId, nonce: i64) {
    let lease = stage.lease(settlement, "w1");
    sign(stage, &lease, nonce).ok();
    confirm(stage, &lease, nonce).ok();
}

fn usdc(stage: &Stage, account: &str) -> i64 {
    stage.balance("micro-usdc", account)
}

fn depositor(stage: &Stage) -> i64 {
    usdc(stage, &format!("depositor:{DEPOSITOR}"))
}

fn agent(stage: &Stage, name: &str) -> RecordId {
    let all = stage.all("relay.agent");
    let found = all.iter().find(|agent| stage.field(agent.id, "agent_id") == name);
    found.unwrap_or_else(|| panic!("{name} is not registered")).id
}

fn rate(stage: &Stage, name: &str) -> Value {
    stage.field(agent(stage, name), "completion_rate")
}

/// Every account and every hold together: nothing, or money was made or lost.
fn total(stage: &Stage) -> i64 {
    let agents = ["alice", "bob", "carol", "dave"].map(|name| usdc(stage, &format!("agent:{name}")));
    let named = usdc(stage, "chain") + usdc(stage, "fee") + depositor(stage) + agents.iter().sum::<i64>();
    let holders = ["relay.job", "relay.agent", "relay.settlement"];
    named + holders.iter().flat_map(|name| stage.all(name)).map(|record| record.hold).sum::<i64>()
}
