//! Tests that transitions fired by the engine, and their actions, cannot be refused.

use super::support::{
    JOB_LIFECYCLE, THING_LIFECYCLE, assert_no_diagnostics, assert_only_error, changed_text, error_codes,
};

const COMMIT_GO: &str = "go    = \"RUNNING -> DONE\"";
const TIMER_AT: &str = "at = \"retryAt\"";

#[test]
fn engine_transition_with_refuse_is_error() {
    assert_only_error(
        &[(COMMIT_GO, "go    = \"RUNNING -> DONE\"\nrefuse = [{ if = \"result.count > 3\", as = \"409 no\" }]")],
        "engine-refuse",
    );
    assert_only_error(
        &[(TIMER_AT, "at = \"retryAt\"\nrefuse = [{ if = \"record.price > 3\", as = \"409 no\" }]")],
        "engine-refuse",
    );
    let earlier = "[[on.commit]]\ngo = \"RUNNING -> FAILED\"\nwhen = \"result.count > 5\"\nrefuse = [{ if = \"result.count > 7\", as = \"409 no\" }]\nmove = [{ from = \"hold\", to = \"fee\", amount = \"record.price\" }, { from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.commit]]\ngo    = \"RUNNING -> DONE\"";
    // A commit transition before the last may refuse, because the worker gets the refusal.
    assert_no_diagnostics(&[("[[on.commit]]\ngo    = \"RUNNING -> DONE\"", earlier)]);
}

#[test]
fn engine_transfer_from_exhaustible_account_is_error() {
    assert_only_error(
        &[(TIMER_AT, "at = \"retryAt\"\nmove = [{ from = \"user:{record.owner}\", to = \"hold\", amount = \"1\" }]")],
        "engine-overdraft",
    );
    assert_only_error(
        &[(TIMER_AT, "at = \"retryAt\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"1\" }]")],
        "engine-overdraft",
    );
    assert_no_diagnostics(&[(
        TIMER_AT,
        "at = \"retryAt\"\nmove = [{ from = \"mint\", to = \"hold\", amount = \"1\" }]",
    )]);
    assert_only_error(
        &[(TIMER_AT, "at = \"retryAt\"\nmove = [{ from = \"mint\", to = \"hold\", amount = \"record.tries - 2\" }]")],
        "may-be-negative",
    );
}

#[test]
fn engine_transition_entering_unique_or_limit_is_error() {
    let unique = |states: &str| {
        format!("[unique]\none = {{ on = [\"owner\"], in = [{states}], clash = \"409 taken\" }}\n\n[work]")
    };
    assert_only_error(&[("[work]", &unique("\"RUNNING\""))], "engine-duplicate");
    // The record already has the key when the engine moves it.
    assert_no_diagnostics(&[("[work]", &unique("\"QUEUED\", \"RUNNING\", \"WAITING\""))]);
    assert_only_error(&[("[work]", &unique("\"QUEUED\", \"RUNNING\""))], "engine-duplicate");
    let limit = |states: &str| {
        format!("[limit]\nfew = {{ on = [\"owner\"], in = [{states}], max = 3, clash = \"429 few\" }}\n\n[work]")
    };
    assert_only_error(&[("[work]", &limit("\"WAITING\""))], "engine-limit");
    assert_no_diagnostics(&[("[work]", &limit("\"QUEUED\", \"RUNNING\", \"WAITING\""))]);
    // The key changes in the transition.
    let on_note = "[unique]\none = { on = [\"note\"], clash = \"409 taken\" }\n\n[work]";
    assert_only_error(&[("[work]", on_note)], "engine-duplicate");
    assert_no_diagnostics(&[
        ("[work]", on_note),
        ("set   = { note = \"result.note\" }", "set   = { note = \"null\" }"),
        ("set  = { note = \"error.message\" }\n", ""),
    ]);
}

#[test]
fn engine_spawn_that_may_be_refused_is_error() {
    assert_only_error(&[("max = 9 } }", "max = 10 } }")], "engine-spawn");
    let spawning = |thing: &[(&str, &str)]| error_codes(&[JOB_LIFECYCLE, &changed_text(THING_LIFECYCLE, thing)]);
    assert_eq!(spawning(&[]), Vec::<&str>::new());
    let row = "take = [\"job\", \"count\"]";
    assert_eq!(spawning(&[(row, "take = [\"job\", \"count\"]\nwhen = \"record.count > 0\"")]), vec!["engine-spawn"]);
    assert_eq!(spawning(&[(row, "take = [\"job\", \"count\"]\nwhen = \"record.count >= 0\"")]), Vec::<&str>::new());
    assert_eq!(spawning(&[("by   = \"record\"", "by   = \"operator\"")]), vec!["engine-spawn"]);
    assert_eq!(
        spawning(&[(row, "take = [\"job\", \"count\"]\nrefuse = [{ if = \"record.count > 3\", as = \"409 no\" }]")]),
        vec!["engine-refuse"]
    );
    let unique = |clash: &str| format!("[unique]\none = {{ on = [\"job\"], clash = \"{clash}\" }}\n\n[[on.create]]");
    assert_eq!(spawning(&[("[[on.create]]", &unique("409 taken"))]), vec!["engine-duplicate"]);
    // The holder belongs to the same job, and so to the same owner.
    assert_eq!(spawning(&[("[[on.create]]", &unique("return"))]), Vec::<&str>::new());
    // The holder may belong to another owner.
    let anyone = "[unique]\none = { on = [\"count\"], clash = \"return\" }\n\n[[on.create]]";
    assert_eq!(spawning(&[("[[on.create]]", anyone)]), vec!["engine-duplicate"]);
    let limit = "[limit]\nfew = { on = [\"job\"], max = 1, clash = \"429 few\" }\n\n[[on.create]]";
    assert_eq!(spawning(&[("[[on.create]]", limit)]), vec!["engine-limit"]);
    // A bounded link may be full when the spawned record refers to it; an unbounded link never is.
    let linked = |max: &str| {
        changed_text(
            JOB_LIFECYCLE,
            &[("[work]", &format!("[links]\nthings = {{ from = \"test.thing.job\"{max} }}\n\n[work]"))],
        )
    };
    assert_eq!(error_codes(&[&linked(", max = 3"), THING_LIFECYCLE]), vec!["engine-limit"]);
    assert_eq!(error_codes(&[&linked(""), THING_LIFECYCLE]), Vec::<&str>::new());
}

#[test]
fn engine_spawn_is_analyzed_with_given_values() {
    let thing = changed_text(
        THING_LIFECYCLE,
        &[
            (
                "count = { type = \"int\", min = 0, max = 9 }",
                "count = { type = \"int\", min = 0, max = 9, optional = true }\nhalf = { type = \"int\", min = 0, max = 4, default = 0 }",
            ),
            ("take = [\"job\", \"count\"]", "take = [\"job\", \"count\"]\nset = { half = \"record.count / 2\" }"),
        ],
    );
    assert_eq!(error_codes(&[JOB_LIFECYCLE, &thing]), Vec::<&str>::new());
    let without = changed_text(JOB_LIFECYCLE, &[(", count = \"result.count\" }", " }")]);
    assert_eq!(error_codes(&[&without, &thing]), vec!["may-be-null"]);
}

#[test]
fn engine_cascade_target_that_may_refuse_or_fault_is_error() {
    let job = changed_text(
        JOB_LIFECYCLE,
        &[
            ("[work]", "[links]\nthings = { from = \"test.thing.job\" }\n\n[work]"),
            (TIMER_AT, "at = \"retryAt\"\ncascade = [{ to = \"links.things\", event = \"drop\" }]"),
        ],
    );
    assert_eq!(error_codes(&[&job, THING_LIFECYCLE]), Vec::<&str>::new());
    let refusing = changed_text(
        THING_LIFECYCLE,
        &[(
            "go = \"MADE -> GONE\"",
            "go = \"MADE -> GONE\"\nrefuse = [{ if = \"record.count > 3\", as = \"409 no\" }]",
        )],
    );
    assert_eq!(error_codes(&[&job, &refusing]), vec!["engine-refuse"]);
    assert_eq!(error_codes(&[JOB_LIFECYCLE, &refusing]), Vec::<&str>::new());
    let asking = changed_text(
        THING_LIFECYCLE,
        &[
            (
                "[[on.create]]",
                "[checks]\nask = { ask = { count = \"record.count\" }, answer = { ok = \"bool\" } }\n\n[[on.create]]",
            ),
            ("go = \"MADE -> GONE\"", "go = \"MADE -> GONE\"\nwhen = \"checks.ask.ok\""),
        ],
    );
    assert_eq!(error_codes(&[&job, &asking]), vec!["engine-check"]);
    assert_eq!(error_codes(&[JOB_LIFECYCLE, &asking]), Vec::<&str>::new());
    let faulting = changed_text(
        THING_LIFECYCLE,
        &[("go = \"MADE -> GONE\"", "go = \"MADE -> GONE\"\nwhen = \"10 / record.count > 2\"")],
    );
    assert_eq!(error_codes(&[&job, &faulting]), vec!["may-divide-by-zero"]);
}

#[test]
fn recursive_spawn_is_endless_spawn_error() {
    let thing = changed_text(
        THING_LIFECYCLE,
        &[(
            "take = [\"job\", \"count\"]",
            "take = [\"job\", \"count\"]\nspawn = [{ lifecycle = \"test.thing\", fields = { job = \"record.job\", count = \"record.count\" } }]",
        )],
    );
    assert_eq!(error_codes(&[JOB_LIFECYCLE, &thing]), vec!["endless-spawn"]);
}
