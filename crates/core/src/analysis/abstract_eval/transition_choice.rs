//! Taking a row: where its expressions are evaluated, what is known once it is the one, and what it leaves behind.

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

/// A judge of this row; `given` where the inputs are known better than by their declaration.
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

/// Whatever a caller may give.
pub(crate) fn declared_input(input: &TransitionInput, transition: &Transition, is_creation: bool) -> AbstractValue {
    AbstractValue::of_type(&input.field.ty, &input.field.bounds, !is_required(input, transition, is_creation))
}

/// Whether the row does not hold without this input.
pub(crate) fn is_required(input: &TransitionInput, transition: &Transition, is_creation: bool) -> bool {
    let is_optional = input.field.nullable || input.field.default.is_some();
    match input.target_field {
        Some(slot) => is_creation && !is_optional && !transition.set.iter().any(|(set, _)| *set == slot),
        None => !is_optional,
    }
}

/// Where the row's expressions are evaluated.
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

/// What is known of a record with these facts, in this state.
pub(crate) fn env_in_state(lifecycle: &Lifecycle, facts: FieldFacts, state: StateIndex) -> AbstractEnv {
    let mut env = AbstractEnv::new(facts);
    if let Some(state) = lifecycle.states.get(usize::from(state)) {
        let path = ValuePath { root: PathRoot::Record, steps: vec![PathStep::State], nullable_steps: Vec::new() };
        env.set_path_fact(&path, AbstractValue::non_null(AbstractShape::one_of([state.name.clone()])));
    }
    env
}

/// A new record before its row's `set`: defaults, then what is given.
fn new_record_facts(lifecycle: &Lifecycle, transition: &Transition, inputs: &[AbstractValue]) -> FieldFacts {
    let mut facts: Vec<AbstractValue> = lifecycle
        .fields
        .iter()
        .map(|field| field.default.as_ref().map_or(AbstractValue::only_null(), AbstractValue::of_value))
        .collect();
    for (input, given) in transition.inputs.iter().zip(inputs) {
        let Some(slot) = input.target_field else { continue };
        let Some(fact) = facts.get_mut(usize::from(slot)) else { continue };
        // Absent leaves the default; null clears where the field may be null.
        *fact = match (given.may_be_null, lifecycle.fields[usize::from(slot)].nullable) {
            (false, _) => given.clone(),
            (true, nullable) => fact.join(&given.clone().without_null()).or_null(nullable),
        };
    }
    facts.into()
}

/// What is known where the row is the one: earlier rows that would have been taken did not hold, and its guard does.
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

/// What is known where the row is the one, before it may refuse.
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

/// What is known where one of those whom the row admits has called.
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

/// What may come of an entry of `refuse`, once it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalPrediction {
    Always,
    Never,
    Possible,
}

/// For each entry of the row's `refuse` that is ever asked in this state.
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

/// Whether `later` is reached only where the guard of `earlier` is false, both fitting the state.
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

/// Whether whoever is admitted by both finds `earlier` first, and takes it where its guard holds.
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

/// Whether all whom it admits are admitted by a row without `by`, too. Such a row is for every key that may write, but for one that is
/// only a worker's and holds no lease: of somebody whom `[who]` knows by more than a role, it may be the key.
fn is_admitted_without_by(predicates: &[CallerPredicate], by: &AllowedCaller) -> bool {
    match by {
        AllowedCaller::Owner | AllowedCaller::Operator | AllowedCaller::Worker | AllowedCaller::Record => true,
        AllowedCaller::Predicate(number) => {
            predicates.get(usize::from(*number)).is_some_and(|who| requires_producer_role(&who.condition.expr))
        }
    }
}

/// Whether it is true only for who has a role that is more than a worker's, or its like in a signed log.
fn requires_producer_role(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::And(left, right) => requires_producer_role(left) || requires_producer_role(right),
        ExprKind::Or(left, right) => requires_producer_role(left) && requires_producer_role(right),
        // Whoever has a capability may do more than work.
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

/// Roles with which alone nothing is made or moved.
const NON_PRODUCER_ROLES: [&str; 3] = ["viewer", "metrics", "worker"];

/// Everyone whom `later` admits is admitted by `earlier` too.
fn covers_callers(earlier: &[AllowedCaller], later: &[AllowedCaller]) -> bool {
    !later.is_empty() && later.iter().all(|by| earlier.contains(by))
}

/// The same input fits both or neither: the same names, types, bounds and needs.
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

/// What is known where this row's guard does not hold.
pub(crate) fn env_when_passed_over(
    evaluator: &mut AbstractEvaluator,
    transition: &Transition,
    env: AbstractEnv,
) -> Option<AbstractEnv> {
    // Its inputs are numbered apart from the later row's, so nothing is learned from a guard that reads them.
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

/// The fields once `take` and `set` are applied.
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
        // A value beyond what is declared is a fault, and then nothing is written.
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
