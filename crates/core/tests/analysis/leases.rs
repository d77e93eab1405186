//! Tests that leased states answer their events, that an effect commits once, and that retries end.

use super::support::{assert_no_diagnostics, assert_only_error, assert_only_warning, changed_job, diagnostic_codes};

const LAST_FAIL_TRANSITION: &str = "[[on.fail]]\ngo   = \"RUNNING -> FAILED\"";

/// EXE-5
#[test]
fn ready_state_must_answer_lease() {
    assert_only_error(
        &[("go = \"QUEUED -> RUNNING\"", "go = \"QUEUED -> RUNNING\"\nwhen = \"record.price > 1\"")],
        "unanswered-work",
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
        "unanswered-work",
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
        "unanswered-work",
    );
}

/// EXE-13
#[test]
fn leased_state_must_answer_commit() {
    let commit = "go    = \"RUNNING -> DONE\"";
    assert_only_error(&[(commit, &format!("{commit}\nwhen  = \"result.count > 0\""))], "unanswered-work");
    let two = "[[on.commit]]\ngo = \"RUNNING -> FAILED\"\nwhen = \"result.count == 0\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.commit]]\ngo    = \"RUNNING -> DONE\"\nwhen = \"result.count != 0\"";
    assert_no_diagnostics(&[("[[on.commit]]\ngo    = \"RUNNING -> DONE\"", two)]);
}

/// EXE-14
#[test]
fn staying_commit_requires_leaving_finish() {
    let stays = ("go    = \"RUNNING -> DONE\"", "go    = \"RUNNING\"");
    assert_only_error(&[stays, ("DONE    = { final = true }\n", "")], "unanswered-work");
    let finish = ("[[on.time]]", "[[on.finish]]\ngo = \"RUNNING -> DONE\"\n\n[[on.time]]");
    assert_no_diagnostics(&[stays, finish]);
    assert_only_error(
        &[
            stays,
            ("[[on.time]]", "[[on.finish]]\ngo = \"RUNNING -> DONE\"\nwhen = \"record.tries > 1\"\n\n[[on.time]]"),
        ],
        "unanswered-work",
    );
}

/// EXE-12
#[test]
fn committed_job_may_not_return_to_ready_state() {
    assert_only_error(
        &[("go    = \"RUNNING -> DONE\"", "go    = \"RUNNING -> NEW\""), ("DONE    = { final = true }\n", "")],
        "effect-twice",
    );
    assert_only_error(
        &[
            ("go    = \"RUNNING -> DONE\"", "go    = \"RUNNING\""),
            ("[[on.time]]", "[[on.finish]]\ngo = \"RUNNING -> NEW\"\n\n[[on.time]]"),
            ("DONE    = { final = true }\n", ""),
        ],
        "effect-twice",
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
    assert_only_warning(&[("[[on.lease]]", "[[on.fail]]\ngo = \"NEW -> FAILED\"\n\n[[on.lease]]")], "dead-row");
    assert_only_warning(
        &[("[[on.lease]]", "[[on.note]]\ngo = \"QUEUED\"\nby = \"worker\"\n\n[[on.lease]]")],
        "never-admitted",
    );
    assert_no_diagnostics(&[("[[on.lease]]", "[[on.note]]\ngo = \"RUNNING\"\nby = \"worker\"\n\n[[on.lease]]")]);
}

/// A worker that shuts down yields its job. If the file does not distinguish a yield from a failure, the yield costs an
/// attempt.
#[test]
fn yield_counted_as_failure_gives_charged_yield_warning() {
    let without_errors_table = ("[errors]\nretryable = [\"yielded\"]\n", "");
    let (guard, of_time) =
        ("error.retryable && record.tries < record.most", "now < record.created_at + duration('1h')");
    assert_only_warning(&[without_errors_table], "charged-yield");
    assert_only_warning(
        &[without_errors_table, (guard, "record.attempt < 3"), ("tries = \"record.tries + 1\", ", "")],
        "charged-yield",
    );
    // Through another state that has the bound.
    let later = "go = \"WAITING -> FAILED\"\nwhen = \"record.tries == 3\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]";
    let enters = format!("[[on.enter]]\n{later}\n\n[[on.time]]");
    assert_only_warning(
        &[without_errors_table, (guard, "error.retryable && record.tries < 3"), ("[[on.time]]", &enters)],
        "charged-yield",
    );
    // A transition or `[errors]` distinguishes the yield, or the guard excludes it.
    let row = "[[on.fail]]\ngo = \"RUNNING -> QUEUED\"\nwhen = \"error.code in ['yielded']\"\n\n[[on.fail]]";
    assert_no_diagnostics(&[without_errors_table, ("[[on.fail]]", row)]);
    assert_no_diagnostics(&[(without_errors_table.0, "[errors]\nterminal = [\"yielded\"]\n")]);
    assert_no_diagnostics(&[without_errors_table, (guard, "error.code == 'BUSY' && record.tries < record.most")]);
    assert_no_diagnostics(&[without_errors_table, (guard, "!error.retryable && record.tries < record.most")]);
    // A count that only selects delays is not a budget, and neither is time.
    assert_no_diagnostics(&[without_errors_table, ("default = 0, min = 0, max = 3", "default = 0"), (guard, of_time)]);
}

const COUNTED_RETRY: &str = "when = \"error.retryable && record.tries < 3\"\nset = { tries = \"record.tries + 1\" }";

/// Returns a job that does not classify yields, with these additional states and transitions.
fn job_without_errors_table(states: &str, transitions: &str) -> String {
    format!(
        "language = 1\nlifecycle = \"shop.job\"\n[states]\nQUEUED = {{ ready = true }}\nRUNNING = {{}}\n\
         DONE = {{ final = true }}\nFAILED = {{ final = true }}\n{states}[fields]\n\
         tries = {{ type = \"int\", default = 0, min = 0, max = 3 }}\n[work]\nlease = \"30s\"\n[[on.create]]\ngo = \"-> QUEUED\"\n\
         [[on.commit]]\ngo = \"RUNNING -> DONE\"\n{transitions}"
    )
}

/// Returns all codes except those about unreachable states.
fn codes_except_unreachable(states: &str, transitions: &str) -> Vec<&'static str> {
    diagnostic_codes(&[&job_without_errors_table(states, transitions)])
        .into_iter()
        .filter(|code| *code != "unreachable-state")
        .collect()
}

fn transition_text(event: &str, go: &str, more: &str) -> String {
    format!("[[on.{event}]]\ngo = \"{go}\"\n{more}\n")
}

/// No path gives up because of the count: both lead to a retry.
#[test]
fn count_that_only_selects_delay_gives_no_charged_yield() {
    let states = "SOON = {}\nLATER = {}\n";
    let back = transition_text("lease", "QUEUED -> RUNNING", "")
        + &transition_text("time", "SOON -> QUEUED", "after = \"1s\"")
        + &transition_text("time", "LATER -> QUEUED", "after = \"1h\"");
    let codes = |transitions: &[String]| codes_except_unreachable(states, &format!("{back}{}", transitions.concat()));
    let soon = transition_text("fail", "RUNNING -> SOON", COUNTED_RETRY);
    let later = |when: &str| transition_text("fail", "RUNNING -> LATER", &format!("forever = true\n{when}"));
    let no_codes: [&str; 0] = [];
    assert_eq!(codes(&[soon.clone(), later("")]), no_codes);
    // The job gives up without any retry, whatever the count.
    let retried = later("when = \"error.retryable\"");
    let end = transition_text("fail", "RUNNING -> FAILED", "");
    assert_eq!(codes(&[soon.clone(), retried.clone(), end.clone()]), no_codes);
    let harmless = transition_text("fail", "RUNNING -> FAILED", "when = \"!error.retryable\"");
    assert_eq!(codes(&[harmless, soon.clone(), later("")]), no_codes);
    // Counted by leases, and with the guard in another transition.
    let leases = transition_text("fail", "RUNNING -> SOON", "when = \"record.attempt < 3\"");
    assert_eq!(codes(&[leases.clone(), later("")]), no_codes);
    assert_eq!(codes(&[leases, end.clone()]), ["charged-yield"]);
    assert_eq!(codes(&[soon.clone(), end.clone()]), ["charged-yield"]);
    let early = transition_text("fail", "RUNNING -> FAILED", "when = \"!error.retryable || record.tries == 3\"");
    let counts = transition_text("fail", "RUNNING -> SOON", "set = { tries = \"record.tries + 1\" }");
    assert_eq!(codes(&[early, counts]), ["charged-yield"]);
    // Two counts, one of them for the delay.
    let pause = later("when = \"error.retryable && record.attempt < 9\"").replace("forever = true\n", "");
    assert_eq!(codes(&[soon, pause, end]), ["charged-yield"; 2]);
}

/// If the guard leaves the job waiting and nothing else moves it on, the job is given up.
#[test]
fn job_left_waiting_gives_charged_yield() {
    let codes = |rest: &str| {
        let states = "WAITING = { rest = true }\n";
        let rows = transition_text("lease", "QUEUED -> RUNNING", "")
            + &transition_text("fail", "RUNNING -> WAITING", "set = { tries = \"record.tries + 1\" }")
            + &transition_text("time", "WAITING -> QUEUED", "after = \"1s\"\nwhen = \"record.tries < 3\"");
        codes_except_unreachable(states, &(rows + rest))
    };
    assert_eq!(codes(""), ["charged-yield"]);
    let slow = transition_text("time", "WAITING -> QUEUED", "after = \"1h\"\nset = { tries = 0 }");
    assert!(!codes(&slow).contains(&"charged-yield"), "{:?}", codes(&slow));
}

/// A decision at the start of the lease counts too.
#[test]
fn lease_into_other_state_counts_as_attempt() {
    let states = "QUEUED_B = { ready = true }\nRUNNING_B = {}\n";
    let both =
        transition_text("lease", "QUEUED -> RUNNING", "") + &transition_text("lease", "QUEUED_B -> RUNNING_B", "");
    let commit = transition_text("commit", "RUNNING_B -> DONE", "");
    let end = transition_text("fail", "RUNNING | RUNNING_B -> FAILED", "");
    let codes = |transitions: &[&str]| codes_except_unreachable(states, &transitions.concat());
    let there = transition_text("fail", "RUNNING -> QUEUED_B", COUNTED_RETRY);
    let back = transition_text("fail", "RUNNING_B -> QUEUED", COUNTED_RETRY);
    assert_eq!(codes(&[&both, &commit, &there, &back, &end]), ["charged-yield"; 2]);
    // It never returns to the first state, but the attempts of the second are spent.
    let stays = transition_text("fail", "RUNNING_B -> QUEUED_B", COUNTED_RETRY);
    assert_eq!(codes(&[&both, &commit, &there, &stays, &end]), ["charged-yield"; 2]);
    // The second state only cleans up: its commit has another target.
    let cleaned = transition_text("commit", "RUNNING_B -> FAILED", "");
    let again = transition_text("fail", "RUNNING -> QUEUED", COUNTED_RETRY);
    let clean = transition_text("fail", "RUNNING | RUNNING_B -> QUEUED_B", "forever = true");
    assert_eq!(codes(&[&both, &cleaned, &again, &clean]), ["charged-yield"]);
    // The second state can reach the same commit.
    assert_eq!(codes(&[&both, &commit, &again, &clean]), Vec::<&str>::new());
    // The last attempt is a separate lease transition.
    let first = transition_text("lease", "QUEUED -> RUNNING", "when = \"record.attempt < 3\"");
    let last = transition_text("lease", "QUEUED -> RUNNING_B", "");
    let retried = transition_text("fail", "RUNNING -> QUEUED", "");
    let given_up = transition_text("fail", "RUNNING_B -> FAILED", "");
    let codes_without_second_queue =
        |transitions: &[&str]| codes_except_unreachable("RUNNING_B = {}\n", &transitions.concat());
    assert_eq!(codes_without_second_queue(&[&first, &last, &commit, &retried, &given_up]), ["charged-yield"]);
    let never = transition_text("fail", "RUNNING_B -> QUEUED", "forever = true");
    assert_eq!(codes_without_second_queue(&[&first, &last, &commit, &retried, &never]), Vec::<&str>::new());
}
