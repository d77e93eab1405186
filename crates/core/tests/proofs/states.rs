//! No orphans, nothing unreachable, no circle of `enter` rows.

use super::house::{sound, unsound};

const TIMED: &str = "go = \"WAITING -> QUEUED\"\nat = \"retryAt\"";

/// DOC-14: a state that nothing is sure to move on from.
#[test]
fn a_state_needs_a_way_on() {
    unsound(&[("[[on.time]]", "[[on.wake]]"), ("at = \"retryAt\"", "")], "orphan-state");
    sound(&[("[[on.time]]", "[[on.wake]]"), ("at = \"retryAt\"", ""), ("WAITING = {}", "WAITING = { rest = true }")]);
    sound(&[(TIMED, "go = \"WAITING -> QUEUED\"\nafter = \"1s\"")]);
}

/// DOC-14: a timer that follows a field is none where the field is null.
#[test]
fn the_time_is_set_on_every_way_in() {
    unsound(&[(", retryAt = \"now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')\"", "")], "orphan-state");
    // Set to something that may be null.
    unsound(
        &[("now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')", "record.tries > 1 ? now : record.retryAt")],
        "orphan-state",
    );
    // Cleared while there.
    unsound(
        &[("[[on.time]]", "[[on.clear]]\ngo = \"WAITING\"\nset = { retryAt = \"null\" }\n\n[[on.time]]")],
        "orphan-state",
    );
    // Given while there: null clears.
    unsound(&[("[[on.time]]", "[[on.give]]\ngo = \"WAITING\"\ntake = [\"retryAt\"]\n\n[[on.time]]")], "orphan-state");
    // Another way in that leaves it null.
    unsound(&[("[[on.lease]]", "[[on.hold]]\ngo = \"QUEUED -> WAITING\"\n\n[[on.lease]]")], "orphan-state");
    sound(&[("[[on.lease]]", "[[on.hold]]\ngo = \"QUEUED -> WAITING\"\nset = { retryAt = \"now\" }\n\n[[on.lease]]")]);
    // Set earlier, and carried along.
    sound(&[
        (", retryAt = \"now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')\"", ""),
        ("go   = \"NEW -> QUEUED\"", "go   = \"NEW -> QUEUED\"\nset = { retryAt = \"now\" }"),
    ]);
    // Tested in the guard.
    sound(&[
        (", retryAt = \"now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')\"", ""),
        ("when = \"error.retryable &&", "when = \"record.retryAt != null && error.retryable &&"),
        ("\"kind\", \"note\"]", "\"kind\", \"note\", \"retryAt\"]"),
    ]);
}

/// DOC-14: a due timer whose row does not hold is spent.
#[test]
fn a_timed_row_is_sure_to_hold() {
    let guarded = "go = \"WAITING -> QUEUED\"\nat = \"retryAt\"\nwhen = \"record.kind == small\"";
    unsound(&[(TIMED, guarded)], "orphan-state");
    let other = format!(
        "{guarded}\n\n[[on.time]]\ngo = \"WAITING -> FAILED\"\nat = \"retryAt\"\nmove = [{{ from = \"hold\", to = \"fee\", amount = \"rest\" }}]"
    );
    sound(&[(TIMED, &other)]);
    sound(&[(TIMED, &format!("{other}\nwhen = \"record.kind == large\""))]);
    unsound(&[(TIMED, &format!("{other}\nwhen = \"record.kind == large && record.price > 5\""))], "orphan-state");
    // A row that stays spends the timer.
    unsound(
        &[(
            TIMED,
            &format!("go = \"WAITING\"\nat = \"retryAt\"\nwhen = \"record.kind == small\"\n\n[[on.time]]\n{TIMED}"),
        )],
        "orphan-state",
    );
}

#[test]
fn a_leased_state_is_entered_by_a_lease_alone() {
    unsound(&[("[[on.lease]]", "[[on.force]]\ngo = \"NEW -> RUNNING\"\n\n[[on.lease]]")], "orphan-state");
}

#[test]
fn an_enter_row_may_send_on_for_certain() {
    let through = "[[on.enter]]\ngo = \"WAITING -> QUEUED\"";
    sound(&[("[[on.time]]\ngo = \"WAITING -> QUEUED\"\nat = \"retryAt\"", through)]);
    unsound(
        &[(
            "[[on.time]]\ngo = \"WAITING -> QUEUED\"\nat = \"retryAt\"",
            &format!("{through}\nwhen = \"record.tries < 2\""),
        )],
        "orphan-state",
    );
}

#[test]
fn unreachable_states_say_that_they_are_reserved() {
    unsound(&[("NEW     =", "LATER = { rest = true }\nNEW     =")], "unreachable-state");
    sound(&[("NEW     =", "LATER = { reserved = true }\nNEW     =")]);
}

#[test]
fn enter_rows_go_round_in_no_circle() {
    let circle = "[[on.enter]]\ngo = \"WAITING -> QUEUED\"\nwhen = \"record.tries > 2\"\n\n[[on.enter]]\ngo = \"QUEUED -> WAITING\"\nwhen = \"record.tries > 3\"\nset = { retryAt = \"now\" }\n\n[[on.time]]";
    unsound(&[("[[on.time]]", circle)], "enter-cycle");
    let line = "[[on.enter]]\ngo = \"WAITING -> QUEUED\"\nwhen = \"record.tries > 2\"\n\n[[on.time]]";
    sound(&[("[[on.time]]", line)]);
}

#[test]
fn events_are_not_named_almost_like_the_engines() {
    for name in ["entr", "neter", "comit", "Fail", "TIME", "fial", "leases", "mail"] {
        unsound(&[("[[on.pay]]", &format!("[[on.{name}]]\ngo = \"NEW\"\n\n[[on.pay]]"))], "near-engine-event");
    }
    for name in ["release", "failed", "entered", "recreate"] {
        sound(&[("[[on.pay]]", &format!("[[on.{name}]]\ngo = \"NEW\"\n\n[[on.pay]]"))]);
    }
    // A word that is meant, such as `leave`, says who may call it.
    for name in ["leave", "mail"] {
        sound(&[("[[on.pay]]", &format!("[[on.{name}]]\ngo = \"NEW\"\nby = \"owner\"\n\n[[on.pay]]"))]);
    }
}
