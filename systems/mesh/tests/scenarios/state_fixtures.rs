//! A record of every lifecycle in every state, and the events that each state accepts.

use std::collections::BTreeSet;

use onceward_core::model::EventKind;
use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, operator, systems};
use serde_json::json;

use super::nodes::{self, fold_actor};
use super::{
    create_action, create_claim_in_each_state, create_episode, create_evidence, create_hint, create_rival_claim,
    create_snapshot, jobs, machine_actor, user_actor,
};

pub(super) struct StateFixture {
    pub(super) lifecycle: &'static str,
    /// The state, with a detail if there are several fixtures of it.
    pub(super) name: &'static str,
    pub(super) id: RecordId,
}

/// Creates all fixtures in one simulator, and a claim that conflicts with all others.
pub(super) fn create_all_fixtures() -> (Simulator, Vec<StateFixture>, RecordId) {
    fixtures_in(systems::new_simulator("mesh"))
}

pub(super) fn fixtures_in(stage: Simulator) -> (Simulator, Vec<StateFixture>, RecordId) {
    let mut stage = nodes::with_delegations(stage, &nodes::new_book());
    let other = create_rival_claim(&mut stage);
    let mut scenes = claim_fixtures(&mut stage);
    scenes.extend(dependent_fixtures(&mut stage));
    scenes.extend(job_route_and_node_fixtures(&mut stage));
    for StateFixture { lifecycle, name, id } in &scenes {
        assert_eq!(stage.state(*id), name.split(':').next().unwrap_or(name), "{lifecycle}");
    }
    (stage, scenes, other)
}

fn claim_fixtures(stage: &mut Simulator) -> Vec<StateFixture> {
    let lifecycle = "mesh.claim";
    let ground = create_evidence(stage);
    let mut scenes: Vec<_> = create_claim_in_each_state(stage, &[ground])
        .into_iter()
        .map(|(name, id)| StateFixture { lifecycle, name, id })
        .collect();
    for (name, author) in [("Hint: at its threshold", None), ("Claim: the user's", Some(user_actor()))] {
        let id = create_hint(stage, &[ground]);
        stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.5).expect_ok();
        if let Some(author) = author {
            stage.fire(id, "update_status", &author).with("status", "Claim").expect_ok();
        }
        scenes.push(StateFixture { lifecycle, name, id });
    }
    scenes
}

fn dependent_fixtures(stage: &mut Simulator) -> Vec<StateFixture> {
    let mut scenes = Vec::new();
    let ground = create_evidence(stage);
    let mut add = |lifecycle, name, id| scenes.push(StateFixture { lifecycle, name, id });
    let action_after = |stage: &mut Simulator, events: &[(&str, bool)]| {
        let id = create_action(stage, &[ground]);
        for (event, user) in events {
            stage.fire(id, event, &if *user { user_actor() } else { machine_actor() }).expect_ok();
        }
        id
    };
    add("mesh.action", "Suggested", action_after(stage, &[]));
    add("mesh.action", "Accepted: by a machine", action_after(stage, &[("accept", false)]));
    add("mesh.action", "Accepted: by the user", action_after(stage, &[("accept", true)]));
    add("mesh.action", "Done", action_after(stage, &[("accept", false), ("complete", false)]));
    add("mesh.action", "Rejected", action_after(stage, &[("reject", false)]));
    add("mesh.evidence", "Live", ground);
    add("mesh.episode", "Current", create_episode(stage, &[ground]));
    add("mesh.snapshot", "Fresh", create_snapshot(stage, &[ground]));
    let (by_machine, by_user) = (create_evidence(stage), create_evidence(stage));
    let (stale_episode, stale_snapshot, evicted) = (
        create_episode(stage, &[by_machine]),
        create_snapshot(stage, &[by_machine]),
        create_snapshot(stage, &[by_machine]),
    );
    stage.fire(by_machine, "tombstone", &machine_actor()).expect_ok();
    stage.fire(by_user, "tombstone", &user_actor()).expect_ok();
    stage.fire(evicted, "evict", &machine_actor()).expect_ok();
    add("mesh.evidence", "Tombstoned: by a machine", by_machine);
    add("mesh.evidence", "Tombstoned: by the user", by_user);
    add("mesh.episode", "Stale", stale_episode);
    add("mesh.snapshot", "Stale", stale_snapshot);
    add("mesh.snapshot", "Evicted", evicted);
    scenes
}

fn job_route_and_node_fixtures(stage: &mut Simulator) -> Vec<StateFixture> {
    let mut scenes = Vec::new();
    let mut add = |lifecycle, name, id| scenes.push(StateFixture { lifecycle, name, id });
    add("mesh.job", "Claimed: overdue", jobs::create_claimed_job(stage));
    stage.advance_without_engine("11m");
    add("mesh.job", "Pending", jobs::create_pending_job(stage));
    add("mesh.job", "Claimed", jobs::create_claimed_job(stage));
    let done = jobs::create_claimed_job(stage);
    add("mesh.job", "Completed", stage.fire(done, "complete_job", &jobs::ann_actor()).expect_ok());
    let route = |stage: &mut Simulator, kind: &str, author: &onceward_core::record::Actor| {
        stage.create("mesh.route", author).with("kind", kind).with("node", "ann").expect_ok()
    };
    add("mesh.route", "Routed: by a machine", route(stage, "scan", &machine_actor()));
    add("mesh.route", "Routed: by the user", route(stage, "mail", &user_actor()));
    let free = route(stage, "print", &machine_actor());
    add("mesh.route", "Free", stage.fire(free, "free", &machine_actor()).expect_ok());
    for (name, key, events) in [
        ("Pending", "a", &[][..]),
        ("Active", "b", &["delegated"]),
        ("Suspended", "c", &["delegated", "lapsed"]),
        ("Revoked", "d", &["delegated", "revoked"]),
    ] {
        let id = nodes::create_named_node(stage, key);
        for event in events {
            stage.fire(id, event, &fold_actor()).expect_ok();
        }
        add("mesh.node", name, id);
    }
    scenes
}

/// Events that each state refuses for every caller. It accepts all other events of the lifecycle, from some caller.
const REFUSED_EVENTS: &[(&str, &str, &[&str])] = &[
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

/// MSH-3, MSH-5, MSH-6, MSH-8, MSH-10, MSH-11, MSH-12, MSH-16
#[test]
fn each_state_refuses_exactly_the_listed_events() {
    let (mut stage, scenes, _) = create_all_fixtures();
    for StateFixture { lifecycle, name, id } in scenes {
        let state = stage.state(id);
        let events = stage.lifecycle(lifecycle).events.iter().filter(|event| event.kind == EventKind::Called);
        let events: Vec<_> = events.map(|event| event.name.clone()).collect();
        let mut unknown = BTreeSet::new();
        for event in events {
            let refusal = stage.fire(id, &event, &operator("olga")).run().expect_refusal();
            if &*refusal.code == "wrong_state" {
                unknown.insert(event.to_string());
            }
        }
        let listed = REFUSED_EVENTS.iter().find(|(listed_lifecycle, listed_state, _)| {
            (*listed_lifecycle, *listed_state) == (lifecycle, state.as_str())
        });
        let listed: BTreeSet<_> = listed.map_or(&[][..], |listed| listed.2).iter().map(ToString::to_string).collect();
        assert_eq!(unknown, listed, "{lifecycle}, {name}");
    }
}

/// MSH-8, MSH-10, MSH-12: Done, Tombstoned, Evicted and Completed are final. The user may accept rejected records
/// again, and a revoked node may be readmitted.
#[test]
fn only_final_states_have_finished_at() {
    let (stage, scenes, _) = create_all_fixtures();
    for StateFixture { lifecycle, name, id } in scenes {
        let is_final = ["Done", "Tombstoned", "Evicted", "Completed"].contains(&stage.state(id).as_str());
        let record = stage.record(id);
        assert_eq!((record.is_final(), record.finished_at.is_some()), (is_final, is_final), "{lifecycle}, {name}");
    }
}

/// MSH-10, MSH-13, MSH-18, MSH-20, MSH-24: a minute later, by an allowed caller; version and `entered_at` stay.
#[test]
fn repeated_event_changes_nothing() {
    let (mut stage, scenes, _) = create_all_fixtures();
    stage.advance_without_engine("1m");
    for (lifecycle, scene, event, input, author) in [
        ("mesh.action", "Accepted: by a machine", "accept", json!({}), machine_actor()),
        ("mesh.action", "Accepted: by the user", "accept", json!({}), machine_actor()),
        ("mesh.action", "Accepted: by the user", "accept", json!({}), user_actor()),
        ("mesh.action", "Rejected", "reject", json!({}), machine_actor()),
        ("mesh.action", "Rejected", "reject", json!({}), user_actor()),
        ("mesh.claim", "Claim", "update_status", json!({ "status": "Claim" }), machine_actor()),
        ("mesh.claim", "Claim: the user's", "update_status", json!({ "status": "Claim" }), machine_actor()),
        ("mesh.claim", "Claim: the user's", "update_status", json!({ "status": "Claim" }), user_actor()),
        ("mesh.claim", "Disputed", "update_status", json!({ "status": "Disputed" }), machine_actor()),
        ("mesh.claim", "Disputed", "update_status", json!({ "status": "Disputed" }), user_actor()),
        ("mesh.claim", "Fact", "confirm", json!({}), user_actor()),
        ("mesh.claim", "Fact", "update_confidence", json!({ "confidence": 0.8 }), user_actor()),
        ("mesh.claim", "Rejected", "reject", json!({}), user_actor()),
        ("mesh.claim", "Claim", "update_confidence", json!({ "confidence": 0.8 }), machine_actor()),
        ("mesh.evidence", "Tombstoned: by a machine", "tombstone", json!({}), machine_actor()),
        ("mesh.evidence", "Tombstoned: by the user", "tombstone", json!({}), machine_actor()),
        ("mesh.evidence", "Tombstoned: by the user", "tombstone", json!({}), user_actor()),
        ("mesh.job", "Pending", "expire_work", json!({}), jobs::ben_actor()),
        ("mesh.job", "Completed", "expire_work", json!({}), jobs::ben_actor()),
        ("mesh.node", "Active", "delegated", json!({}), fold_actor()),
        ("mesh.node", "Suspended", "lapsed", json!({}), fold_actor()),
        ("mesh.node", "Revoked", "revoked", json!({}), fold_actor()),
        ("mesh.route", "Routed: by a machine", "route", json!({ "node": "ann" }), machine_actor()),
        ("mesh.route", "Routed: by the user", "route", json!({ "node": "ann" }), user_actor()),
        ("mesh.route", "Free", "free", json!({}), machine_actor()),
    ] {
        let fixture = scenes.iter().find(|found| (found.lifecycle, found.name) == (lifecycle, scene));
        let id = fixture.expect("a scene").id;
        let before = stage.record(id);
        stage.fire(id, event, &author).with_all(input).expect_unchanged();
        let after = stage.record(id);
        assert_eq!((after.version, after.entered_at), (before.version, before.entered_at), "{lifecycle}, {scene}");
    }
}

/// MSH-10, MSH-22: a new node does not bear the user's authority.
#[test]
fn by_user_is_set_only_by_user_events() {
    let (stage, scenes, _) = create_all_fixtures();
    let fields = [
        ("mesh.action", "byUser"),
        ("mesh.claim", "byUser"),
        ("mesh.evidence", "byUser"),
        ("mesh.route", "byUser"),
        ("mesh.node", "userBearing"),
    ];
    for StateFixture { lifecycle, name, id } in scenes {
        let Some((_, field)) = fields.iter().find(|(of, _)| *of == lifecycle) else { continue };
        assert_eq!(stage.field(id, field), name.contains("the user"), "{lifecycle}, {name}");
    }
}

/// MSH-10, MSH-13, MSH-15, MSH-22
#[test]
fn internal_transition_keeps_entered_at() {
    let (mut stage, scenes, _) = create_all_fixtures();
    stage.advance_without_engine("1m");
    for (lifecycle, scene, event, input, author) in [
        ("mesh.action", "Accepted: by a machine", "accept", json!({}), user_actor()),
        ("mesh.claim", "Claim", "update_status", json!({ "status": "Claim" }), user_actor()),
        ("mesh.claim", "Claim", "update_confidence", json!({ "confidence": 0.9 }), machine_actor()),
        ("mesh.claim", "Fact", "update_confidence", json!({ "confidence": 0.9 }), user_actor()),
        ("mesh.evidence", "Tombstoned: by a machine", "tombstone", json!({}), user_actor()),
        ("mesh.job", "Claimed", "claim_work", json!({ "lease": "1h" }), jobs::ann_actor()),
        ("mesh.route", "Routed: by a machine", "route", json!({ "node": "ben" }), machine_actor()),
        ("mesh.route", "Free", "free", json!({}), user_actor()),
    ] {
        let fixture = scenes.iter().find(|found| (found.lifecycle, found.name) == (lifecycle, scene));
        let id = fixture.expect("a scene").id;
        let before = stage.record(id);
        stage.fire(id, event, &author).with_all(input).expect_ok();
        let after = stage.record(id);
        assert_eq!((after.state, after.entered_at), (before.state, before.entered_at), "{lifecycle}, {scene}");
    }
}
