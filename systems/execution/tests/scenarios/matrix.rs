//! Transition matrix: every event in every state by every caller.

use onceward_testkit::matrix::{AllowedTransition, LifecycleMatrix, MatrixTrial};
use serde_json::json;

use super::{create_job, create_job_with_budget};

/// All transitions of the requirement.
const ALLOWED_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "owner, operator, stranger, record", "PENDING"),
    ("PENDING", "lease", "operator, worker, another worker", "RUNNING"),
    // The job's state does not change when its execution starts or its lease is extended.
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

/// EXE-5, EXE-6, EXE-7, EXE-10, EXE-11
#[test]
fn only_allowed_transitions_happen() {
    LifecycleMatrix::new("execution", "execution.job", &[], |stage| stage)
        .with_work_trials(&json!({ "n": 1 }), &["HICCUP"])
        .with_trial(MatrixTrial::Fail { code: "HICCUP".to_owned(), retryable: Some(true) })
        .with_scene("PENDING", create_job)
        .with_scene("RUNNING: leased", |stage| {
            let id = create_job(stage);
            stage.lease(id, "w1")
        })
        .with_scene("RUNNING: started", |stage| {
            let id = create_job(stage);
            let lease = stage.lease(id, "w1");
            stage.start(&lease).expect_ok();
            lease
        })
        .with_scene("RUNNING: last of its budget", |stage| {
            let id = create_job_with_budget(stage, 1);
            stage.lease(id, "w1")
        })
        .with_scene("RUNNING: committed", |stage| {
            let id = create_job(stage);
            let lease = stage.lease(id, "w1");
            stage.commit_only(&lease, json!({ "n": 1 })).expect_ok();
            lease
        })
        .with_scene("SUCCEEDED", |stage| {
            let id = create_job(stage);
            let lease = stage.lease(id, "w1");
            stage.commit(&lease, json!({ "n": 1 })).expect_ok();
            lease
        })
        .with_scene("FAILED", |stage| {
            let id = create_job(stage);
            let lease = stage.lease(id, "w1");
            stage.fail(&lease, "HICCUP").expect_ok();
            lease
        })
        .assert_only_allowed(ALLOWED_TRANSITIONS);
}
