//! Weighing one row: does it hold, and if so, what will it do? Nothing is changed here.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::access::{Caller, is_for, may_read};
use super::changes::Question;
use super::draft::{Draft, fault};
use super::halt::{Halt, Step, refusal};
use super::input::{self, Given};
use super::ledger::{self, PlannedMove};
use super::outside::{self, Answers, Known};
use crate::expr::{Env, FaultKind, Kind, Path, Root, Stop, checks_read, eval};
use crate::model::{Cause, Deliver, Formula, Row, Slot, Spawn, SpawnPayload};
use crate::record::{Record, WorkError};
use crate::value::{RecordId, Value};

/// An event on its way to a record.
#[derive(Clone, Copy)]
pub(super) struct Occasion<'a> {
    pub(super) event: &'a str,
    pub(super) caller: Caller,
    pub(super) given: Given<'a>,
    /// What a commit brings, typed.
    pub(super) result: &'a [Value],
    pub(super) error: Option<&'a WorkError>,
    pub(super) creating: bool,
}

/// How far the best row came: the later, the closer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NotTaken {
    State,
    Caller,
    Input(String),
    Guard,
}

/// What came of weighing a row that was not found wanting.
pub(super) enum Weighed {
    Holds(Plan),
    /// These questions are open. What is known without them, where the guard holds already.
    Waits(Vec<Question>, Option<Known>),
}

/// What a row that holds will do, all of it worked out beforehand.
pub(super) struct Plan {
    pub(super) set: Vec<(Slot, Value)>,
    pub(super) moves: Vec<PlannedMove>,
    pub(super) spawn: Vec<PlannedSpawn>,
    pub(super) deliver: Vec<PlannedDelivery>,
    pub(super) require: Vec<PlannedCause>,
    pub(super) cascade: Vec<PlannedCause>,
}

pub(super) struct PlannedSpawn {
    pub(super) lifecycle: Arc<str>,
    pub(super) fields: Vec<(Arc<str>, Value)>,
    pub(super) owner: Arc<str>,
    pub(super) same_payload: bool,
}

pub(super) struct PlannedDelivery {
    pub(super) to: Value,
    pub(super) body: Arc<str>,
}

pub(super) struct PlannedCause {
    pub(super) targets: Vec<RecordId>,
    pub(super) event: Arc<str>,
    pub(super) input: Arc<[(Arc<str>, Value)]>,
}

/// Weigh a row whose states fit. `record` is as it was; at creation, with its defaults.
pub(super) fn weigh(draft: &Draft, record: &Record, row: &Row, occasion: Occasion) -> Step<Result<Weighed, NotTaken>> {
    let inputs = match input::read(row, occasion.creating, occasion.given) {
        Ok(inputs) => inputs,
        Err(reason) => {
            return unfit(draft, row, record, occasion.caller, reason).map(Err);
        }
    };
    let mut set = Vec::with_capacity(row.set.len());
    for (at, input) in row.inputs.iter().enumerate() {
        if let (Some(slot), true) = (input.take, inputs.given[at]) {
            set.push((slot, inputs.values[at].clone()));
        }
    }
    let created;
    let record = if occasion.creating && !set.is_empty() {
        let mut with_inputs = record.clone();
        for (slot, value) in &set {
            with_inputs.fields[usize::from(*slot)] = value.clone();
        }
        created = with_inputs;
        &created
    } else {
        record
    };
    if let Some(reason) = unfit_ref(draft, row, &inputs.values, occasion.caller)? {
        return unfit(draft, row, record, occasion.caller, reason).map(Err);
    }
    if !is_for(draft, row, record, occasion.caller)? {
        return Ok(Err(NotTaken::Caller));
    }
    let mut env = Env { input: &inputs.values, result: occasion.result, error: occasion.error, ..draft.env(record) };
    let answers;
    if !row.checks.is_empty() {
        // What holds or fails without the outside does so whatever it would answer.
        let open = match row.when.as_ref().map_or(Ok(Some(true)), |when| judged(when, &env))? {
            Some(false) => return Ok(Err(NotTaken::Guard)),
            when => when.is_none(),
        };
        answers = match outside::answers(draft, row, &env) {
            Ok(Answers { given, open: questions }) if questions.is_empty() => given,
            Ok(Answers { given, open: questions }) => {
                env.answers = &given;
                let known = if open { None } else { Some(outside::known(row, &env, set, occasion.event)?) };
                return Ok(Ok(Weighed::Waits(questions, known)));
            }
            Err(halt) if open => return Err(halt),
            Err(halt) => {
                refuse(row, &env, occasion.event, |formula, env| Ok(judged(formula, env)? == Some(true)))?;
                return Err(halt);
            }
        };
        env.answers = &answers;
    }
    if !holds(row, &env)? {
        return Ok(Err(NotTaken::Guard));
    }
    refuse(row, &env, occasion.event, is_true)?;
    for (slot, formula) in &row.set {
        set.push((*slot, assigned(*slot, formula, &env)?));
    }
    Ok(Ok(Weighed::Holds(Plan {
        set,
        moves: ledger::plan(&row.moves, &env)?,
        spawn: plan_spawns(&row.spawn, &env)?,
        deliver: plan_deliveries(&row.deliver, &env)?,
        require: plan_causes(draft, &row.require, &env)?,
        cascade: plan_causes(draft, &row.cascade, &env)?,
    })))
}

/// The value that a field is set to, within the field's bounds.
pub(super) fn assigned(slot: Slot, formula: &Formula, env: &Env) -> Step<Value> {
    let value = eval(&formula.expr, env)?;
    let field = &env.record.lifecycle.fields[usize::from(slot)];
    if input::fits(field, &value).is_err() {
        let kind = if value.is_null() { FaultKind::Null } else { FaultKind::OutOfBounds };
        return Err(Halt::Fault(crate::expr::Fault { kind, at: formula.expr.at }));
    }
    Ok(value)
}

fn holds(row: &Row, env: &Env) -> Step<bool> {
    row.when.as_ref().map_or(Ok(true), |when| is_true(when, env))
}

fn is_true(formula: &Formula, env: &Env) -> Step<bool> {
    match eval(&formula.expr, env)? {
        Value::Bool(truth) => Ok(truth),
        _ => Err(Halt::Fault(crate::expr::Fault { kind: FaultKind::Null, at: formula.expr.at })),
    }
}

/// A condition without the outside; `None` where it cannot be judged before an answer is there.
pub(super) fn judged(formula: &Formula, env: &Env) -> Step<Option<bool>> {
    match eval(&formula.expr, env) {
        Ok(Value::Bool(truth)) => Ok(Some(truth)),
        Ok(_) => Err(Halt::Fault(crate::expr::Fault { kind: FaultKind::Null, at: formula.expr.at })),
        Err(Stop::Unanswered(_)) => Ok(None),
        Err(stop) => Err(stop.into()),
    }
}

/// Whoever may not call at all is told that, not what the input lacks; where the right to call hangs on the input itself,
/// the input is what is wrong.
fn unfit(draft: &Draft, row: &Row, record: &Record, caller: Caller, reason: String) -> Step<NotTaken> {
    match is_for(draft, row, record, caller) {
        Ok(true) | Err(Halt::Fault(_)) => Ok(NotTaken::Input(reason)),
        Ok(false) => Ok(NotTaken::Caller),
        Err(halt) => Err(halt),
    }
}

pub(super) fn refuse(row: &Row, env: &Env, event: &str, applies: impl Fn(&Formula, &Env) -> Step<bool>) -> Step<()> {
    for entry in &row.refuse {
        if applies(&entry.condition, env)? {
            // What the outside found is not told on: a prompt that is blocked hears that it is, not by what (IMG-15).
            let reason = if checks_read(&entry.condition.expr).is_empty() {
                format!("refused because {}", entry.condition.text)
            } else {
                entry.code.replace('_', " ")
            };
            let mut refusal = refusal(env.record, event, entry.status, &entry.code, reason);
            refusal.audit.clone_from(&entry.audit);
            return Err(Halt::Refuse(refusal));
        }
    }
    Ok(())
}

/// A given ref must point to a record of the right lifecycle that the caller may know of.
fn unfit_ref(draft: &Draft, row: &Row, values: &[Value], caller: Caller) -> Step<Option<String>> {
    for (input, value) in row.inputs.iter().zip(values) {
        let (ids, lifecycles): (Vec<RecordId>, _) = match (&input.field.ty, value) {
            (crate::model::Type::Ref(to), Value::Ref(id)) => (vec![*id], to),
            (crate::model::Type::List(element), Value::List(items)) => {
                let crate::model::Type::Ref(to) = &**element else { continue };
                let ids = items.iter().filter_map(|item| if let Value::Ref(id) = item { Some(*id) } else { None });
                (ids.collect(), to)
            }
            _ => continue,
        };
        draft.gather(&ids)?;
        for id in ids {
            let known = match draft.find(id)? {
                Some(target) if !lifecycles.contains(&target.lifecycle.name) => false,
                Some(target) => match caller {
                    Caller::Key(token) => may_read(draft, target, &draft.operation.actor, token)?,
                    Caller::Record | Caller::Engine => true,
                },
                None => false,
            };
            if !known {
                let wanted = lifecycles.join(" or ");
                return Ok(Some(format!("`{}` is not the id of a {wanted}", input.field.name)));
            }
        }
    }
    Ok(None)
}

fn applies(condition: Option<&Formula>, env: &Env) -> Step<bool> {
    condition.map_or(Ok(true), |formula| is_true(formula, env))
}

fn plan_spawns(spawns: &[Spawn], env: &Env) -> Step<Vec<PlannedSpawn>> {
    let mut planned = Vec::with_capacity(spawns.len());
    for spawn in spawns {
        if !applies(spawn.condition.as_ref(), env)? {
            continue;
        }
        let owner = match &spawn.owner {
            Some(formula) => match eval(&formula.expr, env)? {
                // An empty one is none.
                Value::Text(owner) if owner.is_empty() => Arc::clone(&env.record.owner),
                Value::Text(owner) if !input::is_bounded(&owner) => return Err(fault(FaultKind::OutOfBounds)),
                Value::Text(owner) => owner,
                _ => return Err(fault(FaultKind::Null)),
            },
            None => Arc::clone(&env.record.owner),
        };
        planned.push(PlannedSpawn {
            lifecycle: Arc::clone(&spawn.lifecycle),
            fields: values(&spawn.fields, env)?,
            owner,
            same_payload: spawn.payload == SpawnPayload::Same,
        });
    }
    Ok(planned)
}

fn plan_deliveries(deliveries: &[Deliver], env: &Env) -> Step<Vec<PlannedDelivery>> {
    let mut planned = Vec::with_capacity(deliveries.len());
    for deliver in deliveries {
        if !applies(deliver.condition.as_ref(), env)? {
            continue;
        }
        let body: Map<String, Json> =
            values(&deliver.body, env)?.into_iter().map(|(name, value)| (name.to_string(), value.to_json())).collect();
        planned.push(PlannedDelivery { to: eval(&deliver.to.expr, env)?, body: Json::Object(body).to_string().into() });
    }
    Ok(planned)
}

fn plan_causes(draft: &Draft, causes: &[Cause], env: &Env) -> Step<Vec<PlannedCause>> {
    let mut planned = Vec::with_capacity(causes.len());
    for cause in causes {
        if !applies(cause.condition.as_ref(), env)? {
            continue;
        }
        let targets = match eval(&cause.to.expr, env)? {
            Value::Ref(id) => vec![id],
            Value::List(items) => {
                let ids: Vec<RecordId> =
                    items.iter().filter_map(|item| if let Value::Ref(id) = item { Some(*id) } else { None }).collect();
                // A whole link comes in creation order already.
                let is_link = matches!(&cause.to.expr.kind, Kind::Read(Path { root: Root::Link(_), .. }));
                if is_link { ids } else { in_creation_order(draft, &ids)? }
            }
            _ => Vec::new(),
        };
        planned.push(PlannedCause {
            targets,
            event: Arc::clone(&cause.event),
            input: values(&cause.input, env)?.into(),
        });
    }
    Ok(planned)
}

/// Targets that a field lists, each once.
fn in_creation_order(draft: &Draft, ids: &[RecordId]) -> Step<Vec<RecordId>> {
    draft.gather(ids)?;
    let mut dated = Vec::with_capacity(ids.len());
    for id in ids {
        dated.push((draft.expect(*id)?.created_at, *id));
    }
    dated.sort_unstable();
    dated.dedup();
    Ok(dated.into_iter().map(|(_, id)| id).collect())
}

fn values(formulas: &[(Arc<str>, Formula)], env: &Env) -> Step<Vec<(Arc<str>, Value)>> {
    formulas.iter().map(|(name, formula)| Ok((Arc::clone(name), eval(&formula.expr, env)?))).collect()
}
