//! Timers that are never set.

use super::faults::{Flow, Known, Shape, standing};
use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::expr::Kind;
use crate::model::{EventKind, Row, StateIx, Timing};
use crate::value::Value;

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    for row in survey.lifecycle.rows(EventKind::Time) {
        found.extend(never_set(survey, flow, row));
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
