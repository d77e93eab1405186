//! Scenario tests of the mesh system. The rules are in `systems/mesh/README.md`.

mod actions;
mod callers;
mod capabilities;
mod cascades;
mod claims;
mod derivation_graph;
mod field_bounds;
mod jobs;
mod matrix;
mod matrix_jobs_nodes;
mod nodes;
mod record_callers;
mod replacements;
mod routes;
mod state_fixtures;
mod user_assertions;

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{SimulatedCall, Simulator, systems};
use serde_json::{Value, json};

/// Capabilities of an ordinary node.
const ALL_CAPABILITIES: &[&str] = &[
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

fn new_simulator() -> Simulator {
    systems::new_simulator("mesh")
}

/// Returns the author of a signed operation with its capabilities at that time.
fn node_actor(name: &str, capabilities: &[&str]) -> Actor {
    let capabilities = capabilities.iter().map(|one| (*one).into()).collect();
    Actor { capabilities, ..Actor::new(name, &[]) }
}

/// Returns an autonomous node with all capabilities but without the user's authority.
fn machine_actor() -> Actor {
    node_actor("laptop", ALL_CAPABILITIES)
}

/// Returns the user's own node.
fn user_actor() -> Actor {
    Actor { user: true, ..node_actor("phone", ALL_CAPABILITIES) }
}

fn create_evidence(stage: &mut Simulator) -> RecordId {
    stage.create("mesh.evidence", &machine_actor()).with("digest", "sha256:ab").expect_ok()
}

/// Prepares the creation of a claim with this support.
fn claim_attempt<'s>(stage: &'s mut Simulator, support: &[RecordId], confidence: f64) -> SimulatedCall<'s> {
    let fields = json!({ "subject": "alice", "predicate": "lives in", "object": "Bern", "confidence": confidence });
    stage.create("mesh.claim", &machine_actor()).with_all(fields).with("support", id_list(support))
}

fn id_list(ids: &[RecordId]) -> Value {
    ids.iter().map(ToString::to_string).collect()
}

fn create_hint(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    claim_attempt(stage, support, 0.2).expect_ok()
}

fn create_claim(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    claim_attempt(stage, support, 0.8).expect_ok()
}

/// Creates a claim with its own evidence.
fn create_grounded_claim(stage: &mut Simulator) -> RecordId {
    let ground = create_evidence(stage);
    create_claim(stage, &[ground])
}

fn create_fact(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    let id = create_claim(stage, support);
    stage.fire(id, "confirm", &user_actor()).expect_ok()
}

/// Creates a conflicting claim: same subject and predicate, another object.
fn create_rival_claim(stage: &mut Simulator) -> RecordId {
    let ground = create_evidence(stage);
    claim_attempt(stage, &[ground], 0.7).with("object", "Basel").expect_ok()
}

fn create_disputed_claim(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    let (id, other) = (create_claim(stage, support), create_rival_claim(stage));
    dispute_claim(stage, id, other, &machine_actor()).expect_ok()
}

fn dispute_claim<'s>(stage: &'s mut Simulator, id: RecordId, other: RecordId, author: &Actor) -> SimulatedCall<'s> {
    stage.fire(id, "update_status", author).with("status", "Disputed").with("conflict", other.to_string())
}

fn supersede_claim<'s>(
    stage: &'s mut Simulator,
    id: RecordId,
    replacement: RecordId,
    author: &Actor,
) -> SimulatedCall<'s> {
    stage.fire(id, "supersede", author).with("replacement", replacement.to_string())
}

fn create_rejected_claim(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    let id = create_claim(stage, support);
    stage.fire(id, "reject", &user_actor()).expect_ok()
}

/// Creates a claim that became stale because additional evidence was withdrawn.
fn create_stale_claim(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    let lost = create_evidence(stage);
    let id = create_claim(stage, &[support, &[lost]].concat());
    stage.fire(lost, "tombstone", &machine_actor()).expect_ok();
    id
}

fn create_superseded_claim(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    let (id, replacement) = (create_claim(stage, support), create_rival_claim(stage));
    supersede_claim(stage, id, replacement, &machine_actor()).expect_ok()
}

/// Creates a claim in each of the seven states, all with the same support.
fn create_claim_in_each_state(stage: &mut Simulator, support: &[RecordId]) -> Vec<(&'static str, RecordId)> {
    let all = vec![
        ("Hint", create_hint(stage, support)),
        ("Claim", create_claim(stage, support)),
        ("Fact", create_fact(stage, support)),
        ("Disputed", create_disputed_claim(stage, support)),
        ("Rejected", create_rejected_claim(stage, support)),
        ("Stale", create_stale_claim(stage, support)),
        ("Superseded", create_superseded_claim(stage, support)),
    ];
    for (state, id) in &all {
        assert_eq!(stage.state(*id), *state);
    }
    all
}

fn create_episode(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    stage
        .create("mesh.episode", &machine_actor())
        .with("title", "The move")
        .with("support", id_list(support))
        .expect_ok()
}

fn create_action(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    stage
        .create("mesh.action", &machine_actor())
        .with("title", "Tell the bank")
        .with("support", id_list(support))
        .expect_ok()
}

fn create_snapshot(stage: &mut Simulator, support: &[RecordId]) -> RecordId {
    stage
        .create("mesh.snapshot", &machine_actor())
        .with("artifact", "sha256:cd")
        .with("support", id_list(support))
        .expect_ok()
}
