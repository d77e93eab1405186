//! EXE-1 to EXE-4: fields of jobs and executions.

use onceward_core::projection::project_job_state;
use onceward_core::record::ExecutionStatus::{Aborted, Done, Leased};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, operator, user};
use serde_json::json;

use super::{create_job, new_simulator};

/// EXE-1: a job has an id, a payload with hash and size, a state, an attempt count and timestamps.
#[test]
fn new_job_is_pending_without_attempts() {
    let mut stage = new_simulator();
    let (one, two) = (create_job(&mut stage), create_job(&mut stage));
    assert_ne!(one, two);
    let record = stage.record(one);
    assert_eq!(stage.state(one), "PENDING");
    assert_eq!(record.attempt, 0);
    assert_eq!(record.version, 1);
    assert_eq!(record.payload.map(|payload| payload.bytes), Some(9));
    assert_eq!((record.created_at, record.updated_at), (stage.now(), stage.now()));
    assert_eq!((record.started_at, record.finished_at), (None, None));
    assert_eq!(stage.field(one, "budget"), 5);
    assert_eq!(stage.field(one, "failures"), 0);
    assert_eq!(stage.field(one, "lastError"), json!(null));
}

/// EXE-1: a caller may choose the id; it must be a time-ordered UUID and unused.
#[test]
fn reused_or_invalid_record_id_is_refused() {
    let mut stage = new_simulator();
    let record_id = |text: &str| RecordId(text.parse().expect("a UUID"));
    let id = record_id("01938d6e-7a2b-7c00-8000-000000000001");
    assert_eq!(stage.create("execution.job", &user("alice")).id(id).expect_ok(), id);
    stage.create("execution.job", &user("alice")).id(id).expect_refusal(409, "id_taken");
    stage.create("execution.job", &user("bob")).id(id).expect_refusal(409, "id_taken");
    stage
        .create("execution.job", &user("alice"))
        .id(record_id("6ba7b810-9dad-41d1-80b4-00c04fd430c8"))
        .expect_bad_input();
    assert_eq!(stage.records_of("execution.job").len(), 1);
}

/// EXE-1: `updated_at` changes with each lease, `created_at` does not.
#[test]
fn attempt_counter_grows_with_each_lease() {
    let mut stage = new_simulator();
    let created_at = stage.now();
    let id = create_job(&mut stage);
    for attempt in 1..=3 {
        stage.advance("1h");
        let lease = stage.lease(id, "w1");
        assert_eq!(stage.record(id).attempt, attempt);
        stage.fail(&lease, "HICCUP").retryable(true).expect_ok();
        assert_eq!(stage.record(id).attempt, attempt);
        assert_eq!(stage.record(id).updated_at, stage.now());
        assert_eq!(stage.record(id).created_at, created_at);
    }
}

/// EXE-1
#[test]
fn create_fields_are_bounded() {
    let mut stage = new_simulator();
    let alice = user("alice");
    for (budget, fits) in [(0, false), (1, true), (100, true), (101, false)] {
        let attempt = stage.create("execution.job", &alice).with("budget", budget);
        if fits {
            attempt.expect_ok();
        } else {
            attempt.expect_bad_input();
        }
    }
    stage.create("execution.job", &alice).with("failures", 3).expect_bad_input();
    stage.create("execution.job", &alice).with("budget", "many").expect_bad_input();
    stage.create("execution.job", &alice).with("colour", "red").expect_bad_input();
}

/// EXE-1
#[test]
fn delayed_job_is_leasable_exactly_at_ready_at() {
    let mut stage = new_simulator().starting_at("2026-11-15T20:00:00Z");
    let id = stage.create("execution.job", &user("alice")).with("readyAt", "2026-11-15T21:00:00Z").expect_ok();
    stage.advance_by(Duration::from_micros(3_600_000_000 - 1));
    stage.try_lease(id, "w1").expect_not_leasable();
    stage.advance_by(Duration::from_micros(1));
    stage.try_lease(id, "w1").expect_ok();
}

/// EXE-2: an execution has its worker, attempt number, deadline, status, start and end.
#[test]
fn executions_keep_all_attempts() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let first = stage.lease(id, "w1");
    let granted = stage.execution(&first);
    assert_eq!(granted.token.0, 1);
    assert_eq!(*granted.worker, *"w1");
    assert_eq!(granted.status, Leased);
    assert_eq!(granted.leased_at, stage.now());
    assert_eq!(granted.expires_at.duration_since(stage.now()), Some(Duration::from_secs(30)));
    assert_eq!((granted.started_at, granted.finished_at), (None, None));

    stage.advance("1s");
    stage.start(&first).expect_ok();
    assert_eq!(stage.execution(&first).started_at, Some(stage.now()));
    stage.advance("1s");
    stage.fail(&first, "HICCUP").retryable(true).expect_ok();
    assert_eq!(stage.execution(&first).finished_at, Some(stage.now()));

    stage.advance("1m");
    let second = stage.lease(id, "w2");
    stage.commit(&second, json!(null)).expect_ok();
    let all = stage.executions(id);
    assert_eq!(all.iter().map(|execution| execution.status).collect::<Vec<_>>(), [Aborted, Done]);
    let names: Vec<String> = all.iter().map(|execution| execution.id(id).to_string()).collect();
    assert_eq!(names, [format!("{id}.1"), format!("{id}.2")]);
    assert_eq!(all[0].aborted.as_ref().map(|abort| &*abort.code), Some("HICCUP"));
    assert_eq!(all[1].aborted, None);
}

/// EXE-3
#[test]
fn state_equals_derived_state_at_every_step() {
    let mut stage = new_simulator();
    let id = stage.create("execution.job", &user("alice")).with("budget", 3).expect_ok();
    let assert_state_matches = |stage: &Simulator, state: &str| {
        assert_eq!(stage.state(id), state);
        assert_eq!(project_job_state(3, &stage.executions(id)).name(), state);
    };
    assert_state_matches(&stage, "PENDING");
    let lease = stage.lease(id, "w1");
    assert_state_matches(&stage, "RUNNING");
    stage.yield_job(&lease).expect_ok();
    assert_state_matches(&stage, "PENDING");
    stage.advance("1m");
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "HICCUP").retryable(true).expect_ok();
    assert_state_matches(&stage, "PENDING");
    stage.advance("1m");
    stage.lease(id, "w1");
    stage.advance("1m");
    assert_state_matches(&stage, "PENDING");
    let lease = stage.lease(id, "w1");
    let mut other = stage.clone();
    stage.commit_only(&lease, json!(null)).expect_ok();
    assert_state_matches(&stage, "RUNNING");
    stage.finish(&lease).expect_ok();
    assert_state_matches(&stage, "SUCCEEDED");
    other.fail(&lease, "HICCUP").retryable(true).expect_ok();
    assert_state_matches(&other, "FAILED");
}

/// EXE-4: the attempt count shows the second lease.
#[test]
fn expired_lease_makes_job_leasable_again() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let first = stage.lease(id, "w1");
    stage.advance("30s");
    assert_eq!(stage.state(id), "PENDING");
    assert_eq!(stage.execution(&first).aborted.map(|abort| abort.code.to_string()).as_deref(), Some("lost"));
    stage.advance("2s");
    let second = stage.lease(id, "w2");
    assert_eq!(stage.record(id).attempt, 2);
    stage.commit(&second, json!(null)).expect_ok();
    assert_eq!(stage.state(id), "SUCCEEDED");
}

/// EXE-1
#[test]
fn job_is_visible_only_to_owner_and_operators() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    stage.fire(id, "cancel", &user("mallory")).expect_not_found();
    stage.fire(id, "cancel", &user("alice")).expect_refusal(404, "unknown_event");
    stage.fire(id, "cancel", &operator("olga")).expect_refusal(404, "unknown_event");
}
