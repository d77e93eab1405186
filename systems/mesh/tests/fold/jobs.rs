//! Jobs that several nodes claim.

use onceward_core::decide::NoOpReason;
use onceward_core::fold::{ApplyStatus, FoldRefusalReason, LogOperation, WaitReason};
use onceward_testkit::fold::{operation_by, timestamp_at};
use serde_json::json;

use crate::fold_log::{MeshLog, machine_authority, permutations, user_authority};

fn schedule_operation() -> LogOperation {
    operation_by("server", timestamp_at(0)).create("mesh.job", "job", json!({ "kind": "index" }))
}

fn claim_operation(node_name: &str, second: i64) -> LogOperation {
    operation_by(node_name, timestamp_at(second)).fire("job", "claim_work", json!({ "lease": "60s" }))
}

/// MSH-14 MSH-12: neither node knows of the other's claim.
#[test]
fn claim_with_smaller_clock_wins_in_any_order() {
    let (scheduled, phone, laptop) =
        (schedule_operation(), claim_operation("phone", 10), claim_operation("laptop", 11));
    for order in permutations(&[&scheduled, &phone, &laptop]) {
        let log = MeshLog::from_operations(
            &order.into_iter().map(|operation| (operation, machine_authority())).collect::<Vec<_>>(),
        );
        assert_eq!(log.field("job", "claimer"), json!("phone"));
        assert_eq!(log.apply_status(&phone), ApplyStatus::Changed);
        assert_eq!(log.refusal_code(&laptop), "already_claimed");
        assert_eq!(log.record("job").version, 2);
    }
}

/// MSH-14: also a third one. The job stays free for the next claim, and a clock one tick later is later.
#[test]
fn claims_with_equal_clocks_are_both_refused() {
    let (scheduled, phone, laptop) =
        (schedule_operation(), claim_operation("phone", 10), claim_operation("laptop", 10));
    let (third, next) = (claim_operation("tablet", 10), claim_operation("tablet", 11));
    for order in permutations(&[&scheduled, &phone, &laptop]) {
        let mut log = MeshLog::from_operations(
            &order.into_iter().map(|operation| (operation, machine_authority())).collect::<Vec<_>>(),
        );
        assert_eq!(log.apply_status(&phone), ApplyStatus::Refused(FoldRefusalReason::Contended { with: laptop.id }));
        assert_eq!(log.apply_status(&laptop), ApplyStatus::Refused(FoldRefusalReason::Contended { with: phone.id }));
        assert_eq!(log.state("job"), "Pending");
        log.insert(&[(&next, machine_authority())]);
        assert_eq!(log.field("job", "claimer"), json!("tablet"));
        log.insert(&[(&third, machine_authority())]);
        assert_eq!(log.apply_status(&third), ApplyStatus::Refused(FoldRefusalReason::Contended { with: laptop.id }));
        assert_eq!(log.apply_status(&next), ApplyStatus::Changed);
    }
    let mut tick = claim_operation("laptop", 10);
    tick.timestamp.logical_counter = 1;
    let log = MeshLog::from_operations(&[
        (&scheduled, machine_authority()),
        (&tick, machine_authority()),
        (&phone, machine_authority()),
    ]);
    assert_eq!(log.field("job", "claimer"), json!("phone"));
}

/// MSH-14
#[test]
fn claim_without_capability_does_not_tie() {
    let (scheduled, phone, laptop) =
        (schedule_operation(), claim_operation("phone", 10), claim_operation("laptop", 10));
    let reader = onceward_testkit::fold::authority_with(&["Job.Read"]);
    let mut log = MeshLog::from_operations(&[
        (&scheduled, machine_authority()),
        (&phone, machine_authority()),
        (&laptop, reader),
    ]);
    assert_eq!(log.field("job", "claimer"), json!("phone"));
    assert_eq!(log.refusal_code(&laptop), "not_allowed");
    log.rejudge(&[(&laptop, machine_authority())]);
    assert_eq!(log.state("job"), "Pending", "with the capability, neither claim wins");
}

/// MSH-13: from another node or with the same clock.
#[test]
fn repeated_expire_work_changes_nothing() {
    let (scheduled, phone) = (schedule_operation(), claim_operation("phone", 10));
    let expire =
        |node_name: &str, second| operation_by(node_name, timestamp_at(second)).fire("job", "expire_work", json!({}));
    let (early, first, same_time, later) =
        (expire("laptop", 69), expire("laptop", 70), expire("tablet", 70), expire("server", 80));
    for order in permutations(&[&phone, &first, &same_time, &later]) {
        let mut log = MeshLog::from_operations(&[(&scheduled, machine_authority()), (&early, machine_authority())]);
        log.insert(&order.into_iter().map(|operation| (operation, machine_authority())).collect::<Vec<_>>());
        assert_eq!(log.refusal_code(&early), "not_overdue");
        assert_eq!(log.apply_status(&first), ApplyStatus::Changed);
        for repeated in [&same_time, &later] {
            assert_eq!(log.apply_status(repeated), ApplyStatus::NoOp(NoOpReason::Unchanged));
        }
        assert_eq!(log.state("job"), "Pending");
        assert_eq!(log.record("job").version, 3);
    }
}

/// MSH-30: a late `CompleteJob` counts while the job belongs to its author.
#[test]
fn late_completion_is_undone_by_earlier_expire_work() {
    let (scheduled, phone) = (schedule_operation(), claim_operation("phone", 10));
    let complete = operation_by("phone", timestamp_at(500)).after(&[&phone]).fire(
        "job",
        "complete_job",
        json!({ "output": "done" }),
    );
    let mut log = MeshLog::from_operations(&[
        (&scheduled, machine_authority()),
        (&phone, machine_authority()),
        (&complete, machine_authority()),
    ]);
    assert_eq!(log.state("job"), "Completed", "overdue, but not expired");
    let expire = operation_by("laptop", timestamp_at(100)).fire("job", "expire_work", json!({}));
    let laptop = claim_operation("laptop", 101);
    log.insert(&[(&laptop, machine_authority()), (&expire, machine_authority())]);
    assert_eq!(log.state("job"), "Claimed");
    assert_eq!(log.field("job", "claimer"), json!("laptop"));
    assert_eq!(log.refusal_code(&complete), "not_allowed");
}

/// MSH-15: a claim on a job that has not arrived waits and is then applied at its own time.
#[test]
fn claim_waits_for_its_dependency() {
    let scheduled = schedule_operation();
    let phone = operation_by("phone", timestamp_at(10)).after(&[&scheduled]).fire(
        "job",
        "claim_work",
        json!({ "lease": "60s" }),
    );
    let laptop = operation_by("laptop", timestamp_at(20)).after(&[&scheduled]).fire(
        "job",
        "claim_work",
        json!({ "lease": "60s" }),
    );
    let mut log = MeshLog::from_operations(&[(&laptop, machine_authority()), (&phone, machine_authority())]);
    assert_eq!(log.apply_status(&phone), ApplyStatus::Waiting(WaitReason::DependencyAbsent(scheduled.id)));
    log.insert(&[(&scheduled, user_authority())]);
    assert_eq!(log.field("job", "claimer"), json!("phone"));
    assert_eq!(log.field("job", "deadline"), json!(timestamp_at(70).wall_time.to_string()), "its clock plus its lease");
    assert_eq!(log.refusal_code(&laptop), "already_claimed");
}
