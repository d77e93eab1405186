//! Whether a worker that shuts down costs its job a try: a job that is given back arrives as a failure whose `error.code` is
//! `yielded`, and a file that does not tell it apart spends on it what is meant for failures.

use std::collections::BTreeSet;

use super::budgets::{self, Budget};
use super::faults::{Env, Flow, Judge, Shape, each_of_row, in_state, passed_over};
use super::prospects::Prospects;
use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::expr::{ErrorPart, Kind, Root};
use crate::model::{Event, EventKind, Row, StateIx, StateSet};
use crate::value::Value;

const YIELDED: &str = "yielded";

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    let Some(event) = survey.lifecycle.events.iter().find(|event| event.kind == EventKind::Fail) else { return };
    // Who names it has thought of it; whether rightly is not for us to say.
    if is_classed(survey) {
        return;
    }
    let named = event.rows.iter().filter(|row| names_yields(row)).flat_map(|row| row.from.iter()).collect::<StateSet>();
    let prospects = Prospects::new(survey, flow);
    let budgets = budgets::find(survey, flow, &prospects);
    let budgets: Vec<Option<Budget>> = event.rows.iter().map(|row| budget(row, &budgets)).collect();
    let mut spent = BTreeSet::new();
    for from in survey.leased.iter().filter(|from| !named.contains(*from)) {
        let spends = |at: usize, row: &Row| {
            budgets[at].is_some() && row.from.contains(from) && prospects.comes_back(row.to.unwrap_or(from))
        };
        if event.rows.iter().enumerate().any(|(at, row)| spends(at, row)) {
            let given_back = given_back(survey, flow, event, from);
            spent.extend(given_back.into_iter().filter(|at| spends(*at, &event.rows[*at])));
        }
    }
    for at in spent {
        found.extend(budgets[at].map(|budget| charged(survey, &event.rows[at], budget)));
    }
}

/// What a failure that takes this row is counted by.
fn budget(row: &Row, budgets: &BTreeSet<Budget>) -> Option<Budget> {
    let counts = |budget: &&Budget| matches!(budget, Budget::Field(slot) if budgets::counts(row, *slot));
    budgets.iter().find(counts).or_else(|| budgets.get(&Budget::Leases)).copied()
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

/// The rows that a job which is given back in this state may take.
fn given_back(survey: &Survey, flow: &Flow, event: &Event, from: StateIx) -> Vec<usize> {
    let mut judge = Judge::new(survey.definitions, survey.lifecycle);
    judge.muted = 1;
    let facts = flow.seen_by(survey.lifecycle, event, from);
    let mut left = facts.map(|facts| in_state(survey.lifecycle, facts, from));
    let mut given_back = Vec::new();
    // One walk for all rows, each with what the earlier ones have left.
    for (at, row) in event.rows.iter().enumerate().filter(|(_, row)| row.from.contains(from)) {
        let Some(env) = left.filter(|_| !survey.is_tired()) else { break };
        if may_be_given_back(&mut judge, row, &env) {
            given_back.push(at);
        }
        left = passed_over(&mut judge, row, env);
        survey.spend(std::mem::take(&mut judge.steps));
    }
    given_back
}

/// Not where the guard, or an earlier row, leaves only other codes, or only what is not to be tried again.
fn may_be_given_back(judge: &mut Judge, row: &Row, env: &Env) -> bool {
    let held = row.when.as_ref().map_or_else(|| Some(env.clone()), |when| judge.split(&when.expr, env).0);
    let taken = row.refuse.iter().fold(held, |env, refuse| judge.split(&refuse.condition.expr, &env?).1);
    taken.is_some_and(|env| {
        let code = env.known(Root::Error(ErrorPart::Code), &[]);
        let retryable = env.known(Root::Error(ErrorPart::Retryable), &[]);
        let others =
            matches!(code.map(|code| &code.shape), Some(Shape::Text { of: Some(of), .. }) if !of.contains(YIELDED));
        let never = matches!(retryable.map(|known| &known.shape), Some(Shape::Bool { yes: false, .. }));
        !others && !never
    })
}
