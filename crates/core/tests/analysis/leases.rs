//! Tests that leased states answer their events, that an effect commits once, and that retries end.

use super::support::{assert_no_diagnostics, assert_only_error, assert_only_warning, changed_job, diagnostic_codes};

const LAST_FAIL_TRANSITION: &str = "[[on.fail]]\ngo   = \"RUNNING -> FAILED\"";

/// EXE-5
#[test]
fn ready_state_must_answer_lease() {
    assert_only_error(
        &[("go = \"QUEUED -> RUNNING\"", "go = \"QUEUED -> RUNNING\"\nwhen = \"record.price > 1\"")],
        "unhandled-work",
    );
    assert_no_diagnostics(&[(
        "go = \"QUEUED -> RUNNING\"",
        "go = \"QUEUED -> RUNNING\"\nwhen = \"record.price >= 1\"",
    )]);
}

/// EXE-7
#[test]
fn leased_state_must_answer_fail() {
    assert_only_error(
        &[(LAST_FAIL_TRANSITION, &format!("{LAST_FAIL_TRANSITION}\nwhen = \"!error.retryable\""))],
        "unhandled-work",
    );
    assert_no_diagnostics(&[(
        LAST_FAIL_TRANSITION,
        &format!("{LAST_FAIL_TRANSITION}\nwhen = \"!(error.retryable && record.tries < record.most)\""),
    )]);
    assert_no_diagnostics(&[(
        LAST_FAIL_TRANSITION,
        &format!("{LAST_FAIL_TRANSITION}\nwhen = \"!error.retryable || record.tries == 3\""),
    )]);
    assert_only_error(
        &[(LAST_FAIL_TRANSITION, &format!("{LAST_FAIL_TRANSITION}\nwhen = \"!error.retryable || record.tries == 2\""))],
        "unhandled-work",
    );
}

/// EXE-13
#[test]
fn leased_state_must_answer_commit() {
    let commit = "go    = \"RUNNING -> DONE\"";
    assert_only_error(&[(commit, &format!("{commit}\nwhen  = \"result.count > 0\""))], "unhandled-work");
    let two = "[[on.commit]]\ngo = \"RUNNING -> FAILED\"\nwhen = \"result.count == 0\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.commit]]\ngo    = \"RUNNING -> DONE\"\nwhen = \"result.count != 0\"";
    assert_no_diagnostics(&[("[[on.commit]]\ngo    = \"RUNNING -> DONE\"", two)]);
}

/// EXE-14
#[test]
fn staying_commit_requires_leaving_finish() {
    let stays = ("go    = \"RUNNING -> DONE\"", "go    = \"RUNNING\"");
    assert_only_error(&[stays, ("DONE    = { final = true }\n", "")], "unhandled-work");
    let finish = ("[[on.time]]", "[[on.finish]]\ngo = \"RUNNING -> DONE\"\n\n[[on.time]]");
    assert_no_diagnostics(&[stays, finish]);
    assert_only_error(
        &[
            stays,
            ("[[on.time]]", "[[on.finish]]\ngo = \"RUNNING -> DONE\"\nwhen = \"record.tries > 1\"\n\n[[on.time]]"),
        ],
        "unhandled-work",
    );
}

/// EXE-12
#[test]
fn committed_job_may_not_return_to_ready_state() {
    assert_only_error(
        &[("go    = \"RUNNING -> DONE\"", "go    = \"RUNNING -> NEW\""), ("DONE    = { final = true }\n", "")],
        "repeated-effect",
    );
    assert_only_error(
        &[
            ("go    = \"RUNNING -> DONE\"", "go    = \"RUNNING\""),
            ("[[on.time]]", "[[on.finish]]\ngo = \"RUNNING -> NEW\"\n\n[[on.time]]"),
            ("DONE    = { final = true }\n", ""),
        ],
        "repeated-effect",
    );
}

/// EXE-7
#[test]
fn staying_fail_requires_ready_state() {
    assert_only_error(
        &[(
            LAST_FAIL_TRANSITION,
            "[[on.fail]]\ngo = \"RUNNING\"\nwhen = \"error.code == 'again'\"\n\n[[on.fail]]\ngo   = \"RUNNING -> FAILED\"",
        )],
        "orphan-state",
    );
    // If the leased state itself is ready, staying is a retry.
    let text = changed_job(&[])
        .replace("QUEUED  = { ready = true }\nRUNNING = {}", "RUNNING = { ready = true }")
        .replace("QUEUED -> RUNNING", "RUNNING")
        .replace("QUEUED", "RUNNING");
    assert_eq!(diagnostic_codes(&[&text, super::support::THING_LIFECYCLE]), Vec::<&str>::new(), "{text}");
}

/// EXE-11: retries end if they are counted up to a bound.
#[test]
fn uncounted_retries_give_unproven_retries_warning() {
    assert_only_warning(
        &[
            ("tries = \"record.tries + 1\", ", ""),
            ("when = \"error.retryable && record.tries < record.most\"", "when = \"error.retryable\""),
        ],
        "unproven-retries",
    );
    // Counted without a bound.
    assert_only_warning(
        &[
            ("default = 0, min = 0, max = 3", "default = 0"),
            ("when = \"error.retryable && record.tries < record.most\"", "when = \"error.retryable\""),
        ],
        "unproven-retries",
    );
    // An earlier transition has the bound.
    assert_no_diagnostics(&[
        ("default = 0, min = 0, max = 3", "default = 0"),
        (
            "[[on.fail]]\ngo   = \"RUNNING -> WAITING\"\nwhen = \"error.retryable && record.tries < record.most\"",
            "[[on.fail]]\ngo = \"RUNNING -> FAILED\"\nwhen = \"!error.retryable || record.tries + 1 >= record.price\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.fail]]\ngo   = \"RUNNING -> WAITING\"",
        ),
        (
            "[[on.fail]]\ngo   = \"RUNNING -> FAILED\"\nset  = { note = \"error.message\" }\nmove = [{ from = \"hold\", to = \"user:{record.owner}\", amount = \"rest\" }]\n",
            "",
        ),
    ]);
    // The count is reset on the way.
    assert_only_warning(
        &[("go = \"QUEUED -> RUNNING\"", "go = \"QUEUED -> RUNNING\"\nset = { tries = \"0\" }")],
        "unproven-retries",
    );
    // Declared with `forever`, which is an error if the retries end anyway.
    assert_no_diagnostics(&[
        ("tries = \"record.tries + 1\", ", ""),
        ("when = \"error.retryable && record.tries < record.most\"", "when = \"error.retryable\"\nforever = true"),
    ]);
    assert_only_warning(
        &[("go   = \"RUNNING -> WAITING\"\nwhen", "go   = \"RUNNING -> WAITING\"\nforever = true\nwhen")],
        "needless-forever",
    );
    // A yield is not a failure.
    assert_no_diagnostics(&[(
        "[[on.fail]]",
        "[[on.fail]]\ngo = \"RUNNING -> QUEUED\"\nwhen = \"error.code == 'yielded'\"\n\n[[on.fail]]",
    )]);
    assert_only_warning(
        &[(
            "[[on.fail]]",
            "[[on.fail]]\ngo = \"RUNNING -> QUEUED\"\nwhen = \"error.code in ['yielded', 'busy']\"\n\n[[on.fail]]",
        )],
        "unproven-retries",
    );
}

/// EXE-11: a caller decides about each retry; a timer has no bound.
#[test]
fn retry_by_caller_is_allowed_but_retry_by_timer_warns() {
    let again =
        |by: &str| format!("[[on.again]]\ngo = \"FAILED -> QUEUED\"\n{by}set = {{ tries = 0 }}\n\n[[on.lease]]");
    let rest = ("FAILED  = { final = true }", "FAILED  = { rest = true }");
    assert_no_diagnostics(&[rest, ("[[on.lease]]", &again("by = \"owner\"\n"))]);
    assert_no_diagnostics(&[rest, ("[[on.lease]]", &again(""))]);
    // Both failures warn.
    let timed = again("").replace("on.again", "on.time").replace("set", "after = \"1h\"\nset");
    let text = changed_job(&[rest, ("[[on.lease]]", &timed)]);
    assert_eq!(diagnostic_codes(&[&text, super::support::THING_LIFECYCLE]), ["unproven-retries"; 2], "{text}");
}

#[test]
fn unreachable_engine_and_worker_transitions_give_warnings() {
    assert_only_warning(&[("[[on.lease]]", "[[on.fail]]\ngo = \"NEW -> FAILED\"\n\n[[on.lease]]")], "dead-transition");
    assert_only_warning(
        &[("[[on.lease]]", "[[on.note]]\ngo = \"QUEUED\"\nby = \"worker\"\n\n[[on.lease]]")],
        "never-admitted",
    );
    assert_no_diagnostics(&[("[[on.lease]]", "[[on.note]]\ngo = \"RUNNING\"\nby = \"worker\"\n\n[[on.lease]]")]);
}
