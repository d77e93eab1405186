//! MSH-16, MSH-17, MSH-18, MSH-20, MSH-21 and MSH-22: states of a node. The fold fires every event; a
//! `DelegationBook` answers the check `chain`.

use std::cell::RefCell;
use std::rc::Rc;

use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, operator, systems};
use serde_json::json;

/// The delegation graph's answer for the tested node.
#[derive(Clone, Default)]
pub(super) struct DelegationBook {
    is_valid: bool,
    valid_until: Option<Time>,
    public_key: &'static str,
    is_user_bearing: bool,
}

type SharedBook = Rc<RefCell<DelegationBook>>;

pub(super) fn with_delegations(stage: Simulator, book: &SharedBook) -> Simulator {
    let book = Rc::clone(book);
    stage.on_check("mesh.node", "chain", move |question, _| {
        let did = question.arguments["did"].as_str().expect("a did");
        assert!(did.starts_with("did:key:z6Mk"), "{did}");
        let asked_at: Time = question.arguments["at"].as_str().expect("a time").parse().expect("a time");
        let book = book.borrow();
        let valid = book.is_valid && book.valid_until.is_none_or(|until| asked_at < until);
        let why = if valid { "" } else { "no chain to the root" };
        json!({ "valid": valid, "key": book.public_key, "userBearing": book.is_user_bearing, "why": why })
    })
}

pub(super) fn new_book() -> SharedBook {
    Rc::new(RefCell::new(DelegationBook { is_valid: true, public_key: "ed25519:aa", ..DelegationBook::default() }))
}

fn simulator_with_book(book: &SharedBook) -> Simulator {
    with_delegations(systems::new_simulator("mesh"), book)
}

pub(super) fn fold_actor() -> Actor {
    Actor::new("fold", &["fold"])
}

pub(super) fn create_seen_node(stage: &mut Simulator) -> RecordId {
    create_named_node(stage, "")
}

/// Creates a node whose DID ends in `suffix`.
pub(super) fn create_named_node(stage: &mut Simulator, suffix: &str) -> RecordId {
    let did = format!("did:key:z6Mk{suffix}");
    stage.create("mesh.node", &fold_actor()).with("did", did).with("publicKey", "ed25519:aa").expect_ok()
}

pub(super) fn create_active_node(stage: &mut Simulator) -> RecordId {
    let id = create_seen_node(stage);
    stage.fire(id, "delegated", &fold_actor()).expect_ok()
}

/// MSH-18, MSH-20, MSH-21, MSH-17: Pending, Active, Suspended, renewed, Revoked, admitted again.
#[test]
fn node_state_follows_its_delegations() {
    let book = new_book();
    let mut stage = simulator_with_book(&book);
    let id = create_seen_node(&mut stage);
    assert_eq!(stage.state(id), "Pending");
    book.borrow_mut().valid_until = Some(stage.now().checked_add("1h".parse().expect("a duration")).expect("a time"));
    stage.fire(id, "delegated", &fold_actor()).expect_ok();
    assert_eq!(stage.state(id), "Active");

    stage.advance_without_engine("1h");
    stage.fire(id, "lapsed", &fold_actor()).expect_ok();
    assert_eq!(stage.state(id), "Suspended");
    stage.fire(id, "delegated", &fold_actor()).expect_refusal(422, "bad_chain");
    stage.fire(id, "lapsed", &fold_actor()).expect_unchanged();

    book.borrow_mut().valid_until = None;
    stage.fire(id, "delegated", &fold_actor()).expect_ok();
    assert_eq!(stage.state(id), "Active");

    book.borrow_mut().is_valid = false;
    stage.fire(id, "revoked", &fold_actor()).expect_ok();
    assert_eq!(stage.state(id), "Revoked");
    stage.fire(id, "revoked", &fold_actor()).expect_unchanged();
    stage.fire(id, "lapsed", &fold_actor()).expect_wrong_state("Revoked", "lapsed");
    stage.fire(id, "delegated", &fold_actor()).expect_refusal(422, "bad_chain");

    book.borrow_mut().is_valid = true;
    stage.fire(id, "delegated", &fold_actor()).expect_ok();
    assert_eq!(stage.state(id), "Active");
}

/// MSH-16
#[test]
fn new_node_is_pending_until_delegated() {
    let book = new_book();
    let mut stage = simulator_with_book(&book);
    let id = create_seen_node(&mut stage);
    for event in ["lapsed", "revoked"] {
        stage.fire(id, event, &fold_actor()).expect_wrong_state("Pending", event);
    }
    stage
        .create("mesh.node", &fold_actor())
        .with("did", "did:key:z6Mk")
        .with("publicKey", "x")
        .expect_refusal(409, "key_taken");
    stage.create("mesh.node", &fold_actor()).with("did", "did:key:other").expect_bad_input();
    stage.create("mesh.node", &fold_actor()).with("publicKey", "ed25519:bb").expect_bad_input();
    stage.create("mesh.node", &fold_actor()).with_all(json!({ "did": "", "publicKey": "k" })).expect_bad_input();
}

/// MSH-16, MSH-17
#[test]
fn node_events_require_fold_role() {
    let book = new_book();
    let mut stage = simulator_with_book(&book);
    let id = create_active_node(&mut stage);
    for actor in [super::machine_actor(), super::user_actor(), operator("olga")] {
        for event in ["delegated", "lapsed", "revoked"] {
            stage.fire(id, event, &actor).expect_not_allowed();
        }
        stage.create("mesh.node", &actor).with("did", "d").with("publicKey", "k").expect_not_allowed();
    }
    assert_eq!(stage.state(id), "Active");
}

/// MSH-17: from every state.
#[test]
fn delegation_without_valid_chain_is_refused() {
    let book = new_book();
    for events in [&[][..], &["delegated"], &["delegated", "lapsed"], &["delegated", "revoked"]] {
        book.borrow_mut().is_valid = true;
        let mut stage = simulator_with_book(&book);
        let id = create_seen_node(&mut stage);
        for event in events {
            stage.fire(id, event, &fold_actor()).expect_ok();
        }
        let before = stage.state(id);
        book.borrow_mut().is_valid = false;
        stage.fire(id, "delegated", &fold_actor()).expect_refusal(422, "bad_chain");
        assert_eq!(stage.state(id), before);
    }
}

/// MSH-17, MSH-18, MSH-21: in a further delegation, a renewal and a readmission.
#[test]
fn delegation_with_other_public_key_is_refused() {
    for events in [&[][..], &["delegated"], &["delegated", "lapsed"], &["delegated", "revoked"]] {
        let book = new_book();
        let mut stage = simulator_with_book(&book);
        let id = create_seen_node(&mut stage);
        for event in events {
            stage.fire(id, event, &fold_actor()).expect_ok();
        }
        let before = stage.state(id);
        book.borrow_mut().public_key = "ed25519:bb";
        stage.fire(id, "delegated", &fold_actor()).expect_refusal(422, "key_bound_for_life");
        assert_eq!((stage.state(id), stage.field(id, "publicKey")), (before, "ed25519:aa".into()));
        book.borrow_mut().public_key = "ed25519:aa";
        stage.fire(id, "delegated", &fold_actor()).run();
        assert_eq!(stage.state(id), "Active");
    }
}

/// MSH-18: the delegation is valid before its end, not from then on.
#[test]
fn delegation_is_judged_at_operation_time() {
    for (wait, is_valid) in [("3599s", true), ("1h", false)] {
        let book = new_book();
        let mut stage = simulator_with_book(&book);
        let id = create_active_node(&mut stage);
        stage.fire(id, "lapsed", &fold_actor()).expect_ok();
        book.borrow_mut().valid_until =
            Some(stage.now().checked_add("1h".parse().expect("a duration")).expect("a time"));
        stage.advance_without_engine(wait);
        let attempt = stage.fire(id, "delegated", &fold_actor());
        if is_valid {
            attempt.expect_ok();
        } else {
            attempt.expect_refusal(422, "bad_chain");
        }
    }
}

/// MSH-20
#[test]
fn active_and_suspended_nodes_can_be_revoked() {
    for is_lapsed in [false, true] {
        let mut stage = simulator_with_book(&new_book());
        let id = create_active_node(&mut stage);
        if is_lapsed {
            stage.fire(id, "lapsed", &fold_actor()).expect_ok();
        }
        stage.fire(id, "revoked", &fold_actor()).expect_ok();
        assert_eq!(stage.state(id), "Revoked");
    }
}

/// MSH-22: it ends with the Active state.
#[test]
fn user_bearing_follows_each_delegation() {
    let book = new_book();
    let mut stage = simulator_with_book(&book);
    let id = create_seen_node(&mut stage);
    assert_eq!(stage.field(id, "userBearing"), false);
    book.borrow_mut().is_user_bearing = true;
    stage.fire(id, "delegated", &fold_actor()).expect_ok();
    assert_eq!(stage.field(id, "userBearing"), true);
    for event in ["lapsed", "revoked"] {
        stage.fire(id, event, &fold_actor()).expect_ok();
        assert_eq!(stage.field(id, "userBearing"), false, "{event}");
        stage.fire(id, "delegated", &fold_actor()).expect_ok();
        assert_eq!(stage.field(id, "userBearing"), true, "readmitted after {event}");
    }
    // One delegation is gone, but another chain is still valid.
    let since = stage.record(id).entered_at;
    stage.advance_without_engine("1s");
    book.borrow_mut().is_user_bearing = false;
    stage.fire(id, "delegated", &fold_actor()).expect_ok();
    assert_eq!((stage.state(id), stage.field(id, "userBearing")), ("Active".into(), false.into()));
    assert_eq!(stage.record(id).entered_at, since, "it stayed Active");
    stage.fire(id, "delegated", &fold_actor()).expect_unchanged();
}

/// MSH-17: a key of maximum length is compared in full; a longer or missing one is an invalid answer.
#[test]
fn public_key_length_in_chain_answer_is_bounded() {
    let long = "k".repeat(200);
    for (key, code) in [
        (json!(long), None),
        (json!(format!("{long}k")), Some((503, "invalid_check_answer"))),
        (json!(null), Some((503, "invalid_check_answer"))),
        (json!("k".repeat(199)), Some((422, "key_bound_for_life"))),
    ] {
        let mut stage = systems::new_simulator("mesh").on_check(
            "mesh.node",
            "chain",
            move |_, _| json!({ "valid": true, "key": key, "userBearing": false, "why": "" }),
        );
        let id =
            stage.create("mesh.node", &fold_actor()).with("did", "did:key:z6Mk").with("publicKey", &*long).expect_ok();
        let attempt = stage.fire(id, "delegated", &fold_actor());
        match code {
            None => drop(attempt.expect_changes()),
            Some((status, code)) => drop(attempt.expect_refusal(status, code)),
        }
    }
}

/// MSH-17
#[test]
fn incomplete_chain_answer_changes_nothing() {
    for field in ["valid", "key", "userBearing", "why"] {
        let mut answer = json!({ "valid": true, "key": "k", "userBearing": false, "why": "" });
        answer[field] = json!(null);
        let mut stage = systems::new_simulator("mesh").on_check("mesh.node", "chain", move |_, _| answer.clone());
        let id =
            stage.create("mesh.node", &fold_actor()).with("did", "did:key:z6Mk").with("publicKey", "k").expect_ok();
        stage.fire(id, "delegated", &fold_actor()).expect_refusal(503, "invalid_check_answer");
        assert_eq!(stage.state(id), "Pending", "{field}");
    }
}
