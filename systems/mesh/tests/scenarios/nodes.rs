//! MSH-16, MSH-17, MSH-18, MSH-20, MSH-21 and MSH-22: a node's standing. The fold fires every event; who answers for the
//! chain here is a small book of delegations.

use std::cell::RefCell;
use std::rc::Rc;

use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_testkit::{Stage, operator, systems};
use serde_json::json;

/// What the delegation graph says of the one node that these tests are about.
#[derive(Clone, Default)]
pub(super) struct Book {
    valid: bool,
    until: Option<Time>,
    key: &'static str,
    user: bool,
}

type Shared = Rc<RefCell<Book>>;

pub(super) fn dressed(stage: Stage, book: &Shared) -> Stage {
    let book = Rc::clone(book);
    stage.answer("mesh.node", "chain", move |question, _| {
        let did = question.arguments["did"].as_str().expect("a did");
        assert!(did.starts_with("did:key:z6Mk"), "{did}");
        let at: Time = question.arguments["at"].as_str().expect("a time").parse().expect("a time");
        let book = book.borrow();
        let valid = book.valid && book.until.is_none_or(|until| at < until);
        let why = if valid { "" } else { "no chain to the root" };
        json!({ "valid": valid, "key": book.key, "userBearing": book.user, "why": why })
    })
}

pub(super) fn book() -> Shared {
    Rc::new(RefCell::new(Book { valid: true, key: "ed25519:aa", ..Book::default() }))
}

fn stage(book: &Shared) -> Stage {
    dressed(systems::stage("mesh"), book)
}

pub(super) fn fold() -> Actor {
    Actor::new("fold", &["fold"])
}

pub(super) fn seen(stage: &mut Stage) -> RecordId {
    named(stage, "")
}

/// One of several, with this at the end of its name.
pub(super) fn named(stage: &mut Stage, end: &str) -> RecordId {
    let did = format!("did:key:z6Mk{end}");
    stage.create("mesh.node", &fold()).with("did", did).with("publicKey", "ed25519:aa").ok()
}

pub(super) fn active(stage: &mut Stage) -> RecordId {
    let id = seen(stage);
    stage.fire(id, "delegated", &fold()).ok()
}

/// MSH-18, MSH-20, MSH-21, MSH-17: one node's way: seen, active, suspended, renewed, revoked, admitted again.
#[test]
fn suspended_renewed_revoked_and_admitted_again() {
    let book = book();
    let mut stage = stage(&book);
    let id = seen(&mut stage);
    assert_eq!(stage.state(id), "Pending");
    book.borrow_mut().until = Some(stage.now().checked_add("1h".parse().expect("a duration")).expect("a time"));
    stage.fire(id, "delegated", &fold()).ok();
    assert_eq!(stage.state(id), "Active");

    stage.doze("1h");
    stage.fire(id, "lapsed", &fold()).ok();
    assert_eq!(stage.state(id), "Suspended");
    stage.fire(id, "delegated", &fold()).refused(422, "bad_chain");
    stage.fire(id, "lapsed", &fold()).unchanged();

    book.borrow_mut().until = None;
    stage.fire(id, "delegated", &fold()).ok();
    assert_eq!(stage.state(id), "Active");

    book.borrow_mut().valid = false;
    stage.fire(id, "revoked", &fold()).ok();
    assert_eq!(stage.state(id), "Revoked");
    stage.fire(id, "revoked", &fold()).unchanged();
    stage.fire(id, "lapsed", &fold()).wrong_state("Revoked", "lapsed");
    stage.fire(id, "delegated", &fold()).refused(422, "bad_chain");

    book.borrow_mut().valid = true;
    stage.fire(id, "delegated", &fold()).ok();
    assert_eq!(stage.state(id), "Active");
}

/// MSH-16: who is seen for the first time is Pending; there its bootstrap delegation is all that moves it.
#[test]
fn a_node_begins_as_pending() {
    let book = book();
    let mut stage = stage(&book);
    let id = seen(&mut stage);
    for event in ["lapsed", "revoked"] {
        stage.fire(id, event, &fold()).wrong_state("Pending", event);
    }
    stage.create("mesh.node", &fold()).with("did", "did:key:z6Mk").with("publicKey", "x").refused(409, "key_taken");
    stage.create("mesh.node", &fold()).with("did", "did:key:other").bad_input();
    stage.create("mesh.node", &fold()).with("publicKey", "ed25519:bb").bad_input();
    stage.create("mesh.node", &fold()).with_all(json!({ "did": "", "publicKey": "k" })).bad_input();
}

/// MSH-16, MSH-17: nobody but the fold moves a node: no other node, no user, no operator.
#[test]
fn only_the_fold_moves_nodes() {
    let book = book();
    let mut stage = stage(&book);
    let id = active(&mut stage);
    for actor in [super::machine(), super::you(), operator("olga")] {
        for event in ["delegated", "lapsed", "revoked"] {
            stage.fire(id, event, &actor).not_allowed();
        }
        stage.create("mesh.node", &actor).with("did", "d").with("publicKey", "k").not_allowed();
    }
    assert_eq!(stage.state(id), "Active");
}

/// MSH-17: without a verified chain nothing makes a node Active, from whichever state.
#[test]
fn no_chain_no_standing() {
    let book = book();
    for way in [&[][..], &["delegated"], &["delegated", "lapsed"], &["delegated", "revoked"]] {
        book.borrow_mut().valid = true;
        let mut stage = stage(&book);
        let id = seen(&mut stage);
        for event in way {
            stage.fire(id, event, &fold()).ok();
        }
        let before = stage.state(id);
        book.borrow_mut().valid = false;
        stage.fire(id, "delegated", &fold()).refused(422, "bad_chain");
        assert_eq!(stage.state(id), before);
    }
}

/// MSH-17, MSH-18, MSH-21: the key is bound for life. No later delegation brings another, neither a further one nor a renewed
/// one nor one that admits the node again.
#[test]
fn the_key_is_bound_for_life() {
    for way in [&[][..], &["delegated"], &["delegated", "lapsed"], &["delegated", "revoked"]] {
        let book = book();
        let mut stage = stage(&book);
        let id = seen(&mut stage);
        for event in way {
            stage.fire(id, event, &fold()).ok();
        }
        let before = stage.state(id);
        book.borrow_mut().key = "ed25519:bb";
        stage.fire(id, "delegated", &fold()).refused(422, "key_bound_for_life");
        assert_eq!((stage.state(id), stage.field(id, "publicKey")), (before, "ed25519:aa".into()));
        book.borrow_mut().key = "ed25519:aa";
        stage.fire(id, "delegated", &fold()).outcome();
        assert_eq!(stage.state(id), "Active");
    }
}

/// MSH-18: the chain is judged at the operation's own time: the same delegation serves before its end, not from then on.
#[test]
fn a_delegation_is_judged_at_the_operations_time() {
    for (wait, serves) in [("3599s", true), ("1h", false)] {
        let book = book();
        let mut stage = stage(&book);
        let id = active(&mut stage);
        stage.fire(id, "lapsed", &fold()).ok();
        book.borrow_mut().until = Some(stage.now().checked_add("1h".parse().expect("a duration")).expect("a time"));
        stage.doze(wait);
        let attempt = stage.fire(id, "delegated", &fold());
        if serves {
            attempt.ok();
        } else {
            attempt.refused(422, "bad_chain");
        }
    }
}

/// MSH-20: revoked from Active and from Suspended alike.
#[test]
fn revoked_from_active_and_from_suspended() {
    for lapsed in [false, true] {
        let mut stage = stage(&book());
        let id = active(&mut stage);
        if lapsed {
            stage.fire(id, "lapsed", &fold()).ok();
        }
        stage.fire(id, "revoked", &fold()).ok();
        assert_eq!(stage.state(id), "Revoked");
    }
}

/// MSH-22: whether a node bears the user's authority follows the chain, at every delegation anew, and ends with its standing.
#[test]
fn user_bearing_is_reckoned_anew() {
    let book = book();
    let mut stage = stage(&book);
    let id = seen(&mut stage);
    assert_eq!(stage.field(id, "userBearing"), false);
    book.borrow_mut().user = true;
    stage.fire(id, "delegated", &fold()).ok();
    assert_eq!(stage.field(id, "userBearing"), true);
    for event in ["lapsed", "revoked"] {
        stage.fire(id, event, &fold()).ok();
        assert_eq!(stage.field(id, "userBearing"), false, "{event}");
        stage.fire(id, "delegated", &fold()).ok();
        assert_eq!(stage.field(id, "userBearing"), true, "admitted again after {event}");
    }
    // One delegation fewer, and another chain that still holds.
    let since = stage.record(id).entered_at;
    stage.doze("1s");
    book.borrow_mut().user = false;
    stage.fire(id, "delegated", &fold()).ok();
    assert_eq!((stage.state(id), stage.field(id, "userBearing")), ("Active".into(), false.into()));
    assert_eq!(stage.record(id).entered_at, since, "it was Active all the time");
    stage.fire(id, "delegated", &fold()).unchanged();
}

/// MSH-17: a key as long as keys may be is compared whole. Who answers for the chain with a longer one, or with none, has not
/// answered.
#[test]
fn a_long_key_is_a_key() {
    let long = "k".repeat(200);
    for (key, code) in [
        (json!(long), None),
        (json!(format!("{long}k")), Some((503, "bad_answer"))),
        (json!(null), Some((503, "bad_answer"))),
        (json!("k".repeat(199)), Some((422, "key_bound_for_life"))),
    ] {
        let mut stage = systems::stage("mesh").answer(
            "mesh.node",
            "chain",
            move |_, _| json!({ "valid": true, "key": key, "userBearing": false, "why": "" }),
        );
        let id = stage.create("mesh.node", &fold()).with("did", "did:key:z6Mk").with("publicKey", &*long).ok();
        let attempt = stage.fire(id, "delegated", &fold());
        match code {
            None => drop(attempt.changes()),
            Some((status, code)) => drop(attempt.refused(status, code)),
        }
    }
}

/// MSH-17: an answer for the chain that lacks a part, be it only why, is no answer, and moves nobody.
#[test]
fn a_chain_is_answered_whole() {
    for part in ["valid", "key", "userBearing", "why"] {
        let mut answer = json!({ "valid": true, "key": "k", "userBearing": false, "why": "" });
        answer[part] = json!(null);
        let mut stage = systems::stage("mesh").answer("mesh.node", "chain", move |_, _| answer.clone());
        let id = stage.create("mesh.node", &fold()).with("did", "did:key:z6Mk").with("publicKey", "k").ok();
        stage.fire(id, "delegated", &fold()).refused(503, "bad_answer");
        assert_eq!(stage.state(id), "Pending", "{part}");
    }
}
