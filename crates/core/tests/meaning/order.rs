//! What is judged, and gone to, before what.

use onceward_core::decide::{Call, Create, Decision, Operation, Snapshot, decide};
use onceward_core::time::Time;
use onceward_testkit::{operator, user};
use serde_json::{Map, json};

use crate::{definitions, stage};

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
