//! Systems played as people would, so that operations reach many records: cascades, spawned records, deliveries, money.

use std::cell::RefCell;

use onceward_core::decide::Operation;
use onceward_core::time::{Duration, Time};
use onceward_testkit::random::Wander;
use onceward_testkit::{Stage, operator, systems, user, user_with};
use serde_json::json;

const WALLET: &str = "0xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const PRICE: i64 = 1_000_003;

/// What was played.
pub(crate) type Played = Vec<(Operation, Time)>;

/// Relay by hand: jobs that many work on, one that somebody wins, one whose time runs out, and leases that heartbeats carry on.
pub(crate) fn relay() -> Played {
    let mut stage = systems::stage("relay").answer("relay.job", "deposit", |question, _| {
        json!({
            "ok": true, "on_chain": true, "amount": PRICE, "sender": format!("0x{}", "d".repeat(40)),
            "tx_hash": question.arguments["tx_hash"]
        })
    });
    for name in ["alice", "bob", "carol", "dave"] {
        stage.create("relay.agent", &user(name)).with("agent_id", name).with("wallet", WALLET).ok();
    }
    for number in 0..3 {
        let expiry = stage.now().checked_add(Duration::from_secs(86_400)).expect("a time").to_string();
        let job = json!({ "title": "A haiku", "description": "About relays", "price": PRICE, "expiry": expiry });
        let job = stage.create("relay.job", &user("alice")).with_all(job).ok();
        stage.fire(job, "fund", &user("alice")).with("tx_hash", format!("0x{number:064x}")).ok();
        let mut leases = Vec::new();
        for name in ["bob", "carol", "dave"] {
            stage.fire(job, "claim", &user(name)).ok();
            let submission = stage.create("relay.submission", &user(name)).with("job", job.to_string());
            let submission = submission.payload(b"five, seven, five").ok();
            leases.push(stage.lease(submission, "w1"));
        }
        for _ in 0..4 {
            stage.doze("20s");
            for lease in &leases {
                stage.heartbeat(lease).ok();
            }
        }
        if number < 2 {
            stage
                .commit(
                    &leases[1],
                    json!({ "score": 90 - number, "steps": [{ "step": 1, "name": "guard", "passed": true }] }),
                )
                .ok();
        }
        stage.pass("2d");
    }
    stage.log().iter().map(|entry| (entry.operation.clone(), entry.now)).collect()
}

pub(crate) fn image(cases: u64, then: impl Fn(Played)) {
    let stage = || {
        let mut stage = systems::stage("image").answer("image.job", "prompt", |_, prompt| {
            let prompt = String::from_utf8_lossy(prompt.expect("the prompt goes with the question")).into_owned();
            let hash = if prompt.contains("cat") { "a" } else { "b" }.repeat(64);
            json!({ "readable": true, "pass": !prompt.contains("nude"), "sha256": hash })
        });
        for name in ["alice", "bob"] {
            let given = json!({ "user": name, "amount": 30, "order": format!("first-{name}") });
            stage.create("image.grant", &operator("olga")).with_all(given).ok();
        }
        stage
    };
    let people = [user_with("alice", &["user"]), user("bob"), user_with("mo", &["moderator"]), operator("olga")];
    let wander = Wander::with(&people)
        .codes(&["500", "429", "timeout", "400", "policy"])
        .value("user", [json!("alice"), json!("bob")])
        .value("url", [json!("originals/{id}-1.png"), json!("originals/{id}-2.png")])
        .value("sha256", [json!("c".repeat(64))])
        .value("bytes", [json!(1), json!(7)])
        .payloads(&["a cat", "a dog", "a nude"]);
    played(&wander, "verify image", cases, stage, then);
}

/// Each case when it is over: the next one begins with a shorter log.
fn played(wander: &Wander, theme: &str, cases: u64, stage: impl Fn() -> Stage, then: impl Fn(Played)) {
    const OPERATIONS: usize = 400;
    let (done, log) = (RefCell::new(0), RefCell::new(Played::new()));
    wander.run(theme, cases, OPERATIONS, stage, |stage| {
        *done.borrow_mut() += 1;
        if *done.borrow() == OPERATIONS {
            *done.borrow_mut() = 0;
            let entries = stage.log().iter();
            *log.borrow_mut() = entries.map(|entry| (entry.operation.clone(), entry.now)).collect();
            then(log.take());
        }
    });
}
