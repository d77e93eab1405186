//! Claims, and tombstones of evidence that arrive late.

use onceward_core::fold::{ApplyStatus, FoldRefusalReason, LogOperation};
use onceward_testkit::fold::{named_record_id, operation_by, timestamp_at};
use serde_json::json;

use crate::fold_log::{MeshLog, machine_authority, permutations, user_authority};

fn evidence_operation() -> LogOperation {
    operation_by("server", timestamp_at(0)).create("mesh.evidence", "photo", json!({ "digest": "d1" }))
}

fn claim_operation(name: &str, second: i64, support: &str) -> LogOperation {
    let fields = json!({
        "subject": "ann", "predicate": "lives in", "object": name, "confidence": 0.9,
        "support": [named_record_id(support).to_string()],
    });
    operation_by("server", timestamp_at(second)).create("mesh.claim", name, fields)
}

/// MSH-24, MSH-8: the evidence was withdrawn before the reject. In every order, dependents become stale and the user's
/// reject stands.
#[test]
fn late_tombstone_and_reject_converge_in_any_order() {
    let (photo, first, second) =
        (evidence_operation(), claim_operation("Rome", 1, "photo"), claim_operation("Italy", 2, "Rome"));
    let tombstone = operation_by("phone", timestamp_at(5)).fire("photo", "tombstone", json!({}));
    let reject = operation_by("laptop", timestamp_at(9)).fire("Rome", "reject", json!({}));
    let confirm = operation_by("laptop", timestamp_at(3)).fire("Italy", "confirm", json!({}));
    let mut final_versions = Vec::new();
    for order in permutations(&[
        (&tombstone, machine_authority()),
        (&reject, user_authority()),
        (&confirm, user_authority()),
        (&second, machine_authority()),
    ]) {
        let mut log = MeshLog::from_operations(&[(&photo, machine_authority()), (&first, machine_authority())]);
        log.insert(&order);
        assert_eq!(log.state("photo"), "Tombstoned");
        assert_eq!(log.state("Rome"), "Rejected");
        assert_eq!(log.state("Italy"), "Stale", "only the machine's cascade stopped at the Fact");
        final_versions.push((log.record("Rome").version, log.record("Italy").version, log.record("photo").version));
    }
    assert!(final_versions.iter().all(|end| *end == final_versions[0]), "{final_versions:?}");
}

/// MSH-24
#[test]
fn claim_on_tombstoned_evidence_is_refused_retroactively() {
    let (photo, rome) = (evidence_operation(), claim_operation("Rome", 6, "photo"));
    let confirm = operation_by("laptop", timestamp_at(9)).after(&[&rome]).fire("Rome", "confirm", json!({}));
    let mut log = MeshLog::from_operations(&[
        (&photo, machine_authority()),
        (&rome, machine_authority()),
        (&confirm, user_authority()),
    ]);
    assert_eq!(log.state("Rome"), "Fact");
    let tombstone = operation_by("phone", timestamp_at(5)).fire("photo", "tombstone", json!({}));
    log.insert(&[(&tombstone, machine_authority())]);
    assert_eq!(log.refusal_code(&rome), "dead_support");
    assert!(log.fold.snapshot().record(named_record_id("Rome")).is_none());
    assert!(matches!(log.apply_status(&confirm), ApplyStatus::Waiting(_)), "its dependency is not applied");
}

/// MSH-14 applies to claims on jobs: two devices of the user that confirm or reject at the same clock both count.
#[test]
fn simultaneous_user_assertions_are_both_applied() {
    let (photo, rome) = (evidence_operation(), claim_operation("Rome", 1, "photo"));
    for (event, final_state) in [("confirm", "Fact"), ("reject", "Rejected")] {
        let both =
            ["laptop", "phone"].map(|device| operation_by(device, timestamp_at(5)).fire("Rome", event, json!({})));
        let mut log = MeshLog::from_operations(&[(&photo, machine_authority()), (&rome, machine_authority())]);
        log.insert(&[(&both[0], user_authority()), (&both[1], user_authority())]);
        assert_eq!(log.state("Rome"), final_state);
        assert!(both.iter().all(|operation| log.apply_status(operation).is_applied()));
    }
}

/// MSH-10, MSH-11, MSH-24: at the same clock under either name, a second earlier and a second later.
#[test]
fn user_assertion_beats_machine_supersede_in_any_order() {
    let (photo, rome, oslo) =
        (evidence_operation(), claim_operation("Rome", 1, "photo"), claim_operation("Oslo", 2, "photo"));
    let replacement = json!({ "replacement": named_record_id("Oslo").to_string() });
    for (event, final_state) in [("confirm", "Fact"), ("reject", "Rejected")] {
        for (device, server) in [("adam", "zoe"), ("zoe", "adam")] {
            for second in [4, 5, 6] {
                let assertion = operation_by(device, timestamp_at(second)).fire("Rome", event, json!({}));
                let replaced = operation_by(server, timestamp_at(5)).fire("Rome", "supersede", replacement.clone());
                for order in permutations(&[(&assertion, user_authority()), (&replaced, machine_authority())]) {
                    let mut log = MeshLog::from_operations(&[
                        (&photo, machine_authority()),
                        (&rome, machine_authority()),
                        (&oslo, machine_authority()),
                    ]);
                    log.insert(&order);
                    assert_eq!(log.state("Rome"), final_state, "{device} at {second} against {server} at 5");
                    assert!(log.record("Rome").field("replacedBy").is_none_or(|by| by.to_json().is_null()));
                    assert!(log.apply_status(&assertion).is_applied());
                }
            }
        }
    }
}

/// MSH-10, MSH-24: a machine and the user both promote a Hint to Claim, in either order; a machine's dispute is then
/// refused.
#[test]
fn user_status_equal_to_machine_status_becomes_users_word() {
    let photo = evidence_operation();
    let support = [named_record_id("photo").to_string()];
    let fields = json!({
        "subject": "ann", "predicate": "lives in", "object": "Bern", "confidence": 0.2, "support": support,
    });
    let hint = operation_by("server", timestamp_at(1)).create("mesh.claim", "Bern", fields);
    let rome = claim_operation("Rome", 2, "photo");
    let firm = operation_by("server", timestamp_at(3)).fire("Bern", "update_confidence", json!({ "confidence": 0.9 }));
    let contrary = json!({ "status": "Disputed", "conflict": named_record_id("Rome").to_string() });
    let dispute = operation_by("server", timestamp_at(9)).fire("Bern", "update_status", contrary);
    for (device, other) in [("adam", "zoe"), ("zoe", "adam")] {
        for second in [4, 5, 6] {
            let assertion =
                operation_by(device, timestamp_at(second)).fire("Bern", "update_status", json!({ "status": "Claim" }));
            let repeated =
                operation_by(other, timestamp_at(5)).fire("Bern", "update_status", json!({ "status": "Claim" }));
            let mut log = MeshLog::from_operations(&[
                (&photo, machine_authority()),
                (&hint, machine_authority()),
                (&rome, machine_authority()),
                (&firm, machine_authority()),
            ]);
            log.insert(&[
                (&assertion, user_authority()),
                (&repeated, machine_authority()),
                (&dispute, machine_authority()),
            ]);
            assert_eq!(log.state("Bern"), "Claim");
            assert_eq!(log.field("Bern", "byUser"), json!(true));
            assert_eq!(log.refusal_code(&dispute), "users_word");
        }
    }
}

/// MSH-10, MSH-24: at the same clock under either name, a second earlier and a second later; a later dispute is
/// refused.
#[test]
fn user_status_beats_machine_dispute_in_any_order() {
    let (photo, bern, rome) =
        (evidence_operation(), claim_operation("Bern", 1, "photo"), claim_operation("Rome", 2, "photo"));
    let contrary = json!({ "status": "Disputed", "conflict": named_record_id("Rome").to_string() });
    for (device, server) in [("adam", "zoe"), ("zoe", "adam")] {
        for second in [4, 5, 6] {
            let assertion =
                operation_by(device, timestamp_at(second)).fire("Bern", "update_status", json!({ "status": "Claim" }));
            let dispute = operation_by(server, timestamp_at(5)).fire("Bern", "update_status", contrary.clone());
            let second_dispute = operation_by(server, timestamp_at(9)).fire("Bern", "update_status", contrary.clone());
            for order in permutations(&[
                (&assertion, user_authority()),
                (&dispute, machine_authority()),
                (&second_dispute, machine_authority()),
            ]) {
                let mut log = MeshLog::from_operations(&[
                    (&photo, machine_authority()),
                    (&bern, machine_authority()),
                    (&rome, machine_authority()),
                ]);
                log.insert(&order);
                assert_eq!(log.state("Bern"), "Claim", "{device} at {second} against {server} at 5");
                assert_eq!(log.field("Bern", "byUser"), json!(true));
                assert_eq!(log.apply_status(&assertion), ApplyStatus::Changed);
                assert_eq!(log.refusal_code(&second_dispute), "users_word");
            }
        }
    }
}

/// MSH-25: operations that depend on them are refused, too.
#[test]
fn operations_with_reused_clock_are_both_refused() {
    let (photo, rome) = (evidence_operation(), claim_operation("Rome", 4, "photo"));
    let other = operation_by("server", timestamp_at(0)).create("mesh.evidence", "letter", json!({ "digest": "d2" }));
    let mut log = MeshLog::from_operations(&[(&photo, machine_authority()), (&rome, machine_authority())]);
    assert_eq!(log.state("Rome"), "Claim");
    log.insert(&[(&other, machine_authority())]);
    for operation in [&photo, &other] {
        assert_eq!(log.apply_status(operation), ApplyStatus::Refused(FoldRefusalReason::ClockReused));
    }
    assert!(log.fold.snapshot().records.is_empty(), "no effect is left");
    assert_eq!(log.refusal_code(&rome), "invalid_input");
}
