//! Whether retries end (EXE-11): a failed job comes back only so often where every way back counts up a field
//! that has a bound.

use super::faults::{Counters, Flow, Shape, growth, judge_of, start, taken};
use super::survey::{Survey, rows};
use crate::diagnostic::Diagnostic;
use crate::expr::{ErrorPart, Root};
use crate::model::{Event, EventKind, Row, Slot, StateIx, StateSet};

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    let Some(event) = survey.lifecycle.events.iter().find(|event| event.kind == EventKind::Fail) else { return };
    for (at, row) in event.rows.iter().enumerate() {
        let back: Vec<StateIx> =
            survey.fires_in(event, row).into_iter().filter(|from| comes_back(survey, row, *from)).collect();
        let ends = back.is_empty() || ends(survey, flow, row, &back) || is_yield(survey, flow, event, at, &back);
        match row.forever {
            Some(mark) if ends => {
                found.push(
                    Diagnostic::warning("needless-forever", mark, "retries of this row end all the same")
                        .label("says that a job may fail this way without end")
                        .help("take it out"),
                );
                continue;
            }
            None if !ends => {}
            _ => continue,
        }
        found.push(
            Diagnostic::warning("unproven-retries", row.at, "unknown whether retries end")
                .label("a job that fails this way comes back to the workers, and nothing is counted up to a bound")
                .help(
                    "count the failures in an int field (`set = { failures = \"record.failures + 1\" }`), and give up in an \
                     earlier row once it reaches a bound; or say with `forever = true` that it is meant",
                ),
        );
    }
}

/// The row leads to where it can be leased into the same state again.
fn comes_back(survey: &Survey, row: &Row, from: StateIx) -> bool {
    let to = row.to.unwrap_or(from);
    to == from && survey.ready.contains(from)
        || survey.spread(StateSet::default().with(to))[usize::from(from)].is_some()
}

/// Some field grows each time the row is taken, never shrinks, and cannot grow for ever.
fn ends(survey: &Survey, flow: &Flow, row: &Row, back: &[StateIx]) -> bool {
    row.set.iter().any(|(slot, formula)| {
        growth(&formula.expr, *slot).is_some_and(|by| by > 0)
            && never_shrinks(survey, *slot)
            && back.iter().all(|state| is_bounded(flow, *state, *slot))
    })
}

fn never_shrinks(survey: &Survey, slot: Slot) -> bool {
    rows(survey.lifecycle).filter(|(event, _)| event.kind != EventKind::Create).all(|(_, row)| {
        row.inputs.iter().all(|input| input.take != Some(slot))
            && row
                .set
                .iter()
                .all(|(set, formula)| *set != slot || growth(&formula.expr, slot).is_some_and(|by| by >= 0))
    })
}

fn is_bounded(flow: &Flow, state: StateIx, slot: Slot) -> bool {
    let facts = flow.rest[usize::from(state)].as_ref();
    facts.and_then(|facts| facts[usize::from(slot)].number()).is_some_and(|(_, most)| !Counters::is_far(most))
}

/// A worker that gives the job back unharmed has not failed at it.
fn is_yield(survey: &Survey, flow: &Flow, event: &Event, at: usize, back: &[StateIx]) -> bool {
    back.iter().all(|from| {
        let row = &event.rows[at];
        let mut judge = judge_of(survey, event, row, None);
        let env = start(flow, survey.lifecycle, event, row, Some(*from), &[]);
        let env = env.and_then(|env| taken(&mut judge, event, at, Some(*from), env, false));
        env.is_none_or(|env| {
            let code = env.known(Root::Error(ErrorPart::Code), &[]);
            matches!(code.map(|code| &code.shape), Some(Shape::Text { of: Some(of), .. }) if of.iter().all(|code| **code == *"yielded"))
        })
    })
}
