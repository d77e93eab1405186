//! What callers learn of records that are not theirs to read.

use onceward_core::decide::{Call, NoOpReason};
use onceward_core::record::Actor;
use onceward_testkit::{operator, user};

use crate::stage;

/// A spawn meeting `clash = "return"` uses the holder, whoever owns it: nobody is shown anything of it.
#[test]
fn a_spawn_uses_the_holder_of_a_stranger() {
    let mut stage = stage(&[
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
    stage.create("mail.letter", &user("ann")).with("to", "zoe").ok();
    stage.create("mail.letter", &user("bob")).with("to", "zoe").ok();
    assert_eq!(stage.all("mail.address").len(), 1);
    // A caller's own creation still learns nothing of it.
    stage.create("mail.address", &user("bob")).with("name", "zoe").refused(409, "key_taken");
}

/// Nor does its owner, where the lifecycle lets others read it and not the owner.
#[test]
fn an_owner_who_may_not_read_is_not_shown_the_holder() {
    let mut stage = stage(&[r#"
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
    let first = stage.create("court.plea", &user("ann")).with("name", "one").ok();
    stage.create("court.plea", &user("ann")).with("name", "one").refused(409, "key_taken");
    let judge = Actor::new("zoe", &["producer", "judge"]);
    let shown = stage.create("court.plea", &judge).with("name", "one").outcome().no_op(NoOpReason::Holder);
    assert_eq!(shown, first, "who may read it is shown it");
}

pub(crate) const GUARDED: &str = r#"
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

/// A stranger's call neither shows that a record is there nor sets it aside, even where the access rule faults.
#[test]
fn an_access_rule_that_faults_lets_nobody_in() {
    let mut stage = stage(&[GUARDED]);
    let door = stage.create("club.door", &user("ann")).ok();
    let eve = user("eve");
    stage.fire(door, "knock", &eve).not_found();
    let lease = Call::Lease { record: door, worker: "eve".into(), lease: None, start: false };
    stage.attempt(&eve, lease).not_found();
    assert!(stage.record(door).stuck.is_none());
}

/// A refusal that came from another record shows nothing of it to a caller who may not read it.
#[test]
fn a_refusal_shows_no_record_that_the_caller_may_not_read() {
    let mut stage = stage(&[
        r#"
language = 1
lifecycle = "deal.stock"
about = "somebody's stock"
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
    let stock = stage.create("deal.stock", &boss).ok();
    let order = stage.create("deal.order", &boss).owner("ann").with("stock", stock.to_string()).ok();
    let refusal = stage.fire(order, "buy", &user("ann")).refused(409, "sold_out");
    assert_eq!((refusal.record, refusal.state), (None, None));
    let refusal = stage.fire(order, "buy", &boss).refused(409, "sold_out");
    assert_eq!(refusal.record, Some(stock));
}
