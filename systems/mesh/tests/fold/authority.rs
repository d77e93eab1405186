//! Nodes whose authority changes.

use onceward_core::fold::{Admission, ApplyStatus, FoldRefusalReason, LogOperation};
use onceward_testkit::fold::{operation_by, timestamp_at};
use serde_json::json;

use crate::fold_log::{
    MeshLog, delegation_graph, machine_authority, registrar_authority, revoked_authority, suspended_authority,
    user_authority,
};

fn schedule_operation() -> LogOperation {
    operation_by("server", timestamp_at(0)).create("mesh.job", "job", json!({ "kind": "index" }))
}

fn claim_operation(node_name: &str, second: i64) -> LogOperation {
    operation_by(node_name, timestamp_at(second)).fire("job", "claim_work", json!({ "lease": "60s" }))
}

/// MSH-19: after the renewal the operation counts from its own time on.
#[test]
fn operation_of_suspended_node_is_held_until_renewal() {
    let (scheduled, phone, laptop) =
        (schedule_operation(), claim_operation("phone", 10), claim_operation("laptop", 20));
    let mut log = MeshLog::from_operations(&[
        (&scheduled, machine_authority()),
        (&phone, suspended_authority()),
        (&laptop, machine_authority()),
    ]);
    assert_eq!(
        log.apply_status(&phone),
        ApplyStatus::AuthorSuspended { reason: "its delegation ended at noon".into() }
    );
    assert_eq!(log.fold.verdict(phone.id).map(|verdict| verdict.admission), Some(Admission::Admitted));
    assert_eq!(log.field("job", "claimer"), json!("laptop"));
    log.rejudge(&[(&phone, machine_authority())]);
    assert_eq!(log.field("job", "claimer"), json!("phone"), "at its own position, before the laptop's");
    assert_eq!(log.refusal_code(&laptop), "already_claimed");
}

/// MSH-20 MSH-21: operations that depend on them are decided again; operations under another chain stay. A new chain
/// restores them.
#[test]
fn operations_of_revoked_node_are_undone_and_restored() {
    let (scheduled, phone) = (schedule_operation(), claim_operation("phone", 10));
    let complete = operation_by("phone", timestamp_at(15)).after(&[&phone]).fire(
        "job",
        "complete_job",
        json!({ "output": "index" }),
    );
    let evidence = operation_by("phone", timestamp_at(5)).create("mesh.evidence", "photo", json!({ "digest": "d" }));
    let laptop = claim_operation("laptop", 20);
    let mut log = MeshLog::from_operations(&[
        (&scheduled, machine_authority()),
        (&phone, machine_authority()),
        (&complete, machine_authority()),
        (&evidence, machine_authority()),
        (&laptop, machine_authority()),
    ]);
    assert_eq!(log.state("job"), "Completed");
    let before = log.record("job").version;

    // The evidence was written under another delegation, which is still valid.
    log.rejudge(&[(&phone, revoked_authority()), (&complete, revoked_authority()), (&evidence, machine_authority())]);
    assert_eq!(log.field("job", "claimer"), json!("laptop"), "the job was Pending all the time");
    assert_eq!(
        log.apply_status(&phone),
        ApplyStatus::Refused(FoldRefusalReason::NoAuthority { reason: "its parent was revoked".into() })
    );
    assert!(matches!(log.apply_status(&complete), ApplyStatus::Waiting(_)));
    assert_eq!(log.state("photo"), "Live");
    assert_eq!(log.fold.len(), 5, "all operations stay on the log");

    log.rejudge(&[(&phone, machine_authority()), (&complete, machine_authority())]);
    assert_eq!(log.state("job"), "Completed");
    assert_eq!(log.record("job").version, before);
    assert_eq!(log.refusal_code(&laptop), "wrong_state");
}

/// MSH-27: the same node, before and after it loses a capability.
#[test]
fn capabilities_are_judged_at_operation_time() {
    let scheduled = schedule_operation();
    let (phone, renew) = (claim_operation("phone", 10), claim_operation("phone", 20));
    let reader = onceward_testkit::fold::authority_with(&["Job.Read"]);
    let log =
        MeshLog::from_operations(&[(&scheduled, machine_authority()), (&renew, reader), (&phone, machine_authority())]);
    assert_eq!(log.apply_status(&phone), ApplyStatus::Changed);
    assert_eq!(log.refusal_code(&renew), "not_allowed");
    assert_eq!(log.field("job", "deadline"), json!(timestamp_at(70).wall_time.to_string()), "not renewed");
}

/// MSH-20 MSH-18: the fold never reuses an old answer after the graph has changed.
#[test]
fn rejudge_asks_delegation_graph_again() {
    let seen = operation_by("root", timestamp_at(0)).create(
        "mesh.node",
        "phone",
        json!({ "did": "did:phone", "publicKey": "k1" }),
    );
    let delegated = operation_by("root", timestamp_at(1)).fire("phone", "delegated", json!({}));
    let lapsed = operation_by("root", timestamp_at(5)).fire("phone", "lapsed", json!({}));
    let mut log = MeshLog::new();
    log.insert_with_resolver(
        &[(&lapsed, registrar_authority()), (&delegated, registrar_authority()), (&seen, registrar_authority())],
        &delegation_graph(true, "k1"),
    );
    assert_eq!(log.state("phone"), "Suspended");
    // No operation's authority changes, only the graph.
    log.fold.reevaluate(&delegation_graph(false, "k1"), []).expect("nothing unknown in nothing");
    assert_eq!(log.state("phone"), "Pending");
    assert_eq!(log.refusal_code(&delegated), "bad_chain");
    assert_eq!(log.refusal_code(&lapsed), "wrong_state");
    log.fold.reevaluate(&delegation_graph(true, "k2"), []).expect("nothing unknown in nothing");
    assert_eq!(log.refusal_code(&delegated), "key_bound_for_life");
    log.fold.reevaluate(&(), []).expect("nothing unknown in nothing");
    assert!(matches!(log.apply_status(&delegated), ApplyStatus::Waiting(_)), "the answer is unknown");
    log.fold.reevaluate(&delegation_graph(true, "k1"), []).expect("nothing unknown in nothing");
    assert_eq!(log.state("phone"), "Suspended");
}

/// MSH-18 MSH-19 MSH-20 MSH-21: Suspended and held, renewed and counted, Revoked and undone; the reader of the
/// delegation graph reports both.
#[test]
fn node_state_and_its_operations_change_together() {
    let chain = delegation_graph(true, "k1");
    let seen = operation_by("root", timestamp_at(0)).create(
        "mesh.node",
        "phone",
        json!({ "did": "did:phone", "publicKey": "k1" }),
    );
    let node_event = |second, event: &str| operation_by("root", timestamp_at(second)).fire("phone", event, json!({}));
    let (delegated, lapsed, renewed, revoke) =
        (node_event(1, "delegated"), node_event(5, "lapsed"), node_event(30, "delegated"), node_event(40, "revoked"));
    let (scheduled, phone, laptop) =
        (schedule_operation(), claim_operation("phone", 10), claim_operation("laptop", 20));
    let mut log = MeshLog::new();
    let operations = [
        (&seen, registrar_authority()),
        (&delegated, registrar_authority()),
        (&scheduled, machine_authority()),
        (&laptop, machine_authority()),
    ];
    log.insert_with_resolver(&operations, &chain);
    assert_eq!((log.state("phone"), log.field("job", "claimer")), ("Active".into(), json!("laptop")));
    log.insert_with_resolver(&[(&lapsed, registrar_authority()), (&phone, suspended_authority())], &chain);
    assert_eq!((log.state("phone"), log.field("job", "claimer")), ("Suspended".into(), json!("laptop")));
    assert!(matches!(log.apply_status(&phone), ApplyStatus::AuthorSuspended { .. }));
    log.insert_with_resolver(&[(&renewed, registrar_authority())], &chain);
    log.fold.reevaluate(&chain, [(phone.id, machine_authority())]).expect("the node exists");
    assert_eq!((log.state("phone"), log.field("job", "claimer")), ("Active".into(), json!("phone")));
    log.insert_with_resolver(&[(&revoke, registrar_authority())], &chain);
    log.fold.reevaluate(&chain, [(phone.id, revoked_authority())]).expect("the node exists");
    assert_eq!((log.state("phone"), log.field("job", "claimer")), ("Revoked".into(), json!("laptop")));
    assert_eq!(log.fold.len(), 8, "all operations stay on the log");
}

/// MSH-22: the resolver's answer may change later.
#[test]
fn confirm_is_undone_when_node_loses_user_authority() {
    let photo = operation_by("server", timestamp_at(0)).create("mesh.evidence", "photo", json!({ "digest": "d" }));
    let support = [onceward_testkit::fold::named_record_id("photo").to_string()];
    let fields = json!({ "subject": "a", "predicate": "b", "object": "c", "confidence": 0.9, "support": support });
    let belief = operation_by("server", timestamp_at(1)).create("mesh.claim", "belief", fields);
    let confirm = operation_by("phone", timestamp_at(2)).fire("belief", "confirm", json!({}));
    let mut log = MeshLog::from_operations(&[
        (&photo, machine_authority()),
        (&belief, machine_authority()),
        (&confirm, user_authority()),
    ]);
    assert_eq!(log.state("belief"), "Fact");
    log.rejudge(&[(&confirm, machine_authority())]);
    assert_eq!(log.state("belief"), "Claim");
    assert_eq!(log.refusal_code(&confirm), "not_allowed");
}
