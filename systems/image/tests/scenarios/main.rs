//! Scenario tests of the image system. The rules are in `systems/image/README.md`.

mod boundaries;
mod credits;
mod failures;
mod generation;
mod matrix;
mod orders;
mod replays;
mod withdrawals;

use std::fmt::Write as _;

use onceward_core::decide::CheckQuery;
use onceward_core::value::RecordId;
use onceward_testkit::{SimulatedCall, SimulatedLease, Simulator, operator, systems, user};
use serde_json::{Value, json};

/// Creates a simulator with a prompt check and 100 credits for Alice.
fn new_simulator() -> Simulator {
    let mut stage = with_prompt_check(systems::new_simulator("image"));
    grant_credits(&mut stage, "alice", 100);
    stage
}

/// Registers a prompt check that reads plain text and flags one word.
fn with_prompt_check(stage: Simulator) -> Simulator {
    stage.on_check("image.job", "prompt", answer_prompt_check)
}

fn answer_prompt_check(query: &CheckQuery, prompt: Option<&[u8]>) -> Value {
    let prompt = String::from_utf8_lossy(prompt.expect("the check gets the prompt"));
    let mut sha256 = String::new();
    for byte in query.payload.expect("the prompt's hash").sha256 {
        let _ = write!(sha256, "{byte:02x}");
    }
    json!({ "readable": !prompt.starts_with('{'), "pass": !prompt.contains("nude"), "sha256": sha256 })
}

fn grant_credits(stage: &mut Simulator, user: &str, amount: i64) -> RecordId {
    let order = format!("order-{}-{}", user, stage.log().len());
    stage
        .create("image.grant", &operator("olga"))
        .with_all(json!({ "user": user, "amount": amount, "order": order }))
        .expect_ok()
}

fn user_credits(stage: &Simulator, user: &str) -> i64 {
    stage.balance("credit", &format!("user:{user}"))
}

/// Orders an image as Alice, a plain user.
fn order_image<'s>(stage: &'s mut Simulator, prompt: &str) -> SimulatedCall<'s> {
    stage.create("image.job", &user_with_role("alice", "user")).payload(prompt.as_bytes())
}

fn user_with_role(name: &str, role: &str) -> onceward_core::record::Actor {
    onceward_testkit::user_with_roles(name, &[role])
}

fn create_queued_job(stage: &mut Simulator) -> RecordId {
    order_image(stage, "a cat").expect_ok()
}

fn create_running_job(stage: &mut Simulator) -> SimulatedLease {
    let id = create_queued_job(stage);
    stage.lease(id, "w1")
}

/// Creates a job that has failed `failures` times and waits for its retry.
fn create_failed_job(stage: &mut Simulator, failures: u32) -> SimulatedLease {
    let mut lease = create_running_job(stage);
    for failure in 1..=failures {
        stage.fail(&lease, "500").expect_ok();
        if failure < failures {
            stage.advance("1m");
            lease = stage.lease(lease.record, "w1");
        }
    }
    lease
}

fn create_dead_letter(stage: &mut Simulator) -> RecordId {
    let lease = create_running_job(stage);
    stage.fail(&lease, "400").expect_ok();
    lease.record
}

/// Returns the result of a worker that has stored the image.
fn image_result(lease: &SimulatedLease) -> Value {
    json!({ "url": format!("originals/{}-1.png", lease.record), "sha256": "ab".repeat(32), "bytes": 1024 })
}

/// Owner of the test records.
fn alice() -> onceward_core::record::Actor {
    user("alice")
}
