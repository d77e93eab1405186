//! Evaluates one transition: whether it matches, and what it will do. Changes nothing.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::access::{EventCaller, admits_caller, can_read};
use super::changes::CheckQuery;
use super::checks::{self, PartialPlan, ResolvedChecks};
use super::draft::{Draft, fault_halt};
use super::halt::{DecideResult, Halt, record_refusal};
use super::input::{self, EventInput};
use super::ledger::{self, PlannedTransfer};
use crate::expr::{EvalEnv, EvalStop, ExprKind, FaultKind, PathRoot, ValuePath, eval, referenced_checks};
use crate::model::{DeliverAction, EventAction, FieldIndex, Formula, SpawnAction, SpawnPayload, Transition};
use crate::record::{ClassifiedFailure, Record};
use crate::value::{RecordId, Value};

/// An event that is being fired on a record.
#[derive(Clone, Copy)]
pub(super) struct EventContext<'a> {
    pub(super) event: &'a str,
    pub(super) caller: EventCaller,
    pub(super) input: EventInput<'a>,
    /// Typed result of a commit.
    pub(super) result: &'a [Value],
    pub(super) error: Option<&'a ClassifiedFailure>,
    pub(super) is_creation: bool,
}

/// Why no transition matched: the reason of the one that came closest. Later variants are closer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NoMatch {
    State,
    Caller,
    Input(String),
    Guard,
}

/// Result of evaluating a transition that was not ruled out.
pub(super) enum Evaluation {
    Matches(TransitionPlan),
    /// Open check queries, and the partial plan if the guard already holds.
    NeedsChecks(Vec<CheckQuery>, Option<PartialPlan>),
}

/// What a matching transition will do, evaluated before anything changes.
pub(super) struct TransitionPlan {
    pub(super) set: Vec<(FieldIndex, Value)>,
    pub(super) transfers: Vec<PlannedTransfer>,
    pub(super) spawn: Vec<PlannedSpawn>,
    pub(super) deliver: Vec<PlannedDelivery>,
    pub(super) require: Vec<PlannedEventAction>,
    pub(super) cascade: Vec<PlannedEventAction>,
}

pub(super) struct PlannedSpawn {
    pub(super) lifecycle: Arc<str>,
    pub(super) fields: Vec<(Arc<str>, Value)>,
    pub(super) owner: Arc<str>,
    pub(super) copies_payload: bool,
}

pub(super) struct PlannedDelivery {
    pub(super) url: Value,
    pub(super) body: Arc<str>,
}

pub(super) struct PlannedEventAction {
    pub(super) targets: Vec<RecordId>,
    pub(super) event: Arc<str>,
    pub(super) input: Arc<[(Arc<str>, Value)]>,
}

/// Evaluates a transition that applies in the record's state. At creation, `record` holds the defaults.
pub(super) fn evaluate(
    draft: &Draft,
    record: &Record,
    transition: &Transition,
    context: EventContext,
) -> DecideResult<Result<Evaluation, NoMatch>> {
    let inputs = match input::parse_inputs(transition, context.is_creation, context.input) {
        Ok(inputs) => inputs,
        Err(reason) => {
            return input_no_match(draft, transition, record, context.caller, reason).map(Err);
        }
    };
    let mut set = Vec::with_capacity(transition.set.len());
    for (index, input) in transition.inputs.iter().enumerate() {
        if let (Some(slot), true) = (input.target_field, inputs.is_given[index]) {
            set.push((slot, inputs.values[index].clone()));
        }
    }
    let with_taken_inputs;
    let record = if context.is_creation && !set.is_empty() {
        let mut with_inputs = record.clone();
        for (slot, value) in &set {
            with_inputs.fields[usize::from(*slot)] = value.clone();
        }
        with_taken_inputs = with_inputs;
        &with_taken_inputs
    } else {
        record
    };
    if let Some(reason) = invalid_ref_message(draft, transition, &inputs.values, context.caller)? {
        return input_no_match(draft, transition, record, context.caller, reason).map(Err);
    }
    if !admits_caller(draft, transition, record, context.caller)? {
        return Ok(Err(NoMatch::Caller));
    }
    let mut env = EvalEnv { input: &inputs.values, result: context.result, error: context.error, ..draft.env(record) };
    let answers;
    if !transition.checks.is_empty() {
        // If a condition is decided without the open answers, no answer can change it.
        let is_guard_open =
            match transition.when.as_ref().map_or(Ok(Some(true)), |when| eval_without_checks(when, &env))? {
                Some(false) => return Ok(Err(NoMatch::Guard)),
                when => when.is_none(),
            };
        answers = match checks::resolve_checks(draft, transition, &env) {
            Ok(ResolvedChecks { answers: given, open_queries: queries }) if queries.is_empty() => given,
            Ok(ResolvedChecks { answers: given, open_queries: queries }) => {
                env.answers = &given;
                let partial_plan = if is_guard_open {
                    None
                } else {
                    Some(checks::plan_partially(transition, &env, set, context.event)?)
                };
                return Ok(Ok(Evaluation::NeedsChecks(queries, partial_plan)));
            }
            Err(halt) if is_guard_open => return Err(halt),
            Err(halt) => {
                apply_refusal_clauses(transition, &env, context.event, |formula, env| {
                    Ok(eval_without_checks(formula, env)? == Some(true))
                })?;
                return Err(halt);
            }
        };
        env.answers = &answers;
    }
    if !guard_holds(transition, &env)? {
        return Ok(Err(NoMatch::Guard));
    }
    apply_refusal_clauses(transition, &env, context.event, eval_condition)?;
    for (slot, formula) in &transition.set {
        set.push((*slot, eval_assignment(*slot, formula, &env)?));
    }
    Ok(Ok(Evaluation::Matches(TransitionPlan {
        set,
        transfers: ledger::plan_transfers(&transition.transfers, &env)?,
        spawn: plan_spawns(&transition.spawn, &env)?,
        deliver: plan_deliveries(&transition.deliver, &env)?,
        require: plan_event_actions(draft, &transition.require, &env)?,
        cascade: plan_event_actions(draft, &transition.cascade, &env)?,
    })))
}

/// Evaluates the value for a field and checks the field's bounds.
pub(super) fn eval_assignment(field_index: FieldIndex, formula: &Formula, env: &EvalEnv) -> DecideResult<Value> {
    let value = eval(&formula.expr, env)?;
    let field = &env.record.lifecycle.fields[usize::from(field_index)];
    if input::validate_value(field, &value).is_err() {
        let kind = if value.is_null() { FaultKind::Null } else { FaultKind::OutOfBounds };
        return Err(Halt::Fault(crate::expr::EvalFault { kind, span: formula.expr.span }));
    }
    Ok(value)
}

fn guard_holds(transition: &Transition, env: &EvalEnv) -> DecideResult<bool> {
    transition.when.as_ref().map_or(Ok(true), |when| eval_condition(when, env))
}

fn eval_condition(formula: &Formula, env: &EvalEnv) -> DecideResult<bool> {
    match eval(&formula.expr, env)? {
        Value::Bool(truth) => Ok(truth),
        _ => Err(Halt::Fault(crate::expr::EvalFault { kind: FaultKind::Null, span: formula.expr.span })),
    }
}

/// Evaluates a condition; `None` if it depends on an open check.
pub(super) fn eval_without_checks(formula: &Formula, env: &EvalEnv) -> DecideResult<Option<bool>> {
    match eval(&formula.expr, env) {
        Ok(Value::Bool(truth)) => Ok(Some(truth)),
        Ok(_) => Err(Halt::Fault(crate::expr::EvalFault { kind: FaultKind::Null, span: formula.expr.span })),
        Err(EvalStop::UnansweredCheck(_)) => Ok(None),
        Err(stop) => Err(stop.into()),
    }
}

/// A caller without the right to fire the transition learns only that, not what is wrong with the input. If the right
/// depends on the input, the input is reported.
fn input_no_match(
    draft: &Draft,
    transition: &Transition,
    record: &Record,
    caller: EventCaller,
    reason: String,
) -> DecideResult<NoMatch> {
    match admits_caller(draft, transition, record, caller) {
        Ok(true) | Err(Halt::Fault(_)) => Ok(NoMatch::Input(reason)),
        Ok(false) => Ok(NoMatch::Caller),
        Err(halt) => Err(halt),
    }
}

pub(super) fn apply_refusal_clauses(
    transition: &Transition,
    env: &EvalEnv,
    event: &str,
    applies: impl Fn(&Formula, &EvalEnv) -> DecideResult<bool>,
) -> DecideResult<()> {
    for clause in &transition.refuse {
        if applies(&clause.condition, env)? {
            // The reply does not reveal what a check found: a blocked prompt learns that it is blocked, not why
            // (IMG-15).
            let explains = &*clause.condition.text != "true" && referenced_checks(&clause.condition.expr).is_empty();
            let reason = if explains {
                format!("refused because {}", clause.condition.text)
            } else {
                clause.code.replace('_', " ")
            };
            let mut refusal = record_refusal(env.record, event, clause.status, &clause.code, reason);
            refusal.audit.clone_from(&clause.audit);
            // As the engine's own refusals with this code, it names the effect.
            if *clause.code == *"already_committed" {
                refusal.committed_token = env.record.committed_token;
            }
            return Err(Halt::Refuse(refusal));
        }
    }
    Ok(())
}

/// Checks that each ref in the input points to a record of the right lifecycle that the caller may read.
fn invalid_ref_message(
    draft: &Draft,
    transition: &Transition,
    values: &[Value],
    caller: EventCaller,
) -> DecideResult<Option<String>> {
    for (input, value) in transition.inputs.iter().zip(values) {
        let (ids, lifecycles): (Vec<RecordId>, _) = match (&input.field.ty, value) {
            (crate::model::DataType::Ref(to), Value::Ref(id)) => (vec![*id], to),
            (crate::model::DataType::List(element), Value::List(items)) => {
                let crate::model::DataType::Ref(to) = &**element else { continue };
                let ids = items.iter().filter_map(|item| if let Value::Ref(id) = item { Some(*id) } else { None });
                (ids.collect(), to)
            }
            _ => continue,
        };
        draft.require_loaded(&ids)?;
        for id in ids {
            let is_readable = match draft.find(id)? {
                Some(target) if !lifecycles.contains(&target.lifecycle.name) => false,
                Some(target) => match caller {
                    EventCaller::ApiKey(token) => can_read(draft, target, &draft.operation.actor, token)?,
                    EventCaller::Record | EventCaller::Engine => true,
                },
                None => false,
            };
            if !is_readable {
                let expected = lifecycles.join(" or ");
                return Ok(Some(format!("`{}` is not the id of a {expected}", input.field.name)));
            }
        }
    }
    Ok(None)
}

fn condition_holds(condition: Option<&Formula>, env: &EvalEnv) -> DecideResult<bool> {
    condition.map_or(Ok(true), |formula| eval_condition(formula, env))
}

fn plan_spawns(spawns: &[SpawnAction], env: &EvalEnv) -> DecideResult<Vec<PlannedSpawn>> {
    let mut planned = Vec::with_capacity(spawns.len());
    for spawn in spawns {
        if !condition_holds(spawn.condition.as_ref(), env)? {
            continue;
        }
        let owner = match &spawn.owner {
            Some(formula) => match eval(&formula.expr, env)? {
                // An empty owner means the spawner's owner.
                Value::Text(owner) if owner.is_empty() => Arc::clone(&env.record.owner),
                Value::Text(owner) if !input::is_valid_name(&owner) => return Err(fault_halt(FaultKind::OutOfBounds)),
                Value::Text(owner) => owner,
                _ => return Err(fault_halt(FaultKind::Null)),
            },
            None => Arc::clone(&env.record.owner),
        };
        planned.push(PlannedSpawn {
            lifecycle: Arc::clone(&spawn.lifecycle),
            fields: eval_named(&spawn.fields, env)?,
            owner,
            copies_payload: spawn.payload == SpawnPayload::CopyFromSpawner,
        });
    }
    Ok(planned)
}

fn plan_deliveries(deliveries: &[DeliverAction], env: &EvalEnv) -> DecideResult<Vec<PlannedDelivery>> {
    let mut planned = Vec::with_capacity(deliveries.len());
    for deliver in deliveries {
        if !condition_holds(deliver.condition.as_ref(), env)? {
            continue;
        }
        let body: Map<String, Json> = eval_named(&deliver.body, env)?
            .into_iter()
            .map(|(name, value)| (name.to_string(), value.to_json()))
            .collect();
        planned
            .push(PlannedDelivery { url: eval(&deliver.url.expr, env)?, body: Json::Object(body).to_string().into() });
    }
    Ok(planned)
}

fn plan_event_actions(draft: &Draft, actions: &[EventAction], env: &EvalEnv) -> DecideResult<Vec<PlannedEventAction>> {
    let mut planned = Vec::with_capacity(actions.len());
    for action in actions {
        if !condition_holds(action.condition.as_ref(), env)? {
            continue;
        }
        let targets = match eval(&action.targets.expr, env)? {
            Value::Ref(id) => vec![id],
            Value::List(items) => {
                let ids: Vec<RecordId> =
                    items.iter().filter_map(|item| if let Value::Ref(id) = item { Some(*id) } else { None }).collect();
                // A whole link is already in creation order.
                let is_link =
                    matches!(&action.targets.expr.kind, ExprKind::Read(ValuePath { root: PathRoot::Link(_), .. }));
                if is_link { ids } else { sort_by_creation(draft, &ids)? }
            }
            _ => Vec::new(),
        };
        planned.push(PlannedEventAction {
            targets,
            event: Arc::clone(&action.event),
            input: eval_named(&action.input, env)?.into(),
        });
    }
    Ok(planned)
}

/// Sorts the targets that a field lists by creation and removes duplicates.
fn sort_by_creation(draft: &Draft, ids: &[RecordId]) -> DecideResult<Vec<RecordId>> {
    draft.require_loaded(ids)?;
    let mut dated = Vec::with_capacity(ids.len());
    for id in ids {
        dated.push((draft.expect_record(*id)?.created_at, *id));
    }
    dated.sort_unstable();
    dated.dedup();
    Ok(dated.into_iter().map(|(_, id)| id).collect())
}

fn eval_named(formulas: &[(Arc<str>, Formula)], env: &EvalEnv) -> DecideResult<Vec<(Arc<str>, Value)>> {
    formulas.iter().map(|(name, formula)| Ok((Arc::clone(name), eval(&formula.expr, env)?))).collect()
}
