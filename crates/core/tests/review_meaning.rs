//! Sentences of the language's meaning that a review found weaker in the code than written.

use onceward_core::compile::compile;
use onceward_core::decide::{Call, Create, Decision, Operation, Snapshot, decide};
use onceward_core::diagnostic::{File, Files, render_all};
use onceward_core::model::Definitions;
use onceward_core::time::Time;
use onceward_testkit::{Stage, operator, user};
use serde_json::{Map, json};

/// Compiled, but not proven: what `check` forbids must still be answered rightly.
fn definitions(texts: &[&str]) -> Definitions {
    let files = texts.iter().enumerate().map(|(at, text)| {
        let name = format!("{at}.toml");
        File { name, text: (*text).into() }
    });
    let files = Files { files: files.collect() };
    let compiled = compile(&files);
    compiled.definitions.unwrap_or_else(|| panic!("{}", render_all(&compiled.diagnostics, &files, false)))
}

fn stage(texts: &[&str]) -> Stage {
    Stage::new(definitions(texts))
}

/// A row that moves money and changes nothing else is no `NoOp`: the money moves, and its record logs it.
#[test]
fn a_row_that_only_moves_money_moves_it() {
    let mut stage = stage(&[r#"
language = 1
lifecycle = "shop.till"
about = "a till"
asset = "coin"
outside = ["world"]
[states]
open = { about = "open", rest = true }
[[on.create]]
go = "-> open"
[[on.pay]]
go = "open"
move = [{ from = "world", to = "till", amount = "5" }]
"#]);
    let ann = user("ann");
    let till = stage.create("shop.till", &ann).ok();
    stage.fire(till, "pay", &ann).ok();
    assert_eq!(stage.balance("coin", "till"), 5);
    assert_eq!(stage.record(till).version, 2);
}

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

const PAIR: &str = r#"
language = 1
lifecycle = "pair.half"
about = "points to another"
[states]
waiting = { about = "waiting", rest = true }
late = { about = "late", rest = true }
[fields]
other = { type = "ref", to = "pair.half", optional = true }
at = { type = "time", optional = true }
[[on.create]]
go = "-> waiting"
take = ["other", "at"]
[[on.look]]
go = "waiting"
when = "record.other != null && record.other.state == 'late'"
set = { other = "null" }
[[on.touch]]
go = "waiting | late"
take = ["at", "other"]
[[on.time]]
go = "waiting -> late"
at = "at"
"#;

/// FM-7: the clock steps back, and a record in reach was logged later: what is due by that later time is dealt with, and
/// the operation ends.
#[test]
fn what_is_due_by_a_later_log_is_dealt_with() {
    let mut stage = stage(&[PAIR]);
    let ann = user("ann");
    stage.doze("1m");
    let logged_later = stage.create("pair.half", &ann).ok();
    stage.step_back("1m");
    let due = stage.create("pair.half", &ann).with("at", "2026-11-15T20:00:10Z").ok();
    stage.fire(logged_later, "touch", &ann).with("other", due.to_string()).ok();
    assert_eq!(stage.state(due), "late");
}

/// Beyond a stated bound the operation is refused whole, also where records make records.
#[test]
fn spawns_are_bounded() {
    let spawn = r#"{ lifecycle = "tree.node", if = "record.left > 0", fields = { left = "record.left - 1" } },"#;
    let text = format!(
        r#"
language = 1
lifecycle = "tree.node"
about = "makes its children"
[states]
there = {{ about = "there", rest = true }}
[fields]
left = {{ type = "int", min = 0, max = 14 }}
[[on.create]]
go = "-> there"
take = ["left"]
spawn = [{}]
"#,
        spawn.repeat(60)
    );
    let mut stage = stage(&[&text]);
    stage.create("tree.node", &user("ann")).with("left", 1).ok();
    stage.create("tree.node", &user("ann")).with("left", 14).refused(409, "operation_too_large");
}

/// Timers run in the order of their times, however late the engine looks.
#[test]
fn the_timer_that_is_due_first_goes_first() {
    let text = r#"
language = 1
lifecycle = "clock.two"
about = "two timers"
[states]
waiting = { about = "waiting" }
slow = { about = "slow", final = true }
fast = { about = "fast", final = true }
[[on.create]]
go = "-> waiting"
[[on.time]]
go = "waiting -> slow"
after = "10s"
[[on.time]]
go = "waiting -> fast"
after = "5s"
"#;
    let ann = user("ann");
    let mut prompt = stage(&[text]);
    let record = prompt.create("clock.two", &ann).ok();
    prompt.pass("20s");
    assert_eq!(prompt.state(record), "fast");
    let mut late = stage(&[text]);
    let record = late.create("clock.two", &ann).ok();
    late.doze("20s");
    late.pass("0s");
    assert_eq!(late.state(record), "fast");
}

const GUARDED: &str = r#"
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

/// Checks are asked only after all that can be judged without them holds.
#[test]
fn no_check_is_asked_where_the_guard_is_false_without_it() {
    let definitions = definitions(&[r#"
language = 1
lifecycle = "gate.pass"
about = "asks the outside"
[states]
shown = { about = "shown", rest = true }
[fields]
age = { type = "int", min = 0, max = 200 }
[checks]
known = { ask = { age = "record.age" }, answer = { ok = "bool" } }
[[on.create]]
go = "-> shown"
take = ["age"]
when = "record.age >= 18 && checks.known.ok"
"#]);
    let create = |age: i64| {
        let mut fields = Map::new();
        fields.insert("age".into(), json!(age));
        let call = Call::Create(Create { lifecycle: "gate.pass".into(), id: None, owner: None, fields, payload: None });
        let operation = Operation { seed: 1, actor: user("ann"), call, answers: Vec::new(), trace: None };
        decide(&definitions, &Snapshot::world(), &operation, Time::from_secs(1_800_000_000))
    };
    assert!(matches!(create(30), Decision::Ask(_)));
    assert!(matches!(create(3), Decision::Refusal(_)), "{:?}", create(3));
}

/// The ledger is in checked integers: too much money is a fault, not a wrong balance.
#[test]
fn a_balance_that_does_not_fit_is_a_fault() {
    let mut stage = stage(&[r#"
language = 1
lifecycle = "bank.deposit"
about = "money comes in"
asset = "coin"
outside = ["world"]
[states]
done = { about = "done", rest = true }
[fields]
amount = { type = "int", min = 0 }
[[on.create]]
go = "-> done"
take = ["amount"]
move = [{ from = "world", to = "vault", amount = "record.amount" }]
"#]);
    let ann = user("ann");
    stage.create("bank.deposit", &ann).with("amount", i64::MAX).ok();
    stage.create("bank.deposit", &ann).with("amount", i64::MAX).refused(422, "fault");
    assert_eq!(stage.balance("coin", "vault"), i64::MAX);
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

/// Targets go in creation order, each once, also where a field lists them otherwise.
#[test]
fn targets_of_a_list_go_in_creation_order() {
    let mut stage = stage(&[r#"
language = 1
lifecycle = "row.man"
about = "counts off"
[states]
there = { about = "there", rest = true }
gone = { about = "gone", final = true }
[fields]
men = { type = "refs", to = "row.man", optional = true }
[[on.create]]
go = "-> there"
take = ["men"]
[[on.call]]
go = "there"
require = [{ to = "record.men", event = "leave" }]
[[on.leave]]
go = "there -> gone"
by = "record"
"#]);
    let ann = user("ann");
    let first = stage.create("row.man", &ann).ok();
    stage.pass("1s");
    let second = stage.create("row.man", &ann).ok();
    let men = json!([second.to_string(), first.to_string(), second.to_string()]);
    let caller = stage.create("row.man", &ann).with("men", men).ok();
    let changes = stage.fire(caller, "call", &ann).changes();
    let left: Vec<_> = changes.records.iter().map(|change| change.after.id).filter(|id| *id != caller).collect();
    assert_eq!(left, [first, second]);
}

/// Input that does not fit is bad input, though the caller's right cannot be judged without it.
#[test]
fn bad_input_is_not_called_a_fault() {
    let mut stage = stage(&[r#"
language = 1
lifecycle = "club.guest"
about = "made by the host of another"
[states]
in = { about = "in", rest = true }
[fields]
host = { type = "ref", to = "club.guest", optional = true }
name = { type = "string" }
nick = { type = "string", optional = true }
[who]
host = "record.host.owner == actor.id"
[[on.create]]
go = "-> in"
by = "operator"
take = ["name"]
[[on.create]]
go = "-> in"
by = "host"
take = ["host", "name", "nick"]
"#]);
    let boss = operator("boss");
    let host = stage.create("club.guest", &boss).with("name", "host").owner("ann").ok();
    stage.create("club.guest", &user("ann")).with("host", host.to_string()).bad_input();
    stage.create("club.guest", &user("ann")).with("name", 7).bad_input();
}

/// Every string has a bound, those of a call itself too.
#[test]
fn names_in_a_call_are_bounded() {
    let mut stage = stage(&[GUARDED]);
    let long = "x".repeat(1_001);
    stage.create("club.door", &operator("boss")).owner(&long).bad_input();
    let door = stage.create("club.door", &operator("boss")).owner("ann").ok();
    stage.try_lease(door, &long).bad_input();
    stage.try_lease(door, "a\0b").bad_input();
}

/// EXE-9: a lease that ran out is over, even on a record that is set aside.
#[test]
fn a_stuck_record_takes_no_commit_after_expiry() {
    let mut stage = stage(&[r#"
language = 1
lifecycle = "job.bad"
about = "its timer faults while a worker is on it"
[states]
open = { about = "open", ready = true }
busy = { about = "busy" }
shut = { about = "shut", final = true }
[fields]
none = { type = "int", optional = true }
some = { type = "int", default = 0 }
[work]
lease = "10s"
[[on.create]]
go = "-> open"
[[on.lease]]
go = "open -> busy"
[[on.commit]]
go = "busy -> shut"
[[on.fail]]
go = "busy -> open"
[[on.time]]
go = "busy -> shut"
after = "5s"
set = { some = "record.none + 1" }
"#]);
    let job = stage.create("job.bad", &user("ann")).ok();
    let lease = stage.lease(job, "w");
    stage.pass("6s");
    assert!(stage.record(job).stuck.is_some());
    stage.doze("1m");
    stage.commit(&lease, json!(null)).lease_lost();
}

/// A link's bound holds exactly: what expressions may read, and the checker reckons with, outsiders cannot outgrow.
#[test]
fn a_link_takes_as_many_as_it_says() {
    let mut stage = stage(&[
        r#"
language = 1
lifecycle = "club.table"
about = "seats two"
[states]
set = { about = "set", rest = true }
[links]
seats = { from = "club.seat.table", max = 2 }
[access]
read = ["anyone"]
[[on.create]]
go = "-> set"
"#,
        r#"
language = 1
lifecycle = "club.seat"
about = "at a table, or at none"
[states]
taken = { about = "taken", rest = true }
[fields]
table = { type = "ref", to = "club.table", optional = true }
[[on.create]]
go = "-> taken"
take = ["table"]
[[on.change]]
go = "taken"
by = "owner"
take = ["table"]
"#,
    ]);
    let ann = user("ann");
    let table = stage.create("club.table", &ann).ok();
    let here = table.to_string();
    let first = stage.create("club.seat", &ann).with("table", here.clone()).ok();
    stage.create("club.seat", &ann).with("table", here.clone()).ok();
    stage.create("club.seat", &ann).with("table", here.clone()).refused(409, "link_full");
    let standing = stage.create("club.seat", &ann).ok();
    stage.fire(standing, "change", &ann).with("table", here.clone()).refused(409, "link_full");
    stage.fire(first, "change", &ann).with("table", json!(null)).ok();
    stage.fire(standing, "change", &ann).with("table", here).ok();
}
