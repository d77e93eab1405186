//! Rows that never have their turn.

use super::house::{sound, unsound, warned};

const BEFORE: &str = "[[on.lease]]";

fn rows(first: &str, second: &str) -> String {
    format!(
        "[[on.mark]]\ngo = \"NEW\"\nset = {{ price = \"1\" }}\n{first}\n\n[[on.mark]]\ngo = \"NEW\"\nset = {{ price = \"2\" }}\n{second}\n\n[[on.lease]]"
    )
}

#[track_caller]
fn shadowed(first: &str, second: &str) {
    unsound(&[(BEFORE, &rows(first, second))], "shadowed-row");
}

#[track_caller]
fn both(first: &str, second: &str) {
    sound(&[(BEFORE, &rows(first, second))]);
}

#[test]
fn an_earlier_row_without_a_guard_hides_later_ones() {
    shadowed("", "");
    shadowed("", "when = \"record.price > 3\"");
    both("when = \"record.price > 3\"", "");
    shadowed("by = \"owner\"", "by = \"owner\"");
    both("by = \"owner\"", "by = \"operator\"");
    both("by = \"owner\"", "");
    shadowed("by = [\"owner\", \"operator\"]", "by = \"operator\"");
}

/// A row without `by` is for everybody who may write: whoever is named behind it never gets there.
#[test]
fn an_open_row_hides_those_that_name_somebody() {
    for by in ["\"owner\"", "\"operator\"", "\"record\"", "[\"owner\", \"operator\"]"] {
        shadowed("", &format!("by = {by}"));
    }
    shadowed("when = \"record.price > 3\"", "when = \"record.price > 3\"\nby = \"owner\"");
    both("when = \"record.price > 3\"", "by = \"owner\"");
    let named = |formula: &str| format!("[who]\nclerk = \"{formula}\"\n\n[fields]");
    let behind = rows("", "by = \"clerk\"");
    for role in ["'clerk' in actor.roles", "record.price > 3 && 'clerk' in actor.roles", "actor.user"] {
        unsound(&[("[fields]", &named(role)), (BEFORE, &behind)], "shadowed-row");
    }
    // A key that is only a worker's may be one of these, and no row without `by` is for that.
    for other in ["actor.id == record.note", "'worker' in actor.roles", "'clerk' in actor.roles || actor.id == 'ann'"] {
        warned(&[("[fields]", &named(other)), (BEFORE, &behind)], "shadowed-by");
    }
    let with = named("actor.id == 'ann'");
    let same = "when = \"record.price > 3\"";
    warned(&[("[fields]", &with), (BEFORE, &rows(same, &format!("{same}\nby = \"clerk\"")))], "shadowed-by");
    sound(&[("[fields]", &with), (BEFORE, &rows(same, "by = \"clerk\""))]);
    sound(&[("[fields]", &with), (BEFORE, &rows("by = \"clerk\"", ""))]);
}

#[test]
fn enums_booleans_and_nulls_are_decided() {
    shadowed("when = \"record.kind == small\"", "when = \"record.kind == small && record.note == null\"");
    both("when = \"record.kind == small\"", "when = \"record.kind == large\"");
    shadowed("when = \"record.kind in [small, large]\"", "");
    shadowed(
        "when = \"record.note == null || record.kind == small\"",
        "when = \"record.note == null && record.kind == large\"",
    );
    both("when = \"record.note != null\"", "when = \"record.kind == large\"");
    // Neither alone, but together.
    let three = format!(
        "[[on.mark]]\ngo = \"NEW\"\nset = {{ price = \"3\" }}\nwhen = \"record.kind == small && record.note == null\"\n\n{}",
        rows("when = \"record.kind == small && record.note != null\"", "when = \"record.kind == small\"")
    );
    unsound(&[(BEFORE, &three)], "shadowed-row");
    shadowed("when = \"record.note == 'a' || record.note == 'b'\"", "when = \"record.note in ['b', 'a']\"");
    both(
        "when = \"record.note == 'a' || record.note == 'b'\"",
        "when = \"record.note != null && record.note in ['b', 'c']\"",
    );
}

#[test]
fn numbers_against_constants_are_decided_too() {
    shadowed("when = \"record.price < 50\"", "when = \"record.price < 20\"");
    both("when = \"record.price < 20\"", "when = \"record.price < 50\"");
    shadowed("when = \"record.price < 50 || record.price >= 50\"", "");
    shadowed("when = \"record.price >= 1\"", "");
}

#[test]
fn what_cannot_be_decided_is_said() {
    let fields = ("[fields]", "[fields]\nlow = { type = \"int\", min = 0, max = 100, default = 0 }");
    let given = ("take = [\"price\"", "take = [\"low\", \"price\"");
    warned(
        &[
            fields,
            given,
            (BEFORE, &rows("when = \"record.price > record.low\"", "when = \"record.price > record.low + 1\"")),
        ],
        "unproven-turn",
    );
    sound(&[fields, given, (BEFORE, &rows("when = \"record.price > record.low\"", ""))]);
    unsound(
        &[
            fields,
            given,
            (
                BEFORE,
                &rows(
                    "when = \"record.price > record.low\"",
                    "when = \"record.price > record.low && record.kind == small\"",
                ),
            ),
        ],
        "shadowed-row",
    );
}

#[test]
fn a_row_with_a_require_may_be_passed_over() {
    let with = ("[fields]", "[fields]\nother = { type = \"ref\", to = \"test.thing\", optional = true }");
    sound(&[with, (BEFORE, &rows("require = [{ to = \"record.other\", event = \"drop\" }]", ""))]);
}
