//! Nothing grows beyond what is said.

use onceward_testkit::{operator, user};
use serde_json::json;

use crate::stage;
use crate::strangers::GUARDED;

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
