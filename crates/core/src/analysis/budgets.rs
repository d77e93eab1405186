//! Finds retry budgets: counters in guards that decide whether a job is given up. A counter that only lengthens delays,
//! or chooses between two ways to retry, is not a budget.

use std::collections::BTreeSet;

use super::abstract_eval::{
    AbstractEnv, AbstractEvaluator, StateFacts, any_subexpr, env_in_state, env_when_passed_over, for_each_subexpr,
    min_growth, precedes,
};
use super::outcomes::{JobOutcome, JobOutcomes};
use super::reachability::Reachability;
use crate::expr::{Expr, ExprKind, PathRoot, PathStep, ValuePath};
use crate::model::{EventDef, EventKind, FieldIndex, StateIndex, Transition};

/// A counter that a guard may read: the attempt number, or a field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetryCounter {
    Attempts,
    Field(FieldIndex),
}

/// Whether the transition increments the field.
pub(super) fn increments(transition: &Transition, field_index: FieldIndex) -> bool {
    transition
        .set
        .iter()
        .any(|(set, formula)| *set == field_index && min_growth(&formula.expr, field_index).is_some_and(|by| by > 0))
}

/// Finds the counters that decide the outcome in transitions that the engine fires.
pub(super) fn find_budgets(
    reachability: &Reachability,
    state_facts: &StateFacts,
    job_outcomes: &JobOutcomes,
) -> BTreeSet<RetryCounter> {
    let fail_transitions = reachability.lifecycle.transitions(EventKind::Fail);
    let slots = fail_transitions
        .iter()
        .flat_map(|transition| transition.set.iter().filter(|(slot, _)| increments(transition, *slot)));
    let counters: BTreeSet<RetryCounter> =
        slots.map(|(slot, _)| RetryCounter::Field(*slot)).chain([RetryCounter::Attempts]).collect();
    let mut search = BudgetSearch { reachability, state_facts, prospects: job_outcomes, budgets: BTreeSet::new() };
    let is_engine_fired =
        |kind| matches!(kind, EventKind::Fail | EventKind::Enter | EventKind::Time | EventKind::Lease);
    for event in reachability.lifecycle.events.iter().filter(|event| is_engine_fired(event.kind)) {
        let transitions = event
            .transitions
            .iter()
            .map(|transition| (transition, budgets_in_guard(transition, &counters)))
            .collect::<Vec<_>>();
        // The guards of most events read no counter.
        if transitions.iter().any(|(_, counts)| !counts.is_empty()) {
            reachability.reachable.iter().for_each(|state| search.search_event(event, &transitions, state));
        }
    }
    search.budgets
}

/// Returns the counters that the transition's guard reads.
fn budgets_in_guard(transition: &Transition, counters: &BTreeSet<RetryCounter>) -> BTreeSet<RetryCounter> {
    let mut budgets = BTreeSet::new();
    let mut visit = |expr: &Expr| budgets.extend(budget_read_by(expr).filter(|budget| counters.contains(budget)));
    transition.when.iter().for_each(|when| for_each_subexpr(&when.expr, &mut visit));
    budgets
}

fn budget_read_by(expr: &Expr) -> Option<RetryCounter> {
    let ExprKind::Read(ValuePath { root: PathRoot::Record, steps, .. }) = &expr.kind else { return None };
    match steps.as_slice() {
        [PathStep::Attempt] => Some(RetryCounter::Attempts),
        [PathStep::Field { index: slot, .. }] => Some(RetryCounter::Field(*slot)),
        _ => None,
    }
}

fn reads_budget(expr: &Expr, budget: RetryCounter) -> bool {
    any_subexpr(expr, &|part| budget_read_by(part) == Some(budget))
}

/// A transition, and the counters that its guard reads.
type TransitionBudgets<'a> = (&'a Transition, BTreeSet<RetryCounter>);

struct BudgetSearch<'a> {
    reachability: &'a Reachability<'a>,
    state_facts: &'a StateFacts,
    prospects: &'a JobOutcomes<'a>,
    budgets: BTreeSet<RetryCounter>,
}

impl BudgetSearch<'_> {
    fn search_event(&mut self, event: &EventDef, transitions: &[TransitionBudgets], state: StateIndex) {
        let mut groups: Vec<Vec<&TransitionBudgets>> = Vec::new();
        for candidate in
            transitions.iter().filter(|(transition, _)| self.reachability.can_fire(event.kind, transition, state))
        {
            // For a file that costs too much work, missing a warning is better than a delay.
            if self.reachability.ignores_shadowing() {
                return;
            }
            self.reachability.spend_steps(groups.len() as u64);
            // Timers with different due times do not compete.
            match groups.iter_mut().find(|group| precedes(event.kind, group[0].0, candidate.0)) {
                Some(group) => group.push(candidate),
                None => groups.push(vec![candidate]),
            }
        }
        for group in &groups {
            if group.iter().any(|(_, counts)| !counts.is_subset(&self.budgets)) {
                self.search_group(event, group, state);
            }
        }
    }

    /// Searches a group of transitions of which the first match is taken.
    fn search_group(&mut self, event: &EventDef, group: &[&TransitionBudgets], state: StateIndex) {
        let (reachability, lifecycle) = (self.reachability, self.reachability.lifecycle);
        let mut evaluator = AbstractEvaluator::new(reachability.definitions, lifecycle);
        evaluator.muted = 1;
        let facts = self.state_facts.facts_seen_by(lifecycle, event, state);
        let mut remaining = facts.map(|facts| env_in_state(lifecycle, facts, state));
        for (index, (row, counts)) in group.iter().enumerate() {
            let Some(env) = remaining else { return };
            for budget in counts {
                if reachability.ignores_shadowing() {
                    return;
                }
                if !self.budgets.contains(budget)
                    && self.decides_outcome(&mut evaluator, *budget, &group[index..], &env, event.kind, state)
                {
                    self.budgets.insert(*budget);
                }
                reachability.spend_steps(std::mem::take(&mut evaluator.steps));
            }
            remaining = env_when_passed_over(&mut evaluator, row, env);
        }
        reachability.spend_steps(evaluator.steps);
    }

    /// Whether this counter in the guard of the group's first transition changes the possible outcome of the job.
    fn decides_outcome(
        &self,
        evaluator: &mut AbstractEvaluator,
        budget: RetryCounter,
        group: &[&TransitionBudgets],
        env: &AbstractEnv,
        kind: EventKind,
        state: StateIndex,
    ) -> bool {
        let Some(((transition, _), later)) = group.split_first() else { return false };
        let Some(when) = &transition.when else { return false };
        let Some(env) = narrow_env_to_counter(evaluator, budget, &when.expr, env) else { return false };
        let (Some(_), mut left) = evaluator.split_env(&when.expr, &env) else { return false };
        let outcome = self.outcome_after(transition, state);
        for (other, _) in later {
            let Some(env) = left else { return false };
            let holds = other.when.as_ref().is_none_or(|when| evaluator.split_env(&when.expr, &env).0.is_some());
            if holds && self.outcome_after(other, state) != outcome {
                return true;
            }
            left = env_when_passed_over(evaluator, other, env);
        }
        // The analysis proves that `lease` and `fail` are taken. Other events may leave the job where it is.
        let can_stay = left.is_some() && matches!(kind, EventKind::Enter | EventKind::Time);
        let transitions = || group.iter().map(|(transition, _)| *transition).collect::<Vec<_>>();
        can_stay && self.prospects.outcome_without(self.reachability, state, &transitions()) != outcome
    }

    fn outcome_after(&self, transition: &Transition, state: StateIndex) -> JobOutcome {
        self.prospects.outcome_in(transition.to.unwrap_or(state))
    }
}

/// Narrows the facts so that only the counter decides the guard: other operands of `&&` hold, other operands of `||` do
/// not. Returns `None` if that cannot happen.
fn narrow_env_to_counter(
    evaluator: &mut AbstractEvaluator,
    budget: RetryCounter,
    guard: &Expr,
    env: &AbstractEnv,
) -> Option<AbstractEnv> {
    match &guard.kind {
        ExprKind::Not(operand) => narrow_env_to_counter(evaluator, budget, operand, env),
        ExprKind::And(left, right) | ExprKind::Or(left, right) => {
            let (other_operand, budget_operand) = match (reads_budget(left, budget), reads_budget(right, budget)) {
                (false, true) => (left, right),
                (true, false) => (right, left),
                _ => return Some(env.clone()),
            };
            let (yes, no) = evaluator.split_env(other_operand, env);
            let env = if matches!(guard.kind, ExprKind::And(..)) { yes } else { no };
            narrow_env_to_counter(evaluator, budget, budget_operand, &env?)
        }
        _ => Some(env.clone()),
    }
}
