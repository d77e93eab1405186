//! Timers that would fire again at once, for ever, and those that never do.

use super::faults::{Flow, Known, Shape, standing};
use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::expr::Kind;
use crate::model::{EventKind, Row, StateIx, Timing};
use crate::value::Value;

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    for row in survey.lifecycle.rows(EventKind::Time) {
        if let Some(dead) = never_set(survey, flow, row) {
            // What never fires does not fire for ever.
            found.push(dead);
            continue;
        }
        let again = row.from.iter().filter(|state| survey.reached.contains(*state));
        if let Some(state) = again.into_iter().find(|state| is_endless(survey, row, *state)) {
            let name = survey.name(state);
            let (label, help) = match &row.timing {
                Some(Timing::At(slot)) => {
                    let field = &survey.lifecycle.fields[usize::from(*slot)].name;
                    (
                        format!("`{field}` has passed by then, and enters `{name}` with the record again"),
                        format!(
                            "set `{field}` to a later time in this row, as `now + duration('1m')`, or go elsewhere"
                        ),
                    )
                }
                _ => ("comes back with no delay".to_owned(), "give it a delay, or go elsewhere".to_owned()),
            };
            found.push(
                Diagnostic::error("endless-timer", row.at, "this timer fires again at once, for ever")
                    .label(label)
                    .help(help),
            );
        }
    }
}

/// A time that is null in each of the row's states, and so no timer.
fn never_set(survey: &Survey, flow: &Flow, row: &Row) -> Option<Diagnostic> {
    let states: Vec<StateIx> = row.from.iter().filter(|state| survey.reached.contains(*state)).collect();
    let times = |state: StateIx| -> Vec<Known> {
        match &row.timing {
            Some(Timing::At(slot)) => [&flow.entry, &flow.rest]
                .into_iter()
                .filter_map(|table| table[usize::from(state)].as_ref())
                .map(|facts| facts[usize::from(*slot)].clone())
                .collect(),
            Some(Timing::After(after)) => standing(survey, flow, &after.expr, state).1.into_iter().collect(),
            None => Vec::new(),
        }
    };
    let times: Vec<Known> = states.iter().flat_map(|state| times(*state)).collect();
    if times.is_empty() || !times.iter().all(|time| time.null && time.shape == Shape::Never) {
        return None;
    }
    let (what, help) = match &row.timing {
        Some(Timing::At(slot)) => {
            let field = &survey.lifecycle.fields[usize::from(*slot)].name;
            (format!("`{field}`"), format!("set or take `{field}` on a way there, or use `after`"))
        }
        _ => ("`after`".to_owned(), "give it a delay".to_owned()),
    };
    Some(
        Diagnostic::warning("dead-row", row.at, format!("this timer is never set: {what} is always null"))
            .label(format!("null for every record in {}, and null is no timer", survey.names(states)))
            .help(help),
    )
}

/// Taken once, nothing but this row is ever due again: it comes back to its state with its time still past, nothing is
/// done on entering, and no other timer can come before it.
fn is_endless(survey: &Survey, row: &Row, state: StateIx) -> bool {
    let past = match &row.timing {
        Some(Timing::At(slot)) => !row.set.iter().any(|(set, _)| set == slot),
        _ => fixed_delay(row).is_some_and(|micros| micros <= 0),
    };
    let lifecycle = survey.lifecycle;
    let mut others =
        lifecycle.rows(EventKind::Time).iter().filter(|other| !std::ptr::eq(*other, row) && other.from.contains(state));
    row.to == Some(state)
        && row.when.is_none()
        && past
        // Others might send something back that moves it on.
        && row.require.is_empty()
        && row.cascade.is_empty()
        && row.spawn.is_empty()
        && others.all(|other| fixed_delay(other).is_some_and(|micros| micros > 0))
        && !lifecycle.rows(EventKind::Enter).iter().any(|enter| enter.from.contains(state))
}

/// The delay of an `after` that is always the same, in microseconds.
pub(super) fn fixed_delay(row: &Row) -> Option<i64> {
    match &row.timing {
        Some(Timing::After(after)) => match &after.expr.kind {
            Kind::Const(Value::Duration(delay)) => Some(delay.micros()),
            _ => None,
        },
        _ => None,
    }
}
