//! Rows that can be taken only so often: something that grows round after round is kept below something that does not.
//!
//! What grows: the number of leases (`record.attempt`), the time (`now`), and a counter that the row itself counts up.
//! What does not: constants, when the record was made, and fields that only creation gives a value.

use super::faults::{Counters, Flow, decides_before, growth};
use super::survey::{Survey, rows};
use crate::diagnostic::Span;
use crate::expr::{Binary, Expr, Function, Kind, Path, Root, Step};
use crate::model::{By, Event, EventKind, Row, Slot, StateIx};

/// Whether the row may be taken with no person behind it: the engine fires it, a worker's program calls it, or a record
/// sends it that the engine moves.
pub(super) fn goes_by_itself(survey: &Survey, flow: &Flow, event: &Event, row: &Row) -> bool {
    let unattended = |by: &By| matches!(by, By::Record | By::Worker);
    event.kind != EventKind::Called
        || row.by.iter().any(unattended)
        || (row.by.is_empty() && flow.is_caused(survey.lifecycle, event))
}

/// Whether the row has such a bound in this state. Round after round means: with a lease in each.
pub(super) fn is_bounded(survey: &Survey, flow: &Flow, event: &Event, at: usize, from: StateIx) -> bool {
    let row = &event.rows[at];
    counts(survey, flow, row, from) || is_kept_below(survey, flow, event, at, from)
}

/// Some field grows each time the row is taken, never shrinks, and cannot grow for ever.
fn counts(survey: &Survey, flow: &Flow, row: &Row, from: StateIx) -> bool {
    row.set.iter().any(|(slot, _)| {
        let facts = flow.rest[usize::from(from)].as_ref();
        let most = facts.and_then(|facts| facts[usize::from(*slot)].number()).map(|(_, most)| most);
        is_counted(survey, flow, row, *slot) && most.is_some_and(|most| !Counters::is_far(most))
    })
}

/// The row counts the field up, and none that goes by itself counts it down.
fn is_counted(survey: &Survey, flow: &Flow, row: &Row, slot: Slot) -> bool {
    let grows = |(set, formula): &(Slot, crate::model::Formula)| {
        *set == slot && growth(&formula.expr, slot).is_some_and(|by| by > 0)
    };
    row.set.iter().any(grows)
        && rows(survey.lifecycle)
            .filter(|(event, row)| event.kind != EventKind::Create && goes_by_itself(survey, flow, event, row))
            .all(|(_, row)| {
                row.inputs.iter().all(|input| input.take != Some(slot))
                    && row
                        .set
                        .iter()
                        .all(|(set, formula)| *set != slot || growth(&formula.expr, slot).is_some_and(|by| by >= 0))
            })
}

/// Where a row that goes by itself sets back what this row counts up, and so takes its bound away: the place and the field.
pub(super) fn set_back(survey: &Survey, flow: &Flow, row: &Row) -> Option<(Span, Slot)> {
    let counted = |slot: Slot| {
        let own = row.set.iter().find(|(set, _)| *set == slot);
        own.is_some_and(|(_, formula)| growth(&formula.expr, slot).is_some_and(|by| by > 0))
    };
    rows(survey.lifecycle)
        .filter(|(event, row)| event.kind != EventKind::Create && goes_by_itself(survey, flow, event, row))
        .flat_map(|(_, row)| &row.set)
        .find(|(slot, formula)| counted(*slot) && growth(&formula.expr, *slot).is_none_or(|by| by < 0))
        .map(|(slot, formula)| (formula.expr.at, *slot))
}

/// The row's guard, or that of an earlier row that would have been taken, keeps something that grows below something
/// that stays.
fn is_kept_below(survey: &Survey, flow: &Flow, event: &Event, at: usize, from: StateIx) -> bool {
    let row = &event.rows[at];
    let mut sure = Vec::new();
    if let Some(when) = &row.when {
        conjuncts(&when.expr, true, &mut sure);
    }
    for earlier in &event.rows[..at] {
        if let Some(when) = &earlier.when
            && earlier.from.contains(from)
            && decides_before(&survey.lifecycle.who, event.kind, earlier, row)
        {
            conjuncts(&when.expr, false, &mut sure);
        }
    }
    survey.spend(sure.len() as u64);
    sure.iter().any(|(less, more)| grows(survey, flow, row, less) && stays(survey, more))
}

/// The comparisons that are sure where the guard is true (or false): the first is at most the second.
fn conjuncts<'a>(guard: &'a Expr, holds: bool, sure: &mut Vec<(&'a Expr, &'a Expr)>) {
    match (&guard.kind, holds) {
        (Kind::Not(operand), _) => conjuncts(operand, !holds, sure),
        (Kind::And(left, right), true) | (Kind::Or(left, right), false) => {
            conjuncts(left, holds, sure);
            conjuncts(right, holds, sure);
        }
        (Kind::Binary(operator, left, right), _) => match (operator, holds) {
            (Binary::Less | Binary::LessOrEqual, true) | (Binary::Greater | Binary::GreaterOrEqual, false) => {
                sure.push((left, right));
            }
            (Binary::Greater | Binary::GreaterOrEqual, true) | (Binary::Less | Binary::LessOrEqual, false) => {
                sure.push((right, left));
            }
            (Binary::Equal, true) | (Binary::NotEqual, false) => sure.extend([(&**left, &**right), (right, left)]),
            _ => {}
        },
        _ => {}
    }
}

/// Grows without end, round after round.
fn grows(survey: &Survey, flow: &Flow, row: &Row, expr: &Expr) -> bool {
    match &expr.kind {
        Kind::Read(Path { root: Root::Now, .. }) => true,
        Kind::Read(Path { root: Root::Record, steps, .. }) => match steps.as_slice() {
            [Step::Attempt] => true,
            [Step::Field { slot, .. }] => is_counted(survey, flow, row, *slot),
            _ => false,
        },
        Kind::Binary(Binary::Add, left, right) => {
            (grows(survey, flow, row, left) && stays(survey, right))
                || (stays(survey, left) && grows(survey, flow, row, right))
        }
        Kind::Binary(Binary::Subtract, left, right) => grows(survey, flow, row, left) && stays(survey, right),
        _ => false,
    }
}

/// Is the same for a record's whole life.
fn stays(survey: &Survey, expr: &Expr) -> bool {
    match &expr.kind {
        Kind::Const(_) => true,
        Kind::Read(Path { root: Root::Record, steps, .. }) => match steps.as_slice() {
            [Step::CreatedAt | Step::Id | Step::Owner] => true,
            [Step::Field { slot, .. }] => is_given_once(survey, *slot),
            _ => false,
        },
        Kind::Negate(operand) => stays(survey, operand),
        Kind::Binary(_, left, right) => stays(survey, left) && stays(survey, right),
        Kind::If(condition, yes, no) => stays(survey, condition) && stays(survey, yes) && stays(survey, no),
        // Jitter hangs on the record's version.
        Kind::Call(function, arguments) => {
            *function != Function::Jitter && arguments.iter().all(|argument| stays(survey, argument))
        }
        _ => false,
    }
}

/// Only creation gives the field a value.
fn is_given_once(survey: &Survey, slot: Slot) -> bool {
    rows(survey.lifecycle).filter(|(event, _)| event.kind != EventKind::Create).all(|(_, row)| {
        row.inputs.iter().all(|input| input.take != Some(slot)) && row.set.iter().all(|(set, _)| *set != slot)
    })
}
