//! MSH-28: required capabilities. Delegation of capabilities is tested with the fold.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, operator, user};

use super::{
    create_action, create_claim, create_episode, create_evidence, create_snapshot, jobs, machine_actor, node_actor,
    nodes, routes, systems,
};

/// Creates a record of each lifecycle; returns its read capability, an event and the event's capability.
fn create_one_of_each_lifecycle(stage: &mut Simulator) -> Vec<(RecordId, &'static str, &'static str, &'static str)> {
    let ground = create_evidence(stage);
    vec![
        (ground, "Evidence", "tombstone", "Evidence.Write"),
        (create_claim(stage, &[ground]), "Claim", "update_confidence", "Claim.Write"),
        (create_episode(stage, &[ground]), "Episode", "", "Episode.Write"),
        (create_action(stage, &[ground]), "Action", "accept", "Action.Write"),
        (create_snapshot(stage, &[ground]), "Artifact", "evict", "Artifact.Write"),
        (jobs::create_pending_job(stage), "Job", "expire_work", "Job.Claim"),
        (routes::create_route(stage, "ann"), "Mesh", "free", "Mesh.Write"),
        (nodes::create_active_node(stage), "Registration", "lapsed", ""),
    ]
}

fn new_simulator() -> Simulator {
    nodes::with_delegations(systems::new_simulator("mesh"), &nodes::new_book())
}

/// MSH-28: operators may read every record. Others get 404, even the author after losing the capability.
#[test]
fn read_requires_read_or_write_capability() {
    let mut stage = new_simulator();
    for (id, resource, _, write) in create_one_of_each_lifecycle(&mut stage) {
        let read = format!("{resource}.Read");
        for actor in [node_actor("eve", &[&read]), node_actor("eve", &[write]), operator("olga")] {
            if actor.capabilities.first().is_some_and(|first| first.is_empty()) {
                continue;
            }
            stage.fire(id, "no_such_thing", &actor).expect_refusal(404, "unknown_event");
        }
        let others: Vec<&str> =
            super::ALL_CAPABILITIES.iter().copied().filter(|one| !one.starts_with(resource)).collect();
        let ends = format!("{resource}.Reads");
        for actor in [
            node_actor("eve", &others),
            node_actor("laptop", &["Ops.Read"]),
            node_actor("eve", &[&ends]),
            user("laptop"),
        ] {
            stage.fire(id, "no_such_thing", &actor).expect_not_found();
        }
    }
}

/// MSH-28
#[test]
fn write_requires_write_capability() {
    let mut stage = new_simulator();
    for (id, resource, event, _) in
        create_one_of_each_lifecycle(&mut stage).into_iter().filter(|(_, _, event, _)| !event.is_empty())
    {
        let read = node_actor("eve", &[&format!("{resource}.Read")]);
        if resource == "Artifact" {
            let ground: RecordId = serde_json::from_value(stage.field(id, "support")[0].clone()).expect("an id");
            stage.fire(ground, "tombstone", &machine_actor()).run();
        }
        let attempt = stage.fire(id, event, &read);
        if event == "update_confidence" {
            attempt.with("confidence", 0.1).expect_not_allowed()
        } else {
            attempt.expect_not_allowed()
        };
    }
}

/// MSH-28: it also requires reading the support.
#[test]
fn create_requires_capability_of_its_lifecycle() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let support = super::id_list(&[ground]);
    for (lifecycle, capability, fields) in [
        ("mesh.evidence", "Evidence.Write", serde_json::json!({ "digest": "d" })),
        (
            "mesh.claim",
            "Claim.Write",
            serde_json::json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 1.0, "support": support }),
        ),
        ("mesh.episode", "Episode.Write", serde_json::json!({ "title": "t", "support": support })),
        ("mesh.action", "Action.Write", serde_json::json!({ "title": "t", "support": support })),
        ("mesh.snapshot", "Artifact.Write", serde_json::json!({ "artifact": "a", "support": support })),
        ("mesh.job", "Job.Schedule", serde_json::json!({ "kind": "k" })),
        ("mesh.route", "Mesh.Write", serde_json::json!({ "kind": "k", "node": "n" })),
    ] {
        let others: Vec<&str> = super::ALL_CAPABILITIES.iter().copied().filter(|one| *one != capability).collect();
        // The user's authority does not replace the capability.
        for actor in [node_actor("eve", &others), Actor { user: true, ..node_actor("phone", &others) }] {
            stage.create(lifecycle, &actor).with_all(fields.clone()).expect_not_allowed();
        }
        stage.create(lifecycle, &operator("olga")).with_all(fields.clone()).expect_not_allowed();
        if fields.get("support").is_some() {
            stage.create(lifecycle, &node_actor("eve", &[capability])).with_all(fields.clone()).expect_bad_input();
        }
        stage.create(lifecycle, &node_actor("eve", &[capability, "Evidence.Read"])).with_all(fields).expect_ok();
    }
}

/// MSH-28
#[test]
fn job_capabilities_are_separate() {
    let mut stage = new_simulator();
    let schedule = node_actor("ann", &["Job.Schedule"]);
    let claim = node_actor("ann", &["Job.Claim"]);
    let complete = node_actor("ann", &["Job.Complete"]);
    for other in [&claim, &complete] {
        stage.create("mesh.job", other).with("kind", "k").expect_not_allowed();
    }
    let id = stage.create("mesh.job", &schedule).with("kind", "k").expect_ok();
    for other in [&schedule, &complete] {
        jobs::claim_work_attempt(&mut stage, id, other).expect_not_allowed();
    }
    jobs::claim_work_attempt(&mut stage, id, &claim).expect_ok();
    for other in [&schedule, &claim] {
        stage.fire(id, "complete_job", other).expect_not_allowed();
    }
    for other in [&schedule, &complete] {
        stage.fire(id, "yield_work", other).expect_not_allowed();
    }
    stage.fire(id, "complete_job", &complete).expect_ok();
}
