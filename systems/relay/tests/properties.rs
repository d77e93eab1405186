//! Invariants of jobs, agents and the ledger under random operations of buyers, workers, strangers, operators, oracles
//! and senders. `ONCEWARD_SEED=…` replays one case.

use std::collections::BTreeMap;

use onceward_testkit::random::RandomWalk;
use onceward_testkit::{Simulator, operator, systems, user};
use serde_json::{Value, json};

const DEPOSITOR_ADDRESS: &str = "0xd0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0";
const WALLET_ADDRESS: &str = "0xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const JOB_PRICE_MICRO_USDC: i64 = 1_000_003;

/// Simulates a chain with ten transactions: odd ones exceed the price, every third one is an off-chain deposit.
fn new_simulator() -> Simulator {
    let mut stage = systems::new_simulator("relay").on_check("relay.job", "deposit", |question, _| {
        let hash = question.arguments["tx_hash"].as_str().expect("a hash").to_owned();
        let number: i64 = hash.trim_start_matches("tx").parse().unwrap_or(0);
        let amount = JOB_PRICE_MICRO_USDC + 7 * (number % 2);
        let on_chain = number % 3 != 0;
        json!({
            "ok": number > 0, "on_chain": on_chain, "amount": amount, "sender": DEPOSITOR_ADDRESS,
            "tx_hash": format!("0x{number:064x}")
        })
    });
    for name in ["alice", "bob"] {
        stage.create("relay.agent", &user(name)).with("agent_id", name).with("wallet", WALLET_ADDRESS).expect_ok();
    }
    stage.create("relay.agent", &user("dave")).with("agent_id", "dave").expect_ok();
    stage
}

/// REL-3, REL-6, REL-12, REL-13, REL-18, REL-20: only a funded job holds escrow; at most one submission wins; an
/// agent's winnings are what was sent to it plus its hold; balances are deposits minus what has left; claims and wins
/// add up; a job is refunded at most once.
#[test]
fn random_operations_keep_jobs_agents_and_ledger_consistent() {
    let hashes = (0..10).map(|number| json!(format!("tx{number}")));
    let signed = |from: i64| (from..from + 6).map(|number| json!(format!("0x{number:064x}")));
    RandomWalk::with_actors(&[user("alice"), user("alice"), user("bob"), user("dave"), operator("olga")])
        .error_codes(&["guard_blocked", "lost", "yielded"])
        .values_for("price", [json!(JOB_PRICE_MICRO_USDC)])
        .values_for("title", [json!("A haiku")])
        .values_for("description", [json!("About relays")])
        .values_for("threshold", [json!(50)])
        .values_for("score", [json!(49), json!(50), json!(100)])
        .values_for("wallet", [json!(WALLET_ADDRESS)])
        .values_for("agent_id", [json!("eve")])
        .values_for("tx_hash", hashes.chain(signed(1)).chain([Value::Null]))
        .values_for("nonce", (1..9).map(Value::from))
        .values_for("reason", [json!("no good")])
        .payloads(&["five, seven, five"])
        .run("relay", 16, 220, new_simulator, assert_invariants);
}

fn assert_invariants(stage: &Simulator) {
    let (mut fee, mut depositor_total) = (0, 0);
    let (mut claims, mut wins): (BTreeMap<String, i64>, BTreeMap<String, i64>) = Default::default();
    let mut earned: BTreeMap<String, i64> = BTreeMap::new();
    for job in stage.records_of("relay.job") {
        let field = |name: &str| stage.field(job.id, name);
        let state = &**job.state_name();
        let deposit = field("deposit").as_i64().expect("a number");
        assert_eq!(job.hold, if state == "funded" { deposit } else { 0 }, "REL-18: only a funded job holds escrow");
        let submissions = stage.linked_records(job.id, "relay.submission", "job");
        let passed: Vec<_> = submissions.iter().filter(|id| stage.state(**id) == "passed").collect();
        let judging = submissions.iter().any(|id| stage.state(*id) == "judging");
        assert!(!judging || state == "funded", "REL-12: an ended job has no submission in judging");
        for name in field("participants").as_array().expect("a list") {
            *claims.entry(name.as_str().expect("a name").to_owned()).or_default() += 1;
        }
        let settlements_of = |kind: &str| -> Vec<_> {
            let all = stage.linked_records(job.id, "relay.settlement", "job");
            all.into_iter().filter(|id| stage.field(*id, "kind") == kind).collect()
        };
        if state == "resolved" {
            assert_eq!(passed.len(), 1, "REL-3: one submission wins");
            assert_eq!(field("result_data"), passed[0].to_string());
            let score = stage.field(*passed[0], "score").as_i64().expect("a score");
            assert!(score >= field("threshold").as_i64().expect("a number"), "REL-12");
            let winner = field("winner_id").as_str().expect("a winner").to_owned();
            let price = field("price").as_i64().expect("a number");
            *wins.entry(winner.clone()).or_default() += 1;
            *earned.entry(winner).or_default() += price * 80 / 100;
            fee += price - price * 80 / 100;
            assert_eq!(settlements_of("overpaid").len(), usize::from(deposit > price), "REL-20");
        } else {
            assert!(passed.is_empty() && field("winner_id") == Value::Null, "REL-3: the winner is paid");
        }
        let refunds = settlements_of("refund");
        assert_eq!(refunds.len(), usize::from(field("refund_tx_hash") != Value::Null), "REL-6: refunded once");
        if let Some(refund) = refunds.first() {
            let sent = stage.state(*refund) == "confirmed";
            assert_eq!(field("refund_tx_hash") != "pending", sent, "REL-7");
            assert_eq!(field("refund_tx_hash") == "off-chain", sent && field("on_chain") == false, "REL-6");
        } else if state == "expired" || state == "cancelled" {
            depositor_total += deposit;
        }
    }
    let mut sent_by_payee: BTreeMap<String, i64> = BTreeMap::new();
    for settlement in stage.records_of("relay.settlement") {
        let amount = stage.field(settlement.id, "amount").as_i64().expect("a number");
        let is_confirmed = &**settlement.state_name() == "confirmed";
        assert_eq!(
            settlement.hold,
            if is_confirmed { 0 } else { amount },
            "REL-20: a settlement holds its amount until it is confirmed"
        );
        if let Some(payee) = stage.field(settlement.id, "payee").as_str() {
            assert_eq!(stage.field(settlement.id, "kind"), "payout");
            *sent_by_payee.entry(payee.to_owned()).or_default() += amount;
        }
        let signed = stage.field(settlement.id, "tx_hash") != Value::Null;
        let on_chain = stage.field(settlement.id, "on_chain") == true;
        assert!(!signed || on_chain, "REL-20: off-chain money has no signature");
        assert!(
            signed || !on_chain || &**settlement.state_name() != "confirmed",
            "REL-20: on-chain money needs a signature"
        );
    }
    assert_eq!(stage.balance("micro-usdc", "fee"), fee, "REL-18");
    assert_eq!(stage.balance("micro-usdc", &format!("depositor:{DEPOSITOR_ADDRESS}")), depositor_total, "REL-18");
    for agent in stage.records_of("relay.agent") {
        let name = stage.field(agent.id, "agent_id").as_str().expect("a name").to_owned();
        let number = |field: &str| stage.field(agent.id, field).as_i64().expect("a number");
        assert_eq!(number("claims"), claims.get(&name).copied().unwrap_or(0), "REL-13");
        assert_eq!(number("passed"), wins.get(&name).copied().unwrap_or(0), "REL-13");
        let rate = stage.field(agent.id, "completion_rate");
        assert_eq!(rate == Value::Null, number("claims") == 0, "REL-13");
        assert!(
            rate.as_f64().is_none_or(|rate| (0.0..=1.0).contains(&rate)),
            "REL-13: the completion rate is wins per claim"
        );
        assert_eq!(
            stage.balance("micro-usdc", &format!("agent:{name}")),
            0,
            "REL-18: winnings leave the account at once"
        );
        let sent = sent_by_payee.get(&agent.id.to_string()).copied().unwrap_or(0);
        assert_eq!(sent + agent.hold, earned.get(&name).copied().unwrap_or(0), "REL-3: the winnings of {name}");
    }
    let held = ["relay.job", "relay.agent", "relay.settlement"].into_iter().flat_map(|holder| stage.records_of(holder));
    let inside_total = fee + depositor_total + held.map(|record| record.hold).sum::<i64>();
    assert_eq!(stage.balance("micro-usdc", "chain"), -inside_total, "REL-18: balances equal deposits minus payments");
}
