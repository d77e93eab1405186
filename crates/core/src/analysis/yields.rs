//! Finds lifecycles in which a worker's shutdown costs its job an attempt. A yielded job arrives as a failure with
//! `error.code` `yielded`; unless a transition handles it separately, it spends the budget meant for failures.

use std::collections::BTreeSet;

use super::abstract_eval::{
    AbstractEnv, AbstractEvaluator, AbstractShape, StateFacts, env_in_state, env_when_passed_over,
    for_each_transition_expr,
};
use super::budgets::{self, RetryCounter};
use super::outcomes::JobOutcomes;
use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::expr::{ErrorPart, ExprKind, PathRoot};
use crate::model::{EventDef, EventKind, StateIndex, StateSet, Transition};
use crate::value::Value;

const YIELDED_CODE: &str = "yielded";

pub(super) fn analyze(reachability: &Reachability, state_facts: &StateFacts, diagnostics: &mut Vec<Diagnostic>) {
    let Some(event) = reachability.lifecycle.events.iter().find(|event| event.kind == EventKind::Fail) else { return };
    // If the file mentions `yielded`, its author has decided how to handle it.
    if is_yield_classified(reachability) {
        return;
    }
    let handled_states = event
        .transitions
        .iter()
        .filter(|transition| mentions_yielded(transition))
        .flat_map(|transition| transition.from.iter())
        .collect::<StateSet>();
    let outcomes = JobOutcomes::new(reachability, state_facts);
    let budgets = budgets::find_budgets(reachability, state_facts, &outcomes);
    let budgets: Vec<Option<RetryCounter>> =
        event.transitions.iter().map(|transition| budget_of(transition, &budgets)).collect();
    let mut charged_indexes = BTreeSet::new();
    for from in reachability.leased_states.iter().filter(|from| !handled_states.contains(*from)) {
        let charges_budget = |index: usize, transition: &Transition| {
            budgets[index].is_some()
                && transition.from.contains(from)
                && outcomes.can_be_leased_again(transition.to.unwrap_or(from))
        };
        if event.transitions.iter().enumerate().any(|(index, transition)| charges_budget(index, transition)) {
            let yield_indexes = transitions_on_yield(reachability, state_facts, event, from);
            charged_indexes.extend(yield_indexes.into_iter().filter(|at| charges_budget(*at, &event.transitions[*at])));
        }
    }
    for at in charged_indexes {
        diagnostics
            .extend(budgets[at].map(|budget| charged_yield_diagnostic(reachability, &event.transitions[at], budget)));
    }
}

/// Returns the counter that a failure through this transition spends.
fn budget_of(transition: &Transition, budgets: &BTreeSet<RetryCounter>) -> Option<RetryCounter> {
    let is_incremented =
        |budget: &&RetryCounter| matches!(budget, RetryCounter::Field(slot) if budgets::increments(transition, *slot));
    budgets.iter().find(is_incremented).or_else(|| budgets.get(&RetryCounter::Attempts)).copied()
}

fn charged_yield_diagnostic(reachability: &Reachability, transition: &Transition, budget: RetryCounter) -> Diagnostic {
    let (label, first) = match budget {
        RetryCounter::Attempts => (
            "a job that is given back comes here too, and `record.attempt` counts that lease like any other".to_owned(),
            "let this row count in a field, and guards read that instead of `record.attempt`; then ",
        ),
        RetryCounter::Field(slot) => {
            let field = &reachability.lifecycle.fields[usize::from(slot)].name;
            (format!("a job that is given back comes here too, and is counted in `{field}` like a failure"), "")
        }
    };
    Diagnostic::warning("charged-yield", transition.span, "a worker that shuts down costs the job a try").label(label).help(format!(
        "{first}give it a row of its own before this one, with a bound of its own (`when = \"error.code == 'yielded' && \
         record.yields < 100\"` and `set = {{ yields = \"record.yields + 1\" }}`); or say in \
         `[errors]` that it counts like any other: `retryable = [\"yielded\"]`"
    ))
}

fn mentions_yielded(transition: &Transition) -> bool {
    let mut is_mentioned = false;
    for_each_transition_expr(transition, &mut |expr| {
        is_mentioned |= matches!(&expr.kind, ExprKind::Const(value) if is_yielded_code(value));
    });
    is_mentioned
}

fn is_yielded_code(value: &Value) -> bool {
    match value {
        Value::Text(text) => **text == *YIELDED_CODE,
        Value::List(items) => items.iter().any(is_yielded_code),
        _ => false,
    }
}

/// Whether `[errors]` lists `yielded`.
fn is_yield_classified(reachability: &Reachability) -> bool {
    let errors = &reachability.lifecycle.errors;
    errors.retryable.iter().chain(&errors.terminal).any(|code| **code == *YIELDED_CODE)
}

/// Returns the indexes of the transitions that a yield in this state may take.
fn transitions_on_yield(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    from: StateIndex,
) -> Vec<usize> {
    let mut evaluator = AbstractEvaluator::new(reachability.definitions, reachability.lifecycle);
    evaluator.muted = 1;
    let facts = state_facts.facts_seen_by(reachability.lifecycle, event, from);
    let mut remaining = facts.map(|facts| env_in_state(reachability.lifecycle, facts, from));
    let mut yield_indexes = Vec::new();
    // One pass over all transitions, each with the facts that the earlier ones leave.
    for (index, transition) in
        event.transitions.iter().enumerate().filter(|(_, transition)| transition.from.contains(from))
    {
        let Some(env) = remaining.filter(|_| !reachability.ignores_shadowing()) else { break };
        if can_take_yield(&mut evaluator, transition, &env) {
            yield_indexes.push(index);
        }
        remaining = env_when_passed_over(&mut evaluator, transition, env);
        reachability.spend_steps(std::mem::take(&mut evaluator.steps));
    }
    yield_indexes
}

/// Whether a yield may match: the guard and earlier transitions leave the code `yielded` and retryable failures
/// possible.
fn can_take_yield(evaluator: &mut AbstractEvaluator, transition: &Transition, env: &AbstractEnv) -> bool {
    let matched =
        transition.when.as_ref().map_or_else(|| Some(env.clone()), |when| evaluator.split_env(&when.expr, env).0);
    let not_refused =
        transition.refuse.iter().fold(matched, |env, refuse| evaluator.split_env(&refuse.condition.expr, &env?).1);
    not_refused.is_some_and(|env| {
        let code = env.path_fact(PathRoot::Error(ErrorPart::Code), &[]);
        let retryable = env.path_fact(PathRoot::Error(ErrorPart::Retryable), &[]);
        let is_other_code =
            matches!(code.map(|code| &code.shape), Some(AbstractShape::Text { allowed_values: Some(of), .. }) if !of.contains(YIELDED_CODE));
        let is_never_retryable = matches!(retryable.map(|known| &known.shape), Some(AbstractShape::Bool { can_be_true: false, .. }));
        !is_other_code && !is_never_retryable
    })
}
