//! Leases: a ready state can be leased, and a leased one is sure to answer `commit` and `fail` (EXE-6, EXE-7).

use super::cases::{Answer, Cover};
use super::faults::Flow;
use super::orphans;
use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::model::{EventKind, Row, StateIx};

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    for state in survey.ready.iter().filter(|state| survey.reached.contains(*state)) {
        surely(survey, flow, EventKind::Lease, state, "is ready", found);
    }
    for state in survey.leased.iter() {
        surely(survey, flow, EventKind::Commit, state, "is leased", found);
        surely(survey, flow, EventKind::Fail, state, "is leased", found);
        failures_that_stay(survey, flow, state, found);
    }
    for state in survey.committed.iter() {
        surely(survey, flow, EventKind::Finish, state, "is left by `finish` after a commit that stays", found);
        finishes_that_stay(survey, state, found);
    }
}

const fn word(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Lease => "lease",
        EventKind::Commit => "commit",
        EventKind::Finish => "finish",
        _ => "fail",
    }
}

fn surely(survey: &Survey, flow: &Flow, kind: EventKind, state: StateIx, why: &str, found: &mut Vec<Diagnostic>) {
    let event = word(kind);
    let rows: Vec<&Row> = survey.lifecycle.rows(kind).iter().filter(|row| row.from.contains(state)).collect();
    let name = survey.name(state);
    let at = survey.lifecycle.states[usize::from(state)].at;
    let Some(last) = rows.last() else {
        found.push(
            Diagnostic::error("unanswered-work", at, format!("`{name}` does not answer `{event}`"))
                .label(why)
                .help(format!("add an `[[on.{event}]]` row from `{name}`")),
        );
        return;
    };
    let message = format!("`{name}` is not sure to answer `{event}`");
    let error = match Cover::of(survey, flow, kind, &rows, state).answer {
        Answer::Whole => return,
        Answer::Gap(case) => {
            Diagnostic::error("unanswered-work", last.at, message).label(format!("no row holds where {case}"))
        }
        Answer::Unknown(why) => Diagnostic::error("unanswered-work", last.at, message).label(why),
    };
    found.push(
        error.also(at, why).help(format!("add a last `[[on.{event}]]` row from `{name}` without `when` and `require`")),
    );
}

/// A failed attempt that stays must stay where the next worker can take it.
fn failures_that_stay(survey: &Survey, flow: &Flow, state: StateIx, found: &mut Vec<Diagnostic>) {
    let declared = &survey.lifecycle.states[usize::from(state)];
    if survey.ready.contains(state) || declared.rest || declared.is_final || orphans::is_timed(survey, flow, state) {
        return;
    }
    for row in survey.lifecycle.rows(EventKind::Fail) {
        if row.from.contains(state) && row.to.is_none() {
            found.push(
                Diagnostic::error(
                    "orphan-state",
                    row.at,
                    format!("this row leaves a record in `{}` with no worker on it", survey.name(state)),
                )
                .label("stays, and the lease has ended")
                .help("go to a ready, final or timed state"),
            );
        }
    }
}

fn finishes_that_stay(survey: &Survey, state: StateIx, found: &mut Vec<Diagnostic>) {
    for row in survey.lifecycle.rows(EventKind::Finish) {
        if row.from.contains(state) && row.to.is_none_or(|to| to == state) {
            found.push(
                Diagnostic::error(
                    "finish-stays",
                    row.at,
                    format!("after its commit a record would stay in `{}`", survey.name(state)),
                )
                .label("does not leave the state")
                .help("let the `finish` row go to another state"),
            );
        }
    }
}
