//! Tests that valid files give no diagnostics. Each has an invalid counterpart in `tests/bad`.

use onceward_core::diagnostic::{InputFile, InputFiles, render_all};
use onceward_core::load_definitions;

fn to_files(texts: &[&str]) -> InputFiles {
    let named = |(at, text): (usize, &&str)| InputFile { name: format!("{at}.toml"), text: (*text).into() };
    InputFiles { files: texts.iter().enumerate().map(named).collect() }
}

/// Returns the codes of all diagnostics.
fn diagnostic_codes(texts: &[&str]) -> Vec<&'static str> {
    let found = match load_definitions(&to_files(texts)) {
        Ok(loaded) => loaded.warnings,
        Err(found) => found,
    };
    found.iter().map(|diagnostic| diagnostic.code).collect()
}

fn assert_no_diagnostics(texts: &[&str]) {
    let found = match load_definitions(&to_files(texts)) {
        Ok(loaded) => loaded.warnings,
        Err(found) => found,
    };
    assert!(found.is_empty(), "{}\n{}", texts.join("\n---\n"), render_all(&found, &to_files(texts), false));
}

/// Returns an order that waits in `WAIT`, with these timers.
fn waiting_order(timers: &str) -> String {
    format!(
        "language = 1\nlifecycle = \"shop.order\"\n[states]\nWAIT = {{}}\nDONE = {{ final = true }}\n\
         [fields]\ndue = {{ type = \"time\" }}\nlooks = {{ type = \"int\", default = 0 }}\n\
         [[on.create]]\ngo = \"-> WAIT\"\ntake = [\"due\"]\n[[on.close]]\ngo = \"WAIT -> DONE\"\n{timers}"
    )
}

/// Entering a state resets its timers, even from the state itself. A changed time field also sets a timer.
#[test]
fn renewed_timer_gives_no_orphan_state() {
    let transitions = [
        "[[on.time]]\ngo = \"WAIT -> WAIT\"\nafter = \"1m\"\n",
        "[[on.time]]\ngo = \"WAIT -> WAIT\"\nat = \"due\"\nset = { due = \"now + duration('1m')\" }\n",
        "[[on.time]]\ngo = \"WAIT\"\nat = \"due\"\nset = { due = \"now + duration('1m')\" }\n",
        // A reminder, and the end some time after it.
        "[[on.time]]\ngo = \"WAIT\"\nafter = \"1m\"\nset = { looks = \"record.looks + 1\" }\n\
         [[on.time]]\ngo = \"WAIT -> DONE\"\nafter = \"2m\"\n",
        // If both are due at once, the one that leaves fires first.
        "[[on.time]]\ngo = \"WAIT -> DONE\"\nafter = \"2m\"\n\
         [[on.time]]\ngo = \"WAIT\"\nat = \"due\"\nset = { looks = \"record.looks + 1\" }\n",
    ];
    for transition in transitions {
        assert_no_diagnostics(&[&waiting_order(transition)]);
    }
}

#[test]
fn timer_that_may_be_spent_gives_orphan_state() {
    let transitions = [
        "[[on.time]]\ngo = \"WAIT\"\nafter = \"1m\"\n",
        // If both are due at once, the one that stays fires first and no timer remains.
        "[[on.time]]\ngo = \"WAIT\"\nat = \"due\"\nset = { looks = \"record.looks + 1\" }\n\
         [[on.time]]\ngo = \"WAIT -> DONE\"\nafter = \"2m\"\n",
        "[[on.time]]\ngo = \"WAIT -> WAIT\"\nafter = \"1m\"\nwhen = \"record.looks < 3\"\n\
         set = { looks = \"record.looks + 1\" }\n",
    ];
    for transition in transitions {
        assert_eq!(diagnostic_codes(&[&waiting_order(transition)]), ["orphan-state"], "{transition}");
    }
}

/// The engine would never leave such a cycle.
#[test]
fn timers_cycling_without_delay_give_endless_timer() {
    let timed = |how: &str| format!("[[on.time]]\n{how}\n");
    let stays = timed("go = \"WAIT\"\nat = \"due\"\nset = { due = \"now\" }");
    assert_eq!(diagnostic_codes(&[&waiting_order(&stays)]), ["orphan-state", "endless-timer"]);
    let same = timed("go = \"WAIT -> WAIT\"\nat = \"due\"\nset = { due = \"record.due\" }");
    assert_eq!(diagnostic_codes(&[&waiting_order(&same)]), ["endless-timer"]);
    let between = |there: &str, back: &str| {
        let states = "AWAY = {}\nDONE";
        let transitions =
            timed(&format!("go = \"WAIT -> AWAY\"\n{there}")) + &timed(&format!("go = \"AWAY -> WAIT\"\n{back}"));
        waiting_order(&transitions).replacen("DONE", states, 1)
    };
    assert_eq!(diagnostic_codes(&[&between("after = \"0s\"", "after = \"0s\"")]), ["endless-timer"]);
    assert_eq!(diagnostic_codes(&[&between("at = \"due\"", "at = \"due\"")]), ["endless-timer"]);
    assert_no_diagnostics(&[&between("after = \"0s\"", "after = \"1s\"")]);
    assert_no_diagnostics(&[&between("at = \"due\"", "after = \"0s\"\nset = { due = \"now + duration('1s')\" }")]);
    // Counted and bounded.
    assert_no_diagnostics(&[&waiting_order(
        &(timed("go = \"WAIT -> DONE\"\nafter = \"0s\"\nwhen = \"record.looks >= 3\"")
            + &timed("go = \"WAIT -> WAIT\"\nafter = \"0s\"\nset = { looks = \"record.looks + 1\" }")),
    )]);
    let entering = timed("go = \"WAIT -> AWAY\"\nafter = \"0s\"") + "[[on.enter]]\ngo = \"AWAY -> WAIT\"\n";
    assert_eq!(
        diagnostic_codes(&[&waiting_order(&entering).replacen("DONE", "AWAY = {}\nDONE", 1)]),
        ["endless-timer"]
    );
}

/// Returns a job with these retry transitions.
fn retried_job(transitions: &str) -> String {
    format!(
        "language = 1\nlifecycle = \"shop.job\"\n[states]\nQUEUED = {{ ready = true }}\nRUNNING = {{}}\n\
         RETRYING = {{}}\nDONE = {{ final = true }}\nFAILED = {{ final = true }}\n\
         [fields]\nmost = {{ type = \"int\", default = 3 }}\nuntil = {{ type = \"time\", optional = true }}\n\
         tries = {{ type = \"int\", default = 0 }}\n[work]\nlease = \"30s\"\n[errors]\nretryable = [\"yielded\"]\n\
         [[on.create]]\ngo = \"-> QUEUED\"\ntake = [\"most\", \"until\"]\n[[on.lease]]\ngo = \"QUEUED -> RUNNING\"\n\
         [[on.commit]]\ngo = \"RUNNING -> DONE\"\n{transitions}"
    )
}

const RETRY_TIMER: &str = "[[on.time]]\ngo = \"RETRYING -> QUEUED\"\nafter = \"1s\"\n";
const GIVE_UP_TRANSITION: &str = "[[on.fail]]\ngo = \"RUNNING -> FAILED\"\n";

fn retry_transition(more: &str) -> String {
    format!("[[on.fail]]\ngo = \"RUNNING -> RETRYING\"\n{more}\n")
}

#[test]
fn retries_bounded_by_attempts_time_or_count_give_no_warning() {
    let guards = [
        "when = \"record.attempt < 5\"",
        "when = \"error.retryable && 5 >= record.attempt\"",
        "when = \"record.attempt <= record.most && error.retryable\"",
        "when = \"now < record.created_at + duration('1h')\"",
        "when = \"now - record.created_at < duration('1h')\"",
        "when = \"record.until != null && now < record.until\"",
        "when = \"record.tries < 5\"\nset = { tries = \"record.tries + 1\" }",
    ];
    for guard in guards {
        assert_no_diagnostics(&[&retried_job(&format!(
            "{}{GIVE_UP_TRANSITION}{RETRY_TIMER}",
            retry_transition(guard)
        ))]);
    }
    // An earlier transition or a timer gives up.
    let early = "[[on.fail]]\ngo = \"RUNNING -> FAILED\"\nwhen = \"!error.retryable || record.attempt >= 5\"\n";
    assert_no_diagnostics(&[&retried_job(&format!("{early}{}{RETRY_TIMER}", retry_transition("")))]);
    let late = "[[on.time]]\ngo = \"RETRYING -> QUEUED\"\nafter = \"1s\"\nwhen = \"record.attempt < 5\"\n\
                [[on.time]]\ngo = \"RETRYING -> FAILED\"\nafter = \"1s\"\n";
    assert_no_diagnostics(&[&retried_job(&format!("{}{late}", retry_transition("")))]);
}

#[test]
fn unbounded_retries_give_unproven_retries() {
    let guards = [
        "when = \"error.retryable\"",
        "when = \"record.attempt > 5\"",
        "when = \"record.attempt < 5 || error.retryable\"",
        // Postponed by every failure.
        "when = \"record.until != null && now < record.until\"\nset = { until = \"now + duration('1m')\" }",
        "when = \"now < record.updated_at + duration('1h')\"",
        "when = \"record.tries < 5\"",
    ];
    for guard in guards {
        let found =
            diagnostic_codes(&[&retried_job(&format!("{}{GIVE_UP_TRANSITION}{RETRY_TIMER}", retry_transition(guard)))]);
        assert!(found.contains(&"unproven-retries"), "{guard}: {found:?}");
    }
}

/// Transfers in other files count, and a placeholder matches any name.
#[test]
fn account_paid_into_by_other_file_gives_no_warning() {
    let file = |name: &str, transitions: &str| {
        format!(
            "language = 1\nlifecycle = \"shop.{name}\"\nasset = \"credit\"\noutside = [\"bank\"]\n[states]\n\
             NEW = {{ rest = true }}\n[[on.create]]\ngo = \"-> NEW\"\n{transitions}"
        )
    };
    let transfer_event = |event: &str, from: &str, to: &str| {
        format!("[[on.{event}]]\ngo = \"NEW\"\nmove = [{{ from = \"{from}\", to = \"{to}\", amount = \"3\" }}]\n")
    };
    let grant = file("grant", &transfer_event("give", "bank", "user:{record.owner}"));
    let spend = transfer_event("spend", "user:{record.owner}", "bank");
    assert_no_diagnostics(&[&grant, &file("order", &spend)]);
    assert_eq!(diagnostic_codes(&[&file("order", &spend)]), ["never-filled-account"]);
    // Paid through another account, and through a name that the placeholder matches.
    let house = transfer_event("house", "user:anna", "house") + &transfer_event("out", "house", "bank");
    assert_no_diagnostics(&[&grant, &file("order", &house)]);
    // Two accounts that pay each other never get money.
    let round =
        transfer_event("give", "user:{record.owner}", "user:{record.id}") + &transfer_event("out", "bank", "house");
    assert_eq!(diagnostic_codes(&[&file("order", &round)]), ["never-filled-account"]);
}

/// The test may be in `by`, in `when`, in an earlier `refuse` entry or in a condition.
#[test]
fn null_tested_earlier_gives_no_may_be_null() {
    let file = |transition: &str| {
        format!(
            "language = 1\nlifecycle = \"shop.order\"\nkey = \"number\"\n[states]\nOPEN = {{ rest = true }}\n\
             [fields]\nnumber = \"string\"\nmost = {{ type = \"int\", optional = true }}\n\
             [who]\nknown = \"refs.other != null\"\n[refs]\nother = {{ to = \"shop.order\", key = \"actor.id\" }}\n\
             [[on.create]]\ngo = \"-> OPEN\"\ntake = [\"number\", \"most\"]\n\
             [[on.note]]\ngo = \"OPEN\"\nby = \"known\"\naudit = \"NOTED\"\n\
             [[on.look]]\ngo = \"OPEN\"\naudit = \"SEEN\"\n{transition}\n"
        )
    };
    let tested = [
        "by = \"known\"\nwhen = \"refs.other.number != record.number\"",
        "by = [\"known\"]\nrefuse = [{ if = \"refs.other.number == record.number\", as = \"409 itself\" }]",
        "when = \"record.most != null && record.most > 3\"",
        "when = \"record.most == null ? true : record.most > 3\"",
        "refuse = [{ if = \"record.most == null\", as = \"409 none\" }, { if = \"record.most > 3\", as = \"409 many\" }]",
    ];
    for transition in tested {
        assert_no_diagnostics(&[&file(transition)]);
    }
    let untested = [
        "when = \"refs.other.number != record.number\"",
        "by = [\"known\", \"owner\"]\nwhen = \"refs.other.number != record.number\"",
        "when = \"record.most > 3\"",
        "refuse = [{ if = \"record.most > 3\", as = \"409 many\" }, { if = \"record.most == null\", as = \"409 none\" }]",
    ];
    for transition in untested {
        assert!(
            diagnostic_codes(&[&file(transition)]).contains(&"may-be-null"),
            "{transition}: {:?}",
            diagnostic_codes(&[&file(transition)])
        );
    }
}

/// The remainder overflows if the smallest int is divided by -1. An owner has at most 1,000 characters.
#[test]
fn engine_transition_that_may_overflow_or_exceed_bounds_is_error() {
    let timed = |fields: &str, transition: &str| {
        waiting_order(&format!("[[on.time]]\ngo = \"WAIT -> DONE\"\nafter = \"1m\"\n{transition}"))
            .replace("[fields]\n", &format!("[fields]\n{fields}"))
            .replace("take = [\"due\"]", "take = [\"due\", \"a\", \"b\"]")
    };
    let numbers = |least: &str| {
        format!(
            "a = {{ type = \"int\" }}\nb = {{ type = \"int\", min = {least}, max = -1 }}\nc = {{ type = \"int\", default = 0 }}\n"
        )
    };
    let rest = "set = { c = \"record.a % record.b\" }\n";
    assert_eq!(diagnostic_codes(&[&timed(&numbers("-1"), rest)]), ["may-overflow"]);
    let bounded = numbers("-1").replacen("\"int\" }", "\"int\", min = 0 }", 1);
    assert_no_diagnostics(&[&timed(&bounded, rest)]);
    let texts = "a = { type = \"string\", max = 1001 }\nb = { type = \"string\", max = 1000 }\n";
    let made = |owner: &str| {
        let transition = format!("spawn = [{{ lifecycle = \"shop.note\", owner = \"record.{owner}\" }}]\n");
        let note = "language = 1\nlifecycle = \"shop.note\"\n[states]\nNEW = { rest = true }\n[[on.create]]\ngo = \"-> NEW\"\n";
        diagnostic_codes(&[&timed(texts, &transition), note])
    };
    assert_eq!(made("a"), ["may-exceed-bounds"]);
    assert_eq!(made("b"), Vec::<&str>::new());
}

/// A transition that always refuses is never taken, so its state needs no leaving `finish`. A transition that may be
/// taken and stays needs one.
#[test]
fn commit_transition_that_always_refuses_needs_no_finish() {
    let file = |refusal: &str| {
        format!(
            "language = 1\nlifecycle = \"shop.order\"\n[states]\nWAIT = {{ ready = true }}\nRUN = {{}}\nDONE = {{ final = true }}\n\
             [work]\nlease = \"1m\"\nresult = {{ url = {{ type = \"string\" }} }}\n\
             [[on.create]]\ngo = \"-> WAIT\"\n[[on.lease]]\ngo = \"WAIT -> RUN\"\n\
             [[on.commit]]\ngo = \"RUN\"\nwhen = \"!result.url.startsWith(string(record.id))\"\n{refusal}\n\
             [[on.commit]]\ngo = \"RUN -> DONE\"\n[[on.fail]]\ngo = \"RUN -> DONE\"\n"
        )
    };
    assert_no_diagnostics(&[&file("refuse = [{ if = \"true\", as = \"422 foreign\" }]")]);
    for taken in ["", "refuse = [{ if = \"result.url == 'x'\", as = \"422 foreign\" }]"] {
        assert!(diagnostic_codes(&[&file(taken)]).contains(&"unhandled-work"), "{taken}");
    }
}
