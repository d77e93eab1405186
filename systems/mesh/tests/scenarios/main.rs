//! The mesh system, played: each test reads like the rule it cites. The rules stand in `systems/mesh/README.md`.

mod actions;
mod beliefs;
mod bounds;
mod callers;
mod capabilities;
mod cascades;
mod graph;
mod jobs;
mod matrix;
mod matrix_work;
mod nodes;
mod records;
mod replacements;
mod routes;
mod scenes;
mod word;

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{Attempt, Stage, systems};
use serde_json::{Value, json};

/// What an ordinary node holds.
const ALL: &[&str] = &[
    "Evidence.Read",
    "Evidence.Write",
    "Claim.Read",
    "Claim.Write",
    "Episode.Read",
    "Episode.Write",
    "Action.Read",
    "Action.Write",
    "Artifact.Read",
    "Artifact.Write",
    "Job.Read",
    "Job.Schedule",
    "Job.Claim",
    "Job.Complete",
    "Mesh.Read",
    "Mesh.Write",
    "Registration.Read",
];

fn stage() -> Stage {
    systems::stage("mesh")
}

/// The author of a signed operation, with what it held at that time.
fn node(name: &str, capabilities: &[&str]) -> Actor {
    let capabilities = capabilities.iter().map(|one| (*one).into()).collect();
    Actor { capabilities, ..Actor::new(name, &[]) }
}

/// A node that works on its own: it may do everything but speak for the user.
fn machine() -> Actor {
    node("laptop", ALL)
}

/// The node that the user holds in the hand.
fn you() -> Actor {
    Actor { user: true, ..node("phone", ALL) }
}

fn evidence(stage: &mut Stage) -> RecordId {
    stage.create("mesh.evidence", &machine()).with("digest", "sha256:ab").ok()
}

/// A creation that is about to be tried: it rests on these.
fn believe<'s>(stage: &'s mut Stage, on: &[RecordId], confidence: f64) -> Attempt<'s> {
    let belief = json!({ "subject": "alice", "predicate": "lives in", "object": "Bern", "confidence": confidence });
    stage.create("mesh.claim", &machine()).with_all(belief).with("support", ids(on))
}

fn ids(of: &[RecordId]) -> Value {
    of.iter().map(ToString::to_string).collect()
}

fn hint(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    believe(stage, on, 0.2).ok()
}

fn claim(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    believe(stage, on, 0.8).ok()
}

/// A claim on evidence of its own.
fn grounded(stage: &mut Stage) -> RecordId {
    let ground = evidence(stage);
    claim(stage, &[ground])
}

fn fact(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    let id = claim(stage, on);
    stage.fire(id, "confirm", &you()).ok()
}

/// Another claim that contradicts it: the same subject and predicate, another object.
fn rival(stage: &mut Stage) -> RecordId {
    let ground = evidence(stage);
    believe(stage, &[ground], 0.7).with("object", "Basel").ok()
}

fn disputed(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    let (id, other) = (claim(stage, on), rival(stage));
    dispute(stage, id, other, &machine()).ok()
}

fn dispute<'s>(stage: &'s mut Stage, id: RecordId, other: RecordId, by: &Actor) -> Attempt<'s> {
    stage.fire(id, "update_status", by).with("status", "Disputed").with("conflict", other.to_string())
}

fn supersede<'s>(stage: &'s mut Stage, id: RecordId, by: RecordId, author: &Actor) -> Attempt<'s> {
    stage.fire(id, "supersede", author).with("replacement", by.to_string())
}

fn rejected(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    let id = claim(stage, on);
    stage.fire(id, "reject", &you()).ok()
}

/// What it rested on besides is gone.
fn stale(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    let lost = evidence(stage);
    let id = claim(stage, &[on, &[lost]].concat());
    stage.fire(lost, "tombstone", &machine()).ok();
    id
}

fn superseded(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    let (id, better) = (claim(stage, on), rival(stage));
    supersede(stage, id, better, &machine()).ok()
}

/// A claim in each of the seven states, by name, all resting on the same.
fn one_of_each(stage: &mut Stage, on: &[RecordId]) -> Vec<(&'static str, RecordId)> {
    let all = vec![
        ("Hint", hint(stage, on)),
        ("Claim", claim(stage, on)),
        ("Fact", fact(stage, on)),
        ("Disputed", disputed(stage, on)),
        ("Rejected", rejected(stage, on)),
        ("Stale", stale(stage, on)),
        ("Superseded", superseded(stage, on)),
    ];
    for (state, id) in &all {
        assert_eq!(stage.state(*id), *state);
    }
    all
}

fn episode(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    stage.create("mesh.episode", &machine()).with("title", "The move").with("support", ids(on)).ok()
}

fn action(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    stage.create("mesh.action", &machine()).with("title", "Tell the bank").with("support", ids(on)).ok()
}

fn snapshot(stage: &mut Stage, on: &[RecordId]) -> RecordId {
    stage.create("mesh.snapshot", &machine()).with("artifact", "sha256:cd").with("support", ids(on)).ok()
}
