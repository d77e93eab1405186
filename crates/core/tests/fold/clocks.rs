//! Clocks that lie, clocks that meet, and what builds on what.

use onceward_core::decide::Question;
use onceward_core::fold::{Applied, Bounds, Fold, LogOperation, Moment, OperationId, Reason, Standing, Wait};
use onceward_core::time::{Duration, Time};
use onceward_testkit::fold::{at, id_of, node, with};
use serde_json::json;

use crate::lifecycles::small;

fn may() -> Standing {
    with(&["Thing.Write"])
}

fn created() -> LogOperation {
    node("ann", at(0)).creates("small.thing", "thing", json!({}))
}

/// A fold of these, brought one by one in this order.
fn fold_of(operations: &[&LogOperation]) -> Fold {
    let mut fold = Fold::new(small(), Bounds::default()).expect("can be folded");
    for operation in operations {
        fold.insert(&(), [((*operation).clone(), may())]).expect("room");
    }
    fold
}

fn applied(fold: &Fold, operation: &LogOperation) -> Applied {
    fold.verdict(operation.id).expect("it is on the log").applied
}

fn count(fold: &Fold) -> i64 {
    match fold.world().record(id_of("thing")).and_then(|record| record.field("n").cloned()) {
        Some(onceward_core::value::Value::Int(n)) => n,
        other => panic!("no count: {other:?}"),
    }
}

/// Every order of a few things.
fn orders<'a>(items: &[&'a LogOperation]) -> Vec<Vec<&'a LogOperation>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for at in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(at);
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.insert(0, first);
            order
        }));
    }
    all
}

/// MSH-25: two operations of one author with one clock are both refused, and so is a third, whichever came first.
#[test]
fn a_clock_used_twice_counts_for_nothing() {
    let created = created();
    let one = node("bob", at(5)).fires("thing", "count", json!({}));
    let two = node("bob", at(5)).fires("thing", "see", json!({}));
    let three = node("bob", at(5)).fires("thing", "claim", json!({}));
    let honest = node("cyd", at(5)).fires("thing", "count", json!({}));
    for order in orders(&[&created, &one, &two, &three, &honest]) {
        let fold = fold_of(&order);
        for lie in [&one, &two, &three] {
            assert_eq!(applied(&fold, lie), Applied::Refused(Reason::ClockReused));
        }
        assert_eq!(applied(&fold, &honest), Applied::Changed, "another node's clock may say the same");
        assert_eq!(count(&fold), 1);
    }
    // One alone was fine until the other came; the same one again is no other.
    let mut fold = fold_of(&[&created, &one, &one]);
    assert_eq!(applied(&fold, &one), Applied::Changed);
    fold.insert(&(), [(two, may())]).expect("room");
    assert_eq!(count(&fold), 0, "taken back");
}

/// MSH-25: an author's clock that goes back shows only where the author says what came first.
#[test]
fn a_clock_that_goes_back_is_refused_where_it_shows() {
    let created = created();
    let first = node("bob", at(9)).after(&[&created]).fires("thing", "count", json!({}));
    let back = node("bob", at(4)).after(&[&first]).fires("thing", "count", json!({}));
    for order in orders(&[&created, &first, &back]) {
        let fold = fold_of(&order);
        assert_eq!(applied(&fold, &first), Applied::Changed);
        assert_eq!(applied(&fold, &back), Applied::Refused(Reason::NotAfter(first.id)));
        assert_eq!(count(&fold), 1);
    }
}

/// MSH-25: receiving merges the clock: the next operation comes after all that was seen, whatever the wall clock says.
#[test]
fn the_next_clock_is_after_all_that_was_seen() {
    let created = created();
    let ahead = node("bob", at(100)).fires("thing", "count", json!({}));
    let fold = fold_of(&[&created, &ahead]);
    let slow = fold.next_moment(at(3).wall).expect("there is time");
    assert_eq!(slow, Moment { wall: at(100).wall, logical: 1 });
    assert_eq!(fold.next_moment(at(101).wall), Some(at(101)));
    let full = Moment { wall: at(100).wall, logical: u32::MAX };
    let tick = at(100).wall.checked_add(Duration::from_micros(1)).expect("a time");
    assert_eq!(full.next(at(3).wall), Some(Moment { wall: tick, logical: 0 }));
    assert_eq!(Moment { wall: Time::MAX, logical: u32::MAX }.next(Time::MAX), None);
    let next = node("cyd", slow).after(&[&ahead]).fires("thing", "count", json!({}));
    let fold = fold_of(&[&next, &ahead, &created]);
    assert_eq!(applied(&fold, &next), Applied::Changed);
}

/// MSH-15: an operation waits for what it builds on, in whatever order they come, and is then applied at its own place.
#[test]
fn what_builds_on_others_waits_for_them() {
    let created = created();
    let claim = node("bob", at(2)).after(&[&created]).fires("thing", "claim", json!({}));
    let release = node("bob", at(4)).after(&[&claim]).fires("thing", "release", json!({}));
    let later = node("cyd", at(6)).fires("thing", "claim", json!({}));
    let mut fold = fold_of(&[&later, &release, &created]);
    assert_eq!(applied(&fold, &release), Applied::Waiting(Wait::Absent(claim.id)));
    assert_eq!(applied(&fold, &later), Applied::Changed);
    fold.insert(&(), [(claim.clone(), may())]).expect("room");
    for operation in [&claim, &release, &later] {
        assert_eq!(applied(&fold, operation), Applied::Changed, "bob's claim and release came before cyd's");
    }
    // Here, and not applied: it waits too.
    let revoked = Standing::Withdrawn { why: "revoked".into() };
    fold.rejudge(&(), [(claim.id, revoked)]).expect("known");
    assert_eq!(applied(&fold, &release), Applied::Waiting(Wait::Unapplied(claim.id)));
    assert_eq!(applied(&fold, &later), Applied::Changed);
}

/// MSH-15: operations that build on one another in a circle are all refused, and so is what builds on them.
#[test]
fn circles_are_refused_whole() {
    let id = |byte| OperationId([byte; 32]);
    let in_circle = |own: u8, second: i64, other: u8| {
        let said = node("bob", at(second)).after_id(id(other)).fires("thing", "count", json!({}));
        LogOperation { id: id(own), ..said }
    };
    let created = created();
    let (one, two, three) = (in_circle(1, 1, 2), in_circle(2, 2, 3), in_circle(3, 3, 1));
    let outside = node("cyd", at(7)).after_id(id(3)).fires("thing", "count", json!({}));
    for order in orders(&[&created, &one, &two, &three, &outside]) {
        let fold = fold_of(&order);
        assert_eq!(applied(&fold, &one), Applied::Refused(Reason::NotAfter(id(2))));
        assert_eq!(applied(&fold, &two), Applied::Refused(Reason::NotAfter(id(3))));
        assert_eq!(applied(&fold, &three), Applied::Refused(Reason::Hopeless(id(1))));
        assert_eq!(applied(&fold, &outside), Applied::Refused(Reason::Hopeless(id(3))));
        assert_eq!(count(&fold), 0);
    }
}

/// MSH-14: claims of one moment are all refused, a later one gets the thing; and nothing else that nodes do at one moment
/// is harmed.
#[test]
fn a_race_is_not_won_by_a_name() {
    let created = created();
    let claims: Vec<_> = ["ann", "bob", "cyd"].map(|name| node(name, at(5)).fires("thing", "claim", json!({}))).into();
    let later = node("dot", at(6)).fires("thing", "claim", json!({}));
    for order in orders(&[&created, &claims[0], &claims[1], &claims[2], &later]) {
        let fold = fold_of(&order);
        for claim in &claims {
            assert!(matches!(applied(&fold, claim), Applied::Refused(Reason::Tie { .. })));
        }
        assert_eq!(applied(&fold, &later), Applied::Changed);
    }
    // The tie dissolves when only one of them had the right to claim.
    let mut fold = fold_of(&[&created, &claims[0], &claims[1]]);
    fold.rejudge(&(), [(claims[0].id, Standing::Withdrawn { why: "revoked".into() })]).expect("known");
    assert_eq!(applied(&fold, &claims[1]), Applied::Changed);
    // Everyone may count, be seen, and have it held, all at once.
    for event in ["count", "see", "hold"] {
        let together: Vec<_> = ["ann", "bob"].map(|name| node(name, at(5)).fires("thing", event, json!({}))).into();
        let fold = fold_of(&[&created, &together[0], &together[1]]);
        for operation in &together {
            assert!(applied(&fold, operation).is_applied(), "{event}");
        }
    }
    // Whoever holds it and says so again has no rival.
    let first = node("ann", at(3)).fires("thing", "claim", json!({}));
    let fold = fold_of(&[&created, &first, &claims[1], &claims[2]]);
    assert_eq!(applied(&fold, &first), Applied::Changed);
    assert!(matches!(applied(&fold, &claims[1]), Applied::Refused(Reason::Decided(_))));
}

/// MSH-14 MSH-20: what the outside said while rivals were weighed is asked again too: other answers tie them, or untie them.
#[test]
fn a_tie_hangs_on_what_the_outside_says_now() {
    let created = created();
    let [ann, bob] = ["ann", "bob"].map(|name| node(name, at(5)).fires("thing", "ask", json!({})));
    let fit = |unfit: &'static [&'static str]| {
        move |operation: &LogOperation, _: &Question| {
            json!({ "ok": !unfit.contains(&&*operation.author) }).as_object().cloned()
        }
    };
    let mut fold = Fold::new(small(), Bounds::default()).expect("can be folded");
    let all = [&bob, &created, &ann].map(|operation| (operation.clone(), may()));
    fold.insert(&fit(&["bob"]), all).expect("room");
    assert_eq!(applied(&fold, &ann), Applied::Changed);
    fold.rejudge(&fit(&[]), []).expect("nothing unknown in nothing");
    assert_eq!(applied(&fold, &ann), Applied::Refused(Reason::Tie { with: bob.id }));
    fold.rejudge(&fit(&["ann"]), []).expect("nothing unknown in nothing");
    assert_eq!(applied(&fold, &bob), Applied::Changed);
}

/// MSH-23: a version tells how many operations of the set have changed the record; it may go down when one is withdrawn.
#[test]
fn a_version_hangs_on_the_set() {
    let created = created();
    let counts: Vec<_> = (1..4).map(|second| node("bob", at(second)).fires("thing", "count", json!({}))).collect();
    let version = |fold: &Fold| fold.world().record(id_of("thing")).map(|record| record.version);
    let mut fold = fold_of(&[&counts[2], &created, &counts[0], &counts[1]]);
    assert_eq!(version(&fold), Some(4));
    fold.rejudge(&(), [(counts[1].id, Standing::Suspended { why: "ran out".into() })]).expect("known");
    assert_eq!(version(&fold), Some(3));
    fold.rejudge(&(), [(created.id, Standing::Withdrawn { why: "revoked".into() })]).expect("known");
    assert_eq!(version(&fold), None, "it was never made");
}
