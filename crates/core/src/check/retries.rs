//! Whether retries end (EXE-11): a failed job comes back only so often where every way back has a bound.

use super::bounded;
use super::faults::{Flow, Shape, judge_of, start, taken};
use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::expr::{ErrorPart, Root};
use crate::model::{Event, EventKind, StateIx, StateSet};

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    let Some(event) = survey.lifecycle.events.iter().find(|event| event.kind == EventKind::Fail) else { return };
    for (at, row) in event.rows.iter().enumerate() {
        let back: Vec<StateIx> =
            survey.fires_in(event, row).into_iter().filter(|from| comes_back(survey, flow, event, at, *from)).collect();
        let ends = back.is_empty() || is_yield(survey, flow, event, at, &back);
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
        let mut warning = Diagnostic::warning("unproven-retries", row.at, "unknown whether retries end")
                .label("a job that fails this way comes back to the workers, and nothing on the way has a bound")
                .help(
                    "bound the failures (`when = \"record.failures < 5\"`, an int field that this row counts up) or the time \
                     (`when = \"now < record.created_at + duration('1h')\"`), and give up in another row; or say with \
                     `forever = true` that it is meant",
                );
        if let Some((at, slot)) = bounded::set_back(survey, flow, row) {
            let field = &survey.lifecycle.fields[usize::from(slot)].name;
            warning = warning.also(at, format!("`{field}` counts from here anew, and nobody has to call for it"));
        }
        found.push(warning);
    }
}

/// The row leads to where the job can be leased into the same state again, and again, by rows that have no bound and that
/// no caller has to call: a person who tries again has decided to.
fn comes_back(survey: &Survey, flow: &Flow, event: &Event, at: usize, from: StateIx) -> bool {
    let row = &event.rows[at];
    let to = row.to.unwrap_or(from);
    if bounded::is_bounded(survey, flow, event, at, from) {
        return false;
    }
    if to == from && survey.ready.contains(from) {
        return true;
    }
    let mut seen = StateSet::default().with(to);
    let mut queue = vec![to];
    while let Some(state) = queue.pop() {
        for event in &survey.lifecycle.events {
            for (at, row) in event.rows.iter().enumerate().filter(|(_, row)| survey.fires(event.kind, row, state)) {
                if !bounded::goes_by_itself(survey, flow, event, row) {
                    continue;
                }
                let next = row.to.unwrap_or(state);
                if seen.contains(next) || bounded::is_bounded(survey, flow, event, at, state) {
                    continue;
                }
                if next == from {
                    return true;
                }
                seen = seen.with(next);
                queue.push(next);
            }
        }
    }
    false
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
