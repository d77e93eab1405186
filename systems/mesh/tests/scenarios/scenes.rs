//! A record of every lifecycle in every state, and the events that each state knows.

use std::collections::BTreeSet;

use onceward_core::model::EventKind;
use onceward_core::value::RecordId;
use onceward_testkit::{Stage, operator, systems};

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
    let (old, stale, evicted) =
        (episode(stage, &[by_machine]), snapshot(stage, &[by_machine]), snapshot(stage, &[by_machine]));
    stage.fire(by_machine, "tombstone", &machine()).ok();
    stage.fire(by_user, "tombstone", &you()).ok();
    stage.fire(evicted, "evict", &machine()).ok();
    add("mesh.evidence", "Tombstoned: by a machine", by_machine);
    add("mesh.evidence", "Tombstoned: by the user", by_user);
    add("mesh.episode", "Stale", old);
    add("mesh.snapshot", "Stale", stale);
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
        let state = stage.state(id);
        let events = stage.definition(lifecycle).events.iter().filter(|event| event.kind == EventKind::Called);
        let events: Vec<_> = events.map(|event| event.name.clone()).collect();
        let mut unknown = BTreeSet::new();
        for event in events {
            let refusal = stage.fire(id, &event, &operator("olga")).outcome().refusal();
            if &*refusal.code == "wrong_state" {
                unknown.insert(event.to_string());
            }
        }
        let listed = UNKNOWN.iter().find(|(of, at, _)| (*of, *at) == (lifecycle, state.as_str()));
        let listed: BTreeSet<_> = listed.map_or(&[][..], |listed| listed.2).iter().map(ToString::to_string).collect();
        assert_eq!(unknown, listed, "{lifecycle}, {name}");
    }
}
