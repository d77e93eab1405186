//! Nodes whose authority comes and goes.

use onceward_core::fold::{Admission, Applied, LogOperation, Reason};
use onceward_testkit::fold::{at, node};
use serde_json::json;

use crate::log::{Log, graph, machine, registrar, revoked, suspended, user};

fn scheduled() -> LogOperation {
    node("server", at(0)).creates("mesh.job", "job", json!({ "kind": "index" }))
}

fn claim(who: &str, second: i64) -> LogOperation {
    node(who, at(second)).fires("job", "claim_work", json!({ "lease": "60s" }))
}

/// MSH-19: what a suspended node says stays on the log and does nothing; once renewed it counts from its own time on.
#[test]
fn a_suspended_nodes_word_is_held_until_it_is_renewed() {
    let (scheduled, phone, laptop) = (scheduled(), claim("phone", 10), claim("laptop", 20));
    let mut log = Log::of(&[(&scheduled, machine()), (&phone, suspended()), (&laptop, machine())]);
    assert_eq!(log.applied(&phone), Applied::Held { why: "its delegation ended at noon".into() });
    assert_eq!(log.fold.verdict(phone.id).map(|verdict| verdict.admitted), Some(Admission::Admitted));
    assert_eq!(log.field("job", "claimer"), json!("laptop"));
    log.rejudges(&[(&phone, machine())]);
    assert_eq!(log.field("job", "claimer"), json!("phone"), "at its own place, before the laptop's");
    assert_eq!(log.refused(&laptop), "already_claimed");
}

/// MSH-20 MSH-21: a node is revoked: what it did is undone, and what others built on that is judged again; what another
/// chain covers stays. Re-admitted by a new chain, all of it counts again.
#[test]
fn a_revoked_nodes_deeds_are_undone_and_come_back() {
    let (scheduled, phone) = (scheduled(), claim("phone", 10));
    let complete = node("phone", at(15)).after(&[&phone]).fires("job", "complete_job", json!({ "output": "index" }));
    let evidence = node("phone", at(5)).creates("mesh.evidence", "photo", json!({ "digest": "d" }));
    let laptop = claim("laptop", 20);
    let mut log = Log::of(&[
        (&scheduled, machine()),
        (&phone, machine()),
        (&complete, machine()),
        (&evidence, machine()),
        (&laptop, machine()),
    ]);
    assert_eq!(log.state("job"), "Completed");
    let before = log.record("job").version;

    // The evidence was written under another delegation, which still stands.
    log.rejudges(&[(&phone, revoked()), (&complete, revoked()), (&evidence, machine())]);
    assert_eq!(log.field("job", "claimer"), json!("laptop"), "the job was free all the time");
    assert_eq!(log.applied(&phone), Applied::Refused(Reason::NoAuthority { why: "its parent was revoked".into() }));
    assert!(matches!(log.applied(&complete), Applied::Waiting(_)));
    assert_eq!(log.state("photo"), "Live");
    assert_eq!(log.fold.len(), 5, "all of it stays on the log");

    log.rejudges(&[(&phone, machine()), (&complete, machine())]);
    assert_eq!(log.state("job"), "Completed");
    assert_eq!(log.record("job").version, before);
    assert_eq!(log.refused(&laptop), "wrong_state");
}

/// MSH-27: the rights that count are those of the operation's own time: the same node, before and after it lost one.
#[test]
fn rights_are_those_of_the_operations_time() {
    let scheduled = scheduled();
    let (phone, renew) = (claim("phone", 10), claim("phone", 20));
    let reader = onceward_testkit::fold::with(&["Job.Read"]);
    let log = Log::of(&[(&scheduled, machine()), (&renew, reader), (&phone, machine())]);
    assert_eq!(log.applied(&phone), Applied::Changed);
    assert_eq!(log.refused(&renew), "not_allowed");
    assert_eq!(log.field("job", "deadline"), json!(at(70).wall.to_string()), "not renewed");
}

/// MSH-20 MSH-18: what the delegation graph said of a node is asked again when the graph changes, and never taken from
/// an old answer.
#[test]
fn the_graph_is_asked_again() {
    let seen = node("root", at(0)).creates("mesh.node", "phone", json!({ "did": "did:phone", "publicKey": "k1" }));
    let delegated = node("root", at(1)).fires("phone", "delegated", json!({}));
    let lapsed = node("root", at(5)).fires("phone", "lapsed", json!({}));
    let mut log = Log::new();
    log.hears_asking(&[(&lapsed, registrar()), (&delegated, registrar()), (&seen, registrar())], &graph(true, "k1"));
    assert_eq!(log.state("phone"), "Suspended");
    // Nothing is said of any operation; the graph alone is another.
    log.fold.rejudge(&graph(false, "k1"), []).expect("nothing unknown in nothing");
    assert_eq!(log.state("phone"), "Pending");
    assert_eq!(log.refused(&delegated), "bad_chain");
    assert_eq!(log.refused(&lapsed), "wrong_state");
    log.fold.rejudge(&graph(true, "k2"), []).expect("nothing unknown in nothing");
    assert_eq!(log.refused(&delegated), "key_bound_for_life");
    log.fold.rejudge(&(), []).expect("nothing unknown in nothing");
    assert!(matches!(log.applied(&delegated), Applied::Waiting(_)), "nobody can tell");
    log.fold.rejudge(&graph(true, "k1"), []).expect("nothing unknown in nothing");
    assert_eq!(log.state("phone"), "Suspended");
}

/// MSH-18 MSH-19 MSH-20 MSH-21: a node's record and the standing of what it said change together, as whoever reads the delegation
/// graph tells both: Suspended and held, renewed and counted, Revoked and undone.
#[test]
fn a_node_and_its_deeds_change_together() {
    let chain = graph(true, "k1");
    let seen = node("root", at(0)).creates("mesh.node", "phone", json!({ "did": "did:phone", "publicKey": "k1" }));
    let tells = |second, event: &str| node("root", at(second)).fires("phone", event, json!({}));
    let (delegated, lapsed, renewed, withdrawn) =
        (tells(1, "delegated"), tells(5, "lapsed"), tells(30, "delegated"), tells(40, "revoked"));
    let (scheduled, phone, laptop) = (scheduled(), claim("phone", 10), claim("laptop", 20));
    let mut log = Log::new();
    let told = [(&seen, registrar()), (&delegated, registrar()), (&scheduled, machine()), (&laptop, machine())];
    log.hears_asking(&told, &chain);
    assert_eq!((log.state("phone"), log.field("job", "claimer")), ("Active".into(), json!("laptop")));
    log.hears_asking(&[(&lapsed, registrar()), (&phone, suspended())], &chain);
    assert_eq!((log.state("phone"), log.field("job", "claimer")), ("Suspended".into(), json!("laptop")));
    assert!(matches!(log.applied(&phone), Applied::Held { .. }));
    log.hears_asking(&[(&renewed, registrar())], &chain);
    log.fold.rejudge(&chain, [(phone.id, machine())]).expect("it is known");
    assert_eq!((log.state("phone"), log.field("job", "claimer")), ("Active".into(), json!("phone")));
    log.hears_asking(&[(&withdrawn, registrar())], &chain);
    log.fold.rejudge(&chain, [(phone.id, revoked())]).expect("it is known");
    assert_eq!((log.state("phone"), log.field("job", "claimer")), ("Revoked".into(), json!("laptop")));
    assert_eq!(log.fold.len(), 8, "all of it stays on the log");
}

/// MSH-22: the verdict says whether an author speaks for the user, and may say otherwise later.
#[test]
fn a_node_that_no_longer_speaks_for_the_user() {
    let photo = node("server", at(0)).creates("mesh.evidence", "photo", json!({ "digest": "d" }));
    let support = [onceward_testkit::fold::id_of("photo").to_string()];
    let fields = json!({ "subject": "a", "predicate": "b", "object": "c", "confidence": 0.9, "support": support });
    let belief = node("server", at(1)).creates("mesh.claim", "belief", fields);
    let confirm = node("phone", at(2)).fires("belief", "confirm", json!({}));
    let mut log = Log::of(&[(&photo, machine()), (&belief, machine()), (&confirm, user())]);
    assert_eq!(log.state("belief"), "Fact");
    log.rejudges(&[(&confirm, machine())]);
    assert_eq!(log.state("belief"), "Claim");
    assert_eq!(log.refused(&confirm), "not_allowed");
}
