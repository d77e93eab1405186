//! Tests the bounds of operations and records.

use onceward_testkit::{operator, user};
use serde_json::json;

use crate::new_simulator;
use crate::tenant_isolation::GUARDED_LIFECYCLE;

#[test]
fn recursive_spawn_beyond_bound_is_refused() {
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
    let mut simulator = new_simulator(&[&text]);
    simulator.create("tree.node", &user("ann")).with("left", 1).expect_ok();
    simulator.create("tree.node", &user("ann")).with("left", 14).expect_refusal(409, "operation_too_large");
}

#[test]
fn overlong_owner_and_worker_names_are_invalid_input() {
    let mut simulator = new_simulator(&[GUARDED_LIFECYCLE]);
    let long = "x".repeat(1_001);
    simulator.create("club.door", &operator("boss")).owner(&long).expect_bad_input();
    let door = simulator.create("club.door", &operator("boss")).owner("ann").expect_ok();
    simulator.try_lease(door, &long).expect_bad_input();
    simulator.try_lease(door, "a\0b").expect_bad_input();
}

/// Expressions and static analysis rely on the bound, so callers must not exceed it.
#[test]
fn link_beyond_max_is_refused() {
    let mut simulator = new_simulator(&[
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
    let table = simulator.create("club.table", &ann).expect_ok();
    let here = table.to_string();
    let first = simulator.create("club.seat", &ann).with("table", here.clone()).expect_ok();
    simulator.create("club.seat", &ann).with("table", here.clone()).expect_ok();
    simulator.create("club.seat", &ann).with("table", here.clone()).expect_refusal(409, "link_full");
    let standing = simulator.create("club.seat", &ann).expect_ok();
    simulator.fire(standing, "change", &ann).with("table", here.clone()).expect_refusal(409, "link_full");
    simulator.fire(first, "change", &ann).with("table", json!(null)).expect_ok();
    simulator.fire(standing, "change", &ann).with("table", here).expect_ok();
}
