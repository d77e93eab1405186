//! Scenario tests of the execution system. The rules are in `systems/execution/README.md`.

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

fn new_simulator() -> Simulator {
    systems::new_simulator("execution")
}

/// Creates a pending job of Alice.
fn create_job(stage: &mut Simulator) -> RecordId {
    stage.create("execution.job", &user("alice")).payload(b"resize me").expect_ok()
}

/// Creates a job that fails finally with its `budget`th failure.
fn create_job_with_budget(stage: &mut Simulator, budget: u32) -> RecordId {
    stage.create("execution.job", &user("alice")).with("budget", budget).expect_ok()
}
