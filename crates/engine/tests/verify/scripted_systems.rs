//! Scripted systems whose operations change many records: cascades, spawned records, deliveries, transfers.

use std::cell::RefCell;

use onceward_core::decide::Operation;
use onceward_core::time::{Duration, Time};
use onceward_testkit::random::RandomWalk;
use onceward_testkit::{Simulator, operator, systems, user, user_with_roles};
use serde_json::json;

const WALLET_ADDRESS: &str = "0xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const JOB_PRICE: i64 = 1_000_003;

pub(crate) type OperationLog = Vec<(Operation, Time)>;

/// Scripts relay: jobs with many workers, one with a winner, one that times out, and leases with heartbeats.
pub(crate) fn play_relay() -> OperationLog {
    let mut simulator = systems::new_simulator("relay").on_check("relay.job", "deposit", |question, _| {
        json!({
            "ok": true, "on_chain": true, "amount": JOB_PRICE, "sender": format!("0x{}", "d".repeat(40)),
            "tx_hash": question.arguments["tx_hash"]
        })
    });
    for name in ["alice", "bob", "carol", "dave"] {
        simulator.create("relay.agent", &user(name)).with("agent_id", name).with("wallet", WALLET_ADDRESS).expect_ok();
    }
    for number in 0..3 {
        let expiry = simulator.now().checked_add(Duration::from_secs(86_400)).expect("a time").to_string();
        let job = json!({ "title": "A haiku", "description": "About relays", "price": JOB_PRICE, "expiry": expiry });
        let job = simulator.create("relay.job", &user("alice")).with_all(job).expect_ok();
        simulator.fire(job, "fund", &user("alice")).with("tx_hash", format!("0x{number:064x}")).expect_ok();
        let mut leases = Vec::new();
        for name in ["bob", "carol", "dave"] {
            simulator.fire(job, "claim", &user(name)).expect_ok();
            let submission = simulator.create("relay.submission", &user(name)).with("job", job.to_string());
            let submission = submission.payload(b"five, seven, five").expect_ok();
            leases.push(simulator.lease(submission, "w1"));
        }
        for _ in 0..4 {
            simulator.advance_without_engine("20s");
            for lease in &leases {
                simulator.heartbeat(lease).expect_ok();
            }
        }
        if number < 2 {
            simulator
                .commit(
                    &leases[1],
                    json!({ "score": 90 - number, "steps": [{ "step": 1, "name": "guard", "passed": true }] }),
                )
                .expect_ok();
        }
        simulator.advance("2d");
    }
    simulator.log().iter().map(|entry| (entry.operation.clone(), entry.now)).collect()
}

pub(crate) fn play_image(cases: u64, then: impl Fn(OperationLog)) {
    let simulator = || {
        let mut simulator = systems::new_simulator("image").on_check("image.job", "prompt", |_, prompt| {
            let prompt = String::from_utf8_lossy(prompt.expect("the check gets the prompt")).into_owned();
            let hash = if prompt.contains("cat") { "a" } else { "b" }.repeat(64);
            json!({ "readable": true, "pass": !prompt.contains("nude"), "sha256": hash })
        });
        for name in ["alice", "bob"] {
            let given = json!({ "user": name, "amount": 30, "order": format!("first-{name}") });
            simulator.create("image.grant", &operator("olga")).with_all(given).expect_ok();
        }
        simulator
    };
    let people =
        [user_with_roles("alice", &["user"]), user("bob"), user_with_roles("mo", &["moderator"]), operator("olga")];
    let walk = RandomWalk::with_actors(&people)
        .error_codes(&["500", "429", "timeout", "400", "policy"])
        .values_for("user", [json!("alice"), json!("bob")])
        .values_for("url", [json!("originals/{id}-1.png"), json!("originals/{id}-2.png")])
        .values_for("sha256", [json!("c".repeat(64))])
        .values_for("bytes", [json!(1), json!(7)])
        .payloads(&["a cat", "a dog", "a nude"]);
    run_cases(&walk, "verify image", cases, simulator, then);
}

/// Runs `then` after each case, because the next case starts with a shorter log.
fn run_cases(
    walk: &RandomWalk,
    theme: &str,
    cases: u64,
    simulator: impl Fn() -> Simulator,
    then: impl Fn(OperationLog),
) {
    const OPERATIONS_PER_CASE: usize = 400;
    let (done, log) = (RefCell::new(0), RefCell::new(OperationLog::new()));
    walk.run(theme, cases, OPERATIONS_PER_CASE, simulator, |simulator| {
        *done.borrow_mut() += 1;
        if *done.borrow() == OPERATIONS_PER_CASE {
            *done.borrow_mut() = 0;
            let entries = simulator.log().iter();
            *log.borrow_mut() = entries.map(|entry| (entry.operation.clone(), entry.now)).collect();
            then(log.take());
        }
    });
}
