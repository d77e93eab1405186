//! Transition matrix of claims and their dependents: every event in every state by every caller.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::matrix::{AllowedTransition, LifecycleMatrix, MatrixTrial};
use onceward_testkit::{Simulator, user};
use serde_json::{Map, Value, json};

use super::{
    create_action, create_disputed_claim, create_episode, create_fact, create_hint, create_rejected_claim,
    create_snapshot, create_stale_claim, create_superseded_claim, id_list, machine_actor, user_actor,
};

/// Preset evidence, and a claim on it that conflicts with all others.
const EVIDENCE_ID: &str = "01930000-0000-7000-8000-000000000001";
const RIVAL_CLAIM_ID: &str = "01930000-0000-7000-8000-000000000002";

const DISPUTE_TRIAL: &str = r#"update_status conflict="01930000-0000-7000-8000-000000000002" status="Disputed""#;
const SUPERSEDE_TRIAL: &str = r#"supersede replacement="01930000-0000-7000-8000-000000000002""#;

/// Callers with the user's authority, also through a record whose event the user sent (no shipped lifecycle does that).
const USER_AUTHORITY_CALLERS: &str = "user, voice, user's record";

/// All transitions of the requirement.
const ALLOWED_CLAIM_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "writer, user", "Claim"),
    ("Hint: at its threshold", r#"update_status status="Claim""#, "writer, user", "Claim"),
    ("Claim: a machine's", DISPUTE_TRIAL, "writer, user", "Disputed"),
    ("Claim: the user's", DISPUTE_TRIAL, "user", "Disputed"),
    ("Claim: a machine's", r#"update_status status="Claim""#, "user", "Claim"),
    ("Disputed", r#"update_status status="Claim""#, "user", "Claim"),
    ("Hint", "confirm", USER_AUTHORITY_CALLERS, "Fact"),
    ("Claim", "confirm", USER_AUTHORITY_CALLERS, "Fact"),
    ("Disputed", "confirm", USER_AUTHORITY_CALLERS, "Fact"),
    ("Rejected", "confirm", USER_AUTHORITY_CALLERS, "Fact"),
    ("Stale", "confirm", USER_AUTHORITY_CALLERS, "Fact"),
    ("Superseded", "confirm", USER_AUTHORITY_CALLERS, "Fact"),
    ("Hint", "reject", USER_AUTHORITY_CALLERS, "Rejected"),
    ("Claim", "reject", USER_AUTHORITY_CALLERS, "Rejected"),
    ("Disputed", "reject", USER_AUTHORITY_CALLERS, "Rejected"),
    ("Fact", "reject", USER_AUTHORITY_CALLERS, "Rejected"),
    ("Stale", "reject", USER_AUTHORITY_CALLERS, "Rejected"),
    ("Superseded", "reject", USER_AUTHORITY_CALLERS, "Rejected"),
    ("Hint", SUPERSEDE_TRIAL, "writer, user", "Superseded"),
    ("Claim", SUPERSEDE_TRIAL, "writer, user", "Superseded"),
    ("Disputed", SUPERSEDE_TRIAL, "writer, user", "Superseded"),
    ("Stale", SUPERSEDE_TRIAL, "writer, user", "Superseded"),
    ("Fact", SUPERSEDE_TRIAL, "user", "Superseded"),
    ("Rejected", SUPERSEDE_TRIAL, "user", "Superseded"),
    ("Hint", "update_confidence confidence=0.1", "writer, user", "Hint"),
    ("Claim", "update_confidence confidence=0.1", "writer, user", "Claim"),
    ("Disputed", "update_confidence confidence=0.1", "writer, user", "Disputed"),
    ("Stale", "update_confidence confidence=0.1", "writer, user", "Stale"),
    ("Fact", "update_confidence confidence=0.1", "user", "Fact"),
    ("Hint", "support_lost", "record, user's record", "Stale"),
    ("Claim", "support_lost", "record, user's record", "Stale"),
    ("Disputed", "support_lost", "record, user's record", "Stale"),
    ("Fact", "support_lost", "user's record", "Stale"),
];

fn evidence_id() -> RecordId {
    RecordId(EVIDENCE_ID.parse().expect("a UUID"))
}

fn with_evidence_and_rival(mut stage: Simulator) -> Simulator {
    stage.create("mesh.evidence", &machine_actor()).id(evidence_id()).with("digest", "d").expect_ok();
    let rival = RecordId(RIVAL_CLAIM_ID.parse().expect("a UUID"));
    super::claim_attempt(&mut stage, &[evidence_id()], 0.7).with("object", "Basel").id(rival).expect_ok();
    stage
}

/// Adds the callers of every mesh matrix. Owning a record grants nothing: only capabilities count.
pub(super) fn with_callers(matrix: LifecycleMatrix) -> LifecycleMatrix {
    let read_capabilities: Vec<&str> =
        super::ALL_CAPABILITIES.iter().copied().filter(|one| one.ends_with(".Read")).collect();
    matrix
        .with_owner(user("laptop"))
        .with_caller("writer", machine_actor())
        .with_caller("reader", super::node_actor("eve", &read_capabilities))
        .with_caller("user", user_actor())
        .with_caller("voice", Actor { user: true, ..Actor::new("phone", &[]) })
        .with_user_authority_record()
}

pub(super) fn json_object(json: Value) -> Map<String, Value> {
    let Value::Object(map) = json else { panic!("{json} is not an object") };
    map
}

pub(super) fn fire_trial(event: &str, input: Value) -> MatrixTrial {
    MatrixTrial::Fire { event: event.to_owned(), input: json_object(input) }
}

/// MSH-1, MSH-2, MSH-3, MSH-4, MSH-5, MSH-6, MSH-7, MSH-9, MSH-10, MSH-11
#[test]
fn only_allowed_claim_transitions_happen() {
    let support = [evidence_id()];
    let spawned = [
        ("subject", "'s'"),
        ("predicate", "'p'"),
        ("object", "'o'"),
        ("confidence", "0.7"),
        ("support", "record.target.support"),
    ];
    let belief =
        json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 0.7, "support": id_list(&support) });
    with_callers(LifecycleMatrix::new("mesh", "mesh.claim", &spawned, with_evidence_and_rival))
        .with_create_input(json_object(belief), None)
        .with_trial(fire_trial("update_status", json!({ "status": "Claim" })))
        .with_trial(fire_trial("update_status", json!({ "status": "Disputed", "conflict": RIVAL_CLAIM_ID })))
        .with_trial(fire_trial("supersede", json!({ "replacement": RIVAL_CLAIM_ID })))
        .with_trial(fire_trial("update_confidence", json!({ "confidence": 0.1 })))
        .with_scene("Hint", |stage| create_hint(stage, &support))
        .with_scene("Hint: at its threshold", |stage| {
            let id = create_hint(stage, &support);
            stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.5).expect_ok()
        })
        .with_scene("Claim: a machine's", |stage| super::create_claim(stage, &support))
        .with_scene("Claim: the user's", |stage| {
            let id = create_hint(stage, &support);
            stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.5).expect_ok();
            stage.fire(id, "update_status", &user_actor()).with("status", "Claim").expect_ok()
        })
        .with_scene("Fact", |stage| create_fact(stage, &support))
        .with_scene("Disputed", |stage| create_disputed_claim(stage, &support))
        .with_scene("Rejected", |stage| create_rejected_claim(stage, &support))
        .with_scene("Stale", |stage| create_stale_claim(stage, &support))
        .with_scene("Superseded", |stage| create_superseded_claim(stage, &support))
        .assert_only_allowed(ALLOWED_CLAIM_TRANSITIONS);
}

/// MSH-7, MSH-9, MSH-10
#[test]
fn only_allowed_evidence_transitions_happen() {
    with_callers(LifecycleMatrix::new("mesh", "mesh.evidence", &[("digest", "'d'")], with_evidence_and_rival))
        .with_create_input(json_object(json!({ "digest": "d" })), None)
        .with_scene("Live", super::create_evidence)
        .with_scene("Tombstoned: by a machine", |stage| {
            let id = super::create_evidence(stage);
            stage.fire(id, "tombstone", &machine_actor()).expect_ok()
        })
        .with_scene("Tombstoned: by the user", |stage| {
            let id = super::create_evidence(stage);
            stage.fire(id, "tombstone", &user_actor()).expect_ok()
        })
        .assert_only_allowed(&[
            ("nothing", "create", "writer, user", "Live"),
            ("Live", "tombstone", "writer, user", "Tombstoned"),
            ("Tombstoned: by a machine", "tombstone", "user", "Tombstoned"),
        ]);
}

/// MSH-8
#[test]
fn only_allowed_episode_transitions_happen() {
    let support = [evidence_id()];
    let spawned = [("title", "'t'"), ("support", "record.target.support")];
    with_callers(LifecycleMatrix::new("mesh", "mesh.episode", &spawned, with_evidence_and_rival))
        .with_create_input(json_object(json!({ "title": "t", "support": id_list(&support) })), None)
        .with_scene("Current", |stage| create_episode(stage, &support))
        .with_scene("Stale", |stage| {
            let id = create_episode(stage, &support);
            stage.fire(evidence_id(), "tombstone", &machine_actor()).expect_ok();
            id
        })
        .assert_only_allowed(&[
            ("nothing", "create", "writer, user", "Current"),
            ("Current", "support_lost", "record, user's record", "Stale"),
        ]);
}

/// MSH-8
#[test]
fn only_allowed_snapshot_transitions_happen() {
    let support = [evidence_id()];
    let stale = |stage: &mut Simulator| {
        let id = create_snapshot(stage, &support);
        stage.fire(evidence_id(), "tombstone", &machine_actor()).expect_ok();
        id
    };
    let spawned = [("artifact", "'a'"), ("support", "record.target.support")];
    with_callers(LifecycleMatrix::new("mesh", "mesh.snapshot", &spawned, with_evidence_and_rival))
        .with_create_input(json_object(json!({ "artifact": "a", "support": id_list(&support) })), None)
        .with_scene("Fresh", |stage| create_snapshot(stage, &support))
        .with_scene("Stale", stale)
        .with_scene("Evicted", |stage| {
            let id = stale(stage);
            stage.fire(id, "evict", &machine_actor()).expect_ok()
        })
        .assert_only_allowed(&[
            ("nothing", "create", "writer, user", "Fresh"),
            ("Fresh", "support_lost", "record, user's record", "Stale"),
            ("Stale", "evict", "writer, user", "Evicted"),
        ]);
}

/// All transitions of the requirement.
const ALLOWED_ACTION_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "writer, user", "Suggested"),
    ("Suggested", "accept", "writer, user", "Accepted"),
    ("Accepted: by a machine", "accept", "user", "Accepted"),
    ("Rejected", "accept", "user", "Accepted"),
    ("Suggested", "reject", "writer, user", "Rejected"),
    ("Accepted: by a machine", "reject", "writer, user", "Rejected"),
    ("Accepted: by the user", "reject", "user", "Rejected"),
    ("Accepted", "complete", "writer, user", "Done"),
    ("Suggested", "support_lost", "record, user's record", "Rejected"),
    ("Accepted: by a machine", "support_lost", "record, user's record", "Rejected"),
    ("Accepted: by the user", "support_lost", "user's record", "Rejected"),
];

/// MSH-8, MSH-10, MSH-11
#[test]
fn only_allowed_action_transitions_happen() {
    let support = [evidence_id()];
    let action_after = |event: &'static str, author: Actor| {
        move |stage: &mut Simulator| {
            let id = create_action(stage, &support);
            stage.fire(id, event, &author).expect_ok()
        }
    };
    let spawned = [("title", "'t'"), ("support", "record.target.support")];
    with_callers(LifecycleMatrix::new("mesh", "mesh.action", &spawned, with_evidence_and_rival))
        .with_create_input(json_object(json!({ "title": "t", "support": id_list(&support) })), None)
        .with_scene("Suggested", |stage| create_action(stage, &support))
        .with_scene("Accepted: by a machine", action_after("accept", machine_actor()))
        .with_scene("Accepted: by the user", action_after("accept", user_actor()))
        .with_scene("Done", |stage| {
            let id = action_after("accept", machine_actor())(stage);
            stage.fire(id, "complete", &machine_actor()).expect_ok()
        })
        .with_scene("Rejected", action_after("reject", machine_actor()))
        .assert_only_allowed(ALLOWED_ACTION_TRANSITIONS);
}
