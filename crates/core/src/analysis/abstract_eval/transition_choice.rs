//! The choice of a transition: the facts before it, once it is chosen, and after it.

use super::abstract_value::{AbstractShape, AbstractValue};
use super::env::AbstractEnv;
use super::evaluator::{AbstractEvaluator, constant_value};
use super::state_facts::{FieldFacts, StateFacts};
use crate::analysis::reachability::Reachability;
use crate::expr::{ActorPart, BinaryOperator, Expr, ExprKind, PathRoot, PathStep, ValuePath};
use crate::model::{
    AllowedCaller, CallerPredicate, EventDef, EventKind, Lifecycle, StateIndex, TimerSpec, Transition, TransitionInput,
};
use crate::value::Value;

/// Returns an evaluator for the transition, with `inputs` if more is known than the declarations.
pub(crate) fn evaluator_for<'a>(
    reachability: &Reachability<'a>,
    event: &EventDef,
    transition: &'a Transition,
    inputs: Option<&[AbstractValue]>,
) -> AbstractEvaluator<'a> {
    let mut evaluator = AbstractEvaluator::new(reachability.definitions, reachability.lifecycle);
    evaluator.inputs = &transition.inputs;
    evaluator.is_creation = event.kind == EventKind::Create;
    evaluator.input_values = match inputs {
        Some(given) => given.to_vec(),
        None => {
            transition.inputs.iter().map(|input| declared_input(input, transition, evaluator.is_creation)).collect()
        }
    };
    evaluator
}

/// Returns all values that a caller may give.
pub(crate) fn declared_input(input: &TransitionInput, transition: &Transition, is_creation: bool) -> AbstractValue {
    AbstractValue::of_type(&input.field.ty, &input.field.bounds, !is_required(input, transition, is_creation))
}

/// Whether the transition does not match without this input.
pub(crate) fn is_required(input: &TransitionInput, transition: &Transition, is_creation: bool) -> bool {
    let is_optional = input.field.nullable || input.field.default.is_some();
    match input.target_field {
        Some(slot) => is_creation && !is_optional && !transition.set.iter().any(|(set, _)| *set == slot),
        None => !is_optional,
    }
}

/// Returns the facts with which the transition is evaluated.
pub(crate) fn initial_env(
    state_facts: &StateFacts,
    lifecycle: &Lifecycle,
    event: &EventDef,
    transition: &Transition,
    from: Option<StateIndex>,
    inputs: &[AbstractValue],
) -> Option<AbstractEnv> {
    let Some(from) = from else {
        return Some(AbstractEnv::new(new_record_facts(lifecycle, transition, inputs)));
    };
    Some(env_in_state(lifecycle, state_facts.facts_seen_by(lifecycle, event, from)?, from))
}

/// Returns the facts about a record in this state.
pub(crate) fn env_in_state(lifecycle: &Lifecycle, facts: FieldFacts, state: StateIndex) -> AbstractEnv {
    let mut env = AbstractEnv::new(facts);
    if let Some(state) = lifecycle.states.get(usize::from(state)) {
        let path = ValuePath { root: PathRoot::Record, steps: vec![PathStep::State], nullable_steps: Vec::new() };
        env.set_path_fact(&path, AbstractValue::non_null(AbstractShape::one_of([state.name.clone()])));
    }
    env
}

/// Returns the fields of a new record before `set`: defaults, then inputs.
fn new_record_facts(lifecycle: &Lifecycle, transition: &Transition, inputs: &[AbstractValue]) -> FieldFacts {
    let mut facts: Vec<AbstractValue> = lifecycle
        .fields
        .iter()
        .map(|field| field.default.as_ref().map_or(AbstractValue::only_null(), AbstractValue::of_value))
        .collect();
    for (input, given) in transition.inputs.iter().zip(inputs) {
        let Some(slot) = input.target_field else { continue };
        let Some(fact) = facts.get_mut(usize::from(slot)) else { continue };
        // An absent input leaves the default; a null clears a nullable field.
        *fact = match (given.may_be_null, lifecycle.fields[usize::from(slot)].nullable) {
            (false, _) => given.clone(),
            (true, nullable) => fact.join(&given.clone().without_null()).or_null(nullable),
        };
    }
    facts.into()
}

/// Returns the facts if the transition is taken: earlier ones did not match, its guard holds, and it does not refuse.
pub(crate) fn env_when_taken(
    evaluator: &mut AbstractEvaluator,
    event: &EventDef,
    index: usize,
    from: Option<StateIndex>,
    env: AbstractEnv,
    ignore_earlier: bool,
) -> Option<AbstractEnv> {
    let transition = &event.transitions[index];
    let mut env = env_when_chosen(evaluator, event, index, from, env, ignore_earlier)?;
    for refuse in &transition.refuse {
        env = evaluator.split_env(&refuse.condition.expr, &env).1?;
    }
    Some(env)
}

/// Returns the facts if the transition is chosen, before its refusals.
fn env_when_chosen(
    evaluator: &mut AbstractEvaluator,
    event: &EventDef,
    index: usize,
    from: Option<StateIndex>,
    env: AbstractEnv,
    ignore_earlier: bool,
) -> Option<AbstractEnv> {
    let transition = &event.transitions[index];
    let mut env = env;
    evaluator.muted += 1;
    for earlier in event.transitions[..index].iter().filter(|_| !ignore_earlier) {
        if from.is_none_or(|from| earlier.from.contains(from))
            && decides_before(&evaluator.lifecycle.caller_predicates, event.kind, earlier, transition)
        {
            let Some(remaining) = env_when_passed_over(evaluator, earlier, env) else {
                evaluator.muted -= 1;
                return None;
            };
            env = remaining;
        }
    }
    let env = env_when_admitted(evaluator, transition, env);
    evaluator.muted -= 1;
    match &transition.when {
        Some(when) => evaluator.split_env(&when.expr, &env?).0,
        None => env,
    }
}

/// Returns the facts if the caller is admitted by the transition.
fn env_when_admitted(
    evaluator: &mut AbstractEvaluator,
    transition: &Transition,
    env: AbstractEnv,
) -> Option<AbstractEnv> {
    let mut admitted = None;
    for by in &transition.by {
        let predicate = match by {
            AllowedCaller::Predicate(who) => evaluator.lifecycle.caller_predicates.get(usize::from(*who)),
            _ => None,
        };
        let Some(who) = predicate else { return Some(env) };
        admitted = AbstractEnv::join_options(admitted, evaluator.split_env(&who.condition.expr, &env).0);
    }
    if transition.by.is_empty() { Some(env) } else { admitted }
}

/// Prediction for an entry of `refuse` that is evaluated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalPrediction {
    Always,
    Never,
    Possible,
}

/// Predicts each entry of `refuse` that is evaluated in this state.
pub(crate) fn predict_refusals(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    index: usize,
    from: Option<StateIndex>,
) -> Vec<RefusalPrediction> {
    let transition = &event.transitions[index];
    let mut evaluator = evaluator_for(reachability, event, transition, None);
    evaluator.muted = 1;
    let Some(env) = initial_env(state_facts, reachability.lifecycle, event, transition, from, &evaluator.input_values)
    else {
        return vec![RefusalPrediction::Possible; transition.refuse.len()];
    };
    let mut remaining = env_when_chosen(&mut evaluator, event, index, from, env, reachability.ignores_shadowing());
    let mut predictions = Vec::new();
    for refuse in &transition.refuse {
        let Some(env) = remaining else { break };
        let (yes, no) = evaluator.split_env(&refuse.condition.expr, &env);
        predictions.push(match (yes, &no) {
            (_, None) => RefusalPrediction::Always,
            (None, Some(_)) => RefusalPrediction::Never,
            (Some(_), Some(_)) => RefusalPrediction::Possible,
        });
        remaining = no;
    }
    reachability.spend_steps(evaluator.steps);
    predictions
}

/// Whether `later` is tried only if the guard of `earlier` is false, in states of both.
pub(crate) fn decides_before(
    predicates: &[CallerPredicate],
    kind: EventKind,
    earlier: &Transition,
    later: &Transition,
) -> bool {
    let is_admitted = if earlier.by.is_empty() {
        later.by.iter().all(|by| is_admitted_without_by(predicates, by))
    } else {
        covers_callers(&earlier.by, &later.by)
    };
    is_admitted && precedes(kind, earlier, later)
}

/// Whether a caller that both admit is tried with `earlier` first, which is taken if its guard holds.
pub(crate) fn precedes(kind: EventKind, earlier: &Transition, later: &Transition) -> bool {
    let is_same_time = match (kind, &earlier.timer, &later.timer) {
        (EventKind::Time, Some(TimerSpec::AtField(a)), Some(TimerSpec::AtField(b))) => a == b,
        (EventKind::Time, Some(TimerSpec::AfterEntering(a)), Some(TimerSpec::AfterEntering(b))) => {
            match (&a.expr.kind, &b.expr.kind) {
                (ExprKind::Const(Value::Duration(a)), ExprKind::Const(Value::Duration(b))) => a == b,
                _ => false,
            }
        }
        (EventKind::Time, _, _) => false,
        _ => true,
    };
    is_same_time && earlier.require.is_empty() && has_same_inputs(earlier, later, kind == EventKind::Create)
}

/// Whether a transition without `by` admits all these callers. It admits every API key that may write, except one with
/// only the role `worker` and no lease. A predicate that tests more than roles may admit that one.
fn is_admitted_without_by(predicates: &[CallerPredicate], by: &AllowedCaller) -> bool {
    match by {
        AllowedCaller::Owner | AllowedCaller::Operator | AllowedCaller::Worker | AllowedCaller::Record => true,
        AllowedCaller::Predicate(number) => {
            predicates.get(usize::from(*number)).is_some_and(|who| requires_producer_role(&who.condition.expr))
        }
    }
}

/// Whether the expression is true only for callers with a role beyond `worker`, or with authority in a signed log.
fn requires_producer_role(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::And(left, right) => requires_producer_role(left) || requires_producer_role(right),
        ExprKind::Or(left, right) => requires_producer_role(left) && requires_producer_role(right),
        // A caller with a capability may do more than work.
        ExprKind::Binary(BinaryOperator::In, role, list) => match (&role.kind, actor_part(list)) {
            (ExprKind::Const(Value::Text(role)), Some(ActorPart::Roles)) => !NON_PRODUCER_ROLES.contains(&&**role),
            (_, part) => part == Some(ActorPart::Capabilities),
        },
        _ => actor_part(expr) == Some(ActorPart::User),
    }
}

fn actor_part(expr: &Expr) -> Option<ActorPart> {
    match &expr.kind {
        ExprKind::Read(ValuePath { root: PathRoot::Actor(part), .. }) => Some(*part),
        _ => None,
    }
}

/// An API key with only these roles creates nothing and fires no events.
const NON_PRODUCER_ROLES: [&str; 3] = ["viewer", "metrics", "worker"];

/// Whether `earlier` admits every caller that `later` admits.
fn covers_callers(earlier: &[AllowedCaller], later: &[AllowedCaller]) -> bool {
    !later.is_empty() && later.iter().all(|by| earlier.contains(by))
}

/// Whether the same input fits both or neither: same names, types, bounds and required inputs.
fn has_same_inputs(earlier: &Transition, later: &Transition, is_creation: bool) -> bool {
    earlier.inputs.len() == later.inputs.len()
        && earlier.inputs.iter().all(|input| {
            later.inputs.iter().any(|other| {
                input.field.name == other.field.name
                    && input.field.ty == other.field.ty
                    && input.target_field == other.target_field
                    && is_required(input, earlier, is_creation) == is_required(other, later, is_creation)
                    && format!("{:?}", input.field.bounds) == format!("{:?}", other.field.bounds)
            })
        })
}

/// Returns the facts if this transition's guard does not hold.
pub(crate) fn env_when_passed_over(
    evaluator: &mut AbstractEvaluator,
    transition: &Transition,
    env: AbstractEnv,
) -> Option<AbstractEnv> {
    // Inputs are numbered per transition, so a guard that reads them says nothing about a later transition.
    if !transition.require.is_empty() || transition.when.as_ref().is_some_and(|when| reads_input(&when.expr)) {
        return Some(env);
    }
    match &transition.when {
        Some(when) => evaluator.split_env(&when.expr, &env).1,
        None => None,
    }
}

fn reads_input(expr: &Expr) -> bool {
    super::walk::any_subexpr(
        expr,
        &|expr| matches!(&expr.kind, ExprKind::Read(path) if matches!(path.root, PathRoot::Input(_))),
    )
}

/// Returns the fields after `take` and `set`.
pub(crate) fn fields_after_transition(
    evaluator: &mut AbstractEvaluator,
    state_facts: &StateFacts,
    transition: &Transition,
    env: &AbstractEnv,
) -> Vec<AbstractValue> {
    let mut facts = env.narrowed_fields();
    if !evaluator.is_creation {
        for (input, given) in transition.inputs.iter().zip(evaluator.input_values.clone()) {
            let Some(slot) = input.target_field else { continue };
            let Some(fact) = facts.get_mut(usize::from(slot)) else { continue };
            let nullable = evaluator.lifecycle.fields[usize::from(slot)].nullable;
            *fact = fact.join(&given.without_null()).or_null(nullable);
        }
    }
    for (slot, formula) in &transition.set {
        let value = evaluator.eval(&formula.expr, env);
        let Some(fact) = facts.get_mut(usize::from(*slot)) else { continue };
        // A value outside of the declaration is a fault, and then nothing is written.
        let fitting = value.meet(&state_facts.declared[usize::from(*slot)]);
        *fact = if fitting.is_empty() { state_facts.declared[usize::from(*slot)].clone() } else { fitting };
    }
    for (fact, field) in facts.iter_mut().zip(&evaluator.lifecycle.fields) {
        if field.is_constant {
            *fact = constant_value(field);
        }
    }
    facts
}
