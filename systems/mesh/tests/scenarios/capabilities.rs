//! MSH-28: which capability opens what. How they are delegated, narrowed and ended is the log's concern.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{Stage, operator, user};

use super::{action, claim, episode, evidence, jobs, machine, node, nodes, routes, snapshot, systems};

/// One record of each lifecycle, with the capability that lets read it and an event that another needs.
fn one_of_everything(stage: &mut Stage) -> Vec<(RecordId, &'static str, &'static str, &'static str)> {
    let ground = evidence(stage);
    vec![
        (ground, "Evidence", "tombstone", "Evidence.Write"),
        (claim(stage, &[ground]), "Claim", "update_confidence", "Claim.Write"),
        (episode(stage, &[ground]), "Episode", "", "Episode.Write"),
        (action(stage, &[ground]), "Action", "accept", "Action.Write"),
        (snapshot(stage, &[ground]), "Artifact", "evict", "Artifact.Write"),
        (jobs::pending(stage), "Job", "expire_work", "Job.Claim"),
        (routes::routed(stage, "ann"), "Mesh", "free", "Mesh.Write"),
        (nodes::active(stage), "Registration", "lapsed", ""),
    ]
}

fn stage() -> Stage {
    nodes::dressed(systems::stage("mesh"), &nodes::book())
}

/// MSH-28: a record is shown to who may read or write its kind, and to the operator of the machine it lies on. Others, its author
/// among them once the capability is gone, are told that there is none.
#[test]
fn reading_needs_the_capability() {
    let mut stage = stage();
    for (id, resource, _, write) in one_of_everything(&mut stage) {
        let read = format!("{resource}.Read");
        for actor in [node("eve", &[&read]), node("eve", &[write]), operator("olga")] {
            if actor.capabilities.first().is_some_and(|first| first.is_empty()) {
                continue;
            }
            stage.fire(id, "no_such_thing", &actor).refused(404, "no_such_event");
        }
        let others: Vec<&str> = super::ALL.iter().copied().filter(|one| !one.starts_with(resource)).collect();
        let ends = format!("{resource}.Reads");
        for actor in [node("eve", &others), node("laptop", &["Ops.Read"]), node("eve", &[&ends]), user("laptop")] {
            stage.fire(id, "no_such_thing", &actor).not_found();
        }
    }
}

/// MSH-28: to read is not to write.
#[test]
fn writing_needs_its_own_capability() {
    let mut stage = stage();
    for (id, resource, event, _) in
        one_of_everything(&mut stage).into_iter().filter(|(_, _, event, _)| !event.is_empty())
    {
        let read = node("eve", &[&format!("{resource}.Read")]);
        if resource == "Artifact" {
            let ground: RecordId = serde_json::from_value(stage.field(id, "support")[0].clone()).expect("an id");
            stage.fire(ground, "tombstone", &machine()).outcome();
        }
        let attempt = stage.fire(id, event, &read);
        if event == "update_confidence" {
            attempt.with("confidence", 0.1).not_allowed()
        } else {
            attempt.not_allowed()
        };
    }
}

/// MSH-28: making a record needs the capability of its kind, and reading what it rests on.
#[test]
fn making_needs_its_own_capability() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let on = super::ids(&[ground]);
    for (lifecycle, needs, given) in [
        ("mesh.evidence", "Evidence.Write", serde_json::json!({ "digest": "d" })),
        (
            "mesh.claim",
            "Claim.Write",
            serde_json::json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 1.0, "support": on }),
        ),
        ("mesh.episode", "Episode.Write", serde_json::json!({ "title": "t", "support": on })),
        ("mesh.action", "Action.Write", serde_json::json!({ "title": "t", "support": on })),
        ("mesh.snapshot", "Artifact.Write", serde_json::json!({ "artifact": "a", "support": on })),
        ("mesh.job", "Job.Schedule", serde_json::json!({ "kind": "k" })),
        ("mesh.route", "Mesh.Write", serde_json::json!({ "kind": "k", "node": "n" })),
    ] {
        let others: Vec<&str> = super::ALL.iter().copied().filter(|one| *one != needs).collect();
        // The user's authority does not stand in for it.
        for actor in [node("eve", &others), Actor { user: true, ..node("phone", &others) }] {
            stage.create(lifecycle, &actor).with_all(given.clone()).not_allowed();
        }
        stage.create(lifecycle, &operator("olga")).with_all(given.clone()).not_allowed();
        if given.get("support").is_some() {
            stage.create(lifecycle, &node("eve", &[needs])).with_all(given.clone()).bad_input();
        }
        stage.create(lifecycle, &node("eve", &[needs, "Evidence.Read"])).with_all(given).ok();
    }
}

/// MSH-28: of the three capabilities for jobs each opens its own events.
#[test]
fn schedule_claim_and_complete_are_apart() {
    let mut stage = stage();
    let schedule = node("ann", &["Job.Schedule"]);
    let claim = node("ann", &["Job.Claim"]);
    let complete = node("ann", &["Job.Complete"]);
    for wrong in [&claim, &complete] {
        stage.create("mesh.job", wrong).with("kind", "k").not_allowed();
    }
    let id = stage.create("mesh.job", &schedule).with("kind", "k").ok();
    for wrong in [&schedule, &complete] {
        jobs::claim_work(&mut stage, id, wrong).not_allowed();
    }
    jobs::claim_work(&mut stage, id, &claim).ok();
    for wrong in [&schedule, &claim] {
        stage.fire(id, "complete_job", wrong).not_allowed();
    }
    for wrong in [&schedule, &complete] {
        stage.fire(id, "yield_work", wrong).not_allowed();
    }
    stage.fire(id, "complete_job", &complete).ok();
}
