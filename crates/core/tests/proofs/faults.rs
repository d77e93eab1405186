//! Rows that the engine fires cannot fault: nulls, numbers, sizes.

use super::house::{sound, unsound};

const LAST: &str = "set  = { note = \"error.message\" }";
const GUARD: &str = "when = \"error.retryable && record.tries < record.most\"";

/// DOC-5, DOC-9: a counter within its bound, by the guard that keeps it there.
#[test]
fn a_guard_keeps_a_count_within_its_bound() {
    unsound(&[(GUARD, "when = \"error.retryable\"")], "may-exceed-bounds");
    sound(&[(GUARD, "when = \"record.tries < 3 && error.retryable\"")]);
    sound(&[(GUARD, "when = \"error.retryable && record.most > record.tries\"")]);
    sound(&[(GUARD, "when = \"error.retryable && !(record.tries >= record.most)\"")]);
    sound(&[(GUARD, "when = \"error.retryable && record.tries + 1 <= record.most\"")]);
    sound(&[(GUARD, "when = \"error.retryable && record.tries in [0, 1, 2]\"")]);
    sound(&[(GUARD, "when = \"!error.retryable ? false : record.tries != 3\"")]);
    unsound(&[(GUARD, "when = \"error.retryable && record.tries <= record.most\"")], "may-exceed-bounds");
    unsound(&[(GUARD, "when = \"error.retryable || record.tries < record.most\"")], "may-exceed-bounds");
    unsound(&[(GUARD, "when = \"error.retryable && record.tries < record.price\"")], "may-exceed-bounds");
    unsound(&[("tries = \"record.tries + 1\"", "tries = \"record.tries + 2\"")], "may-exceed-bounds");
    unsound(&[("tries = \"record.tries + 1\"", "tries = \"record.tries - 1\"")], "may-exceed-bounds");
}

/// EXE-11: what an earlier row took away is known in a later one.
#[test]
fn earlier_rows_that_did_not_hold_are_known() {
    let first = "[[on.fail]]\ngo = \"RUNNING -> FAILED\"\nwhen = \"record.tries >= record.most\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n";
    let with_guard = format!("{first}[[on.fail]]\ngo   = \"RUNNING -> WAITING\"\nwhen = \"error.retryable\"");
    sound(&[(
        "[[on.fail]]\ngo   = \"RUNNING -> WAITING\"\nwhen = \"error.retryable && record.tries < record.most\"",
        &with_guard,
    )]);
    // Not where it stands in another state, nor where it stands later.
    let elsewhere = with_guard.replace("record.tries >= record.most", "record.tries > record.most");
    unsound(
        &[(
            "[[on.fail]]\ngo   = \"RUNNING -> WAITING\"\nwhen = \"error.retryable && record.tries < record.most\"",
            &elsewhere,
        )],
        "may-exceed-bounds",
    );
}

#[test]
fn a_field_without_bounds_is_a_counter_or_may_overflow() {
    let free = ("default = 0, min = 0, max = 3", "default = 0");
    sound(&[free]);
    // Callers may give it: then it may be as large as they like.
    unsound(
        &[
            free,
            ("take = [\"price\"", "take = [\"tries\", \"price\""),
            (GUARD, "when = \"error.retryable && record.tries != 3\""),
        ],
        "may-overflow",
    );
    // Doubling is no counting.
    unsound(
        &[
            free,
            ("tries = \"record.tries + 1\"", "tries = \"record.tries * 2 + 1\""),
            (GUARD, "when = \"error.retryable && record.tries != 3\""),
        ],
        "may-overflow",
    );
}

#[test]
fn what_may_be_null_is_tested() {
    unsound(
        &[(GUARD, "when = \"error.retryable && record.tries < record.most && size(record.note) < 5\"")],
        "may-be-null",
    );
    sound(&[(
        GUARD,
        "when = \"error.retryable && record.tries < record.most && record.note != null && size(record.note) < 5\"",
    )]);
    sound(&[(
        GUARD,
        "when = \"error.retryable && record.tries < record.most && (record.note == null || size(record.note) < 5)\"",
    )]);
    unsound(
        &[(
            GUARD,
            "when = \"error.retryable && record.tries < record.most && (record.note != null || size(record.note) < 5)\"",
        )],
        "may-be-null",
    );
    sound(&[(LAST, "set = { note = \"record.note == null ? error.message : record.note\" }")]);
    // Set on every way into the state.
    sound(&[
        (GUARD, "when = \"error.retryable && record.tries < record.most && size(record.note) < 5\""),
        ("go = \"QUEUED -> RUNNING\"", "go = \"QUEUED -> RUNNING\"\nset = { note = \"'met'\" }"),
    ]);
    // And cleared by a row that stays.
    unsound(
        &[
            (GUARD, "when = \"error.retryable && record.tries < record.most && size(record.note) < 5\""),
            (
                "go = \"QUEUED -> RUNNING\"",
                "go = \"QUEUED -> RUNNING\"\nset = { note = \"'met'\" }\n\n[[on.clear]]\ngo = \"RUNNING\"\nset = { note = \"null\" }",
            ),
        ],
        "may-be-null",
    );
    unsound(
        &[
            (GUARD, "when = \"error.retryable && record.tries < record.most && size(record.note) < 5\""),
            (
                "go = \"QUEUED -> RUNNING\"",
                "go = \"QUEUED -> RUNNING\"\nset = { note = \"'met'\" }\n\n[[on.give]]\ngo = \"RUNNING\"\ntake = [\"note\"]",
            ),
        ],
        "may-be-null",
    );
}

#[test]
fn a_required_input_keeps_a_field_from_null() {
    let keeps = (
        "[[on.lease]]",
        "[[on.begin]]\ngo = \"NEW -> QUEUED\"\ninput = { why = \"string\" }\nset = { note = \"input.why\" }\n\n[[on.lease]]",
    );
    sound(&[keeps]);
    let needs = (LAST, "set = { note = \"size(record.note) > 3 ? error.message : record.note\" }");
    unsound(&[keeps, needs], "may-be-null");
    sound(&[keeps, needs, ("go   = \"NEW -> QUEUED\"", "go   = \"NEW -> QUEUED\"\nwhen = \"record.note != null\"")]);
}

#[test]
fn texts_fit_their_fields() {
    unsound(
        &[(
            "note    = { type = \"string\", optional = true }",
            "note    = { type = \"string\", max = 999, optional = true }",
        )],
        "may-exceed-bounds",
    );
    unsound(&[("max = 100 }, count", "max = 2000 }, count")], "may-exceed-bounds");
    unsound(&[(LAST, "set  = { note = \"'failed: ' + error.message\" }")], "may-exceed-bounds");
    sound(&[(LAST, "set  = { note = \"size(error.message) < 900 ? 'failed: ' + error.message : error.message\" }")]);
    unsound(
        &[(
            "note    = { type = \"string\", optional = true }",
            "note    = { type = \"string\", pattern = \"^[a-z]*$\", optional = true }",
        )],
        "may-exceed-bounds",
    );
}

#[test]
fn values_fit_their_enums() {
    let word = (
        "[fields]",
        "[fields]\nword = { type = \"string\", enum = [\"small\", \"large\", \"none\"], default = \"none\" }",
    );
    sound(&[word, (LAST, "set = { word = \"record.kind == small ? small : none\" }")]);
}

#[test]
fn divisors_are_not_zero() {
    unsound(&[(LAST, "set = { price = \"1 + 50 / record.tries\" }")], "may-divide-by-zero");
    sound(&[(LAST, "set = { price = \"1 + 50 / (record.tries + 1)\" }")]);
    sound(&[(LAST, "set = { price = \"record.tries == 0 ? 1 : 1 + 50 / record.tries\" }")]);
    unsound(&[(LAST, "set = { price = \"50 / record.price\" }")], "may-exceed-bounds");
}

#[test]
fn times_stay_within_the_calendar() {
    unsound(
        &[("now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')", "now + duration('2000000d')")],
        "may-overflow",
    );
    sound(&[(
        "now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')",
        "now + max(backoff(record.tries, '2s', 2, '30s'), error.retryAfter)",
    )]);
    unsound(&[("now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')", "now + error.retryAfter")], "may-be-null");
}

#[test]
fn a_difference_is_as_large_as_its_guard_says() {
    let given = ("take = [\"price\"", "take = [\"paid\", \"price\"");
    let fields = (
        "[fields]",
        "[fields]\npaid = { type = \"int\", min = 0, max = 1000, default = 0 }\nback = { type = \"int\", min = 1, max = 1000, optional = true }",
    );
    unsound(&[fields, given, (LAST, "set = { back = \"record.paid - record.price\" }")], "may-exceed-bounds");
    sound(&[
        fields,
        given,
        (LAST, "set = { back = \"record.paid > record.price ? record.paid - record.price : null\" }"),
    ]);
    unsound(
        &[
            fields,
            given,
            (LAST, "set = { back = \"record.paid >= record.price ? record.paid - record.price : null\" }"),
        ],
        "may-exceed-bounds",
    );
}

#[test]
fn standing_formulas_do_not_fault() {
    unsound(&[("lease  = \"30s\"", "lease  = \"30s\"\nstop = \"size(record.note) > 3\"")], "may-be-null");
    unsound(&[("lease  = \"30s\"", "lease  = \"30s\"\npriority = \"100 / record.tries\"")], "may-divide-by-zero");
    sound(&[(
        "lease  = \"30s\"",
        "lease  = \"30s\"\npriority = \"100 / record.price\"\nstop = \"record.note != null && size(record.note) > 3\"",
    )]);
    unsound(&[("at = \"retryAt\"", "after = \"backoff(size(record.note), '1s', 2, '1m')\"")], "may-be-null");
}

/// Enter rows have had their say before anything else sees the record.
#[test]
fn enter_rows_narrow_what_rests() {
    let enter = (
        "[[on.time]]",
        "[[on.enter]]\ngo = \"WAITING -> FAILED\"\nwhen = \"record.tries > 3\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.time]]",
    );
    let free = ("default = 0, min = 0, max = 3", "default = 0, min = 0, max = 4");
    sound(&[enter, free, (GUARD, "when = \"error.retryable\"")]);
    unsound(&[free, (GUARD, "when = \"error.retryable\"")], "may-exceed-bounds");
    let weak = (
        "[[on.time]]",
        "[[on.enter]]\ngo = \"WAITING -> FAILED\"\nwhen = \"record.tries > 3 && record.price > 1\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.time]]",
    );
    unsound(&[weak, free, (GUARD, "when = \"error.retryable\"")], "may-exceed-bounds");
}
