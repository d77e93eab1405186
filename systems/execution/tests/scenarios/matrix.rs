//! Every state, every event, every caller.

use onceward_testkit::matrix::{Allowed, Matrix, Trial};
use serde_json::json;

use super::{job, job_with_budget};

/// Typed from the requirement: the derived job machine, and nothing else.
const ALLOWED: &[Allowed<'static>] = &[
    ("nothing", "create", "owner, operator, stranger, record", "PENDING"),
    ("PENDING", "lease", "operator, worker, another worker", "RUNNING"),
    // The job stays where it is while its execution begins, and whenever the lease is extended.
    ("RUNNING: leased", "start", "worker", "RUNNING"),
    ("RUNNING: last of its budget", "start", "worker", "RUNNING"),
    ("RUNNING", "heartbeat", "worker", "RUNNING"),
    ("RUNNING: leased", "commit", "worker", "RUNNING"),
    ("RUNNING: leased", "commit and finish", "worker", "SUCCEEDED"),
    ("RUNNING: leased", "fail HICCUP", "worker", "FAILED"),
    ("RUNNING: leased", "fail HICCUP for now", "worker", "PENDING"),
    ("RUNNING: leased", "yield", "worker", "PENDING"),
    ("RUNNING: leased", "lost", "engine", "PENDING"),
    ("RUNNING: leased", "time", "engine", "PENDING"),
    ("RUNNING: started", "commit", "worker", "RUNNING"),
    ("RUNNING: started", "commit and finish", "worker", "SUCCEEDED"),
    ("RUNNING: started", "fail HICCUP", "worker", "FAILED"),
    ("RUNNING: started", "fail HICCUP for now", "worker", "PENDING"),
    ("RUNNING: started", "yield", "worker", "PENDING"),
    ("RUNNING: started", "lost", "engine", "PENDING"),
    ("RUNNING: started", "time", "engine", "PENDING"),
    ("RUNNING: last of its budget", "commit", "worker", "RUNNING"),
    ("RUNNING: last of its budget", "commit and finish", "worker", "SUCCEEDED"),
    ("RUNNING: last of its budget", "fail HICCUP", "worker", "FAILED"),
    ("RUNNING: last of its budget", "fail HICCUP for now", "worker", "FAILED"),
    ("RUNNING: last of its budget", "yield", "worker", "PENDING"),
    ("RUNNING: last of its budget", "lost", "engine", "FAILED"),
    ("RUNNING: last of its budget", "time", "engine", "FAILED"),
    ("RUNNING: committed", "finish", "worker", "SUCCEEDED"),
    ("RUNNING: committed", "commit and finish", "worker", "SUCCEEDED"),
    ("RUNNING: committed", "lost", "engine", "SUCCEEDED"),
    ("RUNNING: committed", "time", "engine", "SUCCEEDED"),
];

/// EXE-5, EXE-6, EXE-7, EXE-10, EXE-11: the moves of the requirement all happen, and no other does.
#[test]
fn every_state_event_and_caller() {
    Matrix::new("execution", "execution.job", &[], |stage| stage)
        .works(&json!({ "n": 1 }), &["HICCUP"])
        .trial(Trial::Fail { code: "HICCUP".to_owned(), retryable: Some(true) })
        .scene("PENDING", job)
        .scene("RUNNING: leased", |stage| {
            let id = job(stage);
            stage.lease(id, "w1")
        })
        .scene("RUNNING: started", |stage| {
            let id = job(stage);
            let lease = stage.lease(id, "w1");
            stage.start(&lease).ok();
            lease
        })
        .scene("RUNNING: last of its budget", |stage| {
            let id = job_with_budget(stage, 1);
            stage.lease(id, "w1")
        })
        .scene("RUNNING: committed", |stage| {
            let id = job(stage);
            let lease = stage.lease(id, "w1");
            stage.commit_only(&lease, json!({ "n": 1 })).ok();
            lease
        })
        .scene("SUCCEEDED", |stage| {
            let id = job(stage);
            let lease = stage.lease(id, "w1");
            stage.commit(&lease, json!({ "n": 1 })).ok();
            lease
        })
        .scene("FAILED", |stage| {
            let id = job(stage);
            let lease = stage.lease(id, "w1");
            stage.fail(&lease, "HICCUP").ok();
            lease
        })
        .check(ALLOWED);
}
