//! Evaluates everything that a transition evaluates when it is taken in one state.

use std::sync::Arc;

use super::abstract_value::{AbstractShape, AbstractValue};
use super::certain_faults;
use super::env::AbstractEnv;
use super::evaluator::{AbstractEvaluator, FaultFinding};
use super::state_facts::StateFacts;
use super::transition_choice::{env_when_taken, evaluator_for, fields_after_transition, initial_env};
use super::value_fit::find_misfit;
use crate::analysis::reachability::Reachability;
use crate::bounds;
use crate::diagnostic::Span;
use crate::expr::{Expr, FaultKind};
use crate::model::{
    AccountRef, AllowedCaller, EventAction, EventDef, Formula, StateIndex, TemplatePart, TransferAmount, Transition,
};

/// Values sent to another record, by name.
pub(crate) type SentValues = Vec<(Arc<str>, AbstractValue)>;

/// Possible effects of taking the transition.
#[derive(Default)]
pub(crate) struct TransitionEffects {
    pub(crate) findings: Vec<FaultFinding>,
    /// Values for each spawn, by index. Impossible spawns are absent.
    pub(crate) spawned_values: Vec<(usize, SentValues)>,
    /// Values for each event action: the requires, then the cascades.
    pub(crate) event_values: Vec<(usize, SentValues)>,
    /// Index, URL and maximum bytes of the body.
    pub(crate) deliveries: Vec<(usize, AbstractValue, u64)>,
    /// Span and reason of a certain fault.
    pub(crate) fault: Option<(Span, String)>,
    /// The fields afterwards; `None` if the transition cannot be taken.
    pub(crate) fields_after: Option<Vec<AbstractValue>>,
}

pub(crate) fn analyze_transition(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    index: usize,
    from: Option<StateIndex>,
    inputs: Option<&[AbstractValue]>,
) -> TransitionEffects {
    let transition = &event.transitions[index];
    let mut evaluator = evaluator_for(reachability, event, transition, inputs);
    let mut effects = TransitionEffects::default();
    let start = if reachability.merges_states() && from.is_some() {
        Some(AbstractEnv::new(state_facts.declared.clone()))
    } else {
        initial_env(state_facts, reachability.lifecycle, event, transition, from, &evaluator.input_values)
    };
    if let Some(env) = start {
        for by in &transition.by {
            if let AllowedCaller::Predicate(who) = by
                && let Some(who) = reachability.lifecycle.caller_predicates.get(usize::from(*who))
            {
                evaluator.split_env(&who.condition.expr, &env);
            }
        }
        if let Some(env) = env_when_taken(&mut evaluator, event, index, from, env, reachability.ignores_shadowing()) {
            analyze_actions(&mut evaluator, reachability, transition, &env, &mut effects);
            effects.fault = certain_faults::find_certain_fault(&mut evaluator, transition, &env);
            evaluator.muted += 1;
            effects.fields_after = Some(fields_after_transition(&mut evaluator, state_facts, transition, &env));
        }
    }
    reachability.spend_steps(evaluator.steps);
    effects.findings = evaluator.findings;
    effects
}

fn analyze_actions(
    evaluator: &mut AbstractEvaluator,
    reachability: &Reachability,
    transition: &Transition,
    env: &AbstractEnv,
    effects: &mut TransitionEffects,
) {
    for (slot, formula) in &transition.set {
        let value = evaluator.eval(&formula.expr, env);
        let Some(field) = reachability.lifecycle.fields.get(usize::from(*slot)) else { continue };
        if let Some(reason) = find_misfit(&value, &field.ty, &field.bounds, field.nullable) {
            let message = format!("the value set for `{}` {reason}", field.name);
            evaluator.note_fault(FaultKind::OutOfBounds, formula.expr.span, message, None);
        }
    }
    for action in &transition.transfers {
        if let TransferAmount::Computed(amount) = &action.amount {
            let amount_value = evaluator.eval_non_null(&amount.expr, env);
            if amount_value.number_range().is_none_or(|(least, _)| least < 0) {
                let message = "the amount may be negative".to_owned();
                evaluator.note_fault(FaultKind::NegativeAmount, amount.expr.span, message, None);
            }
        }
        for account in [&action.from, &action.to] {
            let AccountRef::Named(template) = account else { continue };
            for part in &template.parts {
                if let TemplatePart::Value(expr) = part {
                    evaluator.eval_non_null(expr, env);
                }
            }
        }
    }
    for (index, spawn) in transition.spawn.iter().enumerate() {
        let Some(env) = env_where_true(evaluator, spawn.condition.as_ref(), env) else { continue };
        let sent_values = eval_sent_values(evaluator, &spawn.fields, &env);
        if let Some(owner) = &spawn.owner {
            let owner_value = evaluator.eval_non_null(&owner.expr, &env);
            if matches!(owner_value.shape, AbstractShape::Text { size, .. } if size.1 > bounds::MAX_TEXT_CHARS as u64) {
                let message = format!("the owner may have more than {} characters", bounds::MAX_TEXT_CHARS);
                evaluator.note_fault(FaultKind::OutOfBounds, owner.expr.span, message, None);
            }
        }
        effects.spawned_values.push((index, sent_values));
    }
    for (index, action) in event_actions(transition).enumerate() {
        let Some(env) = env_where_true(evaluator, action.condition.as_ref(), env) else { continue };
        evaluator.eval(&action.targets.expr, &env);
        let sent_values = eval_sent_values(evaluator, &action.input, &env);
        effects.event_values.push((index, sent_values));
    }
    for (index, deliver) in transition.deliver.iter().enumerate() {
        let Some(env) = env_where_true(evaluator, deliver.condition.as_ref(), env) else { continue };
        let url = evaluator.eval_non_null(&deliver.url.expr, &env);
        let body = eval_sent_values(evaluator, &deliver.body, &env);
        // Each field with its name, quotes, colon and comma.
        let bytes = body.iter().map(|(name, value)| value.max_json_bytes().saturating_add(name.len() as u64 * 6 + 4));
        effects.deliveries.push((index, url, bytes.fold(2, u64::saturating_add)));
    }
}

pub(crate) fn event_actions(transition: &Transition) -> impl Iterator<Item = &EventAction> {
    transition.require.iter().chain(&transition.cascade)
}

fn env_where_true(
    evaluator: &mut AbstractEvaluator,
    condition: Option<&Formula>,
    env: &AbstractEnv,
) -> Option<AbstractEnv> {
    match condition {
        Some(condition) => evaluator.split_env(&condition.expr, env).0,
        None => Some(env.clone()),
    }
}

fn eval_sent_values(
    evaluator: &mut AbstractEvaluator,
    fields: &[(Arc<str>, Formula)],
    env: &AbstractEnv,
) -> SentValues {
    fields.iter().map(|(name, formula)| (name.clone(), evaluator.eval(&formula.expr, env))).collect()
}

/// Evaluates a formula for a record in a state and returns its possible faults.
pub(crate) fn eval_in_state(
    reachability: &Reachability,
    state_facts: &StateFacts,
    formula: &Expr,
    state: StateIndex,
) -> (Vec<FaultFinding>, Option<AbstractValue>) {
    let mut evaluator = AbstractEvaluator::new(reachability.definitions, reachability.lifecycle);
    let mut value = None;
    for facts in [&state_facts.on_entry, &state_facts.while_staying]
        .into_iter()
        .filter_map(|table| table[usize::from(state)].clone())
    {
        let result = evaluator.eval(formula, &AbstractEnv::new(facts));
        value = Some(value.map_or_else(|| result.clone(), |old: AbstractValue| old.join(&result)));
    }
    (evaluator.findings, value)
}
