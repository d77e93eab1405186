//! Transition matrix: every event in every state by every caller.

use onceward_testkit::matrix::{AllowedTransition, LifecycleMatrix};
use serde_json::{Map, json};

use super::{create_job, create_job_on_last_attempt, create_queued_job, create_retrying_job, create_running_job};

/// All transitions of the requirement and their callers.
const ALLOWED_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "owner, operator, stranger, record", "CREATED"),
    ("CREATED", "submit", "owner", "QUEUED"),
    ("CREATED", "cancel", "owner, operator", "FAILED"),
    ("QUEUED", "lease", "operator, worker, another worker", "RUNNING"),
    ("QUEUED", "exhaust", "operator", "FAILED"),
    ("QUEUED", "cancel", "owner, operator", "FAILED"),
    ("RUNNING", "start", "worker", "RUNNING"),
    ("RUNNING", "heartbeat", "worker", "RUNNING"),
    ("RUNNING: retries left", "cancel", "owner, operator", "FAILED"),
    ("RUNNING: retries left", "commit", "worker", "SUCCEEDED"),
    ("RUNNING: retries left", "commit and finish", "worker", "SUCCEEDED"),
    ("RUNNING: retries left", "fail TIMEOUT", "worker", "RETRYING"),
    ("RUNNING: retries left", "fail CORRUPT_DATA", "worker", "FAILED"),
    ("RUNNING: retries left", "fail UNHEARD_OF", "worker", "FAILED"),
    ("RUNNING: retries left", "yield", "worker", "RETRYING"),
    ("RUNNING: retries left", "lost", "engine", "RETRYING"),
    ("RUNNING: retries left", "time", "engine", "RETRYING"),
    ("RUNNING: no retries left", "cancel", "owner, operator", "FAILED"),
    ("RUNNING: no retries left", "commit", "worker", "SUCCEEDED"),
    ("RUNNING: no retries left", "commit and finish", "worker", "SUCCEEDED"),
    ("RUNNING: no retries left", "fail TIMEOUT", "worker", "FAILED"),
    ("RUNNING: no retries left", "fail CORRUPT_DATA", "worker", "FAILED"),
    ("RUNNING: no retries left", "fail UNHEARD_OF", "worker", "FAILED"),
    ("RUNNING: no retries left", "yield", "worker", "FAILED"),
    ("RUNNING: no retries left", "lost", "engine", "FAILED"),
    ("RUNNING: no retries left", "time", "engine", "FAILED"),
    ("RETRYING", "cancel", "owner, operator", "FAILED"),
    ("RETRYING", "time", "engine", "QUEUED"),
    // The job's state does not change: its execution is still open after the commit.
    ("SUCCEEDED: not closed", "heartbeat", "worker", "SUCCEEDED"),
    ("SUCCEEDED: not closed", "finish", "worker", "SUCCEEDED"),
    ("SUCCEEDED: not closed", "commit and finish", "worker", "SUCCEEDED"),
    ("SUCCEEDED: not closed", "lost", "engine", "SUCCEEDED"),
    ("SUCCEEDED: not closed", "time", "engine", "SUCCEEDED"),
];

/// DOC-1, DOC-2, DOC-3, DOC-4, DOC-5, DOC-6, DOC-7, DOC-8, DOC-16
#[test]
fn only_allowed_transitions_happen() {
    LifecycleMatrix::new("document", "document.job", &[], |stage| stage)
        .with_create_input(Map::new(), Some(b"%PDF-1.7"))
        .with_work_trials(&json!({ "pages": 1 }), &["TIMEOUT", "CORRUPT_DATA", "UNHEARD_OF"])
        .with_scene("CREATED", create_job)
        .with_scene("QUEUED", create_queued_job)
        .with_scene("RUNNING: retries left", create_running_job)
        .with_scene("RUNNING: no retries left", create_job_on_last_attempt)
        .with_scene("RETRYING", |stage| create_retrying_job(stage, 1))
        .with_scene("SUCCEEDED", |stage| {
            let lease = create_running_job(stage);
            stage.commit(&lease, json!({ "pages": 1 })).expect_ok();
            lease
        })
        .with_scene("SUCCEEDED: not closed", |stage| {
            let lease = create_running_job(stage);
            stage.commit_only(&lease, json!({ "pages": 1 })).expect_ok();
            lease
        })
        .with_scene("FAILED", |stage| {
            let lease = create_running_job(stage);
            stage.fail(&lease, "CORRUPT_DATA").expect_ok();
            lease
        })
        .assert_only_allowed(ALLOWED_TRANSITIONS);
}
