//! What an insertion costs, counted in decisions.

use onceward_core::fold::{Bounds, Fold, LogOperation, Standing};
use onceward_testkit::fold::{at, node, with};
use serde_json::json;

use crate::lifecycles::small;

const LONG: i64 = 200;

fn may() -> Standing {
    with(&["Thing.Write"])
}

fn counting(second: i64) -> LogOperation {
    node("ann", at(second)).fires("thing", "count", json!({}))
}

/// A log of a creation and many counts, with every second second left free.
fn long_log(bounds: Bounds) -> Fold {
    let mut fold = Fold::new(small(), bounds).expect("a lifecycle that can be folded");
    let created = node("ann", at(0)).creates("small.thing", "thing", json!({}));
    let counts = (1..LONG).map(|number| counting(2 * number));
    let all: Vec<_> = std::iter::once(created).chain(counts).map(|operation| (operation, may())).collect();
    fold.insert(&(), all).expect("room for all");
    fold
}

fn decided_by(fold: &mut Fold, step: impl FnOnce(&mut Fold)) -> u64 {
    let before = fold.decided();
    step(fold);
    fold.decided() - before
}

/// MSH-24: one that comes last is decided, and nothing else is; one that comes late costs what stands behind it.
#[test]
fn only_what_stands_behind_is_decided_again() {
    let mut fold = long_log(Bounds::default());
    assert_eq!(fold.decided(), LONG.unsigned_abs(), "a batch is decided once");
    let end = decided_by(&mut fold, |fold| drop(fold.insert(&(), [(counting(1_000), may())]).expect("room")));
    assert_eq!(end, 1, "at the end");
    for behind in [1, 10, 100] {
        let second = 2 * (LONG - behind) + 1;
        let late = node("bob", at(second)).fires("thing", "count", json!({}));
        let cost = decided_by(&mut fold, |fold| drop(fold.insert(&(), [(late, may())]).expect("room")));
        let stand_behind = fold.operations().filter(|(operation, _, _)| operation.moment > at(second)).count() as u64;
        assert_eq!(cost, stand_behind + 1, "with {behind} behind it");
        assert!(cost < LONG.unsigned_abs() / 2 + 10, "far less than the log: {cost}");
    }
}

/// What is here already costs nothing, nor does a standing that is the same.
#[test]
fn a_duplicate_costs_nothing() {
    let mut fold = long_log(Bounds::default());
    let early = counting(2);
    let cost = decided_by(&mut fold, |fold| {
        let receipts = fold.insert(&(), [(early.clone(), may()), (early.clone(), may())]).expect("room");
        assert!(receipts.iter().all(|receipt| !receipt.fresh && receipt.verdict.applied.is_applied()));
        fold.rejudge(&(), [(early.id, may())]).expect("known");
    });
    assert_eq!(cost, 0);
}

/// Authority over an old operation withdrawn: from there on, once, however many are judged anew.
#[test]
fn a_withdrawal_is_one_replay() {
    let mut fold = long_log(Bounds::default());
    let revoked = Standing::Withdrawn { why: "revoked".into() };
    let last_ten: Vec<_> = (LONG - 10..LONG).map(|number| (counting(2 * number).id, revoked.clone())).collect();
    let cost = decided_by(&mut fold, |fold| fold.rejudge(&(), last_ten).expect("known"));
    assert_eq!(cost, 0, "nothing that stands behind the first of them is left to decide");
    let first = [(counting(2 * (LONG - 20)).id, revoked)];
    let cost = decided_by(&mut fold, |fold| fold.rejudge(&(), first).expect("known"));
    assert_eq!(cost, 9);
}

/// Images are bounded: the newest are kept, and what comes before the oldest kept one costs a fold from the start.
#[test]
fn old_images_make_room_for_new_ones() {
    let mut fold = long_log(Bounds { images: 50, ..Bounds::default() });
    let cost = |fold: &mut Fold, second: i64| {
        let late = node("bob", at(second)).fires("thing", "count", json!({}));
        decided_by(fold, |fold| drop(fold.insert(&(), [(late, may())]).expect("room")))
    };
    assert_eq!(cost(&mut fold, 2 * (LONG - 40) + 1), 40);
    assert_eq!(cost(&mut fold, 2 * (LONG - 100) + 1), LONG.unsigned_abs() + 2, "from the start");
    assert_eq!(cost(&mut fold, 2 * (LONG - 40) + 3), 39, "and the newest are there again");
}
