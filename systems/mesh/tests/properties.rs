//! What holds of everything in the mesh, whatever its nodes do: random operations of machines, of the user's node, of the
//! fold and of somebody without any capability. `ONCEWARD_SEED=…` plays one case again.

use onceward_core::record::Actor;
use onceward_core::value::{RecordId, Value as Kept};
use onceward_testkit::random::Wander;
use onceward_testkit::{Stage, systems};
use serde_json::{Value, json};

const ALL: &[&str] = &[
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

fn node(name: &str, capabilities: &[&str], roles: &[&str], user: bool) -> Actor {
    let capabilities = capabilities.iter().map(|one| (*one).into()).collect();
    Actor { capabilities, user, ..Actor::new(name, roles) }
}

/// The authority of a node's chain: the user bears one that ends in 1.
fn stage() -> Stage {
    systems::stage("mesh").answer("mesh.node", "chain", |question, _| {
        let did = question.arguments["did"].as_str().expect("a did").to_owned();
        json!({ "valid": true, "key": "k", "userBearing": did.ends_with('1'), "why": "" })
    })
}

/// MSH-7, MSH-8, MSH-12, MSH-17, MSH-22: what is believed, told or concluded rests on nothing that is gone; a claimed job has its
/// claimer and its deadline, and no other has; only an active node bears the user's authority; what is replaced says by what,
/// and never by itself round a corner.
#[test]
fn nothing_rests_on_what_is_gone() {
    Wander::with(&[
        node("laptop", ALL, &[], false),
        node("server", ALL, &[], false),
        node("phone", ALL, &[], true),
        node("fold", &[], &["fold"], false),
        node("stranger", &[], &[], false),
    ])
    .value("confidence", [json!(0.2), json!(0.8)])
    .value("threshold", [json!(0.5)])
    .value("subject", [json!("alice")])
    .value("predicate", [json!("lives in")])
    .value("object", [json!("Bern"), json!("Basel")])
    .value("lease", [json!("1m"), json!("1h")])
    .value("kind", [json!("ocr"), json!("embed")])
    .value("node", [json!("laptop"), json!("server")])
    .value("did", [json!("did:0"), json!("did:1")])
    .value("publicKey", [json!("k"), json!("k"), json!("other")])
    .run("mesh", 16, 260, stage, holds);
}

fn support(stage: &Stage, id: RecordId) -> Vec<RecordId> {
    let Kept::List(all) = stage.value(id, "support") else { return Vec::new() };
    all.iter().filter_map(|one| if let Kept::Ref(id) = one { Some(*id) } else { None }).collect()
}

fn holds(stage: &Stage) {
    for (lifecycle, living) in [
        ("mesh.claim", &["Hint", "Claim", "Disputed"][..]),
        ("mesh.episode", &["Current"]),
        ("mesh.action", &["Suggested"]),
        ("mesh.snapshot", &["Fresh"]),
    ] {
        for record in stage.all(lifecycle) {
            // What the user has accepted stays when a machine withdraws its grounds; what a machine has, does not.
            let by_a_machine = &**record.state_name() == "Accepted" && stage.field(record.id, "byUser") == false;
            if by_a_machine || living.contains(&&**record.state_name()) {
                for ground in support(stage, record.id) {
                    let below = stage.state(ground);
                    let gone = ["Tombstoned", "Rejected", "Stale"].contains(&below.as_str());
                    assert!(!gone, "MSH-8: a {lifecycle} in {} rests on what is {below}", record.state_name());
                }
            }
        }
    }
    for claim in stage.all("mesh.claim") {
        let replaced = stage.field(claim.id, "replacedBy") != Value::Null;
        assert_eq!(replaced, &**claim.state_name() == "Superseded", "MSH-6");
        let (mut at, mut steps) = (claim.id, 0);
        while let Kept::Ref(next) = stage.value(at, "replacedBy") {
            (at, steps) = (next, steps + 1);
            assert!(steps < stage.all("mesh.claim").len(), "MSH-6: {} comes round to replace itself", claim.id);
        }
        assert!(!support(stage, claim.id).is_empty(), "MSH-1: a claim rests on something");
    }
    for job in stage.all("mesh.job") {
        let claimed = &**job.state_name() == "Claimed";
        let pending = &**job.state_name() == "Pending";
        let has = |name: &str| stage.field(job.id, name) != Value::Null;
        assert!(!claimed || has("claimer") && has("deadline"), "MSH-12");
        assert!(!pending || !has("claimer") && !has("deadline"), "MSH-12");
    }
    for node in stage.all("mesh.node") {
        let bears = stage.field(node.id, "userBearing") == json!(true);
        assert!(!bears || &**node.state_name() == "Active", "MSH-22: only an active node speaks for the user");
        let known = stage.field(node.id, "publicKey") == json!("k");
        assert!(known || &**node.state_name() == "Pending", "MSH-17: a key is bound for life");
    }
}
