//! Tests wrong clocks, equal clocks and dependencies.

use onceward_core::decide::CheckQuery;
use onceward_core::fold::{
    ApplyStatus, Authority, Fold, FoldLimits, FoldRefusalReason, HybridTimestamp, LogOperation, OperationId, WaitReason,
};
use onceward_core::time::{Duration, Time};
use onceward_testkit::fold::{authority_with, named_record_id, operation_by, timestamp_at};
use serde_json::json;

use crate::test_lifecycles::small_definitions;

fn write_authority() -> Authority {
    authority_with(&["Thing.Write"])
}

fn create_operation() -> LogOperation {
    operation_by("ann", timestamp_at(0)).create("small.thing", "thing", json!({}))
}

/// Returns a fold with these operations, inserted one by one.
fn fold_of(operations: &[&LogOperation]) -> Fold {
    let mut fold = Fold::new(small_definitions(), FoldLimits::default()).expect("can be folded");
    for operation in operations {
        fold.insert(&(), [((*operation).clone(), write_authority())]).expect("room");
    }
    fold
}

fn apply_status(fold: &Fold, operation: &LogOperation) -> ApplyStatus {
    fold.verdict(operation.id).expect("the operation is on the log").status
}

fn thing_count(fold: &Fold) -> i64 {
    match fold.snapshot().record(named_record_id("thing")).and_then(|record| record.field("n").cloned()) {
        Some(onceward_core::value::Value::Int(n)) => n,
        other => panic!("not an int: {other:?}"),
    }
}

fn permutations<'a>(items: &[&'a LogOperation]) -> Vec<Vec<&'a LogOperation>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for at in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(at);
        all.extend(permutations(&rest).into_iter().map(|mut order| {
            order.insert(0, first);
            order
        }));
    }
    all
}

/// MSH-25
#[test]
fn operations_of_one_author_with_equal_clock_are_all_refused() {
    let created = create_operation();
    let one = operation_by("bob", timestamp_at(5)).fire("thing", "count", json!({}));
    let two = operation_by("bob", timestamp_at(5)).fire("thing", "see", json!({}));
    let three = operation_by("bob", timestamp_at(5)).fire("thing", "claim", json!({}));
    let honest = operation_by("cyd", timestamp_at(5)).fire("thing", "count", json!({}));
    for order in permutations(&[&created, &one, &two, &three, &honest]) {
        let fold = fold_of(&order);
        for lie in [&one, &two, &three] {
            assert_eq!(apply_status(&fold, lie), ApplyStatus::Refused(FoldRefusalReason::ClockReused));
        }
        assert_eq!(apply_status(&fold, &honest), ApplyStatus::Changed, "two nodes may use the same timestamp");
        assert_eq!(thing_count(&fold), 1);
    }
    // One alone is applied until the other arrives. A duplicate is not another operation.
    let mut fold = fold_of(&[&created, &one, &one]);
    assert_eq!(apply_status(&fold, &one), ApplyStatus::Changed);
    fold.insert(&(), [(two, write_authority())]).expect("room");
    assert_eq!(thing_count(&fold), 0, "the operation is rolled back");
}

/// MSH-25: the fold detects a clock that goes back only if the author declares the dependency.
#[test]
fn clock_behind_own_dependency_is_refused() {
    let created = create_operation();
    let first = operation_by("bob", timestamp_at(9)).after(&[&created]).fire("thing", "count", json!({}));
    let back = operation_by("bob", timestamp_at(4)).after(&[&first]).fire("thing", "count", json!({}));
    for order in permutations(&[&created, &first, &back]) {
        let fold = fold_of(&order);
        assert_eq!(apply_status(&fold, &first), ApplyStatus::Changed);
        assert_eq!(apply_status(&fold, &back), ApplyStatus::Refused(FoldRefusalReason::DependencyNotEarlier(first.id)));
        assert_eq!(thing_count(&fold), 1);
    }
}

/// MSH-25: receiving an operation merges its clock, whatever the wall clock says.
#[test]
fn next_timestamp_is_after_all_seen_operations() {
    let created = create_operation();
    let ahead = operation_by("bob", timestamp_at(100)).fire("thing", "count", json!({}));
    let fold = fold_of(&[&created, &ahead]);
    let slow = fold.next_timestamp(timestamp_at(3).wall_time).expect("the time is in range");
    assert_eq!(slow, HybridTimestamp { wall_time: timestamp_at(100).wall_time, logical_counter: 1 });
    assert_eq!(fold.next_timestamp(timestamp_at(101).wall_time), Some(timestamp_at(101)));
    let full = HybridTimestamp { wall_time: timestamp_at(100).wall_time, logical_counter: u32::MAX };
    let tick = timestamp_at(100).wall_time.checked_add(Duration::from_micros(1)).expect("a time");
    assert_eq!(full.next(timestamp_at(3).wall_time), Some(HybridTimestamp { wall_time: tick, logical_counter: 0 }));
    assert_eq!(HybridTimestamp { wall_time: Time::MAX, logical_counter: u32::MAX }.next(Time::MAX), None);
    let next = operation_by("cyd", slow).after(&[&ahead]).fire("thing", "count", json!({}));
    let fold = fold_of(&[&next, &ahead, &created]);
    assert_eq!(apply_status(&fold, &next), ApplyStatus::Changed);
}

/// MSH-15: once its dependencies arrive, the operation is applied at its own timestamp.
#[test]
fn operation_waits_for_absent_dependency() {
    let created = create_operation();
    let claim = operation_by("bob", timestamp_at(2)).after(&[&created]).fire("thing", "claim", json!({}));
    let release = operation_by("bob", timestamp_at(4)).after(&[&claim]).fire("thing", "release", json!({}));
    let later = operation_by("cyd", timestamp_at(6)).fire("thing", "claim", json!({}));
    let mut fold = fold_of(&[&later, &release, &created]);
    assert_eq!(apply_status(&fold, &release), ApplyStatus::Waiting(WaitReason::DependencyAbsent(claim.id)));
    assert_eq!(apply_status(&fold, &later), ApplyStatus::Changed);
    fold.insert(&(), [(claim.clone(), write_authority())]).expect("room");
    for operation in [&claim, &release, &later] {
        assert_eq!(apply_status(&fold, operation), ApplyStatus::Changed, "bob claims and releases before cyd claims");
    }
    // A dependency that is present but not applied also makes the operation wait.
    let revoked = Authority::Withdrawn { reason: "revoked".into() };
    fold.reevaluate(&(), [(claim.id, revoked)]).expect("known");
    assert_eq!(apply_status(&fold, &release), ApplyStatus::Waiting(WaitReason::DependencyUnapplied(claim.id)));
    assert_eq!(apply_status(&fold, &later), ApplyStatus::Changed);
}

/// MSH-15
#[test]
fn dependency_cycle_is_refused_with_dependents() {
    let id = |byte| OperationId([byte; 32]);
    let in_circle = |own: u8, second: i64, other: u8| {
        let said = operation_by("bob", timestamp_at(second)).after_id(id(other)).fire("thing", "count", json!({}));
        LogOperation { id: id(own), ..said }
    };
    let created = create_operation();
    let (one, two, three) = (in_circle(1, 1, 2), in_circle(2, 2, 3), in_circle(3, 3, 1));
    let outside = operation_by("cyd", timestamp_at(7)).after_id(id(3)).fire("thing", "count", json!({}));
    for order in permutations(&[&created, &one, &two, &three, &outside]) {
        let fold = fold_of(&order);
        assert_eq!(apply_status(&fold, &one), ApplyStatus::Refused(FoldRefusalReason::DependencyNotEarlier(id(2))));
        assert_eq!(apply_status(&fold, &two), ApplyStatus::Refused(FoldRefusalReason::DependencyNotEarlier(id(3))));
        assert_eq!(apply_status(&fold, &three), ApplyStatus::Refused(FoldRefusalReason::DependencyRefused(id(1))));
        assert_eq!(apply_status(&fold, &outside), ApplyStatus::Refused(FoldRefusalReason::DependencyRefused(id(3))));
        assert_eq!(thing_count(&fold), 0);
    }
}

/// MSH-14: a later claim gets the thing. Other simultaneous operations are not affected.
#[test]
fn simultaneous_claims_are_all_refused() {
    let created = create_operation();
    let claims: Vec<_> =
        ["ann", "bob", "cyd"].map(|name| operation_by(name, timestamp_at(5)).fire("thing", "claim", json!({}))).into();
    let later = operation_by("dot", timestamp_at(6)).fire("thing", "claim", json!({}));
    for order in permutations(&[&created, &claims[0], &claims[1], &claims[2], &later]) {
        let fold = fold_of(&order);
        for claim in &claims {
            assert!(matches!(apply_status(&fold, claim), ApplyStatus::Refused(FoldRefusalReason::Contended { .. })));
        }
        assert_eq!(apply_status(&fold, &later), ApplyStatus::Changed);
    }
    // The tie ends if only one author was authorized to claim.
    let mut fold = fold_of(&[&created, &claims[0], &claims[1]]);
    fold.reevaluate(&(), [(claims[0].id, Authority::Withdrawn { reason: "revoked".into() })]).expect("known");
    assert_eq!(apply_status(&fold, &claims[1]), ApplyStatus::Changed);
    // All nodes may count, see and hold at the same time.
    for event in ["count", "see", "hold"] {
        let together: Vec<_> =
            ["ann", "bob"].map(|name| operation_by(name, timestamp_at(5)).fire("thing", event, json!({}))).into();
        let fold = fold_of(&[&created, &together[0], &together[1]]);
        for operation in &together {
            assert!(apply_status(&fold, operation).is_applied(), "{event}");
        }
    }
    // A claim by the current holder has no rival.
    let first = operation_by("ann", timestamp_at(3)).fire("thing", "claim", json!({}));
    let fold = fold_of(&[&created, &first, &claims[1], &claims[2]]);
    assert_eq!(apply_status(&fold, &first), ApplyStatus::Changed);
    assert!(matches!(apply_status(&fold, &claims[1]), ApplyStatus::Refused(FoldRefusalReason::RefusedByLifecycle(_))));
}

/// MSH-14 MSH-20: changed answers may create or end a tie.
#[test]
fn contention_is_redecided_with_current_check_answers() {
    let created = create_operation();
    let [ann, bob] = ["ann", "bob"].map(|name| operation_by(name, timestamp_at(5)).fire("thing", "ask", json!({})));
    let fit = |unfit: &'static [&'static str]| {
        move |operation: &LogOperation, _: &CheckQuery| {
            json!({ "ok": !unfit.contains(&&*operation.author) }).as_object().cloned()
        }
    };
    let mut fold = Fold::new(small_definitions(), FoldLimits::default()).expect("can be folded");
    let all = [&bob, &created, &ann].map(|operation| (operation.clone(), write_authority()));
    fold.insert(&fit(&["bob"]), all).expect("room");
    assert_eq!(apply_status(&fold, &ann), ApplyStatus::Changed);
    fold.reevaluate(&fit(&[]), []).expect("an empty batch has no unknown ids");
    assert_eq!(apply_status(&fold, &ann), ApplyStatus::Refused(FoldRefusalReason::Contended { with: bob.id }));
    fold.reevaluate(&fit(&["ann"]), []).expect("an empty batch has no unknown ids");
    assert_eq!(apply_status(&fold, &bob), ApplyStatus::Changed);
}

/// MSH-23: the version decreases if an operation is withdrawn.
#[test]
fn record_version_equals_count_of_applied_operations() {
    let created = create_operation();
    let counts: Vec<_> =
        (1..4).map(|second| operation_by("bob", timestamp_at(second)).fire("thing", "count", json!({}))).collect();
    let version = |fold: &Fold| fold.snapshot().record(named_record_id("thing")).map(|record| record.version);
    let mut fold = fold_of(&[&counts[2], &created, &counts[0], &counts[1]]);
    assert_eq!(version(&fold), Some(4));
    fold.reevaluate(&(), [(counts[1].id, Authority::Suspended { reason: "ran out".into() })]).expect("known");
    assert_eq!(version(&fold), Some(3));
    fold.reevaluate(&(), [(created.id, Authority::Withdrawn { reason: "revoked".into() })]).expect("known");
    assert_eq!(version(&fold), None, "the record was never created");
}
