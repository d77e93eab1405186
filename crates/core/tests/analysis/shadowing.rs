//! Tests for transitions that are never taken.

use super::support::{assert_no_diagnostics, assert_only_error, assert_only_warning};

const INSERT_BEFORE: &str = "[[on.lease]]";

fn two_transitions(first: &str, second: &str) -> String {
    format!(
        "[[on.mark]]\ngo = \"NEW\"\nset = {{ price = \"1\" }}\n{first}\n\n[[on.mark]]\ngo = \"NEW\"\nset = {{ price = \"2\" }}\n{second}\n\n[[on.lease]]"
    )
}

#[track_caller]
fn assert_shadowed(first: &str, second: &str) {
    assert_only_error(&[(INSERT_BEFORE, &two_transitions(first, second))], "shadowed-transition");
}

#[track_caller]
fn assert_both_reachable(first: &str, second: &str) {
    let access = "[access]\nread = [\"owner\", \"operator\"]\n\n[fields]";
    assert_no_diagnostics(&[("[fields]", access), (INSERT_BEFORE, &two_transitions(first, second))]);
}

#[test]
fn unguarded_transition_shadows_later_ones() {
    assert_shadowed("", "");
    assert_shadowed("", "when = \"record.price > 3\"");
    assert_both_reachable("when = \"record.price > 3\"", "");
    assert_shadowed("by = \"owner\"", "by = \"owner\"");
    assert_both_reachable("by = \"owner\"", "by = \"operator\"");
    assert_both_reachable("by = \"owner\"", "");
    assert_shadowed("by = [\"owner\", \"operator\"]", "by = \"operator\"");
}

/// A transition without `by` is open to all writers, so callers named after it are never reached.
#[test]
fn transition_without_by_shadows_later_named_callers() {
    for by in ["\"owner\"", "\"operator\"", "\"record\"", "[\"owner\", \"operator\"]"] {
        assert_shadowed("", &format!("by = {by}"));
    }
    assert_shadowed("when = \"record.price > 3\"", "when = \"record.price > 3\"\nby = \"owner\"");
    assert_both_reachable("when = \"record.price > 3\"", "by = \"owner\"");
    let named =
        |formula: &str| format!("[access]\nread = [\"owner\", \"clerk\"]\n\n[who]\nclerk = \"{formula}\"\n\n[fields]");
    let behind = two_transitions("", "by = \"clerk\"");
    for role in ["'clerk' in actor.roles", "record.price > 3 && 'clerk' in actor.roles", "actor.user"] {
        assert_only_error(&[("[fields]", &named(role)), (INSERT_BEFORE, &behind)], "shadowed-transition");
    }
    // An API key with only the worker role may match one of these, and a transition without `by` excludes it.
    for other in ["actor.id == record.note", "'worker' in actor.roles", "'clerk' in actor.roles || actor.id == 'ann'"] {
        assert_only_warning(&[("[fields]", &named(other)), (INSERT_BEFORE, &behind)], "shadowed-by");
    }
    let with = named("actor.id == 'ann'");
    let same = "when = \"record.price > 3\"";
    assert_only_warning(
        &[("[fields]", &with), (INSERT_BEFORE, &two_transitions(same, &format!("{same}\nby = \"clerk\"")))],
        "shadowed-by",
    );
    assert_no_diagnostics(&[("[fields]", &with), (INSERT_BEFORE, &two_transitions(same, "by = \"clerk\""))]);
    assert_no_diagnostics(&[("[fields]", &with), (INSERT_BEFORE, &two_transitions("by = \"clerk\"", ""))]);
}

#[test]
fn shadowing_is_decided_for_enums_booleans_and_nulls() {
    assert_shadowed("when = \"record.kind == small\"", "when = \"record.kind == small && record.note == null\"");
    assert_both_reachable("when = \"record.kind == small\"", "when = \"record.kind == large\"");
    assert_shadowed("when = \"record.kind in [small, large]\"", "");
    assert_shadowed(
        "when = \"record.note == null || record.kind == small\"",
        "when = \"record.note == null && record.kind == large\"",
    );
    assert_both_reachable("when = \"record.note != null\"", "when = \"record.kind == large\"");
    // Each alone does not shadow the third, but both together do.
    let three = format!(
        "[[on.mark]]\ngo = \"NEW\"\nset = {{ price = \"3\" }}\nwhen = \"record.kind == small && record.note == null\"\n\n{}",
        two_transitions("when = \"record.kind == small && record.note != null\"", "when = \"record.kind == small\"")
    );
    assert_only_error(&[(INSERT_BEFORE, &three)], "shadowed-transition");
    assert_shadowed("when = \"record.note == 'a' || record.note == 'b'\"", "when = \"record.note in ['b', 'a']\"");
    assert_both_reachable(
        "when = \"record.note == 'a' || record.note == 'b'\"",
        "when = \"record.note != null && record.note in ['b', 'c']\"",
    );
}

#[test]
fn shadowing_is_decided_for_numbers_and_constants() {
    assert_shadowed("when = \"record.price < 50\"", "when = \"record.price < 20\"");
    assert_both_reachable("when = \"record.price < 20\"", "when = \"record.price < 50\"");
    assert_shadowed("when = \"record.price < 50 || record.price >= 50\"", "");
    assert_shadowed("when = \"record.price >= 1\"", "");
}

#[test]
fn undecidable_shadowing_gives_unproven_shadowing_warning() {
    let fields = ("[fields]", "[fields]\nlow = { type = \"int\", min = 0, max = 100, default = 0 }");
    let given = ("take = [\"price\"", "take = [\"low\", \"price\"");
    assert_only_warning(
        &[
            fields,
            given,
            (
                INSERT_BEFORE,
                &two_transitions("when = \"record.price > record.low\"", "when = \"record.price > record.low + 1\""),
            ),
        ],
        "unproven-shadowing",
    );
    assert_no_diagnostics(&[
        fields,
        given,
        (INSERT_BEFORE, &two_transitions("when = \"record.price > record.low\"", "")),
    ]);
    assert_only_error(
        &[
            fields,
            given,
            (
                INSERT_BEFORE,
                &two_transitions(
                    "when = \"record.price > record.low\"",
                    "when = \"record.price > record.low && record.kind == small\"",
                ),
            ),
        ],
        "shadowed-transition",
    );
}

#[test]
fn transition_with_require_does_not_shadow() {
    let with = ("[fields]", "[fields]\nother = { type = \"ref\", to = \"test.thing\", optional = true }");
    assert_no_diagnostics(&[
        with,
        (INSERT_BEFORE, &two_transitions("require = [{ to = \"record.other\", event = \"drop\" }]", "")),
    ]);
}
