//! Tests for orphan states, unreachable states and cycles of `enter` transitions.

use super::support::{assert_no_diagnostics, assert_only_error};

const TIMER_TRANSITION: &str = "go = \"WAITING -> QUEUED\"\nat = \"retryAt\"";

/// DOC-14
#[test]
fn state_without_certain_exit_is_orphan() {
    assert_only_error(&[("[[on.time]]", "[[on.wake]]"), ("at = \"retryAt\"", "")], "orphan-state");
    assert_no_diagnostics(&[
        ("[[on.time]]", "[[on.wake]]"),
        ("at = \"retryAt\"", ""),
        ("WAITING = {}", "WAITING = { rest = true }"),
    ]);
    assert_no_diagnostics(&[(TIMER_TRANSITION, "go = \"WAITING -> QUEUED\"\nafter = \"1s\"")]);
}

/// DOC-14
#[test]
fn timer_field_that_may_be_null_leaves_orphan_state() {
    assert_only_error(
        &[(", retryAt = \"now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')\"", "")],
        "orphan-state",
    );
    // Set to a value that may be null.
    assert_only_error(
        &[("now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')", "record.tries > 1 ? now : record.retryAt")],
        "orphan-state",
    );
    // Cleared in the state.
    assert_only_error(
        &[("[[on.time]]", "[[on.clear]]\ngo = \"WAITING\"\nset = { retryAt = \"null\" }\n\n[[on.time]]")],
        "orphan-state",
    );
    // Taken as input in the state: null clears it.
    assert_only_error(
        &[("[[on.time]]", "[[on.give]]\ngo = \"WAITING\"\ntake = [\"retryAt\"]\n\n[[on.time]]")],
        "orphan-state",
    );
    // Another transition enters the state and leaves the field null.
    assert_only_error(&[("[[on.lease]]", "[[on.hold]]\ngo = \"QUEUED -> WAITING\"\n\n[[on.lease]]")], "orphan-state");
    assert_no_diagnostics(&[(
        "[[on.lease]]",
        "[[on.hold]]\ngo = \"QUEUED -> WAITING\"\nset = { retryAt = \"now\" }\n\n[[on.lease]]",
    )]);
    // Set earlier and kept.
    assert_no_diagnostics(&[
        (", retryAt = \"now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')\"", ""),
        ("go   = \"NEW -> QUEUED\"", "go   = \"NEW -> QUEUED\"\nset = { retryAt = \"now\" }"),
    ]);
    // Tested in the guard.
    assert_no_diagnostics(&[
        (", retryAt = \"now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')\"", ""),
        ("when = \"error.retryable &&", "when = \"record.retryAt != null && error.retryable &&"),
        ("\"kind\", \"note\"]", "\"kind\", \"note\", \"retryAt\"]"),
    ]);
}

/// DOC-14: a due timer whose guard is false does not fire again.
#[test]
fn timer_with_failing_guard_leaves_orphan_state() {
    let guarded = "go = \"WAITING -> QUEUED\"\nat = \"retryAt\"\nwhen = \"record.kind == small\"";
    assert_only_error(&[(TIMER_TRANSITION, guarded)], "orphan-state");
    let other = format!(
        "{guarded}\n\n[[on.time]]\ngo = \"WAITING -> FAILED\"\nat = \"retryAt\"\nmove = [{{ from = \"hold\", to = \"fee\", amount = \"rest\" }}]"
    );
    assert_no_diagnostics(&[(TIMER_TRANSITION, &other)]);
    assert_no_diagnostics(&[(TIMER_TRANSITION, &format!("{other}\nwhen = \"record.kind == large\""))]);
    assert_only_error(
        &[(TIMER_TRANSITION, &format!("{other}\nwhen = \"record.kind == large && record.price > 5\""))],
        "orphan-state",
    );
    // A transition that stays uses up the timer.
    assert_only_error(
        &[(
            TIMER_TRANSITION,
            &format!(
                "go = \"WAITING\"\nat = \"retryAt\"\nwhen = \"record.kind == small\"\n\n[[on.time]]\n{TIMER_TRANSITION}"
            ),
        )],
        "orphan-state",
    );
}

#[test]
fn leased_state_entered_without_lease_is_orphan() {
    assert_only_error(&[("[[on.lease]]", "[[on.force]]\ngo = \"NEW -> RUNNING\"\n\n[[on.lease]]")], "orphan-state");
}

#[test]
fn unguarded_enter_transition_counts_as_exit() {
    let through = "[[on.enter]]\ngo = \"WAITING -> QUEUED\"";
    assert_no_diagnostics(&[("[[on.time]]\ngo = \"WAITING -> QUEUED\"\nat = \"retryAt\"", through)]);
    assert_only_error(
        &[(
            "[[on.time]]\ngo = \"WAITING -> QUEUED\"\nat = \"retryAt\"",
            &format!("{through}\nwhen = \"record.tries < 2\""),
        )],
        "orphan-state",
    );
}

#[test]
fn unreachable_state_without_reserved_is_error() {
    assert_only_error(&[("NEW     =", "LATER = { rest = true }\nNEW     =")], "unreachable-state");
    assert_no_diagnostics(&[("NEW     =", "LATER = { reserved = true }\nNEW     =")]);
}

#[test]
fn cycle_of_enter_transitions_is_error() {
    let circle = "[[on.enter]]\ngo = \"WAITING -> QUEUED\"\nwhen = \"record.tries > 2\"\n\n[[on.enter]]\ngo = \"QUEUED -> WAITING\"\nwhen = \"record.tries > 3\"\nset = { retryAt = \"now\" }\n\n[[on.time]]";
    assert_only_error(&[("[[on.time]]", circle)], "enter-cycle");
    let line = "[[on.enter]]\ngo = \"WAITING -> QUEUED\"\nwhen = \"record.tries > 2\"\n\n[[on.time]]";
    assert_no_diagnostics(&[("[[on.time]]", line)]);
}

#[test]
fn event_named_like_engine_event_without_by_is_error() {
    for name in ["entr", "neter", "comit", "Fail", "TIME", "fial", "leases", "mail"] {
        assert_only_error(
            &[("[[on.pay]]", &format!("[[on.{name}]]\ngo = \"NEW\"\n\n[[on.pay]]"))],
            "near-engine-event",
        );
    }
    for name in ["release", "failed", "entered", "recreate"] {
        assert_no_diagnostics(&[("[[on.pay]]", &format!("[[on.{name}]]\ngo = \"NEW\"\n\n[[on.pay]]"))]);
    }
    // To use such a name, an author declares its callers.
    for name in ["leave", "mail"] {
        assert_no_diagnostics(&[("[[on.pay]]", &format!("[[on.{name}]]\ngo = \"NEW\"\nby = \"owner\"\n\n[[on.pay]]"))]);
    }
}
