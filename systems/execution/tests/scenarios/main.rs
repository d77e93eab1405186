//! The execution system, played: each test reads like the rule it cites. The rules stand in `systems/execution/README.md`.

mod commit;
mod deliveries;
mod derived_state;
mod leases;
mod limits;
mod matrix;
mod records;
mod retry_budget;

use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, systems, user};

/// An empty stage and nothing played yet.
fn new_simulator() -> Simulator {
    systems::new_simulator("execution")
}

/// A job of Alice's, waiting.
fn create_job(stage: &mut Simulator) -> RecordId {
    stage.create("execution.job", &user("alice")).payload(b"resize me").expect_ok()
}

/// A job that may fail so many times.
fn create_job_with_budget(stage: &mut Simulator, budget: u32) -> RecordId {
    stage.create("execution.job", &user("alice")).with("budget", budget).expect_ok()
}
