//! Whether a worker that shuts down costs its job a try: a job that is given back arrives as a failure whose `error.code` is
//! `yielded`, and a file that does not tell it apart spends on it what is meant for failures.

use std::collections::BTreeSet;

use super::bounded;
use super::faults::{Flow, Shape, each, each_of_row, growth, judge_of, start, taken};
use super::survey::{Survey, rows};
use crate::diagnostic::Diagnostic;
use crate::expr::{ErrorPart, Expr, Kind, Path, Root, Step};
use crate::model::{Event, EventKind, Row, Slot, StateIx, StateSet};
use crate::value::Value;

const YIELDED: &str = "yielded";

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    let Some(event) = survey.lifecycle.events.iter().find(|event| event.kind == EventKind::Fail) else { return };
    // Who names it has thought of it; whether rightly is not for us to say.
    if is_classed(survey) {
        return;
    }
    let named = event.rows.iter().filter(|row| names_yields(row)).flat_map(|row| row.from.iter()).collect::<StateSet>();
    let looked_at = LookedAt::of(survey);
    for (at, row) in event.rows.iter().enumerate() {
        let spends = |from: &StateIx| {
            !named.contains(*from)
                && comes_back(survey, flow, row, *from)
                && may_be_given_back(survey, flow, event, at, *from)
        };
        let budget = looked_at.budget(row);
        let spent = budget.filter(|_| survey.fires_in(event, row).iter().any(spends));
        found.extend(spent.map(|budget| charged(survey, row, budget)));
    }
}

/// What tries are counted by.
#[derive(Clone, Copy)]
enum Budget {
    Leases,
    Field(Slot),
}

fn charged(survey: &Survey, row: &Row, budget: Budget) -> Diagnostic {
    let (label, first) = match budget {
        Budget::Leases => (
            "a job that is given back comes here too, and `record.attempt` counts that lease like any other".to_owned(),
            "let this row count in a field, and guards read that instead of `record.attempt`; then ",
        ),
        Budget::Field(slot) => {
            let field = &survey.lifecycle.fields[usize::from(slot)].name;
            (format!("a job that is given back comes here too, and is counted in `{field}` like a failure"), "")
        }
    };
    Diagnostic::warning("charged-yield", row.at, "a worker that shuts down costs the job a try").label(label).help(format!(
        "{first}give it a row of its own before this one, with a bound of its own (`when = \"error.code == 'yielded' && \
         record.yields < 100\"` and `set = {{ yields = \"record.yields + 1\" }}`); or say in \
         `[errors]` that it counts like any other: `retryable = [\"yielded\"]`"
    ))
}

fn names_yields(row: &Row) -> bool {
    let mut named = false;
    each_of_row(row, &mut |expr| named |= matches!(&expr.kind, Kind::Const(value) if is_named(value)));
    named
}

fn is_named(value: &Value) -> bool {
    match value {
        Value::Text(text) => **text == *YIELDED,
        Value::List(items) => items.iter().any(is_named),
        _ => false,
    }
}

/// `[errors]` has a word for it.
fn is_classed(survey: &Survey) -> bool {
    let errors = &survey.lifecycle.errors;
    errors.retryable.iter().chain(&errors.terminal).any(|code| **code == *YIELDED)
}

/// The way leads to where the job can be leased into this state again, and nobody has to call for it.
fn comes_back(survey: &Survey, flow: &Flow, row: &Row, from: StateIx) -> bool {
    let to = row.to.unwrap_or(from);
    let (mut seen, mut queue) = (StateSet::default().with(to), vec![to]);
    while let Some(state) = queue.pop() {
        for (event, row) in rows(survey.lifecycle).filter(|(event, row)| survey.fires(event.kind, row, state)) {
            if event.kind == EventKind::Fail || !bounded::goes_by_itself(survey, flow, event, row) {
                continue;
            }
            let next = row.to.unwrap_or(state);
            if event.kind == EventKind::Lease && next == from {
                return true;
            }
            if !seen.contains(next) {
                seen = seen.with(next);
                queue.push(next);
            }
        }
    }
    false
}

/// What guards look at in rows that the engine takes by itself. A count that none of them reads is no budget, nor is a bound of time.
#[derive(Default)]
struct LookedAt {
    leases: bool,
    fields: BTreeSet<Slot>,
}

impl LookedAt {
    fn of(survey: &Survey) -> Self {
        let mut all = Self::default();
        let mut look = |expr: &Expr| {
            if let Kind::Read(Path { root: Root::Record, steps, .. }) = &expr.kind {
                match steps.as_slice() {
                    [Step::Attempt] => all.leases = true,
                    [Step::Field { slot, .. }] => drop(all.fields.insert(*slot)),
                    _ => {}
                }
            }
        };
        let by_itself = |kind| matches!(kind, EventKind::Fail | EventKind::Enter | EventKind::Time);
        for (_, row) in rows(survey.lifecycle).filter(|(event, _)| by_itself(event.kind)) {
            row.when.iter().for_each(|when| each(&when.expr, &mut look));
        }
        all
    }

    fn budget(&self, row: &Row) -> Option<Budget> {
        let grows = |slot: Slot, expr: &Expr| growth(expr, slot).is_some_and(|by| by > 0);
        let counted = row.set.iter().find(|(slot, formula)| self.fields.contains(slot) && grows(*slot, &formula.expr));
        let field = counted.map(|(slot, _)| Budget::Field(*slot));
        field.or(self.leases.then_some(Budget::Leases))
    }
}

/// Not where the guard, or an earlier row, leaves only other codes, or only what is not to be tried again.
fn may_be_given_back(survey: &Survey, flow: &Flow, event: &Event, at: usize, from: StateIx) -> bool {
    let row = &event.rows[at];
    let mut judge = judge_of(survey, event, row, None);
    let env = start(flow, survey.lifecycle, event, row, Some(from), &[]);
    env.and_then(|env| taken(&mut judge, event, at, Some(from), env, false)).is_some_and(|env| {
        let code = env.known(Root::Error(ErrorPart::Code), &[]);
        let retryable = env.known(Root::Error(ErrorPart::Retryable), &[]);
        let others =
            matches!(code.map(|code| &code.shape), Some(Shape::Text { of: Some(of), .. }) if !of.contains(YIELDED));
        let never = matches!(retryable.map(|known| &known.shape), Some(Shape::Bool { yes: false, .. }));
        !others && !never
    })
}
