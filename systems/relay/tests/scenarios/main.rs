//! Scenario tests of the relay system. The rules are in `systems/relay/README.md`.

mod agents;
mod boundaries;
mod cancellation;
mod claims;
mod disputes;
mod expiry;
mod funding;
mod job_creation;
mod judging;
mod ledger;
mod matrix;
mod off_chain;
mod refunds;
mod settlements;
mod submission;
mod wins;

use onceward_core::decide::CheckQuery;
use onceward_core::record::Actor;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_testkit::{SimulatedCall, SimulatedLease, Simulator, systems, user};
use serde_json::{Value, json};

/// Ten USDC.
const JOB_PRICE_MICRO_USDC: i64 = 10_000_000;
/// Sender of the deposits according to the chain.
const DEPOSITOR_ADDRESS: &str = "0xd0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0";
const WALLET_ADDRESS: &str = "0xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Creates a simulator with a chain. Alice buys, Bob and Carol work, and Dave works without a wallet.
fn new_simulator() -> Simulator {
    with_chain_and_agents(systems::new_simulator("relay"))
}

fn with_chain_and_agents(stage: Simulator) -> Simulator {
    let mut stage = stage.on_check("relay.job", "deposit", answer_deposit_check);
    for name in ["alice", "bob", "carol"] {
        register_agent(&mut stage, name).with("wallet", WALLET_ADDRESS).expect_ok();
    }
    register_agent(&mut stage, "dave").expect_ok();
    stage
}

fn register_agent<'s>(stage: &'s mut Simulator, name: &str) -> SimulatedCall<'s> {
    stage.create("relay.agent", &user(name)).with("agent_id", name)
}

/// Returns a hash that encodes the transaction's number and amount.
fn tx_hash(number: u32, amount: i64) -> String {
    format!("0x{number:032x}{amount:032x}")
}

/// Returns the hash of an off-chain deposit, which the check accepts on trust.
fn trusted_deposit_hash(number: u32) -> String {
    format!("trust me {number}")
}

/// Answers like a chain on which every transaction with an amount is confirmed; also accepts off-chain deposits.
fn answer_deposit_check(query: &CheckQuery, _: Option<&[u8]>) -> Value {
    let hash = query.arguments["tx_hash"].as_str().expect("a hash").to_lowercase();
    if let Some(number) = hash.strip_prefix("trust me ") {
        let tx_hash = tx_hash(number.parse().expect("a number"), 0);
        let amount = &query.arguments["at_least"];
        return json!({ "ok": true, "on_chain": false, "amount": amount, "sender": DEPOSITOR_ADDRESS, "tx_hash": tx_hash });
    }
    let amount = hash.get(34..).and_then(|digits| i64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    let tx_hash = if amount == 0 { tx_hash(0, 0) } else { hash };
    json!({ "ok": amount > 0, "on_chain": true, "amount": amount, "sender": DEPOSITOR_ADDRESS, "tx_hash": tx_hash })
}

fn alice() -> Actor {
    user("alice")
}

/// Returns the time `length` from now, as callers write it.
fn time_from_now(stage: &Simulator, length: &str) -> String {
    let length: Duration = length.parse().expect("a duration, as 30s");
    stage.now().checked_add(length).expect("a valid time").to_string()
}

/// Posts a job of Alice that expires in a day.
fn post_job(stage: &mut Simulator) -> SimulatedCall<'_> {
    let expiry = time_from_now(stage, "1d");
    stage.create("relay.job", &alice()).with_all(json!({
        "title": "A haiku", "description": "About relays", "price": JOB_PRICE_MICRO_USDC, "expiry": expiry
    }))
}

fn create_open_job(stage: &mut Simulator) -> RecordId {
    post_job(stage).expect_ok()
}

fn fund_job<'s>(stage: &'s mut Simulator, job: RecordId, hash: &str) -> SimulatedCall<'s> {
    stage.fire(job, "fund", &alice()).with("tx_hash", hash)
}

/// Funds a job with a transaction of exactly its price.
fn fund_exactly(stage: &mut Simulator, job: RecordId) -> RecordId {
    let Value::Number(price) = stage.field(job, "price") else { panic!("the price is a number") };
    let number = u32::try_from(stage.log().len()).expect("a short play");
    fund_job(stage, job, &tx_hash(number, price.as_i64().expect("whole"))).expect_ok()
}

fn create_funded_job(stage: &mut Simulator) -> RecordId {
    let job = create_open_job(stage);
    fund_exactly(stage, job)
}

/// Creates a job with an off-chain deposit.
fn create_trusted_job(stage: &mut Simulator) -> RecordId {
    let job = create_open_job(stage);
    let number = u32::try_from(stage.log().len()).expect("a short play");
    fund_job(stage, job, &trusted_deposit_hash(number)).expect_ok()
}

fn claim_job<'s>(stage: &'s mut Simulator, job: RecordId, agent_id: &str) -> SimulatedCall<'s> {
    stage.fire(job, "claim", &user(agent_id))
}

fn submit_work<'s>(stage: &'s mut Simulator, job: RecordId, agent_id: &str) -> SimulatedCall<'s> {
    stage.create("relay.submission", &user(agent_id)).with("job", job.to_string()).payload(b"five, seven, five")
}

/// Claims the job unless the agent has done so, and creates a submission.
fn claim_and_submit(stage: &mut Simulator, job: RecordId, agent_id: &str) -> RecordId {
    let claimed = stage.field(job, "participants").as_array().is_some_and(|all| all.contains(&json!(agent_id)));
    if !claimed {
        claim_job(stage, job, agent_id).expect_ok();
    }
    submit_work(stage, job, agent_id).expect_ok()
}

/// Creates a submission that an oracle has leased.
fn lease_submission(stage: &mut Simulator, job: RecordId, agent_id: &str) -> SimulatedLease {
    let submission = claim_and_submit(stage, job, agent_id);
    stage.lease(submission, "w1")
}

fn verdict(score: i64) -> Value {
    json!({ "score": score, "steps": [{ "step": 1, "name": "guard", "passed": true }] })
}

/// Creates a job that this worker has won.
fn create_won_job(stage: &mut Simulator, agent_id: &str) -> RecordId {
    let job = create_funded_job(stage);
    win_job(stage, job, agent_id)
}

fn win_job(stage: &mut Simulator, job: RecordId, agent_id: &str) -> RecordId {
    let lease = lease_submission(stage, job, agent_id);
    stage.commit(&lease, verdict(100)).expect_ok();
    job
}

fn create_cancelled_job(stage: &mut Simulator) -> RecordId {
    let job = create_funded_job(stage);
    stage.fire(job, "cancel", &alice()).expect_ok()
}

fn create_expired_job(stage: &mut Simulator) -> RecordId {
    let job = create_funded_job(stage);
    stage.advance("1d");
    job
}

/// Returns the only settlement of this kind.
#[track_caller]
fn find_settlement(stage: &Simulator, job: RecordId, kind: &str) -> RecordId {
    let all = stage.linked_records(job, "relay.settlement", "job");
    let matching: Vec<_> = all.into_iter().filter(|id| stage.field(*id, "kind") == kind).collect();
    assert_eq!(matching.len(), 1, "one {kind} of the job");
    matching[0]
}

fn signature_input(nonce: i64) -> Value {
    json!({ "nonce": nonce, "raw_tx": "0x02f8b1", "tx_hash": tx_hash(nonce.try_into().expect("small"), 0) })
}

fn sign_settlement<'s>(stage: &'s mut Simulator, lease: &SimulatedLease, nonce: i64) -> SimulatedCall<'s> {
    stage.fire(lease.record, "sign", &lease.worker).token(lease.token).with_all(signature_input(nonce))
}

fn confirm_settlement<'s>(stage: &'s mut Simulator, lease: &SimulatedLease, nonce: i64) -> SimulatedCall<'s> {
    stage.commit(lease, json!({ "tx_hash": signature_input(nonce)["tx_hash"] }))
}

/// Signs, sends and confirms a settlement.
fn send_settlement(stage: &mut Simulator, settlement: RecordId, nonce: i64) {
    let lease = stage.lease(settlement, "w1");
    sign_settlement(stage, &lease, nonce).expect_ok();
    confirm_settlement(stage, &lease, nonce).expect_ok();
}

fn account_balance(stage: &Simulator, account: &str) -> i64 {
    stage.balance("micro-usdc", account)
}

fn depositor_balance(stage: &Simulator) -> i64 {
    account_balance(stage, &format!("depositor:{DEPOSITOR_ADDRESS}"))
}

fn find_agent(stage: &Simulator, name: &str) -> RecordId {
    let all = stage.records_of("relay.agent");
    let found = all.iter().find(|agent| stage.field(agent.id, "agent_id") == name);
    found.unwrap_or_else(|| panic!("{name} is not registered")).id
}

fn completion_rate(stage: &Simulator, name: &str) -> Value {
    stage.field(find_agent(stage, name), "completion_rate")
}

/// Returns the sum over all accounts and holds; it must be zero.
fn total_balance(stage: &Simulator) -> i64 {
    let agents = ["alice", "bob", "carol", "dave"].map(|name| account_balance(stage, &format!("agent:{name}")));
    let named = account_balance(stage, "chain")
        + account_balance(stage, "fee")
        + depositor_balance(stage)
        + agents.iter().sum::<i64>();
    let holders = ["relay.job", "relay.agent", "relay.settlement"];
    named + holders.iter().flat_map(|name| stage.records_of(name)).map(|record| record.hold).sum::<i64>()
}
