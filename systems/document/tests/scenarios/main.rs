//! The document system, played: each test reads like the rule it cites. The rules stand in `systems/document/README.md`.

mod cancel;
mod edges;
mod life;
mod matrix;
mod refused;
mod retries;

use onceward_core::value::RecordId;
use onceward_testkit::{Lease, Stage, systems, user};

fn stage() -> Stage {
    systems::stage("document")
}

/// A document of Alice's, uploaded.
fn created(stage: &mut Stage) -> RecordId {
    stage.create("document.job", &user("alice")).payload(b"%PDF-1.7").ok()
}

fn queued(stage: &mut Stage) -> RecordId {
    let id = created(stage);
    stage.fire(id, "submit", &user("alice")).ok()
}

fn running(stage: &mut Stage) -> Lease {
    let id = queued(stage);
    stage.lease(id, "w1")
}

/// A job that has failed so many times and waits out the delay of the last.
fn retrying(stage: &mut Stage, failures: u32) -> RecordId {
    let id = queued(stage);
    for failure in 1..=failures {
        let lease = stage.lease(id, "w1");
        stage.fail(&lease, "TIMEOUT").ok();
        if failure < failures {
            stage.pass("1s");
        }
    }
    id
}

/// Running, with all its retries spent.
fn last_chance(stage: &mut Stage) -> Lease {
    let id = retrying(stage, 3);
    stage.pass("1s");
    stage.lease(id, "w1")
}
