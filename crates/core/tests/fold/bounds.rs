//! Tests what a fold rejects: lifecycles with the engine's clock, too many operations, and malformed operations.

use std::sync::Arc;

use onceward_core::fold::{
    Admission, AdmissionError, ApplyStatus, Fold, FoldError, FoldLimits, FoldRefusalReason, HybridTimestamp,
    LogOperation, OperationId, WaitReason,
};
use onceward_core::time::Time;
use onceward_testkit::fold::{authority_with, operation_by, timestamp_at};
use onceward_testkit::systems::{load_system, load_texts};
use serde_json::json;

use crate::test_lifecycles::small_definitions;

fn count_operation(second: i64) -> LogOperation {
    operation_by("ann", timestamp_at(second)).fire("thing", "count", json!({}))
}

#[test]
fn lifecycle_on_engine_clock_is_rejected() {
    let error = Fold::new(Arc::new(load_system("document")), FoldLimits::default())
        .expect_err("a lifecycle with leases and timers cannot be folded");
    assert_eq!(error, FoldError::EngineClock { lifecycle: "document.job".into() });
    assert_eq!(
        error.to_string(),
        "document.job uses the engine's clock and cannot be folded: add `clock = \"operation\"` or leave it out"
    );
}

/// A delivery cannot be undone.
#[test]
fn lifecycle_with_deliver_is_rejected() {
    let text = r#"
language = 1
lifecycle = "loud.thing"
clock = "operation"
[states]
here = { rest = true }
[[on.create]]
go = "-> here"
deliver = [{ to = "'https://example.com/'", body = {} }]
"#;
    let error = Fold::new(Arc::new(load_texts(&[("loud.toml", text)])), FoldLimits::default())
        .expect_err("a lifecycle with deliveries cannot be folded");
    assert_eq!(error, FoldError::HasDeliveries { lifecycle: "loud.thing".into() });
}

/// The fold still accepts operations that it already has.
#[test]
fn insert_beyond_log_capacity_fails_whole() {
    let mut fold = Fold::new(small_definitions(), FoldLimits { max_operations: 2, ..FoldLimits::default() })
        .expect("can be folded");
    let (first, second, third) = (count_operation(1), count_operation(2), count_operation(3));
    let authority = authority_with(&["Thing.Write"]);
    fold.insert(&(), [(first.clone(), authority.clone())]).expect("the log has capacity for one operation");
    let error = fold
        .insert(&(), [(second.clone(), authority.clone()), (third, authority.clone())])
        .expect_err("the log has no capacity for two operations");
    assert_eq!(error, FoldError::LogFull { operations: 1, max_operations: 2 });
    assert_eq!(fold.len(), 1, "a rejected batch adds nothing");
    fold.insert(&(), [(first, authority.clone()), (second, authority)])
        .expect("the log accepts one more, and known operations");
}

/// Only operations that wait for absent dependencies count. In dependency order, none waits.
#[test]
fn insert_beyond_waiting_bound_fails_whole() {
    let mut fold =
        Fold::new(small_definitions(), FoldLimits { max_waiting: 1, ..FoldLimits::default() }).expect("can be folded");
    let authority = authority_with(&["Thing.Write"]);
    let created = operation_by("ann", timestamp_at(0)).create("small.thing", "thing", json!({}));
    let waiting_count = |second| {
        (
            operation_by("bob", timestamp_at(second)).after(&[&created]).fire("thing", "count", json!({})),
            authority.clone(),
        )
    };
    fold.insert(&(), [waiting_count(1)]).expect("one operation may wait");
    assert_eq!(
        fold.insert(&(), [waiting_count(2)]).expect_err("two operations may not wait"),
        FoldError::TooManyWaiting { waiting: 2, max_waiting: 1 }
    );
    assert_eq!(fold.verdict(waiting_count(2).0.id), None);
    fold.insert(&(), [waiting_count(2), waiting_count(3), (created.clone(), authority.clone())])
        .expect("the batch contains the dependencies");
    assert_eq!(fold.snapshot().records.len(), 1);
    assert!(fold.operations().all(|(_, _, applied)| *applied == ApplyStatus::Changed));
}

#[test]
fn reused_operation_id_is_error() {
    let mut fold = Fold::new(small_definitions(), FoldLimits::default()).expect("can be folded");
    let authority = authority_with(&["Thing.Write"]);
    let honest = count_operation(1);
    let forged = LogOperation { id: honest.id, ..count_operation(2) };
    fold.insert(&(), [(honest.clone(), authority.clone())]).expect("room");
    assert_eq!(fold.insert(&(), [(forged, authority.clone())]), Err(FoldError::IdReused(honest.id)));
    assert_eq!(
        fold.reevaluate(&(), [(OperationId([9; 32]), authority)]),
        Err(FoldError::UnknownOperation(OperationId([9; 32])))
    );
}

/// MSH-27: the fold keeps no trace of an operation that is not admitted.
#[test]
fn malformed_operation_is_not_admitted() {
    let mut fold = Fold::new(small_definitions(), FoldLimits::default()).expect("can be folded");
    let good = count_operation(1);
    let bad = [
        (LogOperation { author: "".into(), ..good.clone() }, AdmissionError::InvalidAuthor),
        (LogOperation { author: "x".repeat(1_001).into(), ..good.clone() }, AdmissionError::InvalidAuthor),
        (
            LogOperation {
                timestamp: HybridTimestamp { wall_time: Time::from_micros(i64::MAX), logical_counter: 0 },
                ..good.clone()
            },
            AdmissionError::InvalidTime,
        ),
        (LogOperation { dependencies: vec![good.id], ..good.clone() }, AdmissionError::DependsOnItself),
        (
            LogOperation { dependencies: vec![OperationId([1; 32]); 257], ..good.clone() },
            AdmissionError::TooManyDependencies,
        ),
    ];
    for (operation, why) in bad {
        let receipts = fold
            .insert(&(), [(operation.clone(), authority_with(&["Thing.Write"]))])
            .expect("an unresolved check is not an error of the caller");
        assert_eq!(receipts[0].verdict.admission, Admission::Refused(why));
        assert_eq!(receipts[0].verdict.status, ApplyStatus::Refused(FoldRefusalReason::NotAdmitted));
        assert!(fold.is_empty() && fold.verdict(operation.id).is_none());
    }
}

/// MSH-27: a refused operation stays in the log.
#[test]
fn verdicts_display_reasons() {
    let mut fold = Fold::new(small_definitions(), FoldLimits::default()).expect("can be folded");
    let absent = OperationId([0xab; 32]);
    let refused = count_operation(1);
    let waits = operation_by("bob", timestamp_at(2)).after_id(absent).fire("thing", "count", json!({}));
    let authority = authority_with(&["Thing.Write"]);
    let receipts = fold.insert(&(), [(refused, authority.clone()), (waits, authority)]).expect("room");
    assert_eq!(receipts[0].verdict.admission, Admission::Admitted);
    assert_eq!(receipts[0].verdict.admission.to_string(), "admitted: well formed");
    let applied_text = receipts[0].verdict.status.to_string();
    assert!(applied_text.starts_with("refused: 404 not_found: "), "{applied_text}");
    assert_eq!(receipts[1].verdict.status, ApplyStatus::Waiting(WaitReason::DependencyAbsent(absent)));
    assert_eq!(receipts[1].verdict.status.to_string(), format!("waiting: {absent} has not arrived"));
}
