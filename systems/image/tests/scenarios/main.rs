//! The image system, played: each test reads like the rule it cites. The rules stand in `systems/image/README.md`.

mod credits;
mod edges;
mod failures;
mod matrix;
mod orders;
mod replays;
mod withdrawals;
mod work;

use std::fmt::Write as _;

use onceward_core::decide::Question;
use onceward_core::value::RecordId;
use onceward_testkit::{Attempt, Lease, Stage, operator, systems, user};
use serde_json::{Value, json};

/// A stage with a prompt guard that knows one bad word and plain text, and a hundred credits for Alice.
fn stage() -> Stage {
    let mut stage = dressed(systems::stage("image"));
    grant(&mut stage, "alice", 100);
    stage
}

/// With a prompt guard that knows one bad word and plain text.
fn dressed(stage: Stage) -> Stage {
    stage.answer("image.job", "prompt", guard)
}

fn guard(question: &Question, prompt: Option<&[u8]>) -> Value {
    let prompt = String::from_utf8_lossy(prompt.expect("the prompt goes with the question"));
    let mut sha256 = String::new();
    for byte in question.payload.expect("the prompt's hash").sha256 {
        let _ = write!(sha256, "{byte:02x}");
    }
    json!({ "readable": !prompt.starts_with('{'), "pass": !prompt.contains("nude"), "sha256": sha256 })
}

fn grant(stage: &mut Stage, to: &str, amount: i64) -> RecordId {
    let order = format!("order-{}-{}", to, stage.log().len());
    stage
        .create("image.grant", &operator("olga"))
        .with_all(json!({ "user": to, "amount": amount, "order": order }))
        .ok()
}

fn credits(stage: &Stage, of: &str) -> i64 {
    stage.balance("credit", &format!("user:{of}"))
}

/// Alice, a plain user, orders a picture.
fn order<'s>(stage: &'s mut Stage, prompt: &str) -> Attempt<'s> {
    stage.create("image.job", &user_role("alice", "user")).payload(prompt.as_bytes())
}

fn user_role(name: &str, role: &str) -> onceward_core::record::Actor {
    onceward_testkit::user_with(name, &[role])
}

fn queued(stage: &mut Stage) -> RecordId {
    order(stage, "a cat").ok()
}

fn running(stage: &mut Stage) -> Lease {
    let id = queued(stage);
    stage.lease(id, "w1")
}

/// A job that has failed so many times and waits out its backoff.
fn failed(stage: &mut Stage, failures: u32) -> Lease {
    let mut lease = running(stage);
    for failure in 1..=failures {
        stage.fail(&lease, "500").ok();
        if failure < failures {
            stage.pass("1m");
            lease = stage.lease(lease.record, "w1");
        }
    }
    lease
}

fn dead(stage: &mut Stage) -> RecordId {
    let lease = running(stage);
    stage.fail(&lease, "400").ok();
    lease.record
}

/// What the worker brings when it has stored the image.
fn image(of: &Lease) -> Value {
    json!({ "url": format!("originals/{}-1.png", of.record), "sha256": "ab".repeat(32), "bytes": 1024 })
}

/// The owner of everything here.
fn alice() -> onceward_core::record::Actor {
    user("alice")
}
