//! DOC-8, DOC-14, DOC-15: what never happens.

use onceward_core::value::RecordId;
use onceward_testkit::{operator, user};
use serde_json::json;

use super::{created, queued, running, stage};

/// DOC-8: no move leads out of a final state, and the refusal names state and event.
#[test]
fn final_states_are_not_left() {
    let mut stage = stage();
    let (won, lost) = (running(&mut stage), running(&mut stage));
    stage.commit(&won, json!(null)).ok();
    stage.fail(&lost, "CORRUPT_DATA").ok();
    for (lease, state) in [(&won, "SUCCEEDED"), (&lost, "FAILED")] {
        let id = lease.record;
        stage.fire(id, "submit", &user("alice")).wrong_state(state, "submit");
        stage.fire(id, "cancel", &user("alice")).wrong_state(state, "cancel");
        stage.fire(id, "exhaust", &operator("olga")).wrong_state(state, "exhaust");
        let refusal = stage.try_lease(id, "w2").not_leasable();
        assert_eq!((refusal.state.as_deref(), &*refusal.event), (Some(state), "lease"));
        stage.give_back(lease).outcome().refusal();
        stage.pass("1d");
        assert_eq!(stage.state(id), state);
        assert!(stage.record(id).is_final(), "{state} is declared as an end");
    }
}

/// DOC-8: CREATED does not run without being queued, and QUEUED does not become CREATED again.
#[test]
fn no_step_is_skipped_or_taken_back() {
    let mut stage = stage();
    let id = created(&mut stage);
    let refusal = stage.try_lease(id, "w1").not_leasable();
    assert_eq!((refusal.state.as_deref(), &*refusal.event), (Some("CREATED"), "lease"));
    stage.fire(id, "submit", &user("alice")).ok();
    stage.fire(id, "submit", &user("alice")).wrong_state("QUEUED", "submit");
    stage.pass("1d");
    assert_eq!(stage.state(id), "QUEUED");
}

/// DOC-8: from RUNNING back to QUEUED there is only the way through RETRYING, whatever ended the attempt.
#[test]
fn running_goes_back_by_way_of_retrying() {
    let mut stage = stage();
    let leases: Vec<_> = (0..3).map(|_| running(&mut stage)).collect();
    stage.fail(&leases[0], "TIMEOUT").ok();
    stage.give_back(&leases[1]).ok();
    stage.lost(&leases[2]).ok();
    for lease in &leases {
        assert_eq!(stage.state(lease.record), "RETRYING");
        stage.fire(lease.record, "submit", &user("alice")).wrong_state("RETRYING", "submit");
    }
}

/// DOC-14: left to themselves with workers that die, all jobs that were submitted end: none is orphaned.
#[test]
fn no_job_is_orphaned() {
    let mut stage = stage();
    let jobs: Vec<_> = (0..5).map(|_| queued(&mut stage)).collect();
    for _ in 0..4 {
        for id in &jobs {
            stage.lease(*id, "doomed");
        }
        stage.pass("31s");
    }
    for id in jobs {
        assert_eq!(stage.state(id), "FAILED");
        assert_eq!(stage.record(id).attempt, 4);
    }
}

/// DOC-14: one that was never submitted waits for its owner, who can end it.
#[test]
fn a_job_never_submitted_can_be_cancelled() {
    let mut stage = stage();
    let id = created(&mut stage);
    stage.pass("365d");
    assert_eq!(stage.state(id), "CREATED");
    stage.fire(id, "cancel", &user("alice")).ok();
    assert_eq!(stage.state(id), "FAILED");
}

/// DOC-15: the document appears nowhere but by its hash: not in the log, not in a field, not in a refusal.
#[test]
fn the_payload_is_never_shown() {
    let secret = b"attack at dawn";
    let mut stage = stage();
    let id = stage.create("document.job", &user("alice")).payload(secret).ok();
    stage.fire(id, "submit", &user("alice")).ok();
    stage.fire(id, "submit", &user("alice")).wrong_state("QUEUED", "submit");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!({ "pages": 1 })).ok();
    let said = stage.everything_said();
    assert!(!said.contains("attack at dawn"));
    assert!(stage.record(id).payload.is_some());
}

/// DOC-15: no move depends on the content: any bytes, ciphertext or not, live the same life.
#[test]
fn all_payloads_live_alike() {
    let contents: [&[u8]; 3] = [b"%PDF-1.7", &[0, 255, 254, 0], b"FAILED cancel {record.state}"];
    let lives = contents.map(|content| {
        let mut stage = stage();
        let id = stage.create("document.job", &user("alice")).payload(content).ok();
        let mut states = vec![stage.state(id)];
        stage.fire(id, "submit", &user("alice")).ok();
        states.push(stage.state(id));
        let lease = stage.lease(id, "w1");
        states.push(stage.state(id));
        stage.commit(&lease, json!(null)).ok();
        states.push(stage.state(id));
        states
    });
    assert!(lives.iter().all(|life| *life == ["CREATED", "QUEUED", "RUNNING", "SUCCEEDED"]));
}

/// One answer for a job that is not there and for one that is somebody else's: neither says which it was.
#[test]
fn missing_and_foreign_look_alike() {
    let mut stage = stage();
    let id = created(&mut stage);
    let nowhere = RecordId("01938d6e-7a2b-7c00-8000-000000000001".parse().expect("a UUID"));
    let foreign = stage.fire(id, "cancel", &user("mallory")).not_found();
    let missing = stage.fire(nowhere, "cancel", &user("mallory")).not_found();
    assert_eq!(foreign, missing);
    assert_eq!((foreign.record, foreign.state), (None, None));
}
