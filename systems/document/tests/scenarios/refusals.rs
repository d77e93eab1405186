//! DOC-8, DOC-14, DOC-15: refusals, and invariants of a job.

use onceward_core::value::RecordId;
use onceward_testkit::{operator, user};
use serde_json::json;

use super::{create_job, create_queued_job, create_running_job, new_simulator};

/// DOC-8
#[test]
fn event_on_final_job_is_refused_with_state_and_event() {
    let mut stage = new_simulator();
    let (succeeded, failed) = (create_running_job(&mut stage), create_running_job(&mut stage));
    stage.commit(&succeeded, json!(null)).expect_ok();
    stage.fail(&failed, "CORRUPT_DATA").expect_ok();
    for (lease, state) in [(&succeeded, "SUCCEEDED"), (&failed, "FAILED")] {
        let id = lease.record;
        stage.fire(id, "submit", &user("alice")).expect_wrong_state(state, "submit");
        stage.fire(id, "exhaust", &operator("olga")).expect_wrong_state(state, "exhaust");
        let refusal = stage.try_lease(id, "w2").expect_not_leasable();
        assert_eq!((refusal.state.as_deref(), &*refusal.event), (Some(state), "lease"));
        stage.yield_job(lease).run().expect_refusal();
        stage.advance("1d");
        assert_eq!(stage.state(id), state);
        assert!(stage.record(id).is_final(), "{state} is declared final");
    }
}

/// DOC-8
#[test]
fn created_job_is_not_leasable_and_queued_job_not_resubmittable() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let refusal = stage.try_lease(id, "w1").expect_not_leasable();
    assert_eq!((refusal.state.as_deref(), &*refusal.event), (Some("CREATED"), "lease"));
    stage.fire(id, "submit", &user("alice")).expect_ok();
    stage.fire(id, "submit", &user("alice")).expect_wrong_state("QUEUED", "submit");
    stage.advance("1d");
    assert_eq!(stage.state(id), "QUEUED");
}

/// DOC-8: RETRYING is the only way from RUNNING back to QUEUED.
#[test]
fn failed_yielded_and_lost_jobs_enter_retrying() {
    let mut stage = new_simulator();
    let leases: Vec<_> = (0..3).map(|_| create_running_job(&mut stage)).collect();
    stage.fail(&leases[0], "TIMEOUT").expect_ok();
    stage.yield_job(&leases[1]).expect_ok();
    stage.lose_lease(&leases[2]).expect_ok();
    for lease in &leases {
        assert_eq!(stage.state(lease.record), "RETRYING");
        stage.fire(lease.record, "submit", &user("alice")).expect_wrong_state("RETRYING", "submit");
    }
}

/// DOC-14: without other callers, every submitted job ends.
#[test]
fn jobs_of_dying_workers_end_in_failed() {
    let mut stage = new_simulator();
    let jobs: Vec<_> = (0..5).map(|_| create_queued_job(&mut stage)).collect();
    for _ in 0..4 {
        for id in &jobs {
            stage.lease(*id, "doomed");
        }
        stage.advance("31s");
    }
    for id in jobs {
        assert_eq!(stage.state(id), "FAILED");
        assert_eq!(stage.record(id).attempt, 4);
    }
}

/// DOC-14
#[test]
fn unsubmitted_job_waits_and_can_be_cancelled() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    stage.advance("365d");
    assert_eq!(stage.state(id), "CREATED");
    stage.fire(id, "cancel", &user("alice")).expect_ok();
    assert_eq!(stage.state(id), "FAILED");
}

/// DOC-15: only its hash appears.
#[test]
fn payload_never_appears_in_log_fields_or_refusals() {
    let secret = b"attack at dawn";
    let mut stage = new_simulator();
    let id = stage.create("document.job", &user("alice")).payload(secret).expect_ok();
    stage.fire(id, "submit", &user("alice")).expect_ok();
    stage.fire(id, "submit", &user("alice")).expect_wrong_state("QUEUED", "submit");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!({ "pages": 1 })).expect_ok();
    let all_output = stage.visible_text();
    assert!(!all_output.contains("attack at dawn"));
    assert!(stage.record(id).payload.is_some());
}

/// DOC-15
#[test]
fn payload_content_does_not_affect_transitions() {
    let contents: [&[u8]; 3] = [b"%PDF-1.7", &[0, 255, 254, 0], b"FAILED cancel {record.state}"];
    let state_sequences = contents.map(|content| {
        let mut stage = new_simulator();
        let id = stage.create("document.job", &user("alice")).payload(content).expect_ok();
        let mut states = vec![stage.state(id)];
        stage.fire(id, "submit", &user("alice")).expect_ok();
        states.push(stage.state(id));
        let lease = stage.lease(id, "w1");
        states.push(stage.state(id));
        stage.commit(&lease, json!(null)).expect_ok();
        states.push(stage.state(id));
        states
    });
    assert!(state_sequences.iter().all(|life| *life == ["CREATED", "QUEUED", "RUNNING", "SUCCEEDED"]));
}

/// The answer does not reveal whether the job exists.
#[test]
fn missing_and_foreign_job_get_same_answer() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let missing_id = RecordId("01938d6e-7a2b-7c00-8000-000000000001".parse().expect("a UUID"));
    let foreign = stage.fire(id, "cancel", &user("mallory")).expect_not_found();
    let missing = stage.fire(missing_id, "cancel", &user("mallory")).expect_not_found();
    assert_eq!(foreign, missing);
    assert_eq!((foreign.record, foreign.state), (None, None));
}
