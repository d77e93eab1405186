//! Invariants of the mesh under random operations of machines, the user's node, the fold and a node without
//! capabilities. `ONCEWARD_SEED=…` replays one case.

use onceward_core::record::Actor;
use onceward_core::value::{RecordId, Value as Kept};
use onceward_testkit::random::RandomWalk;
use onceward_testkit::{Simulator, systems};
use serde_json::{Value, json};

const ALL_CAPABILITIES: &[&str] = &[
    "Evidence.Write",
    "Claim.Write",
    "Episode.Write",
    "Action.Write",
    "Artifact.Write",
    "Job.Schedule",
    "Job.Claim",
    "Job.Complete",
    "Mesh.Write",
];

fn node_actor(name: &str, capabilities: &[&str], roles: &[&str], is_user: bool) -> Actor {
    let capabilities = capabilities.iter().map(|one| (*one).into()).collect();
    Actor { capabilities, user: is_user, ..Actor::new(name, roles) }
}

/// Answers the check `chain`: a node whose name ends in 1 bears the user's authority.
fn new_simulator() -> Simulator {
    systems::new_simulator("mesh").on_check("mesh.node", "chain", |question, _| {
        let did = question.arguments["did"].as_str().expect("a did").to_owned();
        json!({ "valid": true, "key": "k", "userBearing": did.ends_with('1'), "why": "" })
    })
}

/// MSH-7, MSH-8, MSH-12, MSH-17, MSH-22: live records rest only on live support; exactly the claimed jobs have a
/// claimer and a deadline; only active nodes bear the user's authority; superseded claims name their replacement,
/// without cycles.
#[test]
fn random_operations_keep_mesh_invariants() {
    RandomWalk::with_actors(&[
        node_actor("laptop", ALL_CAPABILITIES, &[], false),
        node_actor("server", ALL_CAPABILITIES, &[], false),
        node_actor("phone", ALL_CAPABILITIES, &[], true),
        node_actor("fold", &[], &["fold"], false),
        node_actor("stranger", &[], &[], false),
    ])
    .values_for("confidence", [json!(0.2), json!(0.8)])
    .values_for("threshold", [json!(0.5)])
    .values_for("subject", [json!("alice")])
    .values_for("predicate", [json!("lives in")])
    .values_for("object", [json!("Bern"), json!("Basel")])
    .values_for("lease", [json!("1m"), json!("1h")])
    .values_for("kind", [json!("ocr"), json!("embed")])
    .values_for("node", [json!("laptop"), json!("server")])
    .values_for("did", [json!("did:0"), json!("did:1")])
    .values_for("publicKey", [json!("k"), json!("k"), json!("other")])
    .run("mesh", 16, 260, new_simulator, assert_invariants);
}

fn support_of(stage: &Simulator, id: RecordId) -> Vec<RecordId> {
    let Kept::List(all) = stage.value(id, "support") else { return Vec::new() };
    all.iter().filter_map(|one| if let Kept::Ref(id) = one { Some(*id) } else { None }).collect()
}

fn assert_invariants(stage: &Simulator) {
    for (lifecycle, live_states) in [
        ("mesh.claim", &["Hint", "Claim", "Disputed"][..]),
        ("mesh.episode", &["Current"]),
        ("mesh.action", &["Suggested"]),
        ("mesh.snapshot", &["Fresh"]),
    ] {
        for record in stage.records_of(lifecycle) {
            // What the user accepted stays if a machine withdraws its support; what a machine accepted does not.
            let is_accepted_by_machine =
                &**record.state_name() == "Accepted" && stage.field(record.id, "byUser") == false;
            if is_accepted_by_machine || live_states.contains(&&**record.state_name()) {
                for support_id in support_of(stage, record.id) {
                    let support_state = stage.state(support_id);
                    let is_gone = ["Tombstoned", "Rejected", "Stale"].contains(&support_state.as_str());
                    assert!(!is_gone, "MSH-8: a {lifecycle} in {} has support in {support_state}", record.state_name());
                }
            }
        }
    }
    for claim in stage.records_of("mesh.claim") {
        let replaced = stage.field(claim.id, "replacedBy") != Value::Null;
        assert_eq!(replaced, &**claim.state_name() == "Superseded", "MSH-6");
        let (mut current, mut steps) = (claim.id, 0);
        while let Kept::Ref(next) = stage.value(current, "replacedBy") {
            (current, steps) = (next, steps + 1);
            assert!(steps < stage.records_of("mesh.claim").len(), "MSH-6: {} replaces itself", claim.id);
        }
        assert!(!support_of(stage, claim.id).is_empty(), "MSH-1: a claim has support");
    }
    for job in stage.records_of("mesh.job") {
        let is_claimed = &**job.state_name() == "Claimed";
        let is_pending = &**job.state_name() == "Pending";
        let has = |name: &str| stage.field(job.id, name) != Value::Null;
        assert!(!is_claimed || has("claimer") && has("deadline"), "MSH-12");
        assert!(!is_pending || !has("claimer") && !has("deadline"), "MSH-12");
    }
    for node in stage.records_of("mesh.node") {
        let is_user_bearing = stage.field(node.id, "userBearing") == json!(true);
        assert!(
            !is_user_bearing || &**node.state_name() == "Active",
            "MSH-22: only an active node has the user's authority"
        );
        let has_known_key = stage.field(node.id, "publicKey") == json!("k");
        assert!(has_known_key || &**node.state_name() == "Pending", "MSH-17: the public key is permanent");
    }
}
