//! Beliefs, and evidence that is withdrawn while nobody listens.

use onceward_core::fold::{Applied, LogOperation, Reason};
use onceward_testkit::fold::{at, id_of, node};
use serde_json::json;

use crate::log::{Log, machine, orders, user};

fn evidence() -> LogOperation {
    node("server", at(0)).creates("mesh.evidence", "photo", json!({ "digest": "d1" }))
}

fn belief(name: &str, second: i64, support: &str) -> LogOperation {
    let fields = json!({
        "subject": "ann", "predicate": "lives in", "object": name, "confidence": 0.9,
        "support": [id_of(support).to_string()],
    });
    node("server", at(second)).creates("mesh.claim", name, fields)
}

/// MSH-24, MSH-8: a claim is rejected, and the news that its evidence had been withdrawn before comes late. In every order
/// it comes to the same: what rested on it is stale, and the user's word stands.
#[test]
fn a_late_tombstone_under_a_rejected_claim() {
    let (photo, first, second) = (evidence(), belief("Rome", 1, "photo"), belief("Italy", 2, "Rome"));
    let tombstone = node("phone", at(5)).fires("photo", "tombstone", json!({}));
    let reject = node("laptop", at(9)).fires("Rome", "reject", json!({}));
    let confirm = node("laptop", at(3)).fires("Italy", "confirm", json!({}));
    let mut ends = Vec::new();
    for order in orders(&[(&tombstone, machine()), (&reject, user()), (&confirm, user()), (&second, machine())]) {
        let mut log = Log::of(&[(&photo, machine()), (&first, machine())]);
        log.hears(&order);
        assert_eq!(log.state("photo"), "Tombstoned");
        assert_eq!(log.state("Rome"), "Rejected");
        assert_eq!(log.state("Italy"), "Stale", "the machine's cascade stopped at the Fact, the user's did not");
        ends.push((log.record("Rome").version, log.record("Italy").version, log.record("photo").version));
    }
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
}

/// MSH-24: a claim made after its evidence was withdrawn was never made, once that is known.
#[test]
fn a_claim_on_what_was_gone_already_is_taken_back() {
    let (photo, rome) = (evidence(), belief("Rome", 6, "photo"));
    let confirm = node("laptop", at(9)).after(&[&rome]).fires("Rome", "confirm", json!({}));
    let mut log = Log::of(&[(&photo, machine()), (&rome, machine()), (&confirm, user())]);
    assert_eq!(log.state("Rome"), "Fact");
    let tombstone = node("phone", at(5)).fires("photo", "tombstone", json!({}));
    log.hears(&[(&tombstone, machine())]);
    assert_eq!(log.refused(&rome), "dead_support");
    assert!(log.fold.world().record(id_of("Rome")).is_none());
    assert!(matches!(log.applied(&confirm), Applied::Waiting(_)), "it builds on what is not applied");
}

/// MSH-14 is about claims on work: two devices of the user that confirm, or reject, at the same moment are both heard.
#[test]
fn a_user_with_two_devices_is_heard_twice() {
    let (photo, rome) = (evidence(), belief("Rome", 1, "photo"));
    for (event, end) in [("confirm", "Fact"), ("reject", "Rejected")] {
        let both = ["laptop", "phone"].map(|device| node(device, at(5)).fires("Rome", event, json!({})));
        let mut log = Log::of(&[(&photo, machine()), (&rome, machine())]);
        log.hears(&[(&both[0], user()), (&both[1], user())]);
        assert_eq!(log.state("Rome"), end);
        assert!(both.iter().all(|operation| log.applied(operation).is_applied()));
    }
}

/// MSH-10, MSH-11, MSH-24: a machine replaces a claim, and the user confirms or rejects it: at the same moment under either
/// one's name, a second before and a second after, heard in either order. The user's word is what stands.
#[test]
fn the_user_beats_a_machines_replacement_whatever_the_clock_or_the_name() {
    let (photo, rome, oslo) = (evidence(), belief("Rome", 1, "photo"), belief("Oslo", 2, "photo"));
    let replacement = json!({ "replacement": id_of("Oslo").to_string() });
    for (event, end) in [("confirm", "Fact"), ("reject", "Rejected")] {
        for (device, server) in [("adam", "zoe"), ("zoe", "adam")] {
            for second in [4, 5, 6] {
                let said = node(device, at(second)).fires("Rome", event, json!({}));
                let replaced = node(server, at(5)).fires("Rome", "supersede", replacement.clone());
                for order in orders(&[(&said, user()), (&replaced, machine())]) {
                    let mut log = Log::of(&[(&photo, machine()), (&rome, machine()), (&oslo, machine())]);
                    log.hears(&order);
                    assert_eq!(log.state("Rome"), end, "{device} at {second} against {server} at 5");
                    assert!(log.record("Rome").field("replacedBy").is_none_or(|by| by.to_json().is_null()));
                    assert!(log.applied(&said).is_applied());
                }
            }
        }
    }
}

/// MSH-10, MSH-24: a machine calls a Hint a Claim, and so does the user, in whichever order and under whichever name: it is
/// the user's word, and a machine's dispute is refused.
#[test]
fn the_user_who_says_the_same_is_not_lost() {
    let photo = evidence();
    let support = [id_of("photo").to_string()];
    let fields = json!({
        "subject": "ann", "predicate": "lives in", "object": "Bern", "confidence": 0.2, "support": support,
    });
    let hint = node("server", at(1)).creates("mesh.claim", "Bern", fields);
    let rome = belief("Rome", 2, "photo");
    let firm = node("server", at(3)).fires("Bern", "update_confidence", json!({ "confidence": 0.9 }));
    let contrary = json!({ "status": "Disputed", "conflict": id_of("Rome").to_string() });
    let dispute = node("server", at(9)).fires("Bern", "update_status", contrary);
    for (device, other) in [("adam", "zoe"), ("zoe", "adam")] {
        for second in [4, 5, 6] {
            let said = node(device, at(second)).fires("Bern", "update_status", json!({ "status": "Claim" }));
            let repeated = node(other, at(5)).fires("Bern", "update_status", json!({ "status": "Claim" }));
            let mut log = Log::of(&[(&photo, machine()), (&hint, machine()), (&rome, machine()), (&firm, machine())]);
            log.hears(&[(&said, user()), (&repeated, machine()), (&dispute, machine())]);
            assert_eq!(log.state("Bern"), "Claim");
            assert_eq!(log.field("Bern", "byUser"), json!(true));
            assert_eq!(log.refused(&dispute), "users_word");
        }
    }
}

/// MSH-10, MSH-24: a machine disputes a Claim and the user calls it one: at the same moment under either one's name, a second
/// before and a second after, heard in either order. It is a Claim by the user's word, and the next dispute is refused too.
#[test]
fn the_user_beats_a_machines_dispute_whatever_the_clock_or_the_name() {
    let (photo, bern, rome) = (evidence(), belief("Bern", 1, "photo"), belief("Rome", 2, "photo"));
    let contrary = json!({ "status": "Disputed", "conflict": id_of("Rome").to_string() });
    for (device, server) in [("adam", "zoe"), ("zoe", "adam")] {
        for second in [4, 5, 6] {
            let said = node(device, at(second)).fires("Bern", "update_status", json!({ "status": "Claim" }));
            let dispute = node(server, at(5)).fires("Bern", "update_status", contrary.clone());
            let again = node(server, at(9)).fires("Bern", "update_status", contrary.clone());
            for order in orders(&[(&said, user()), (&dispute, machine()), (&again, machine())]) {
                let mut log = Log::of(&[(&photo, machine()), (&bern, machine()), (&rome, machine())]);
                log.hears(&order);
                assert_eq!(log.state("Bern"), "Claim", "{device} at {second} against {server} at 5");
                assert_eq!(log.field("Bern", "byUser"), json!(true));
                assert_eq!(log.applied(&said), Applied::Changed);
                assert_eq!(log.refused(&again), "users_word");
            }
        }
    }
}

/// MSH-25: a node that signs two things with one clock is believed in neither, and what rested on them goes too.
#[test]
fn a_node_that_says_two_things_at_once_is_believed_in_neither() {
    let (photo, rome) = (evidence(), belief("Rome", 4, "photo"));
    let other = node("server", at(0)).creates("mesh.evidence", "letter", json!({ "digest": "d2" }));
    let mut log = Log::of(&[(&photo, machine()), (&rome, machine())]);
    assert_eq!(log.state("Rome"), "Claim");
    log.hears(&[(&other, machine())]);
    for lie in [&photo, &other] {
        assert_eq!(log.applied(lie), Applied::Refused(Reason::ClockReused));
    }
    assert!(log.fold.world().records.is_empty(), "nothing is left of it");
    assert_eq!(log.refused(&rome), "bad_input");
}
