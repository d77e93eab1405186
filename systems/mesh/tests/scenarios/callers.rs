//! MSH-3, MSH-4, MSH-10, MSH-16 and MSH-28: who is let in to what, in every state, and who is not though they see it.

use onceward_core::decide::Decision;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{Attempt, Stage, operator};
use serde_json::{Value, json};

use super::scenes::{Scene, every_scene};
use super::{ALL, evidence, machine, node, one_of_each, stage, you};

/// The events of a lifecycle, each with what makes it go through if anything does; `other` is another claim.
fn events(lifecycle: &str, other: RecordId) -> Vec<(&'static str, Value)> {
    let other = other.to_string();
    match lifecycle {
        "mesh.action" => ["accept", "reject", "complete", "support_lost"].map(|event| (event, json!({}))).into(),
        "mesh.claim" => vec![
            ("update_status", json!({ "status": "Claim" })),
            ("update_status", json!({ "status": "Disputed", "conflict": other })),
            ("confirm", json!({})),
            ("reject", json!({})),
            ("supersede", json!({ "replacement": other })),
            ("update_confidence", json!({ "confidence": 0.1 })),
            ("support_lost", json!({})),
        ],
        "mesh.episode" => vec![("support_lost", json!({}))],
        "mesh.evidence" => vec![("tombstone", json!({}))],
        "mesh.job" => vec![
            ("claim_work", json!({ "lease": "1m" })),
            ("yield_work", json!({})),
            ("expire_work", json!({})),
            ("complete_job", json!({})),
        ],
        "mesh.node" => ["delegated", "lapsed", "revoked"].map(|event| (event, json!({}))).into(),
        "mesh.route" => vec![("route", json!({ "node": "cid" })), ("free", json!({}))],
        "mesh.snapshot" => vec![("evict", json!({})), ("support_lost", json!({}))],
        other => panic!("{other} has no events here"),
    }
}

/// The capability that an event asks for, where it asks for one.
fn needs(lifecycle: &str, event: &str) -> &'static str {
    match (lifecycle, event) {
        ("mesh.action", _) => "Action.Write",
        ("mesh.claim", _) => "Claim.Write",
        ("mesh.episode", _) => "Episode.Write",
        ("mesh.evidence", _) => "Evidence.Write",
        ("mesh.job", "complete_job") => "Job.Complete",
        ("mesh.job", _) => "Job.Claim",
        ("mesh.route", _) => "Mesh.Write",
        ("mesh.snapshot", _) => "Artifact.Write",
        _ => "",
    }
}

fn all_but(capability: &str) -> Vec<&'static str> {
    ALL.iter().copied().filter(|one| *one != capability).collect()
}

fn attempt<'s>(stage: &'s mut Stage, id: RecordId, event: &(&str, Value), by: &Actor) -> Attempt<'s> {
    stage.fire(id, event.0, by).with_all(event.1.clone())
}

/// MSH-28, MSH-10, MSH-16: who sees a record and lacks the one capability moves nothing, in no state: not a node that holds all
/// others, not the author, not the claimer, not the user, not the operator. A node's standing is the fold's alone, and that
/// something is lost is told by records alone.
#[test]
fn who_lacks_the_capability_moves_nothing() {
    let (mut stage, scenes, other) = every_scene();
    for Scene { lifecycle, name, id } in scenes {
        for event in events(lifecycle, other) {
            let held = all_but(needs(lifecycle, event.0));
            let author = node(&stage.record(id).owner, &held);
            let voice = Actor { user: true, ..node("phone", &held) };
            let mut kept_out = vec![node("eve", &held), author, node("ann", &held), operator("olga")];
            // Confirming and rejecting a claim takes the user's authority and nothing else.
            if lifecycle != "mesh.claim" || !["confirm", "reject"].contains(&event.0) {
                kept_out.push(voice);
            }
            if event.0 == "support_lost" {
                kept_out.extend([machine(), you()]);
            }
            for actor in kept_out {
                let refusal = attempt(&mut stage, id, &event, &actor).outcome().refusal();
                let kept_out = ["not_allowed", "wrong_state"].contains(&&*refusal.code);
                assert!(kept_out, "{lifecycle}, {name}: {event:?} by {actor:?} is refused with {}", refusal.code);
            }
        }
    }
}

/// MSH-28: that one made a record counts for nothing: whatever its author may do, any other node with the capability may do.
#[test]
fn authorship_counts_for_nothing() {
    let (stage, scenes, other) = every_scene();
    for Scene { lifecycle, name, id } in scenes.into_iter().filter(|scene| scene.lifecycle != "mesh.node") {
        for event in events(lifecycle, other) {
            for user in [false, true] {
                let told = |who: &str| {
                    let mut stage = stage.clone();
                    let actor = Actor { user, ..node(who, ALL) };
                    let outcome = attempt(&mut stage, id, &event, &actor).outcome();
                    match &outcome.decision {
                        Decision::Refusal(refusal) => refusal.code.to_string(),
                        Decision::Changes(_) => format!("-> {}", stage.state(id)),
                        _ => "unchanged".to_owned(),
                    }
                };
                assert_eq!(told(&stage.record(id).owner), told("server"), "{lifecycle}, {name}: {event:?}");
            }
        }
    }
}

/// MSH-3, MSH-4, MSH-28: to confirm and to reject takes the user's authority and no capability at all, whatever has become of
/// the claim.
#[test]
fn the_users_voice_is_enough() {
    for (event, end) in [("confirm", "Fact"), ("reject", "Rejected")] {
        let mut stage = stage();
        let ground = evidence(&mut stage);
        let voice = Actor { user: true, ..Actor::new("phone", &[]) };
        for (state, id) in one_of_each(&mut stage, &[ground]) {
            if state == end {
                stage.fire(id, event, &voice).unchanged();
            } else {
                stage.fire(id, event, &voice).ok();
            }
            assert_eq!(stage.state(id), end, "from {state}");
        }
    }
}
