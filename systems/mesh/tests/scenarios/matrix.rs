//! Every state, every event, every caller: claims, and what is made of them.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::matrix::{Allowed, Matrix, Trial};
use onceward_testkit::{Stage, user};
use serde_json::{Map, Value, json};

use super::{action, disputed, episode, fact, hint, ids, machine, rejected, snapshot, stale, superseded, you};

/// Evidence that is there from the beginning, and a claim on it that contradicts all others.
const GROUND: &str = "01930000-0000-7000-8000-000000000001";
const RIVAL: &str = "01930000-0000-7000-8000-000000000002";

const DISPUTE: &str = r#"update_status conflict="01930000-0000-7000-8000-000000000002" status="Disputed""#;
const SUPERSEDE: &str = r#"supersede replacement="01930000-0000-7000-8000-000000000002""#;

/// With the user's authority, be it through a record that the user sets going (no shipped row does).
const ASSERTS: &str = "user, voice, user's record";

/// Typed from the requirement.
const CLAIM: &[Allowed<'static>] = &[
    ("nothing", "create", "writer, user", "Claim"),
    ("Hint: at its threshold", r#"update_status status="Claim""#, "writer, user", "Claim"),
    ("Claim: a machine's", DISPUTE, "writer, user", "Disputed"),
    ("Claim: the user's", DISPUTE, "user", "Disputed"),
    ("Claim: a machine's", r#"update_status status="Claim""#, "user", "Claim"),
    ("Disputed", r#"update_status status="Claim""#, "user", "Claim"),
    ("Hint", "confirm", ASSERTS, "Fact"),
    ("Claim", "confirm", ASSERTS, "Fact"),
    ("Disputed", "confirm", ASSERTS, "Fact"),
    ("Rejected", "confirm", ASSERTS, "Fact"),
    ("Stale", "confirm", ASSERTS, "Fact"),
    ("Superseded", "confirm", ASSERTS, "Fact"),
    ("Hint", "reject", ASSERTS, "Rejected"),
    ("Claim", "reject", ASSERTS, "Rejected"),
    ("Disputed", "reject", ASSERTS, "Rejected"),
    ("Fact", "reject", ASSERTS, "Rejected"),
    ("Stale", "reject", ASSERTS, "Rejected"),
    ("Superseded", "reject", ASSERTS, "Rejected"),
    ("Hint", SUPERSEDE, "writer, user", "Superseded"),
    ("Claim", SUPERSEDE, "writer, user", "Superseded"),
    ("Disputed", SUPERSEDE, "writer, user", "Superseded"),
    ("Stale", SUPERSEDE, "writer, user", "Superseded"),
    ("Fact", SUPERSEDE, "user", "Superseded"),
    ("Rejected", SUPERSEDE, "user", "Superseded"),
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

fn ground() -> RecordId {
    RecordId(GROUND.parse().expect("a UUID"))
}

fn dressed(mut stage: Stage) -> Stage {
    stage.create("mesh.evidence", &machine()).id(ground()).with("digest", "d").ok();
    let rival = RecordId(RIVAL.parse().expect("a UUID"));
    super::believe(&mut stage, &[ground()], 0.7).with("object", "Basel").id(rival).ok();
    stage
}

/// The callers of every matrix here. What was authored by a node is the owner's in name only: capabilities count.
pub(super) fn with_callers(matrix: Matrix) -> Matrix {
    let read: Vec<&str> = super::ALL.iter().copied().filter(|one| one.ends_with(".Read")).collect();
    matrix
        .owner_is(user("laptop"))
        .caller("writer", machine())
        .caller("reader", super::node("eve", &read))
        .caller("user", you())
        .caller("voice", Actor { user: true, ..Actor::new("phone", &[]) })
        .with_users_record()
}

pub(super) fn object(json: Value) -> Map<String, Value> {
    let Value::Object(map) = json else { panic!("{json} is no object") };
    map
}

pub(super) fn fire(event: &str, input: Value) -> Trial {
    Trial::Fire { event: event.to_owned(), input: object(input) }
}

/// MSH-1, MSH-2, MSH-3, MSH-4, MSH-5, MSH-6, MSH-7, MSH-9, MSH-10, MSH-11: these moves happen, and no other does.
#[test]
fn every_state_event_and_caller_of_a_claim() {
    let on = [ground()];
    let spawned = [
        ("subject", "'s'"),
        ("predicate", "'p'"),
        ("object", "'o'"),
        ("confidence", "0.7"),
        ("support", "record.target.support"),
    ];
    let belief = json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 0.7, "support": ids(&on) });
    with_callers(Matrix::new("mesh", "mesh.claim", &spawned, dressed))
        .given(object(belief), None)
        .trial(fire("update_status", json!({ "status": "Claim" })))
        .trial(fire("update_status", json!({ "status": "Disputed", "conflict": RIVAL })))
        .trial(fire("supersede", json!({ "replacement": RIVAL })))
        .trial(fire("update_confidence", json!({ "confidence": 0.1 })))
        .scene("Hint", |stage| hint(stage, &on))
        .scene("Hint: at its threshold", |stage| {
            let id = hint(stage, &on);
            stage.fire(id, "update_confidence", &machine()).with("confidence", 0.5).ok()
        })
        .scene("Claim: a machine's", |stage| super::claim(stage, &on))
        .scene("Claim: the user's", |stage| {
            let id = hint(stage, &on);
            stage.fire(id, "update_confidence", &machine()).with("confidence", 0.5).ok();
            stage.fire(id, "update_status", &you()).with("status", "Claim").ok()
        })
        .scene("Fact", |stage| fact(stage, &on))
        .scene("Disputed", |stage| disputed(stage, &on))
        .scene("Rejected", |stage| rejected(stage, &on))
        .scene("Stale", |stage| stale(stage, &on))
        .scene("Superseded", |stage| superseded(stage, &on))
        .check(CLAIM);
}

/// MSH-7, MSH-9, MSH-10: evidence is there, or withdrawn by a machine or by the user.
#[test]
fn every_state_event_and_caller_of_evidence() {
    with_callers(Matrix::new("mesh", "mesh.evidence", &[("digest", "'d'")], dressed))
        .given(object(json!({ "digest": "d" })), None)
        .scene("Live", super::evidence)
        .scene("Tombstoned: by a machine", |stage| {
            let id = super::evidence(stage);
            stage.fire(id, "tombstone", &machine()).ok()
        })
        .scene("Tombstoned: by the user", |stage| {
            let id = super::evidence(stage);
            stage.fire(id, "tombstone", &you()).ok()
        })
        .check(&[
            ("nothing", "create", "writer, user", "Live"),
            ("Live", "tombstone", "writer, user", "Tombstoned"),
            ("Tombstoned: by a machine", "tombstone", "user", "Tombstoned"),
        ]);
}

/// MSH-8: an episode is made, and goes stale by a cascade only.
#[test]
fn every_state_event_and_caller_of_an_episode() {
    let on = [ground()];
    let spawned = [("title", "'t'"), ("support", "record.target.support")];
    with_callers(Matrix::new("mesh", "mesh.episode", &spawned, dressed))
        .given(object(json!({ "title": "t", "support": ids(&on) })), None)
        .scene("Current", |stage| episode(stage, &on))
        .scene("Stale", |stage| {
            let id = episode(stage, &on);
            stage.fire(ground(), "tombstone", &machine()).ok();
            id
        })
        .check(&[
            ("nothing", "create", "writer, user", "Current"),
            ("Current", "support_lost", "record, user's record", "Stale"),
        ]);
}

/// MSH-8: a snapshot is made, goes stale by a cascade only, and is evicted only then.
#[test]
fn every_state_event_and_caller_of_a_snapshot() {
    let on = [ground()];
    let stale = |stage: &mut Stage| {
        let id = snapshot(stage, &on);
        stage.fire(ground(), "tombstone", &machine()).ok();
        id
    };
    let spawned = [("artifact", "'a'"), ("support", "record.target.support")];
    with_callers(Matrix::new("mesh", "mesh.snapshot", &spawned, dressed))
        .given(object(json!({ "artifact": "a", "support": ids(&on) })), None)
        .scene("Fresh", |stage| snapshot(stage, &on))
        .scene("Stale", stale)
        .scene("Evicted", |stage| {
            let id = stale(stage);
            stage.fire(id, "evict", &machine()).ok()
        })
        .check(&[
            ("nothing", "create", "writer, user", "Fresh"),
            ("Fresh", "support_lost", "record, user's record", "Stale"),
            ("Stale", "evict", "writer, user", "Evicted"),
        ]);
}

/// Typed from the requirement.
const ACTION: &[Allowed<'static>] = &[
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

/// MSH-8, MSH-10, MSH-11: who decides on an action, and what a cascade does to it.
#[test]
fn every_state_event_and_caller_of_an_action() {
    let on = [ground()];
    let told = |event: &'static str, by: Actor| {
        move |stage: &mut Stage| {
            let id = action(stage, &on);
            stage.fire(id, event, &by).ok()
        }
    };
    let spawned = [("title", "'t'"), ("support", "record.target.support")];
    with_callers(Matrix::new("mesh", "mesh.action", &spawned, dressed))
        .given(object(json!({ "title": "t", "support": ids(&on) })), None)
        .scene("Suggested", |stage| action(stage, &on))
        .scene("Accepted: by a machine", told("accept", machine()))
        .scene("Accepted: by the user", told("accept", you()))
        .scene("Done", |stage| {
            let id = told("accept", machine())(stage);
            stage.fire(id, "complete", &machine()).ok()
        })
        .scene("Rejected", told("reject", machine()))
        .check(ACTION);
}
