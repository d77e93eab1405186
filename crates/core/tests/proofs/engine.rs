//! Rows that the engine fires cannot be refused, nor what they bring about.

use super::house::{JOB, THING, changed, errors, sound, unsound};

const COMMIT: &str = "go    = \"RUNNING -> DONE\"";
const TIMED: &str = "at = \"retryAt\"";

#[test]
fn no_refusal_and_no_require() {
    unsound(
        &[(COMMIT, "go    = \"RUNNING -> DONE\"\nrefuse = [{ if = \"result.count > 3\", as = \"409 no\" }]")],
        "engine-refuse",
    );
    unsound(&[(TIMED, "at = \"retryAt\"\nrefuse = [{ if = \"record.price > 3\", as = \"409 no\" }]")], "engine-refuse");
    let earlier = "[[on.commit]]\ngo = \"RUNNING -> FAILED\"\nwhen = \"result.count > 5\"\nrefuse = [{ if = \"result.count > 7\", as = \"409 no\" }]\nmove = [{ from = \"hold\", to = \"fee\", amount = \"record.price\" }, { from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.commit]]\ngo    = \"RUNNING -> DONE\"";
    // A commit row before the last may: the worker is there to be told.
    sound(&[("[[on.commit]]\ngo    = \"RUNNING -> DONE\"", earlier)]);
}

#[test]
fn no_account_that_may_run_short() {
    unsound(
        &[(TIMED, "at = \"retryAt\"\nmove = [{ from = \"user:{record.owner}\", to = \"hold\", amount = \"1\" }]")],
        "engine-short",
    );
    unsound(&[(TIMED, "at = \"retryAt\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"1\" }]")], "engine-short");
    sound(&[(TIMED, "at = \"retryAt\"\nmove = [{ from = \"mint\", to = \"hold\", amount = \"1\" }]")]);
    unsound(
        &[(TIMED, "at = \"retryAt\"\nmove = [{ from = \"mint\", to = \"hold\", amount = \"record.tries - 2\" }]")],
        "may-be-negative",
    );
}

#[test]
fn no_key_and_no_limit_is_come_into() {
    let unique = |states: &str| {
        format!("[unique]\none = {{ on = [\"owner\"], in = [{states}], clash = \"409 taken\" }}\n\n[work]")
    };
    unsound(&[("[work]", &unique("\"RUNNING\""))], "engine-clash");
    // Already held when the engine moves it.
    sound(&[("[work]", &unique("\"QUEUED\", \"RUNNING\", \"WAITING\""))]);
    unsound(&[("[work]", &unique("\"QUEUED\", \"RUNNING\""))], "engine-clash");
    let limit = |states: &str| {
        format!("[limit]\nfew = {{ on = [\"owner\"], in = [{states}], max = 3, clash = \"429 few\" }}\n\n[work]")
    };
    unsound(&[("[work]", &limit("\"WAITING\""))], "engine-limit");
    sound(&[("[work]", &limit("\"QUEUED\", \"RUNNING\", \"WAITING\""))]);
    // The key changes under it.
    let on_note = "[unique]\none = { on = [\"note\"], clash = \"409 taken\" }\n\n[work]";
    unsound(&[("[work]", on_note)], "engine-clash");
    sound(&[
        ("[work]", on_note),
        ("set   = { note = \"result.note\" }", "set   = { note = \"null\" }"),
        ("set  = { note = \"error.message\" }\n", ""),
    ]);
}

#[test]
fn a_spawn_is_sure_to_be_made() {
    unsound(&[("max = 9 } }", "max = 10 } }")], "engine-spawn");
    let spawning = |thing: &[(&str, &str)]| errors(&[JOB, &changed(THING, thing)]);
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
    assert_eq!(spawning(&[("[[on.create]]", &unique("409 taken"))]), vec!["engine-clash"]);
    // The holder is of the same job, so of the same owner.
    assert_eq!(spawning(&[("[[on.create]]", &unique("return"))]), Vec::<&str>::new());
    // Anyone's: the holder may be somebody else's.
    let anyone = "[unique]\none = { on = [\"count\"], clash = \"return\" }\n\n[[on.create]]";
    assert_eq!(spawning(&[("[[on.create]]", anyone)]), vec!["engine-clash"]);
    let limit = "[limit]\nfew = { on = [\"job\"], max = 1, clash = \"429 few\" }\n\n[[on.create]]";
    assert_eq!(spawning(&[("[[on.create]]", limit)]), vec!["engine-limit"]);
    // A bounded link may be full when the spawned record comes to point here; one without a bound never is.
    let linked = |max: &str| {
        changed(JOB, &[("[work]", &format!("[links]\nthings = {{ from = \"test.thing.job\"{max} }}\n\n[work]"))])
    };
    assert_eq!(errors(&[&linked(", max = 3"), THING]), vec!["engine-limit"]);
    assert_eq!(errors(&[&linked(""), THING]), Vec::<&str>::new());
}

/// A spawn's own rows are looked at with the values that it gives.
#[test]
fn a_spawn_is_followed_with_its_values() {
    let thing = changed(
        THING,
        &[
            (
                "count = { type = \"int\", min = 0, max = 9 }",
                "count = { type = \"int\", min = 0, max = 9, optional = true }\nhalf = { type = \"int\", min = 0, max = 4, default = 0 }",
            ),
            ("take = [\"job\", \"count\"]", "take = [\"job\", \"count\"]\nset = { half = \"record.count / 2\" }"),
        ],
    );
    assert_eq!(errors(&[JOB, &thing]), Vec::<&str>::new());
    let without = changed(JOB, &[(", count = \"result.count\" }", " }")]);
    assert_eq!(errors(&[&without, &thing]), vec!["may-be-null"]);
}

#[test]
fn what_a_cascade_reaches_cannot_be_refused_either() {
    let job = changed(
        JOB,
        &[
            ("[work]", "[links]\nthings = { from = \"test.thing.job\" }\n\n[work]"),
            (TIMED, "at = \"retryAt\"\ncascade = [{ to = \"links.things\", event = \"drop\" }]"),
        ],
    );
    assert_eq!(errors(&[&job, THING]), Vec::<&str>::new());
    let refusing = changed(
        THING,
        &[(
            "go = \"MADE -> GONE\"",
            "go = \"MADE -> GONE\"\nrefuse = [{ if = \"record.count > 3\", as = \"409 no\" }]",
        )],
    );
    assert_eq!(errors(&[&job, &refusing]), vec!["engine-refuse"]);
    assert_eq!(errors(&[JOB, &refusing]), Vec::<&str>::new());
    let asking = changed(
        THING,
        &[
            (
                "[[on.create]]",
                "[checks]\nask = { ask = { count = \"record.count\" }, answer = { ok = \"bool\" } }\n\n[[on.create]]",
            ),
            ("go = \"MADE -> GONE\"", "go = \"MADE -> GONE\"\nwhen = \"checks.ask.ok\""),
        ],
    );
    assert_eq!(errors(&[&job, &asking]), vec!["engine-check"]);
    assert_eq!(errors(&[JOB, &asking]), Vec::<&str>::new());
    let faulting =
        changed(THING, &[("go = \"MADE -> GONE\"", "go = \"MADE -> GONE\"\nwhen = \"10 / record.count > 2\"")]);
    assert_eq!(errors(&[&job, &faulting]), vec!["may-divide-by-zero"]);
}

#[test]
fn records_do_not_make_one_another_for_ever() {
    let thing = changed(
        THING,
        &[(
            "take = [\"job\", \"count\"]",
            "take = [\"job\", \"count\"]\nspawn = [{ lifecycle = \"test.thing\", fields = { job = \"record.job\", count = \"record.count\" } }]",
        )],
    );
    assert_eq!(errors(&[JOB, &thing]), vec!["endless-spawn"]);
}
