//! Tests the cost of an insertion, in decisions.

use onceward_core::fold::{Authority, Fold, FoldLimits, LogOperation};
use onceward_testkit::fold::{authority_with, operation_by, timestamp_at};
use serde_json::json;

use crate::test_lifecycles::small_definitions;

const LOG_OPERATIONS: i64 = 200;

fn write_authority() -> Authority {
    authority_with(&["Thing.Write"])
}

fn count_operation(second: i64) -> LogOperation {
    operation_by("ann", timestamp_at(second)).fire("thing", "count", json!({}))
}

/// Returns a log of a creation and many counts, with every second timestamp free.
fn long_log(bounds: FoldLimits) -> Fold {
    let mut fold = Fold::new(small_definitions(), bounds).expect("a lifecycle that can be folded");
    let created = operation_by("ann", timestamp_at(0)).create("small.thing", "thing", json!({}));
    let counts = (1..LOG_OPERATIONS).map(|number| count_operation(2 * number));
    let all: Vec<_> = std::iter::once(created).chain(counts).map(|operation| (operation, write_authority())).collect();
    fold.insert(&(), all).expect("the log has capacity for all");
    fold
}

fn count_decisions(fold: &mut Fold, step: impl FnOnce(&mut Fold)) -> u64 {
    let before = fold.decide_calls();
    step(fold);
    fold.decide_calls() - before
}

/// MSH-24
#[test]
fn late_insert_redecides_only_later_operations() {
    let mut fold = long_log(FoldLimits::default());
    assert_eq!(fold.decide_calls(), LOG_OPERATIONS.unsigned_abs(), "a batch is decided once");
    let end = count_decisions(&mut fold, |fold| {
        drop(fold.insert(&(), [(count_operation(1_000), write_authority())]).expect("room"));
    });
    assert_eq!(end, 1, "an operation at the end costs one decision");
    for behind in [1, 10, 100] {
        let second = 2 * (LOG_OPERATIONS - behind) + 1;
        let late = operation_by("bob", timestamp_at(second)).fire("thing", "count", json!({}));
        let cost =
            count_decisions(&mut fold, |fold| drop(fold.insert(&(), [(late, write_authority())]).expect("room")));
        let stand_behind =
            fold.operations().filter(|(operation, _, _)| operation.timestamp > timestamp_at(second)).count() as u64;
        assert_eq!(cost, stand_behind + 1, "{behind} operations follow it");
        assert!(cost < LOG_OPERATIONS.unsigned_abs() / 2 + 10, "far less than the log: {cost}");
    }
}

/// An unchanged authority decides nothing either.
#[test]
fn duplicate_insert_decides_nothing() {
    let mut fold = long_log(FoldLimits::default());
    let early = count_operation(2);
    let cost = count_decisions(&mut fold, |fold| {
        let receipts =
            fold.insert(&(), [(early.clone(), write_authority()), (early.clone(), write_authority())]).expect("room");
        assert!(receipts.iter().all(|receipt| !receipt.is_new && receipt.verdict.status.is_applied()));
        fold.reevaluate(&(), [(early.id, write_authority())]).expect("known");
    });
    assert_eq!(cost, 0);
}

/// The replay starts at the oldest withdrawn operation and runs once, whatever the number of withdrawals.
#[test]
fn withdrawals_cause_one_replay() {
    let mut fold = long_log(FoldLimits::default());
    let revoked = Authority::Withdrawn { reason: "revoked".into() };
    let last_ten: Vec<_> =
        (LOG_OPERATIONS - 10..LOG_OPERATIONS).map(|number| (count_operation(2 * number).id, revoked.clone())).collect();
    let cost = count_decisions(&mut fold, |fold| fold.reevaluate(&(), last_ten).expect("known"));
    assert_eq!(cost, 0, "all operations after the first of them are decided");
    let first = [(count_operation(2 * (LOG_OPERATIONS - 20)).id, revoked)];
    let cost = count_decisions(&mut fold, |fold| fold.reevaluate(&(), first).expect("known"));
    assert_eq!(cost, 9);
}

/// The fold keeps a bounded number of images, the newest ones.
#[test]
fn insert_before_oldest_kept_image_replays_from_start() {
    let mut fold = long_log(FoldLimits { max_before_image_records: 50, ..FoldLimits::default() });
    let cost = |fold: &mut Fold, second: i64| {
        let late = operation_by("bob", timestamp_at(second)).fire("thing", "count", json!({}));
        count_decisions(fold, |fold| drop(fold.insert(&(), [(late, write_authority())]).expect("room")))
    };
    assert_eq!(cost(&mut fold, 2 * (LOG_OPERATIONS - 40) + 1), 40);
    assert_eq!(
        cost(&mut fold, 2 * (LOG_OPERATIONS - 100) + 1),
        LOG_OPERATIONS.unsigned_abs() + 2,
        "the whole log is replayed"
    );
    assert_eq!(cost(&mut fold, 2 * (LOG_OPERATIONS - 40) + 3), 39, "the newest before images exist again");
}
