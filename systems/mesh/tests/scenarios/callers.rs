//! MSH-3, MSH-4, MSH-10, MSH-16 and MSH-28: which callers each event admits, in every state.

use onceward_core::decide::Decision;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{SimulatedCall, Simulator, operator};
use serde_json::{Value, json};

use super::state_fixtures::{StateFixture, create_all_fixtures};
use super::{
    ALL_CAPABILITIES, create_claim_in_each_state, create_evidence, machine_actor, new_simulator, node_actor, user_actor,
};

/// Returns the events of a lifecycle with valid input; `other` is another claim.
fn events_with_input(lifecycle: &str, other: RecordId) -> Vec<(&'static str, Value)> {
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

/// Returns the capability that an event requires, or an empty string.
fn required_capability(lifecycle: &str, event: &str) -> &'static str {
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

fn capabilities_without(capability: &str) -> Vec<&'static str> {
    ALL_CAPABILITIES.iter().copied().filter(|one| *one != capability).collect()
}

fn fire_attempt<'s>(
    stage: &'s mut Simulator,
    id: RecordId,
    event: &(&str, Value),
    author: &Actor,
) -> SimulatedCall<'s> {
    stage.fire(id, event.0, author).with_all(event.1.clone())
}

/// MSH-28, MSH-10, MSH-16: also to a node with all other capabilities, the author, the claimer, the user and the
/// operator. Only the fold changes nodes, and only records send `support_lost`.
#[test]
fn event_without_capability_is_refused_in_every_state() {
    let (mut stage, scenes, other) = create_all_fixtures();
    for StateFixture { lifecycle, name, id } in scenes {
        for event in events_with_input(lifecycle, other) {
            let held = capabilities_without(required_capability(lifecycle, event.0));
            let author = node_actor(&stage.record(id).owner, &held);
            let user_without_capability = Actor { user: true, ..node_actor("phone", &held) };
            let mut refused_actors = vec![node_actor("eve", &held), author, node_actor("ann", &held), operator("olga")];
            // Confirming and rejecting a claim requires only the user's authority.
            if lifecycle != "mesh.claim" || !["confirm", "reject"].contains(&event.0) {
                refused_actors.push(user_without_capability);
            }
            if event.0 == "support_lost" {
                refused_actors.extend([machine_actor(), user_actor()]);
            }
            for actor in refused_actors {
                let refusal = fire_attempt(&mut stage, id, &event, &actor).run().expect_refusal();
                let is_refused = ["not_allowed", "wrong_state"].contains(&&*refusal.code);
                assert!(is_refused, "{lifecycle}, {name}: {event:?} by {actor:?} is refused with {}", refusal.code);
            }
        }
    }
}

/// MSH-28
#[test]
fn author_has_no_more_rights_than_other_node() {
    let (stage, scenes, other) = create_all_fixtures();
    for StateFixture { lifecycle, name, id } in scenes.into_iter().filter(|scene| scene.lifecycle != "mesh.node") {
        for event in events_with_input(lifecycle, other) {
            for is_user in [false, true] {
                let outcome_for = |node_name: &str| {
                    let mut stage = stage.clone();
                    let actor = Actor { user: is_user, ..node_actor(node_name, ALL_CAPABILITIES) };
                    let outcome = fire_attempt(&mut stage, id, &event, &actor).run();
                    match &outcome.decision {
                        Decision::Refusal(refusal) => refusal.code.to_string(),
                        Decision::Changes(_) => format!("-> {}", stage.state(id)),
                        _ => "unchanged".to_owned(),
                    }
                };
                assert_eq!(
                    outcome_for(&stage.record(id).owner),
                    outcome_for("server"),
                    "{lifecycle}, {name}: {event:?}"
                );
            }
        }
    }
}

/// MSH-3, MSH-4, MSH-28: in every state of the claim.
#[test]
fn confirm_and_reject_need_only_user_authority() {
    for (event, final_state) in [("confirm", "Fact"), ("reject", "Rejected")] {
        let mut stage = new_simulator();
        let ground = create_evidence(&mut stage);
        let user_without_capability = Actor { user: true, ..Actor::new("phone", &[]) };
        for (state, id) in create_claim_in_each_state(&mut stage, &[ground]) {
            if state == final_state {
                stage.fire(id, event, &user_without_capability).expect_unchanged();
            } else {
                stage.fire(id, event, &user_without_capability).expect_ok();
            }
            assert_eq!(stage.state(id), final_state, "from {state}");
        }
    }
}
