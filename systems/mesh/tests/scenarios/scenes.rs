//! A record of every lifecycle in every state, and the events that each state knows.

use std::collections::BTreeSet;

use onceward_core::model::EventKind;
use onceward_core::value::RecordId;
use onceward_testkit::{Stage, operator, systems};
use serde_json::json;

use super::nodes::{self, fold};
use super::{action, episode, evidence, hint, jobs, machine, one_of_each, rival, snapshot, you};

pub(super) struct Scene {
    pub(super) lifecycle: &'static str,
    /// Its state, or its state and what is special about it.
    pub(super) name: &'static str,
    pub(super) id: RecordId,
}

/// All scenes on one stage, and a claim beside them that contradicts all others.
pub(super) fn every_scene() -> (Stage, Vec<Scene>, RecordId) {
    dressed(systems::stage("mesh"))
}

pub(super) fn dressed(stage: Stage) -> (Stage, Vec<Scene>, RecordId) {
    let mut stage = nodes::dressed(stage, &nodes::book());
    let other = rival(&mut stage);
    let mut scenes = claims(&mut stage);
    scenes.extend(made_of_claims(&mut stage));
    scenes.extend(work(&mut stage));
    for Scene { lifecycle, name, id } in &scenes {
        assert_eq!(stage.state(*id), name.split(':').next().unwrap_or(name), "{lifecycle}");
    }
    (stage, scenes, other)
}

fn claims(stage: &mut Stage) -> Vec<Scene> {
    let lifecycle = "mesh.claim";
    let ground = evidence(stage);
    let mut scenes: Vec<_> =
        one_of_each(stage, &[ground]).into_iter().map(|(name, id)| Scene { lifecycle, name, id }).collect();
    for (name, author) in [("Hint: at its threshold", None), ("Claim: the user's", Some(you()))] {
        let id = hint(stage, &[ground]);
        stage.fire(id, "update_confidence", &machine()).with("confidence", 0.5).ok();
        if let Some(author) = author {
            stage.fire(id, "update_status", &author).with("status", "Claim").ok();
        }
        scenes.push(Scene { lifecycle, name, id });
    }
    scenes
}

fn made_of_claims(stage: &mut Stage) -> Vec<Scene> {
    let mut scenes = Vec::new();
    let ground = evidence(stage);
    let mut add = |lifecycle, name, id| scenes.push(Scene { lifecycle, name, id });
    let told = |stage: &mut Stage, events: &[(&str, bool)]| {
        let id = action(stage, &[ground]);
        for (event, user) in events {
            stage.fire(id, event, &if *user { you() } else { machine() }).ok();
        }
        id
    };
    add("mesh.action", "Suggested", told(stage, &[]));
    add("mesh.action", "Accepted: by a machine", told(stage, &[("accept", false)]));
    add("mesh.action", "Accepted: by the user", told(stage, &[("accept", true)]));
    add("mesh.action", "Done", told(stage, &[("accept", false), ("complete", false)]));
    add("mesh.action", "Rejected", told(stage, &[("reject", false)]));
    add("mesh.evidence", "Live", ground);
    add("mesh.episode", "Current", episode(stage, &[ground]));
    add("mesh.snapshot", "Fresh", snapshot(stage, &[ground]));
    let (by_machine, by_user) = (evidence(stage), evidence(stage));
    let (old, faded, evicted) =
        (episode(stage, &[by_machine]), snapshot(stage, &[by_machine]), snapshot(stage, &[by_machine]));
    stage.fire(by_machine, "tombstone", &machine()).ok();
    stage.fire(by_user, "tombstone", &you()).ok();
    stage.fire(evicted, "evict", &machine()).ok();
    add("mesh.evidence", "Tombstoned: by a machine", by_machine);
    add("mesh.evidence", "Tombstoned: by the user", by_user);
    add("mesh.episode", "Stale", old);
    add("mesh.snapshot", "Stale", faded);
    add("mesh.snapshot", "Evicted", evicted);
    scenes
}

fn work(stage: &mut Stage) -> Vec<Scene> {
    let mut scenes = Vec::new();
    let mut add = |lifecycle, name, id| scenes.push(Scene { lifecycle, name, id });
    add("mesh.job", "Claimed: overdue", jobs::claimed(stage));
    stage.doze("11m");
    add("mesh.job", "Pending", jobs::pending(stage));
    add("mesh.job", "Claimed", jobs::claimed(stage));
    let done = jobs::claimed(stage);
    add("mesh.job", "Completed", stage.fire(done, "complete_job", &jobs::ann()).ok());
    let route = |stage: &mut Stage, kind: &str, by: &onceward_core::record::Actor| {
        stage.create("mesh.route", by).with("kind", kind).with("node", "ann").ok()
    };
    add("mesh.route", "Routed: by a machine", route(stage, "scan", &machine()));
    add("mesh.route", "Routed: by the user", route(stage, "mail", &you()));
    let free = route(stage, "print", &machine());
    add("mesh.route", "Free", stage.fire(free, "free", &machine()).ok());
    for (name, key, events) in [
        ("Pending", "a", &[][..]),
        ("Active", "b", &["delegated"]),
        ("Suspended", "c", &["delegated", "lapsed"]),
        ("Revoked", "d", &["delegated", "revoked"]),
    ] {
        let id = nodes::named(stage, key);
        for event in events {
            stage.fire(id, event, &fold()).ok();
        }
        add("mesh.node", name, id);
    }
    scenes
}

/// What a record in each state does not know: asked for it, it answers that this is no state for that. All else that its
/// lifecycle names is known there, if perhaps not to everybody.
const UNKNOWN: &[(&str, &str, &[&str])] = &[
    ("mesh.action", "Suggested", &["complete"]),
    ("mesh.action", "Done", &["accept", "complete", "reject", "support_lost"]),
    ("mesh.action", "Rejected", &["complete", "support_lost"]),
    ("mesh.claim", "Fact", &["update_status"]),
    ("mesh.claim", "Rejected", &["update_confidence", "update_status"]),
    ("mesh.claim", "Stale", &["update_status"]),
    ("mesh.claim", "Superseded", &["supersede", "update_confidence", "update_status"]),
    ("mesh.job", "Pending", &["complete_job", "yield_work"]),
    ("mesh.job", "Completed", &["claim_work", "complete_job", "yield_work"]),
    ("mesh.node", "Pending", &["lapsed", "revoked"]),
    ("mesh.node", "Revoked", &["lapsed"]),
    ("mesh.snapshot", "Fresh", &["evict"]),
    ("mesh.snapshot", "Stale", &["support_lost"]),
    ("mesh.snapshot", "Evicted", &["evict", "support_lost"]),
];

/// MSH-3, MSH-5, MSH-6, MSH-8, MSH-10, MSH-11, MSH-12, MSH-16: what each state knows, and nothing beside it.
#[test]
fn each_state_knows_its_events() {
    let (mut stage, scenes, _) = every_scene();
    for Scene { lifecycle, name, id } in scenes {
        let now = stage.state(id);
        let events = stage.definition(lifecycle).events.iter().filter(|event| event.kind == EventKind::Called);
        let events: Vec<_> = events.map(|event| event.name.clone()).collect();
        let mut unknown = BTreeSet::new();
        for event in events {
            let refusal = stage.fire(id, &event, &operator("olga")).outcome().refusal();
            if &*refusal.code == "wrong_state" {
                unknown.insert(event.to_string());
            }
        }
        let listed = UNKNOWN.iter().find(|(of, at, _)| (*of, *at) == (lifecycle, now.as_str()));
        let listed: BTreeSet<_> = listed.map_or(&[][..], |listed| listed.2).iter().map(ToString::to_string).collect();
        assert_eq!(unknown, listed, "{lifecycle}, {name}");
    }
}

/// MSH-8, MSH-10, MSH-12: what is Done, Tombstoned, Evicted or Completed is over, and says since when. All else may still come
/// round: the user may take up what was rejected, and nobody is revoked for good.
#[test]
fn what_is_over_says_since_when() {
    let (stage, scenes, _) = every_scene();
    for Scene { lifecycle, name, id } in scenes {
        let over = ["Done", "Tombstoned", "Evicted", "Completed"].contains(&stage.state(id).as_str());
        let record = stage.record(id);
        assert_eq!((record.is_final(), record.finished_at.is_some()), (over, over), "{lifecycle}, {name}");
    }
}

/// MSH-10, MSH-13, MSH-18, MSH-20, MSH-24: what is so already does not become so again: said a minute later, by whoever may, it
/// leaves the record as it was, down to its version and the time since when.
#[test]
fn what_is_so_already_does_not_become_so_again() {
    let (mut stage, scenes, _) = every_scene();
    stage.doze("1m");
    for (lifecycle, scene, event, input, by) in [
        ("mesh.action", "Accepted: by a machine", "accept", json!({}), machine()),
        ("mesh.action", "Accepted: by the user", "accept", json!({}), machine()),
        ("mesh.action", "Accepted: by the user", "accept", json!({}), you()),
        ("mesh.action", "Rejected", "reject", json!({}), machine()),
        ("mesh.action", "Rejected", "reject", json!({}), you()),
        ("mesh.claim", "Claim", "update_status", json!({ "status": "Claim" }), machine()),
        ("mesh.claim", "Claim: the user's", "update_status", json!({ "status": "Claim" }), machine()),
        ("mesh.claim", "Claim: the user's", "update_status", json!({ "status": "Claim" }), you()),
        ("mesh.claim", "Disputed", "update_status", json!({ "status": "Disputed" }), machine()),
        ("mesh.claim", "Disputed", "update_status", json!({ "status": "Disputed" }), you()),
        ("mesh.claim", "Fact", "confirm", json!({}), you()),
        ("mesh.claim", "Fact", "update_confidence", json!({ "confidence": 0.8 }), you()),
        ("mesh.claim", "Rejected", "reject", json!({}), you()),
        ("mesh.claim", "Claim", "update_confidence", json!({ "confidence": 0.8 }), machine()),
        ("mesh.evidence", "Tombstoned: by a machine", "tombstone", json!({}), machine()),
        ("mesh.evidence", "Tombstoned: by the user", "tombstone", json!({}), machine()),
        ("mesh.evidence", "Tombstoned: by the user", "tombstone", json!({}), you()),
        ("mesh.job", "Pending", "expire_work", json!({}), jobs::ben()),
        ("mesh.job", "Completed", "expire_work", json!({}), jobs::ben()),
        ("mesh.node", "Active", "delegated", json!({}), fold()),
        ("mesh.node", "Suspended", "lapsed", json!({}), fold()),
        ("mesh.node", "Revoked", "revoked", json!({}), fold()),
        ("mesh.route", "Routed: by a machine", "route", json!({ "node": "ann" }), machine()),
        ("mesh.route", "Routed: by the user", "route", json!({ "node": "ann" }), you()),
        ("mesh.route", "Free", "free", json!({}), machine()),
    ] {
        let found = scenes.iter().find(|found| (found.lifecycle, found.name) == (lifecycle, scene));
        let id = found.expect("a scene").id;
        let before = stage.record(id);
        stage.fire(id, event, &by).with_all(input).unchanged();
        let after = stage.record(id);
        assert_eq!((after.version, after.entered_at), (before.version, before.entered_at), "{lifecycle}, {scene}");
    }
}

/// MSH-10, MSH-22: what a machine has said is not the user's word, and who has just been seen does not speak for the user.
#[test]
fn nothing_is_the_users_word_by_itself() {
    let (stage, scenes, _) = every_scene();
    let fields = [
        ("mesh.action", "byUser"),
        ("mesh.claim", "byUser"),
        ("mesh.evidence", "byUser"),
        ("mesh.route", "byUser"),
        ("mesh.node", "userBearing"),
    ];
    for Scene { lifecycle, name, id } in scenes {
        let Some((_, field)) = fields.iter().find(|(of, _)| *of == lifecycle) else { continue };
        assert_eq!(stage.field(id, field), name.contains("the user"), "{lifecycle}, {name}");
    }
}

/// MSH-10, MSH-13, MSH-15, MSH-22: what is said of a record where it stands does not make it new: it is in its state since it
/// came there.
#[test]
fn what_stays_is_there_since_it_came() {
    let (mut stage, scenes, _) = every_scene();
    stage.doze("1m");
    for (lifecycle, scene, event, input, by) in [
        ("mesh.action", "Accepted: by a machine", "accept", json!({}), you()),
        ("mesh.claim", "Claim", "update_status", json!({ "status": "Claim" }), you()),
        ("mesh.claim", "Claim", "update_confidence", json!({ "confidence": 0.9 }), machine()),
        ("mesh.claim", "Fact", "update_confidence", json!({ "confidence": 0.9 }), you()),
        ("mesh.evidence", "Tombstoned: by a machine", "tombstone", json!({}), you()),
        ("mesh.job", "Claimed", "claim_work", json!({ "lease": "1h" }), jobs::ann()),
        ("mesh.route", "Routed: by a machine", "route", json!({ "node": "ben" }), machine()),
        ("mesh.route", "Free", "free", json!({}), you()),
    ] {
        let found = scenes.iter().find(|found| (found.lifecycle, found.name) == (lifecycle, scene));
        let id = found.expect("a scene").id;
        let before = stage.record(id);
        stage.fire(id, event, &by).with_all(input).ok();
        let after = stage.record(id);
        assert_eq!((after.state, after.entered_at), (before.state, before.entered_at), "{lifecycle}, {scene}");
    }
}
