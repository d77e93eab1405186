//! Tests the order of evaluation and of visits.

use onceward_core::decide::{Call, CreateRecord, Decision, Operation, Snapshot, decide};
use onceward_core::time::Time;
use onceward_testkit::{operator, user};
use serde_json::{Map, json};

use crate::{compile_definitions, new_simulator};

#[test]
fn false_guard_refuses_without_asking_check() {
    let definitions = compile_definitions(&[r#"
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
        let call =
            Call::Create(CreateRecord { lifecycle: "gate.pass".into(), id: None, owner: None, fields, payload: None });
        let operation = Operation { seed: 1, actor: user("ann"), call, check_answers: Vec::new(), trace: None };
        decide(&definitions, &Snapshot::empty_complete(), &operation, Time::from_secs(1_800_000_000))
    };
    assert!(matches!(create(30), Decision::NeedsChecks(_)));
    assert!(matches!(create(3), Decision::Refusal(_)), "{:?}", create(3));
}

/// Applies even if a field lists the targets in another order.
#[test]
fn list_targets_are_visited_once_in_creation_order() {
    let mut simulator = new_simulator(&[r#"
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
    let first = simulator.create("row.man", &ann).expect_ok();
    simulator.advance("1s");
    let second = simulator.create("row.man", &ann).expect_ok();
    let men = json!([second.to_string(), first.to_string(), second.to_string()]);
    let caller = simulator.create("row.man", &ann).with("men", men).expect_ok();
    let changes = simulator.fire(caller, "call", &ann).expect_changes();
    let left: Vec<_> = changes.records.iter().map(|change| change.after.id).filter(|id| *id != caller).collect();
    assert_eq!(left, [first, second]);
}

#[test]
fn invalid_input_is_refused_even_if_caller_predicate_needs_it() {
    let mut simulator = new_simulator(&[r#"
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
    let host = simulator.create("club.guest", &boss).with("name", "host").owner("ann").expect_ok();
    simulator.create("club.guest", &user("ann")).with("host", host.to_string()).expect_bad_input();
    simulator.create("club.guest", &user("ann")).with("name", 7).expect_bad_input();
}
