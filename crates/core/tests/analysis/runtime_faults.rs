//! Tests that transitions fired by the engine cannot fault: nulls, numbers, sizes.

use super::support::{assert_no_diagnostics, assert_only_error};

const LAST_FAIL_SET: &str = "set  = { note = \"error.message\" }";
const RETRY_GUARD: &str = "when = \"error.retryable && record.tries < record.most\"";

/// DOC-5, DOC-9
#[test]
fn counter_without_guard_may_exceed_bounds() {
    assert_only_error(&[(RETRY_GUARD, "when = \"error.retryable\"")], "may-exceed-bounds");
    assert_no_diagnostics(&[(RETRY_GUARD, "when = \"record.tries < 3 && error.retryable\"")]);
    assert_no_diagnostics(&[(RETRY_GUARD, "when = \"error.retryable && record.most > record.tries\"")]);
    assert_no_diagnostics(&[(RETRY_GUARD, "when = \"error.retryable && !(record.tries >= record.most)\"")]);
    assert_no_diagnostics(&[(RETRY_GUARD, "when = \"error.retryable && record.tries + 1 <= record.most\"")]);
    assert_no_diagnostics(&[(RETRY_GUARD, "when = \"error.retryable && record.tries in [0, 1, 2]\"")]);
    assert_no_diagnostics(&[(RETRY_GUARD, "when = \"!error.retryable ? false : record.tries != 3\"")]);
    assert_only_error(
        &[(RETRY_GUARD, "when = \"error.retryable && record.tries <= record.most\"")],
        "may-exceed-bounds",
    );
    assert_only_error(
        &[(RETRY_GUARD, "when = \"error.retryable || record.tries < record.most\"")],
        "may-exceed-bounds",
    );
    assert_only_error(
        &[(RETRY_GUARD, "when = \"error.retryable && record.tries < record.price\"")],
        "may-exceed-bounds",
    );
    assert_only_error(&[("tries = \"record.tries + 1\"", "tries = \"record.tries + 2\"")], "may-exceed-bounds");
    assert_only_error(&[("tries = \"record.tries + 1\"", "tries = \"record.tries - 1\"")], "may-exceed-bounds");
}

/// EXE-11
#[test]
fn guards_of_earlier_transitions_narrow_later_ones() {
    let first = "[[on.fail]]\ngo = \"RUNNING -> FAILED\"\nwhen = \"record.tries >= record.most\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n";
    let with_guard = format!("{first}[[on.fail]]\ngo   = \"RUNNING -> WAITING\"\nwhen = \"error.retryable\"");
    assert_no_diagnostics(&[(
        "[[on.fail]]\ngo   = \"RUNNING -> WAITING\"\nwhen = \"error.retryable && record.tries < record.most\"",
        &with_guard,
    )]);
    // A guard in another state or in a later transition does not count.
    let elsewhere = with_guard.replace("record.tries >= record.most", "record.tries > record.most");
    assert_only_error(
        &[(
            "[[on.fail]]\ngo   = \"RUNNING -> WAITING\"\nwhen = \"error.retryable && record.tries < record.most\"",
            &elsewhere,
        )],
        "may-exceed-bounds",
    );
}

#[test]
fn unbounded_field_other_than_counter_may_overflow() {
    let free = ("default = 0, min = 0, max = 3", "default = 0");
    assert_no_diagnostics(&[free]);
    // Callers may give the value, so it may be as large as they choose.
    assert_only_error(
        &[
            free,
            ("take = [\"price\"", "take = [\"tries\", \"price\""),
            (RETRY_GUARD, "when = \"error.retryable && record.tries != 3\""),
        ],
        "may-overflow",
    );
    // Doubling is not counting.
    assert_only_error(
        &[
            free,
            ("tries = \"record.tries + 1\"", "tries = \"record.tries * 2 + 1\""),
            (RETRY_GUARD, "when = \"error.retryable && record.tries != 3\""),
        ],
        "may-overflow",
    );
}

#[test]
fn untested_optional_field_may_be_null() {
    assert_only_error(
        &[(RETRY_GUARD, "when = \"error.retryable && record.tries < record.most && size(record.note) < 5\"")],
        "may-be-null",
    );
    assert_no_diagnostics(&[(
        RETRY_GUARD,
        "when = \"error.retryable && record.tries < record.most && record.note != null && size(record.note) < 5\"",
    )]);
    assert_no_diagnostics(&[(
        RETRY_GUARD,
        "when = \"error.retryable && record.tries < record.most && (record.note == null || size(record.note) < 5)\"",
    )]);
    assert_only_error(
        &[(
            RETRY_GUARD,
            "when = \"error.retryable && record.tries < record.most && (record.note != null || size(record.note) < 5)\"",
        )],
        "may-be-null",
    );
    assert_no_diagnostics(&[(LAST_FAIL_SET, "set = { note = \"record.note == null ? error.message : record.note\" }")]);
    // Every transition into the state sets it.
    assert_no_diagnostics(&[
        (RETRY_GUARD, "when = \"error.retryable && record.tries < record.most && size(record.note) < 5\""),
        ("go = \"QUEUED -> RUNNING\"", "go = \"QUEUED -> RUNNING\"\nset = { note = \"'met'\" }"),
    ]);
    // A transition that stays clears it.
    assert_only_error(
        &[
            (RETRY_GUARD, "when = \"error.retryable && record.tries < record.most && size(record.note) < 5\""),
            (
                "go = \"QUEUED -> RUNNING\"",
                "go = \"QUEUED -> RUNNING\"\nset = { note = \"'met'\" }\n\n[[on.clear]]\ngo = \"RUNNING\"\nset = { note = \"null\" }",
            ),
        ],
        "may-be-null",
    );
    assert_only_error(
        &[
            (RETRY_GUARD, "when = \"error.retryable && record.tries < record.most && size(record.note) < 5\""),
            (
                "go = \"QUEUED -> RUNNING\"",
                "go = \"QUEUED -> RUNNING\"\nset = { note = \"'met'\" }\n\n[[on.give]]\ngo = \"RUNNING\"\ntake = [\"note\"]",
            ),
        ],
        "may-be-null",
    );
}

#[test]
fn required_input_does_not_prove_earlier_field_value() {
    let keeps = (
        "[[on.lease]]",
        "[[on.begin]]\ngo = \"NEW -> QUEUED\"\ninput = { why = \"string\" }\nset = { note = \"input.why\" }\n\n[[on.lease]]",
    );
    assert_no_diagnostics(&[keeps]);
    let needs = (LAST_FAIL_SET, "set = { note = \"size(record.note) > 3 ? error.message : record.note\" }");
    assert_only_error(&[keeps, needs], "may-be-null");
    assert_no_diagnostics(&[
        keeps,
        needs,
        ("go   = \"NEW -> QUEUED\"", "go   = \"NEW -> QUEUED\"\nwhen = \"record.note != null\""),
    ]);
}

#[test]
fn text_longer_than_field_may_exceed_bounds() {
    assert_only_error(
        &[(
            "note    = { type = \"string\", optional = true }",
            "note    = { type = \"string\", max = 999, optional = true }",
        )],
        "may-exceed-bounds",
    );
    assert_only_error(&[("max = 100 }, count", "max = 2000 }, count")], "may-exceed-bounds");
    assert_only_error(&[(LAST_FAIL_SET, "set  = { note = \"'failed: ' + error.message\" }")], "may-exceed-bounds");
    assert_no_diagnostics(&[(
        LAST_FAIL_SET,
        "set  = { note = \"size(error.message) < 900 ? 'failed: ' + error.message : error.message\" }",
    )]);
    assert_only_error(
        &[(
            "note    = { type = \"string\", optional = true }",
            "note    = { type = \"string\", pattern = \"^[a-z]*$\", optional = true }",
        )],
        "may-exceed-bounds",
    );
}

#[test]
fn enum_value_of_other_field_fits_by_guard() {
    let word = (
        "[fields]",
        "[fields]\nword = { type = \"string\", enum = [\"small\", \"large\", \"none\"], default = \"none\" }",
    );
    assert_no_diagnostics(&[word, (LAST_FAIL_SET, "set = { word = \"record.kind == small ? small : none\" }")]);
}

#[test]
fn divisor_that_may_be_zero_is_error() {
    assert_only_error(&[(LAST_FAIL_SET, "set = { price = \"1 + 50 / record.tries\" }")], "may-divide-by-zero");
    assert_no_diagnostics(&[(LAST_FAIL_SET, "set = { price = \"1 + 50 / (record.tries + 1)\" }")]);
    assert_no_diagnostics(&[(LAST_FAIL_SET, "set = { price = \"record.tries == 0 ? 1 : 1 + 50 / record.tries\" }")]);
    assert_only_error(&[(LAST_FAIL_SET, "set = { price = \"50 / record.price\" }")], "may-exceed-bounds");
}

#[test]
fn time_beyond_calendar_may_overflow() {
    assert_only_error(
        &[("now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')", "now + duration('2000000d')")],
        "may-overflow",
    );
    assert_no_diagnostics(&[(
        "now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')",
        "now + max(backoff(record.tries, '2s', 2, '30s'), error.retryAfter)",
    )]);
    assert_only_error(
        &[("now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')", "now + error.retryAfter")],
        "may-be-null",
    );
}

#[test]
fn guard_on_difference_bounds_result() {
    let given = ("take = [\"price\"", "take = [\"paid\", \"price\"");
    let fields = (
        "[fields]",
        "[fields]\npaid = { type = \"int\", min = 0, max = 1000, default = 0 }\nback = { type = \"int\", min = 1, max = 1000, optional = true }",
    );
    assert_only_error(
        &[fields, given, (LAST_FAIL_SET, "set = { back = \"record.paid - record.price\" }")],
        "may-exceed-bounds",
    );
    assert_no_diagnostics(&[
        fields,
        given,
        (LAST_FAIL_SET, "set = { back = \"record.paid > record.price ? record.paid - record.price : null\" }"),
    ]);
    assert_only_error(
        &[
            fields,
            given,
            (LAST_FAIL_SET, "set = { back = \"record.paid >= record.price ? record.paid - record.price : null\" }"),
        ],
        "may-exceed-bounds",
    );
}

#[test]
fn stop_priority_and_after_may_not_fault() {
    assert_only_error(&[("lease  = \"30s\"", "lease  = \"30s\"\nstop = \"size(record.note) > 3\"")], "may-be-null");
    assert_only_error(
        &[("lease  = \"30s\"", "lease  = \"30s\"\npriority = \"100 / record.tries\"")],
        "may-divide-by-zero",
    );
    assert_no_diagnostics(&[(
        "lease  = \"30s\"",
        "lease  = \"30s\"\npriority = \"100 / record.price\"\nstop = \"record.note != null && size(record.note) > 3\"",
    )]);
    assert_only_error(&[("at = \"retryAt\"", "after = \"backoff(size(record.note), '1s', 2, '1m')\"")], "may-be-null");
}

/// The engine runs enter transitions before anything else reads the record.
#[test]
fn enter_transitions_narrow_resting_values() {
    let enter = (
        "[[on.time]]",
        "[[on.enter]]\ngo = \"WAITING -> FAILED\"\nwhen = \"record.tries > 3\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.time]]",
    );
    let free = ("default = 0, min = 0, max = 3", "default = 0, min = 0, max = 4");
    assert_no_diagnostics(&[enter, free, (RETRY_GUARD, "when = \"error.retryable\"")]);
    assert_only_error(&[free, (RETRY_GUARD, "when = \"error.retryable\"")], "may-exceed-bounds");
    let weak = (
        "[[on.time]]",
        "[[on.enter]]\ngo = \"WAITING -> FAILED\"\nwhen = \"record.tries > 3 && record.price > 1\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.time]]",
    );
    assert_only_error(&[weak, free, (RETRY_GUARD, "when = \"error.retryable\"")], "may-exceed-bounds");
}
