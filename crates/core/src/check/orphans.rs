//! No orphans (DOC-14): a record that is in a state is final there, may rest there, waits for a worker, is with one, or has a timer.

use super::cases::Cover;
use super::faults::{Env, Flow, Judge, standing};
use super::survey::{Survey, rows};
use crate::diagnostic::Diagnostic;
use crate::expr::{Binary, Expr, Kind, Root};
use crate::model::{Event, EventKind, Row, StateIx, Timing};

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    for state in survey.reached.iter() {
        let declared = &survey.lifecycle.states[usize::from(state)];
        if declared.is_final || declared.rest || survey.ready.contains(state) {
            continue;
        }
        if !passes_through(survey, state) && !is_timed(survey, flow, state) {
            if survey.leased.contains(state) {
                let strays = strays(survey, state);
                found.extend(strays);
            } else {
                found.push(orphan(survey, flow, state));
            }
        }
    }
}

/// An `enter` row is sure to send it on at once.
pub(super) fn passes_through(survey: &Survey, state: StateIx) -> bool {
    let rows = survey.lifecycle.rows(EventKind::Enter);
    let fitting: Vec<&Row> = rows.iter().filter(|row| row.from.contains(state)).collect();
    let sure = fitting.iter().position(|row| row.when.is_none() && row.require.is_empty());
    sure.is_some_and(|sure| fitting[..=sure].iter().all(|row| row.to.is_some_and(|to| to != state)))
}

/// Some timer is sure to be set, and when it is due some row is sure to hold, and to leave or to set it anew.
pub(super) fn is_timed(survey: &Survey, flow: &Flow, state: StateIx) -> bool {
    let timed: Vec<&Row> =
        survey.lifecycle.rows(EventKind::Time).iter().filter(|row| row.from.contains(state)).collect();
    timed.iter().enumerate().any(|(at, row)| {
        // Rows of one time are asked together, with the first of them.
        if timed[..at].iter().any(|earlier| same_time(earlier, row)) || !is_sure(survey, flow, row, state) {
            return false;
        }
        let same: Vec<&Row> = timed.iter().copied().filter(|other| same_time(row, other)).collect();
        let last = timed.iter().rposition(|other| same_time(row, other)).unwrap_or(at);
        // Timers that fall due together are spent together: a row that stays may then come first and leave none.
        let robbed =
            timed[..last].iter().any(|other| other.to.is_none() && !same_time(row, other) && may_coincide(row, other));
        !robbed
            && same.iter().all(|row| goes_on(survey, row))
            && Cover::of(survey, flow, EventKind::Time, &same, state).is_whole()
    })
}

/// Once taken, the row leaves the record with timers set: by entering a state, be it the same, or by moving its time on.
fn goes_on(survey: &Survey, row: &Row) -> bool {
    let Some(Timing::At(slot)) = row.timing else { return row.to.is_some() };
    row.to.is_some() || row.set.iter().any(|(set, formula)| *set == slot && is_later(survey, &formula.expr))
}

/// `now` and some time more: later than any timer that has fired.
pub(super) fn is_later(survey: &Survey, expr: &Expr) -> bool {
    let Kind::Binary(Binary::Add, left, right) = &expr.kind else { return false };
    let is_now = |expr: &Expr| matches!(&expr.kind, Kind::Read(path) if path.root == Root::Now);
    let more = if is_now(left) { right } else { left };
    let mut judge = Judge::new(survey.definitions, survey.lifecycle);
    judge.muted = 1;
    let none = Env::new(std::rc::Rc::from([]));
    (is_now(left) || is_now(right))
        && !judge.peek(more, &none).null
        && judge.peek(more, &none).number().is_some_and(|(least, _)| least > 0)
}

/// Two delays that differ never end together.
fn may_coincide(row: &Row, other: &Row) -> bool {
    match (super::timers::fixed_delay(row), super::timers::fixed_delay(other)) {
        (Some(delay), Some(other)) => delay == other,
        _ => true,
    }
}

fn same_time(row: &Row, other: &Row) -> bool {
    std::ptr::eq(row, other) || super::faults::stands_before(EventKind::Time, row, other)
}

/// The row's time cannot be null in this state.
fn is_sure(survey: &Survey, flow: &Flow, row: &Row, state: StateIx) -> bool {
    match &row.timing {
        Some(Timing::After(after)) => standing(survey, flow, &after.expr, state).1.is_none_or(|known| !known.null),
        Some(Timing::At(slot)) => [&flow.entry, &flow.rest]
            .into_iter()
            .filter_map(|table| table[usize::from(state)].as_ref())
            .all(|facts| !facts[usize::from(*slot)].null),
        None => false,
    }
}

fn orphan(survey: &Survey, flow: &Flow, state: StateIx) -> Diagnostic {
    let name = survey.name(state);
    let declared = &survey.lifecycle.states[usize::from(state)];
    let error = Diagnostic::error("orphan-state", declared.at, format!("a record can be left for ever in `{name}`"));
    let timed = survey.lifecycle.rows(EventKind::Time).iter().find(|row| row.from.contains(state));
    match timed {
        // Resting would not give the money back.
        None if super::holds::may_be_filled(survey) => error.label("nothing is sure to move it on").help(format!(
            "add an `[[on.time]]` row from `{name}` that gives back what is in the hold, let workers take it with \
             `ready = true`, or say that this is meant with `rest = true`"
        )),
        None => error.label("nothing is sure to move it on").help(format!(
            "say that this is meant with `rest = true` (or `final = true`), let workers take it with `ready = true`, or add \
             an `[[on.time]]` row from `{name}`"
        )),
        Some(row) if !goes_on(survey, row) => error
            .label("its timed row does not leave the state")
            .also(row.at, "stays, and its timer is then spent")
            .help(format!(
                "let a timed row go from `{name}` to another state (or `{name} -> {name}`, which starts its timers anew), or mark \
                 the state `rest = true`"
            )),
        Some(row) if !is_sure(survey, flow, row, state) => {
            let field = match &row.timing {
                Some(Timing::At(slot)) => survey.lifecycle.fields[usize::from(*slot)].name.to_string(),
                _ => "after".to_owned(),
            };
            let error = error.label("its timer may never be set").also(row.at, format!("`{field}` may be null here, and null is no timer"));
            let ways = ways_without(survey, flow, row, state);
            let error = ways.into_iter().fold(error, |error, (at, label)| error.also(at, label));
            error.help(format!(
                "set `{field}` on every way into `{name}` and do not clear it there, or add a row with `after`, or mark the \
                 state `rest = true`"
            ))
        }
        Some(row) => error
            .label("no timed row is sure to hold")
            .also(row.at, "holds only under its guard; a timer whose row does not hold is spent")
            .help(format!("add an `[[on.time]]` row from `{name}` with the same time and no `when`, after the others")),
    }
}

/// The rows that bring a record here with the time still null.
fn ways_without(survey: &Survey, flow: &Flow, timed: &Row, state: StateIx) -> Vec<(crate::diagnostic::Span, String)> {
    let Some(Timing::At(slot)) = timed.timing else { return Vec::new() };
    let mut ways = Vec::new();
    for event in &survey.lifecycle.events {
        for (at, row) in event.rows.iter().enumerate() {
            let to_here = |from: Option<StateIx>| row.to.or(from) == Some(state);
            let froms: Vec<Option<StateIx>> = match event.kind {
                EventKind::Create => vec![None],
                _ => survey.fires_in(event, row).into_iter().map(Some).collect(),
            };
            let leaves_null = froms.into_iter().filter(|from| to_here(*from)).any(|from| {
                let after = super::faults::examine(survey, flow, event, at, from, None).after;
                after.is_some_and(|after| after[usize::from(slot)].null)
            });
            if leaves_null && ways.len() < 3 {
                ways.push((row.at, "may leave it null".to_owned()));
            }
        }
    }
    ways
}

/// A leased state is no orphan only if nothing but a lease brings a record there.
fn strays(survey: &Survey, state: StateIx) -> Vec<Diagnostic> {
    let name = survey.name(state);
    let brings = |event: &Event, row: &Row| {
        row.to == Some(state)
            && event.kind != EventKind::Lease
            && (event.kind == EventKind::Create || !survey.fires_in(event, row).is_empty())
    };
    rows(survey.lifecycle)
        .filter(|(event, row)| brings(event, row))
        .map(|(_, row)| {
            Diagnostic::error(
                "orphan-state",
                row.at,
                format!("this row leaves a record in `{name}` with no worker on it"),
            )
            .label("comes here without a lease")
            .also(survey.lifecycle.states[usize::from(state)].at, "moves on only when its lease ends")
            .help(format!(
                "go to a ready state instead, or let `{name}` have an `[[on.time]]` row, or mark it `rest = true`"
            ))
        })
        .collect()
}
