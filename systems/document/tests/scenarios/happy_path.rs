//! DOC-1, DOC-2, DOC-3, DOC-12, DOC-13: a successful job and its metadata.

use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, operator, user};
use serde_json::json;

use super::{create_job, create_queued_job, create_running_job, new_simulator};

/// DOC-1
#[test]
fn only_owner_submits_and_only_once() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    assert_eq!(stage.state(id), "CREATED");
    stage.fire(id, "submit", &operator("olga")).expect_not_allowed();
    stage.fire(id, "submit", &user("mallory")).expect_not_found();
    stage.fire(id, "submit", &user("alice")).expect_ok();
    assert_eq!(stage.state(id), "QUEUED");
    stage.fire(id, "submit", &user("alice")).expect_wrong_state("QUEUED", "submit");
}

/// DOC-2
#[test]
fn lease_moves_queued_job_to_running() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    stage.try_lease(id, "w1").expect_not_leasable();
    stage.fire(id, "submit", &user("alice")).expect_ok();
    stage.lease(id, "w1");
    assert_eq!(stage.state(id), "RUNNING");
}

/// DOC-3
#[test]
fn commit_moves_running_job_to_succeeded() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.commit(&lease, json!({ "pages": 12 })).expect_ok();
    assert_eq!(stage.state(lease.record), "SUCCEEDED");
    assert_eq!(stage.effects(lease.record)[0].result, json!({ "pages": 12 }));
}

/// DOC-3
#[test]
fn commit_after_failure_returns_lease_lost() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.fail(&lease, "TIMEOUT").expect_ok();
    stage.commit(&lease, json!(null)).expect_lease_lost();
    assert_eq!(stage.state(lease.record), "RETRYING");
}

#[track_caller]
fn assert_no_error(stage: &Simulator, id: RecordId) {
    for name in ["lastError", "errorCode", "errorType"] {
        assert_eq!(stage.field(id, name), json!(null), "{name}");
    }
}

/// DOC-12: timestamps appear as they occur, and a succeeded job has no error.
#[test]
fn metadata_follows_job_from_creation_to_success() {
    let mut stage = new_simulator();
    let created_at = stage.now();
    let id = create_job(&mut stage);
    let timestamps = |stage: &Simulator| {
        let record = stage.record(id);
        (record.created_at, record.started_at, record.finished_at)
    };
    assert_eq!(timestamps(&stage), (created_at, None, None));
    assert_eq!(stage.field(id, "retryCount"), 0);
    assert_eq!(stage.field(id, "maxRetries"), 3);
    assert_no_error(&stage, id);

    stage.advance("1m");
    stage.fire(id, "submit", &user("alice")).expect_ok();
    assert_eq!(timestamps(&stage), (created_at, None, None));

    stage.advance("1m");
    let started_at = stage.now();
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "TIMEOUT").message("the page took too long").expect_ok();
    assert_eq!(timestamps(&stage), (created_at, Some(started_at), None));
    assert_eq!(stage.field(id, "lastError"), "the page took too long");
    assert_eq!((stage.field(id, "errorCode"), stage.field(id, "errorType")), (json!("TIMEOUT"), json!("RETRYABLE")));

    stage.advance("1m");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).expect_ok();
    assert_eq!(timestamps(&stage), (created_at, Some(started_at), Some(stage.now())));
    assert_eq!(stage.field(id, "retryCount"), 1);
    assert_no_error(&stage, id);
}

/// DOC-12
#[test]
fn failed_job_has_error_and_finish_time() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.advance("1s");
    stage.fail(&lease, "CORRUPT_DATA").message("no trailer").expect_ok();
    assert_eq!(stage.field(lease.record, "lastError"), "no trailer");
    assert_eq!(stage.field(lease.record, "errorCode"), "CORRUPT_DATA");
    assert_eq!(stage.field(lease.record, "errorType"), "TERMINAL");
    assert_eq!(stage.record(lease.record).finished_at, Some(stage.now()));
}

/// DOC-12
#[test]
fn metadata_in_create_is_rejected() {
    let mut stage = new_simulator();
    for (name, value) in [
        ("retryCount", json!(0)),
        ("maxRetries", json!(3)),
        ("maxRetries", json!(9)),
        ("lastError", json!("none")),
        ("errorCode", json!("TIMEOUT")),
        ("errorType", json!("TERMINAL")),
        ("state", json!("QUEUED")),
        ("jobId", json!("x")),
    ] {
        stage.create("document.job", &user("alice")).payload(b"x").with(name, value).expect_bad_input();
    }
}

/// DOC-12: from 1 byte to 100 MB.
#[test]
fn payload_size_is_bounded() {
    let mut stage = new_simulator();
    let alice = user("alice");
    stage.create("document.job", &alice).expect_bad_input();
    stage.create("document.job", &alice).payload(b"").expect_bad_input();
    stage.create("document.job", &alice).payload(b"x").expect_ok();
    stage.create("document.job", &alice).payload_of_size(100 * 1024 * 1024).expect_ok();
    stage.create("document.job", &alice).payload_of_size(100 * 1024 * 1024 + 1).expect_bad_input();
}

/// DOC-12: in whatever state the job is; another owner gets a new job.
#[test]
fn same_owner_and_request_id_return_existing_job() {
    let mut stage = new_simulator();
    let (alice, bob) = (user("alice"), user("bob"));
    let first = stage.create("document.job", &alice).with("requestId", "r-1").payload(b"x").expect_ok();
    assert_eq!(stage.create("document.job", &alice).with("requestId", "r-1").payload(b"x").expect_existing(), first);
    stage.fire(first, "cancel", &alice).expect_ok();
    assert_eq!(stage.create("document.job", &alice).with("requestId", "r-1").payload(b"x").expect_existing(), first);
    let other = stage.create("document.job", &alice).with("requestId", "r-2").payload(b"x").expect_ok();
    let bobs_job = stage.create("document.job", &bob).with("requestId", "r-1").payload(b"x").expect_ok();
    assert!(first != other && first != bobs_job);
    let without_request_id = stage.create("document.job", &alice).payload(b"x").expect_ok();
    assert_ne!(stage.create("document.job", &alice).payload(b"x").expect_ok(), without_request_id);
    stage.create("document.job", &alice).with("requestId", "é".repeat(200)).payload(b"x").expect_ok();
    stage.create("document.job", &alice).with("requestId", "é".repeat(201)).payload(b"x").expect_bad_input();
    stage.create("document.job", &alice).with("requestId", "").payload(b"x").expect_bad_input();
}

/// DOC-13
#[test]
fn running_job_is_not_leased_to_second_worker() {
    let mut stage = new_simulator();
    let id = create_queued_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.try_lease(id, "w2").expect_refusal(409, "already_leased");
    stage.advance("29s");
    stage.heartbeat(&lease).expect_ok();
    stage.advance("29s");
    stage.try_lease(id, "w2").expect_refusal(409, "already_leased");
    stage.fail(&lease, "TIMEOUT").expect_ok();
    stage.try_lease(id, "w2").expect_refusal(409, "not_ready");
    stage.advance("1s");
    stage.lease(id, "w2");
}
