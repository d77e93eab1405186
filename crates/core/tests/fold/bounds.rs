//! What a fold does not take: lifecycles of another clock, more than it may hold, and operations that are none.

use std::sync::Arc;

use onceward_core::fold::{
    Admission, Applied, Bounds, Fold, FoldError, LogOperation, Malformed, Moment, OperationId, Reason, Wait,
};
use onceward_core::time::Time;
use onceward_testkit::fold::{at, node, with};
use onceward_testkit::systems::{load, load_text};
use serde_json::json;

use crate::lifecycles::small;

fn counting(second: i64) -> LogOperation {
    node("ann", at(second)).fires("thing", "count", json!({}))
}

#[test]
fn lifecycles_of_the_engines_clock_are_refused() {
    let error = Fold::new(Arc::new(load("document")), Bounds::default()).expect_err("it has leases and timers");
    assert_eq!(error, FoldError::EngineClock { lifecycle: "document.job".into() });
    assert_eq!(
        error.to_string(),
        "document.job lives by the engine's clock and cannot be folded: add `clock = \"operation\"` or leave it out"
    );
}

/// A message that went out cannot be taken back.
#[test]
fn lifecycles_that_send_messages_are_refused() {
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
    let error = Fold::new(Arc::new(load_text(&[("loud.toml", text)])), Bounds::default()).expect_err("it delivers");
    assert_eq!(error, FoldError::Delivers { lifecycle: "loud.thing".into() });
}

/// Full is said, and nothing of the batch is taken; what is here already may come again.
#[test]
fn a_full_log_says_so() {
    let mut fold = Fold::new(small(), Bounds { operations: 2, ..Bounds::default() }).expect("can be folded");
    let (first, second, third) = (counting(1), counting(2), counting(3));
    let may = with(&["Thing.Write"]);
    fold.insert(&(), [(first.clone(), may.clone())]).expect("room for one");
    let error = fold.insert(&(), [(second.clone(), may.clone()), (third, may.clone())]).expect_err("no room for two");
    assert_eq!(error, FoldError::Full { held: 1, most: 2 });
    assert_eq!(fold.len(), 1, "nothing of it was taken");
    fold.insert(&(), [(first, may.clone()), (second, may)]).expect("room for one more, and for what is here");
}

/// Those that wait for what has not come are bounded; brought in order there is always room.
#[test]
fn too_many_waiting_is_said() {
    let mut fold = Fold::new(small(), Bounds { waiting: 1, ..Bounds::default() }).expect("can be folded");
    let may = with(&["Thing.Write"]);
    let created = node("ann", at(0)).creates("small.thing", "thing", json!({}));
    let waits = |second| (node("bob", at(second)).after(&[&created]).fires("thing", "count", json!({})), may.clone());
    fold.insert(&(), [waits(1)]).expect("one may wait");
    assert_eq!(fold.insert(&(), [waits(2)]).expect_err("not two"), FoldError::TooManyWaiting { waiting: 2, most: 1 });
    assert_eq!(fold.verdict(waits(2).0.id), None);
    fold.insert(&(), [waits(2), waits(3), (created.clone(), may.clone())]).expect("what they wait for comes with them");
    assert_eq!(fold.world().records.len(), 1);
    assert!(fold.operations().all(|(_, _, applied)| *applied == Applied::Changed));
}

#[test]
fn one_id_for_two_operations_is_an_error() {
    let mut fold = Fold::new(small(), Bounds::default()).expect("can be folded");
    let may = with(&["Thing.Write"]);
    let honest = counting(1);
    let forged = LogOperation { id: honest.id, ..counting(2) };
    fold.insert(&(), [(honest.clone(), may.clone())]).expect("room");
    assert_eq!(fold.insert(&(), [(forged, may.clone())]), Err(FoldError::IdReused(honest.id)));
    assert_eq!(fold.rejudge(&(), [(OperationId([9; 32]), may)]), Err(FoldError::Unknown(OperationId([9; 32]))));
}

/// MSH-27: two verdicts, each with its reason. What is no operation is not admitted, and no trace of it is kept.
#[test]
fn what_is_malformed_never_enters_the_log() {
    let mut fold = Fold::new(small(), Bounds::default()).expect("can be folded");
    let good = counting(1);
    let bad = [
        (LogOperation { author: "".into(), ..good.clone() }, Malformed::Author),
        (LogOperation { author: "x".repeat(1_001).into(), ..good.clone() }, Malformed::Author),
        (
            LogOperation { moment: Moment { wall: Time::from_micros(i64::MAX), logical: 0 }, ..good.clone() },
            Malformed::Time,
        ),
        (LogOperation { after: vec![good.id], ..good.clone() }, Malformed::Itself),
        (LogOperation { after: vec![OperationId([1; 32]); 257], ..good.clone() }, Malformed::Dependencies),
    ];
    for (operation, why) in bad {
        let receipts =
            fold.insert(&(), [(operation.clone(), with(&["Thing.Write"]))]).expect("no error of the caller's");
        assert_eq!(receipts[0].verdict.admitted, Admission::Refused(why));
        assert_eq!(receipts[0].verdict.applied, Applied::Refused(Reason::NotAdmitted));
        assert!(fold.is_empty() && fold.verdict(operation.id).is_none());
    }
}

/// MSH-27: a refused operation is on the log all the same, and both verdicts say why.
#[test]
fn both_verdicts_read_as_sentences() {
    let mut fold = Fold::new(small(), Bounds::default()).expect("can be folded");
    let absent = OperationId([0xab; 32]);
    let refused = counting(1);
    let waits = node("bob", at(2)).after_id(absent).fires("thing", "count", json!({}));
    let may = with(&["Thing.Write"]);
    let receipts = fold.insert(&(), [(refused, may.clone()), (waits, may)]).expect("room");
    assert_eq!(receipts[0].verdict.admitted, Admission::Admitted);
    assert_eq!(receipts[0].verdict.admitted.to_string(), "admitted: well formed");
    let said = receipts[0].verdict.applied.to_string();
    assert!(said.starts_with("refused: 404 not_found: "), "{said}");
    assert_eq!(receipts[1].verdict.applied, Applied::Waiting(Wait::Absent(absent)));
    assert_eq!(receipts[1].verdict.applied.to_string(), format!("waiting: {absent} has not arrived"));
}
