//! The execution system, played: each test reads like the rule it cites. The rules stand in `systems/execution/README.md`.

mod budget;
mod commit;
mod derived;
mod leases;
mod limits;
mod matrix;
mod outside;
mod records;

use onceward_core::value::RecordId;
use onceward_testkit::{Stage, systems, user};

/// An empty stage and nothing played yet.
fn stage() -> Stage {
    systems::stage("execution")
}

/// A job of Alice's, waiting.
fn job(stage: &mut Stage) -> RecordId {
    stage.create("execution.job", &user("alice")).payload(b"resize me").ok()
}

/// A job that may fail so many times.
fn job_with_budget(stage: &mut Stage, budget: u32) -> RecordId {
    stage.create("execution.job", &user("alice")).with("budget", budget).ok()
}
