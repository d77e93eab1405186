//! Scenario tests of the document system. The rules are in `systems/document/README.md`.

mod boundaries;
mod cancel;
mod happy_path;
mod matrix;
mod refusals;
mod retries;

use onceward_core::value::RecordId;
use onceward_testkit::{SimulatedLease, Simulator, systems, user};

fn new_simulator() -> Simulator {
    systems::new_simulator("document")
}

/// Creates a job of Alice.
fn create_job(stage: &mut Simulator) -> RecordId {
    stage.create("document.job", &user("alice")).payload(b"%PDF-1.7").expect_ok()
}

fn create_queued_job(stage: &mut Simulator) -> RecordId {
    let id = create_job(stage);
    stage.fire(id, "submit", &user("alice")).expect_ok()
}

fn create_running_job(stage: &mut Simulator) -> SimulatedLease {
    let id = create_queued_job(stage);
    stage.lease(id, "w1")
}

/// Creates a job that has failed `failures` times and waits for its retry.
fn create_retrying_job(stage: &mut Simulator, failures: u32) -> RecordId {
    let id = create_queued_job(stage);
    for failure in 1..=failures {
        let lease = stage.lease(id, "w1");
        stage.fail(&lease, "TIMEOUT").expect_ok();
        if failure < failures {
            stage.advance("1s");
        }
    }
    id
}

/// Creates a running job that has used all its retries.
fn create_job_on_last_attempt(stage: &mut Simulator) -> SimulatedLease {
    let id = create_retrying_job(stage, 3);
    stage.advance("1s");
    stage.lease(id, "w1")
}
