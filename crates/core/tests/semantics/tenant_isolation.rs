//! Tests that callers learn nothing about records that they may not read.

use onceward_core::decide::{Call, NoOpReason};
use onceward_core::record::Actor;
use onceward_testkit::{operator, user};

use crate::new_simulator;

/// The spawn uses the holder of a key with `clash = "return"`, but shows the caller nothing of it.
#[test]
fn spawn_reuses_existing_record_of_other_owner() {
    let mut simulator = new_simulator(&[
        r#"
language = 1
lifecycle = "mail.address"
about = "one for each name"
[states]
known = { about = "known", rest = true }
[fields]
name = { type = "string" }
[unique]
name = { on = ["name"], clash = "return" }
[[on.create]]
go = "-> known"
take = ["name"]
"#,
        r#"
language = 1
lifecycle = "mail.letter"
about = "a letter"
[states]
sent = { about = "sent", rest = true }
[fields]
to = { type = "string" }
[[on.create]]
go = "-> sent"
take = ["to"]
spawn = [{ lifecycle = "mail.address", fields = { name = "record.to" } }]
"#,
    ]);
    simulator.create("mail.letter", &user("ann")).with("to", "zoe").expect_ok();
    simulator.create("mail.letter", &user("bob")).with("to", "zoe").expect_ok();
    assert_eq!(simulator.records_of("mail.address").len(), 1);
    // A creation by the caller still reveals nothing.
    simulator.create("mail.address", &user("bob")).with("name", "zoe").expect_refusal(409, "key_taken");
}

/// Applies if the lifecycle grants read access to others but not to the owner.
#[test]
fn owner_without_read_access_gets_key_taken() {
    let mut simulator = new_simulator(&[r#"
language = 1
lifecycle = "court.plea"
about = "filed by its owner, and read by judges only"
[states]
filed = { about = "filed", rest = true }
[fields]
name = { type = "string" }
[unique]
name = { on = ["name"], clash = "return" }
[who]
judge = "'judge' in actor.roles"
[access]
read = ["judge"]
[[on.create]]
go = "-> filed"
take = ["name"]
"#]);
    let first = simulator.create("court.plea", &user("ann")).with("name", "one").expect_ok();
    simulator.create("court.plea", &user("ann")).with("name", "one").expect_refusal(409, "key_taken");
    let judge = Actor::new("zoe", &["producer", "judge"]);
    let shown =
        simulator.create("court.plea", &judge).with("name", "one").run().expect_no_op(NoOpReason::ExistingRecord);
    assert_eq!(shown, first, "a caller that may read the record gets it in the refusal");
}

pub(crate) const GUARDED_LIFECYCLE: &str = r#"
language = 1
lifecycle = "club.door"
about = "its readers are found through a ref that may be null"
[states]
open = { about = "open", ready = true }
busy = { about = "busy" }
shut = { about = "shut", final = true }
[fields]
host = { type = "ref", to = "club.door", optional = true }
[work]
lease = "10s"
[who]
host = "actor.id == record.host.owner"
[access]
read = ["host"]
[[on.create]]
go = "-> open"
take = ["host"]
[[on.knock]]
go = "open -> shut"
[[on.lease]]
go = "open -> busy"
[[on.commit]]
go = "busy -> shut"
[[on.fail]]
go = "busy -> open"
"#;

/// A call by another tenant neither reveals the record nor marks it stuck.
#[test]
fn faulting_access_rule_returns_not_found() {
    let mut simulator = new_simulator(&[GUARDED_LIFECYCLE]);
    let door = simulator.create("club.door", &user("ann")).expect_ok();
    let eve = user("eve");
    simulator.fire(door, "knock", &eve).expect_not_found();
    let lease = Call::Lease { record: door, worker: "eve".into(), lease: None, start: false };
    simulator.call(&eve, lease).expect_not_found();
    assert!(simulator.record(door).stuck_reason.is_none());
}

#[test]
fn refusal_hides_record_caller_may_not_read() {
    let mut simulator = new_simulator(&[
        r#"
language = 1
lifecycle = "deal.stock"
about = "stock of another owner"
[states]
held = { about = "held", rest = true }
[fields]
left = { type = "int", default = 0 }
[access]
read = ["operator"]
[[on.create]]
go = "-> held"
[[on.take]]
go = "held"
by = "record"
refuse = [{ if = "record.left == 0", as = "409 sold_out" }]
set = { left = "record.left - 1" }
"#,
        r#"
language = 1
lifecycle = "deal.order"
about = "an order"
[states]
placed = { about = "placed", rest = true }
bought = { about = "bought", rest = true }
[fields]
stock = { type = "ref", to = "deal.stock", optional = true }
[access]
read = ["owner", "operator"]
[[on.create]]
go = "-> placed"
take = ["stock"]
[[on.buy]]
go = "placed -> bought"
require = [{ to = "record.stock", event = "take" }]
"#,
    ]);
    let boss = operator("boss");
    let stock = simulator.create("deal.stock", &boss).expect_ok();
    let order = simulator.create("deal.order", &boss).owner("ann").with("stock", stock.to_string()).expect_ok();
    let refusal = simulator.fire(order, "buy", &user("ann")).expect_refusal(409, "sold_out");
    assert_eq!((refusal.record, refusal.state), (None, None));
    let refusal = simulator.fire(order, "buy", &boss).expect_refusal(409, "sold_out");
    assert_eq!(refusal.record, Some(stock));
}

/// An operator reads every record, so an event on one is refused with the reason, not as if the record did not exist.
#[test]
fn operator_without_access_is_told_why_event_is_refused() {
    let mut simulator = new_simulator(&[r#"
language = 1
lifecycle = "deal.offer"
about = "an offer of its owner"
[states]
open = { about = "open", rest = true }
over = { about = "over", final = true }
[[on.create]]
go = "-> open"
[[on.close]]
go = "open -> over"
by = ["owner", "operator"]
"#]);
    let offer = simulator.create("deal.offer", &user("ann")).expect_ok();
    let refusal = simulator.fire(offer, "close", &operator("boss")).expect_refusal(403, "not_allowed");
    assert_eq!(refusal.record, Some(offer));
    assert!(refusal.reason.contains("[access]"), "{}", refusal.reason);
    let refusal = simulator.fire(offer, "close", &user("eve")).expect_refusal(404, "not_found");
    assert_eq!(refusal.record, None);
    simulator.fire(offer, "close", &user("ann")).expect_ok();
}
