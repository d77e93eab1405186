//! Leases: answered for certain; an effect once; retries that end.

use super::house::{found, job, sound, unsound, warned};

const LAST_FAIL: &str = "[[on.fail]]\ngo   = \"RUNNING -> FAILED\"";

/// EXE-5: what is ready can be leased.
#[test]
fn a_ready_state_answers_lease() {
    unsound(
        &[("go = \"QUEUED -> RUNNING\"", "go = \"QUEUED -> RUNNING\"\nwhen = \"record.price > 1\"")],
        "unanswered-work",
    );
    sound(&[("go = \"QUEUED -> RUNNING\"", "go = \"QUEUED -> RUNNING\"\nwhen = \"record.price >= 1\"")]);
}

/// EXE-7: a failure always has somewhere to go.
#[test]
fn a_leased_state_answers_fail() {
    unsound(&[(LAST_FAIL, &format!("{LAST_FAIL}\nwhen = \"!error.retryable\""))], "unanswered-work");
    sound(&[(LAST_FAIL, &format!("{LAST_FAIL}\nwhen = \"!(error.retryable && record.tries < record.most)\""))]);
    sound(&[(LAST_FAIL, &format!("{LAST_FAIL}\nwhen = \"!error.retryable || record.tries == 3\""))]);
    unsound(
        &[(LAST_FAIL, &format!("{LAST_FAIL}\nwhen = \"!error.retryable || record.tries == 2\""))],
        "unanswered-work",
    );
}

/// EXE-13: a commit always lands somewhere.
#[test]
fn a_leased_state_answers_commit() {
    let commit = "go    = \"RUNNING -> DONE\"";
    unsound(&[(commit, &format!("{commit}\nwhen  = \"result.count > 0\""))], "unanswered-work");
    let two = "[[on.commit]]\ngo = \"RUNNING -> FAILED\"\nwhen = \"result.count == 0\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.commit]]\ngo    = \"RUNNING -> DONE\"\nwhen = \"result.count != 0\"";
    sound(&[("[[on.commit]]\ngo    = \"RUNNING -> DONE\"", two)]);
}

/// EXE-14: after a commit that stays, `finish` leaves.
#[test]
fn finish_leaves_after_a_commit_that_stays() {
    let stays = ("go    = \"RUNNING -> DONE\"", "go    = \"RUNNING\"");
    unsound(&[stays, ("DONE    = { final = true }\n", "")], "unanswered-work");
    let finish = ("[[on.time]]", "[[on.finish]]\ngo = \"RUNNING -> DONE\"\n\n[[on.time]]");
    sound(&[stays, finish]);
    unsound(
        &[
            stays,
            ("[[on.time]]", "[[on.finish]]\ngo = \"RUNNING -> DONE\"\nwhen = \"record.tries > 1\"\n\n[[on.time]]"),
        ],
        "unanswered-work",
    );
}

/// EXE-12: nothing leads back to the workers once an effect has landed.
#[test]
fn no_way_back_after_a_commit() {
    unsound(
        &[("go    = \"RUNNING -> DONE\"", "go    = \"RUNNING -> NEW\""), ("DONE    = { final = true }\n", "")],
        "effect-twice",
    );
    unsound(
        &[
            ("go    = \"RUNNING -> DONE\"", "go    = \"RUNNING\""),
            ("[[on.time]]", "[[on.finish]]\ngo = \"RUNNING -> NEW\"\n\n[[on.time]]"),
            ("DONE    = { final = true }\n", ""),
        ],
        "effect-twice",
    );
}

/// EXE-7: a failed attempt is not left lying.
#[test]
fn a_failure_that_stays_must_be_ready_again() {
    unsound(
        &[(
            LAST_FAIL,
            "[[on.fail]]\ngo = \"RUNNING\"\nwhen = \"error.code == 'again'\"\n\n[[on.fail]]\ngo   = \"RUNNING -> FAILED\"",
        )],
        "orphan-state",
    );
    // Where the leased state is itself the ready one, staying is how a retry is said.
    let text = job(&[])
        .replace("QUEUED  = { ready = true }\nRUNNING = {}", "RUNNING = { ready = true }")
        .replace("QUEUED -> RUNNING", "RUNNING")
        .replace("QUEUED", "RUNNING");
    assert_eq!(found(&[&text, super::house::THING]), Vec::<&str>::new(), "{text}");
}

/// EXE-11: retries that are counted up to a bound end; others may not.
#[test]
fn retries_end_where_they_are_counted() {
    warned(
        &[
            ("tries = \"record.tries + 1\", ", ""),
            ("when = \"error.retryable && record.tries < record.most\"", "when = \"error.retryable\""),
        ],
        "unproven-retries",
    );
    // Counted without a bound.
    warned(
        &[
            ("default = 0, min = 0, max = 3", "default = 0"),
            ("when = \"error.retryable && record.tries < record.most\"", "when = \"error.retryable\""),
        ],
        "unproven-retries",
    );
    // The bound stands in an earlier row.
    sound(&[
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
    // Counted back down on the way.
    warned(
        &[("go = \"QUEUED -> RUNNING\"", "go = \"QUEUED -> RUNNING\"\nset = { tries = \"0\" }")],
        "unproven-retries",
    );
    // Meant, and said so; but not where they end anyway.
    sound(&[
        ("tries = \"record.tries + 1\", ", ""),
        ("when = \"error.retryable && record.tries < record.most\"", "when = \"error.retryable\"\nforever = true"),
    ]);
    warned(
        &[("go   = \"RUNNING -> WAITING\"\nwhen", "go   = \"RUNNING -> WAITING\"\nforever = true\nwhen")],
        "needless-forever",
    );
    // A yield is no failure.
    sound(&[(
        "[[on.fail]]",
        "[[on.fail]]\ngo = \"RUNNING -> QUEUED\"\nwhen = \"error.code == 'yielded'\"\n\n[[on.fail]]",
    )]);
    warned(
        &[(
            "[[on.fail]]",
            "[[on.fail]]\ngo = \"RUNNING -> QUEUED\"\nwhen = \"error.code in ['yielded', 'busy']\"\n\n[[on.fail]]",
        )],
        "unproven-retries",
    );
}

/// EXE-11: a person who tries again has decided to; a program that does has no bound.
#[test]
fn a_person_who_tries_again_is_no_endless_retry() {
    let again =
        |by: &str| format!("[[on.again]]\ngo = \"FAILED -> QUEUED\"\n{by}set = {{ tries = 0 }}\n\n[[on.lease]]");
    let rest = ("FAILED  = { final = true }", "FAILED  = { rest = true }");
    sound(&[rest, ("[[on.lease]]", &again("by = \"owner\"\n"))]);
    sound(&[rest, ("[[on.lease]]", &again(""))]);
    // Both failures come back.
    let timed = again("").replace("on.again", "on.time").replace("set", "after = \"1h\"\nset");
    let text = job(&[rest, ("[[on.lease]]", &timed)]);
    assert_eq!(found(&[&text, super::house::THING]), ["unproven-retries"; 2], "{text}");
}

#[test]
fn rows_that_nobody_fires_are_told() {
    warned(&[("[[on.lease]]", "[[on.fail]]\ngo = \"NEW -> FAILED\"\n\n[[on.lease]]")], "dead-row");
    warned(&[("[[on.lease]]", "[[on.note]]\ngo = \"QUEUED\"\nby = \"worker\"\n\n[[on.lease]]")], "never-admitted");
    sound(&[("[[on.lease]]", "[[on.note]]\ngo = \"RUNNING\"\nby = \"worker\"\n\n[[on.lease]]")]);
}

/// A worker that shuts down costs a try where the file does not tell that apart from a failure, and only there.
#[test]
fn a_shutdown_that_costs_a_try_is_told() {
    let unsaid = ("[errors]\nretryable = [\"yielded\"]\n", "");
    let (guard, of_time) =
        ("error.retryable && record.tries < record.most", "now < record.created_at + duration('1h')");
    warned(&[unsaid], "charged-yield");
    warned(&[unsaid, (guard, "record.attempt < 3"), ("tries = \"record.tries + 1\", ", "")], "charged-yield");
    // By way of another state, where the bound stands.
    let later = "go = \"WAITING -> FAILED\"\nwhen = \"record.tries == 3\"\nmove = [{ from = \"hold\", to = \"fee\", amount = \"rest\" }]";
    let enters = format!("[[on.enter]]\n{later}\n\n[[on.time]]");
    warned(&[unsaid, (guard, "error.retryable && record.tries < 3"), ("[[on.time]]", &enters)], "charged-yield");
    // Told apart: by a row, or by a word in [errors]; or not what comes there.
    let row = "[[on.fail]]\ngo = \"RUNNING -> QUEUED\"\nwhen = \"error.code in ['yielded']\"\n\n[[on.fail]]";
    sound(&[unsaid, ("[[on.fail]]", row)]);
    sound(&[(unsaid.0, "[errors]\nterminal = [\"yielded\"]\n")]);
    sound(&[unsaid, (guard, "error.code == 'BUSY' && record.tries < record.most")]);
    sound(&[unsaid, (guard, "!error.retryable && record.tries < record.most")]);
    // What is counted for the pauses alone is no budget, and time is none either.
    sound(&[unsaid, ("default = 0, min = 0, max = 3", "default = 0"), (guard, of_time)]);
}

const COUNTED: &str = "when = \"error.retryable && record.tries < 3\"\nset = { tries = \"record.tries + 1\" }";

/// A job whose worker does not say what a yield is to it: these states besides, and these rows.
fn unsaid(states: &str, rows: &str) -> String {
    format!(
        "language = 1\nlifecycle = \"shop.job\"\n[states]\nQUEUED = {{ ready = true }}\nRUNNING = {{}}\n\
         DONE = {{ final = true }}\nFAILED = {{ final = true }}\n{states}[fields]\n\
         tries = {{ type = \"int\", default = 0, min = 0, max = 3 }}\n[work]\nlease = \"30s\"\n[[on.create]]\ngo = \"-> QUEUED\"\n\
         [[on.commit]]\ngo = \"RUNNING -> DONE\"\n{rows}"
    )
}

/// What is found, but for states that these rows leave out.
fn told(states: &str, rows: &str) -> Vec<&'static str> {
    found(&[&unsaid(states, rows)]).into_iter().filter(|code| *code != "unreachable-state").collect()
}

fn row(event: &str, go: &str, more: &str) -> String {
    format!("[[on.{event}]]\ngo = \"{go}\"\n{more}\n")
}

/// A count that nothing is given up by is no budget: both ways lead back.
#[test]
fn a_count_that_only_picks_the_pause_costs_no_try() {
    let states = "SOON = {}\nLATER = {}\n";
    let back = row("lease", "QUEUED -> RUNNING", "")
        + &row("time", "SOON -> QUEUED", "after = \"1s\"")
        + &row("time", "LATER -> QUEUED", "after = \"1h\"");
    let gives = |rows: &[String]| told(states, &format!("{back}{}", rows.concat()));
    let soon = row("fail", "RUNNING -> SOON", COUNTED);
    let later = |when: &str| row("fail", "RUNNING -> LATER", &format!("forever = true\n{when}"));
    let none: [&str; 0] = [];
    assert_eq!(gives(&[soon.clone(), later("")]), none);
    // What is given up has never been tried again, however much is counted.
    let retried = later("when = \"error.retryable\"");
    let end = row("fail", "RUNNING -> FAILED", "");
    assert_eq!(gives(&[soon.clone(), retried.clone(), end.clone()]), none);
    let harmless = row("fail", "RUNNING -> FAILED", "when = \"!error.retryable\"");
    assert_eq!(gives(&[harmless, soon.clone(), later("")]), none);
    // By leases, and where the guard is another row's.
    let leases = row("fail", "RUNNING -> SOON", "when = \"record.attempt < 3\"");
    assert_eq!(gives(&[leases.clone(), later("")]), none);
    assert_eq!(gives(&[leases, end.clone()]), ["charged-yield"]);
    assert_eq!(gives(&[soon.clone(), end.clone()]), ["charged-yield"]);
    let early = row("fail", "RUNNING -> FAILED", "when = \"!error.retryable || record.tries == 3\"");
    let counts = row("fail", "RUNNING -> SOON", "set = { tries = \"record.tries + 1\" }");
    assert_eq!(gives(&[early, counts]), ["charged-yield"]);
    // Two counts, one of them for the pause.
    let pause = later("when = \"error.retryable && record.attempt < 9\"").replace("forever = true\n", "");
    assert_eq!(gives(&[soon, pause, end]), ["charged-yield"; 2]);
}

/// A guard that leaves the job where it is gives it up, where nothing else moves it on.
#[test]
fn a_job_that_is_left_lying_is_given_up() {
    let gives = |rest: &str| {
        let states = "WAITING = { rest = true }\n";
        let rows = row("lease", "QUEUED -> RUNNING", "")
            + &row("fail", "RUNNING -> WAITING", "set = { tries = \"record.tries + 1\" }")
            + &row("time", "WAITING -> QUEUED", "after = \"1s\"\nwhen = \"record.tries < 3\"");
        told(states, &(rows + rest))
    };
    assert_eq!(gives(""), ["charged-yield"]);
    let slow = row("time", "WAITING -> QUEUED", "after = \"1h\"\nset = { tries = 0 }");
    assert!(!gives(&slow).contains(&"charged-yield"), "{:?}", gives(&slow));
}

/// Any lease is a try, be it into another state, and what is decided when it begins counts too.
#[test]
fn a_try_in_another_state_is_one() {
    let states = "QUEUED_B = { ready = true }\nRUNNING_B = {}\n";
    let both = row("lease", "QUEUED -> RUNNING", "") + &row("lease", "QUEUED_B -> RUNNING_B", "");
    let commit = row("commit", "RUNNING_B -> DONE", "");
    let end = row("fail", "RUNNING | RUNNING_B -> FAILED", "");
    let gives = |rows: &[&str]| told(states, &rows.concat());
    let there = row("fail", "RUNNING -> QUEUED_B", COUNTED);
    let back = row("fail", "RUNNING_B -> QUEUED", COUNTED);
    assert_eq!(gives(&[&both, &commit, &there, &back, &end]), ["charged-yield"; 2]);
    // Never into the same state again, and yet the other's tries are spent.
    let stays = row("fail", "RUNNING_B -> QUEUED_B", COUNTED);
    assert_eq!(gives(&[&both, &commit, &there, &stays, &end]), ["charged-yield"; 2]);
    // Only to be cleaned up after: its commit is another.
    let cleaned = row("commit", "RUNNING_B -> FAILED", "");
    let again = row("fail", "RUNNING -> QUEUED", COUNTED);
    let clean = row("fail", "RUNNING | RUNNING_B -> QUEUED_B", "forever = true");
    assert_eq!(gives(&[&both, &cleaned, &again, &clean]), ["charged-yield"]);
    // To the slow lane, where the same can come of it.
    assert_eq!(gives(&[&both, &commit, &again, &clean]), Vec::<&str>::new());
    // The last try is a lease of its own.
    let first = row("lease", "QUEUED -> RUNNING", "when = \"record.attempt < 3\"");
    let last = row("lease", "QUEUED -> RUNNING_B", "");
    let retried = row("fail", "RUNNING -> QUEUED", "");
    let given_up = row("fail", "RUNNING_B -> FAILED", "");
    let lone = |rows: &[&str]| told("RUNNING_B = {}\n", &rows.concat());
    assert_eq!(lone(&[&first, &last, &commit, &retried, &given_up]), ["charged-yield"]);
    let never = row("fail", "RUNNING_B -> QUEUED", "forever = true");
    assert_eq!(lone(&[&first, &last, &commit, &retried, &never]), Vec::<&str>::new());
}
