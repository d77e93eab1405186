//! DOC-1, DOC-2, DOC-3, DOC-12, DOC-13: a document's life when all goes well, and what it shows of itself.

use onceward_testkit::{operator, user};
use serde_json::json;

use super::{created, queued, running, stage};

/// DOC-1: submitting queues it, once, and only its owner may.
#[test]
fn the_owner_submits() {
    let mut stage = stage();
    let id = created(&mut stage);
    assert_eq!(stage.state(id), "CREATED");
    stage.fire(id, "submit", &operator("olga")).not_allowed();
    stage.fire(id, "submit", &user("mallory")).not_found();
    stage.fire(id, "submit", &user("alice")).ok();
    assert_eq!(stage.state(id), "QUEUED");
    stage.fire(id, "submit", &user("alice")).wrong_state("QUEUED", "submit");
}

/// DOC-2: processing begins with a lease, which only a queued job gives.
#[test]
fn a_queued_job_runs_when_a_worker_takes_it() {
    let mut stage = stage();
    let id = created(&mut stage);
    stage.try_lease(id, "w1").not_leasable();
    stage.fire(id, "submit", &user("alice")).ok();
    stage.lease(id, "w1");
    assert_eq!(stage.state(id), "RUNNING");
}

/// DOC-3: a commit completes it.
#[test]
fn a_commit_completes_it() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.commit(&lease, json!({ "pages": 12 })).ok();
    assert_eq!(stage.state(lease.record), "SUCCEEDED");
    assert_eq!(stage.effects(lease.record)[0].result, json!({ "pages": 12 }));
}

/// DOC-3: nothing is completed that is not running.
#[test]
fn only_a_running_job_completes() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.fail(&lease, "TIMEOUT").ok();
    stage.commit(&lease, json!(null)).lease_lost();
    assert_eq!(stage.state(lease.record), "RETRYING");
}

/// DOC-12: what every job shows, from its upload to its success: times as they come, no error at the end.
#[test]
fn a_job_shows_its_metadata() {
    let mut stage = stage();
    let made = stage.now();
    let id = created(&mut stage);
    let show = |stage: &onceward_testkit::Stage| {
        let record = stage.record(id);
        (record.created_at, record.started_at, record.finished_at)
    };
    assert_eq!(show(&stage), (made, None, None));
    assert_eq!(stage.field(id, "retryCount"), 0);
    assert_eq!(stage.field(id, "maxRetries"), 3);
    assert_eq!((stage.field(id, "lastError"), stage.field(id, "errorType")), (json!(null), json!(null)));

    stage.pass("1m");
    stage.fire(id, "submit", &user("alice")).ok();
    assert_eq!(show(&stage), (made, None, None));

    stage.pass("1m");
    let began = stage.now();
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "TIMEOUT").message("the page took too long").ok();
    assert_eq!(show(&stage), (made, Some(began), None));
    assert_eq!(stage.field(id, "lastError"), "the page took too long");
    assert_eq!(stage.field(id, "errorType"), "RETRYABLE");

    stage.pass("1m");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).ok();
    assert_eq!(show(&stage), (made, Some(began), Some(stage.now())));
    assert_eq!(stage.field(id, "retryCount"), 1);
    assert_eq!((stage.field(id, "lastError"), stage.field(id, "errorType")), (json!(null), json!(null)));
}

/// DOC-12: the ends that are not a success keep their error and have their time too.
#[test]
fn a_failed_job_shows_why() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.pass("1s");
    stage.fail(&lease, "CORRUPT_DATA").message("no trailer").ok();
    assert_eq!(stage.field(lease.record, "lastError"), "no trailer");
    assert_eq!(stage.field(lease.record, "errorType"), "TERMINAL");
    assert_eq!(stage.record(lease.record).finished_at, Some(stage.now()));
}

/// DOC-12: nobody gives a job its metadata: it is the engine's and the file's.
#[test]
fn callers_do_not_write_the_metadata() {
    let mut stage = stage();
    for (name, value) in [
        ("retryCount", json!(0)),
        ("maxRetries", json!(3)),
        ("maxRetries", json!(9)),
        ("lastError", json!("none")),
        ("errorType", json!("TERMINAL")),
        ("state", json!("QUEUED")),
        ("jobId", json!("x")),
    ] {
        stage.create("document.job", &user("alice")).payload(b"x").with(name, value).bad_input();
    }
}

/// DOC-12: an upload is from one byte to a hundred megabytes.
#[test]
fn an_upload_is_bounded() {
    let mut stage = stage();
    let alice = user("alice");
    stage.create("document.job", &alice).bad_input();
    stage.create("document.job", &alice).payload(b"").bad_input();
    stage.create("document.job", &alice).payload(b"x").ok();
    stage.create("document.job", &alice).payload_of_size(100 * 1024 * 1024).ok();
    stage.create("document.job", &alice).payload_of_size(100 * 1024 * 1024 + 1).bad_input();
}

/// DOC-12: the same user with the same request id gets the same job, however it has gone on; another user does not.
#[test]
fn a_request_is_taken_once() {
    let mut stage = stage();
    let (alice, bob) = (user("alice"), user("bob"));
    let first = stage.create("document.job", &alice).with("requestId", "r-1").payload(b"x").ok();
    assert_eq!(stage.create("document.job", &alice).with("requestId", "r-1").payload(b"x").holder(), first);
    stage.fire(first, "cancel", &alice).ok();
    assert_eq!(stage.create("document.job", &alice).with("requestId", "r-1").payload(b"x").holder(), first);
    let other = stage.create("document.job", &alice).with("requestId", "r-2").payload(b"x").ok();
    let bobs = stage.create("document.job", &bob).with("requestId", "r-1").payload(b"x").ok();
    assert!(first != other && first != bobs);
    let without = stage.create("document.job", &alice).payload(b"x").ok();
    assert_ne!(stage.create("document.job", &alice).payload(b"x").ok(), without);
    stage.create("document.job", &alice).with("requestId", "é".repeat(200)).payload(b"x").ok();
    stage.create("document.job", &alice).with("requestId", "é".repeat(201)).payload(b"x").bad_input();
    stage.create("document.job", &alice).with("requestId", "").payload(b"x").bad_input();
}

/// DOC-13: while it runs it is with one worker; the next gets it only after it failed and waited.
#[test]
fn a_running_job_is_with_one_worker() {
    let mut stage = stage();
    let id = queued(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.try_lease(id, "w2").refused(409, "already_leased");
    stage.pass("29s");
    stage.heartbeat(&lease).ok();
    stage.pass("29s");
    stage.try_lease(id, "w2").refused(409, "already_leased");
    stage.fail(&lease, "TIMEOUT").ok();
    stage.try_lease(id, "w2").refused(409, "not_ready");
    stage.pass("1s");
    stage.lease(id, "w2");
}
