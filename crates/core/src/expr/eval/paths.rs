//! Reads values along paths from record to record.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::env::{EvalStop, FaultKind};
use super::super::tree::{ActorPart, ErrorPart, PathRoot, PathStep, ValuePath};
use super::evaluator::{EvalResult, Evaluator, fault};
use crate::diagnostic::Span;
use crate::record::Record;
use crate::time::Time;
use crate::value::Value;

#[expect(clippy::unnecessary_wraps, reason = "returned as the result of an evaluation, which may fault")]
fn owned_value<'a>(value: Value) -> EvalResult<'a> {
    Ok(Cow::Owned(value))
}

fn text_list(list: &[Arc<str>]) -> Value {
    Value::List(list.iter().cloned().map(Value::Text).collect())
}

fn int_value<'a>(number: u64, span: Span) -> EvalResult<'a> {
    i64::try_from(number)
        .map_or_else(|_| Err(fault(FaultKind::Overflow, span)), |number| owned_value(Value::Int(number)))
}

fn optional_time<'a>(time: Option<Time>) -> EvalResult<'a> {
    owned_value(time.map_or(Value::Null, Value::Time))
}

impl<'a> Evaluator<'a> {
    pub(super) fn read_path(&mut self, path: &'a ValuePath, span: Span) -> EvalResult<'a> {
        self.charge_steps(path.steps.len(), span)?;
        let (mut value, steps) = match (path.root, path.steps.split_first()) {
            (PathRoot::Record, Some((first, rest))) => (read_record_step(self.env.record, first, span)?, rest),
            (PathRoot::Record, None) => return owned_value(Value::Ref(self.env.record.id)),
            (root, _) => (self.read_root(root, span)?, path.steps.as_slice()),
        };
        for step in steps {
            let id = match &*value {
                Value::Ref(id) => *id,
                Value::Null => return Err(fault(FaultKind::Null, span)),
                _ => return Err(fault(FaultKind::WrongType, span)),
            };
            value = match step {
                PathStep::Id => Cow::Owned(Value::Ref(id)),
                step => read_record_step(self.env.records.record(id)?, step, span)?,
            };
        }
        Ok(value)
    }

    #[inline(never)]
    fn read_root(&mut self, root: PathRoot, span: Span) -> EvalResult<'a> {
        let env = self.env;
        let missing = || fault(FaultKind::WrongType, span);
        match root {
            PathRoot::Record => owned_value(Value::Ref(env.record.id)),
            PathRoot::Input(index) => {
                Ok(env.input.get(usize::from(index)).map_or(Cow::Owned(Value::Null), Cow::Borrowed))
            }
            PathRoot::Result(index) => {
                Ok(env.result.get(usize::from(index)).map_or(Cow::Owned(Value::Null), Cow::Borrowed))
            }
            PathRoot::Error(part) => {
                let error = env.error.ok_or_else(missing)?;
                owned_value(match part {
                    ErrorPart::Code => Value::Text(error.code.clone()),
                    ErrorPart::Message => Value::Text(error.message.clone()),
                    ErrorPart::Retryable => Value::Bool(error.retryable),
                    ErrorPart::RetryAfter => error.retry_after.map_or(Value::Null, Value::Duration),
                })
            }
            PathRoot::Answer { check, part } => match env.answers.get(usize::from(check)) {
                Some(Some(answer)) => answer.get(usize::from(part)).map(Cow::Borrowed).ok_or_else(missing),
                _ => Err(Box::new(EvalStop::UnansweredCheck(check))),
            },
            PathRoot::Lookup(index) => self.resolve_lookup(index, span),
            PathRoot::Link(index) => {
                let link = env.record.lifecycle.links.get(usize::from(index)).ok_or_else(missing)?;
                let records = env.records.linked_records(env.record.id, link)?;
                owned_value(Value::List(records.into_iter().map(Value::Ref).collect()))
            }
            PathRoot::Actor(part) => owned_value(match part {
                ActorPart::Id => Value::Text(env.actor.id.clone()),
                ActorPart::Roles => text_list(&env.actor.roles),
                ActorPart::Capabilities => text_list(&env.actor.capabilities),
                ActorPart::User => Value::Bool(env.actor.user),
            }),
            PathRoot::Now => owned_value(Value::Time(env.now)),
            PathRoot::Local(index) => self.locals.get(usize::from(index)).cloned().map(Cow::Owned).ok_or_else(missing),
        }
    }

    /// Resolves a lookup by the natural key that its key expression returns.
    ///
    /// The key expression has its own evaluator without local variables. A lookup inside it is a fault, because it
    /// might never end.
    #[inline(never)]
    fn resolve_lookup(&mut self, index: u16, span: Span) -> EvalResult<'a> {
        let wrong = || fault(FaultKind::WrongType, span);
        let lookup = self.env.record.lifecycle.lookups.get(usize::from(index)).ok_or_else(wrong)?;
        let mut inner = self.for_lookup_key().ok_or_else(wrong)?;
        let key = inner.evaluate(&lookup.natural_key.expr)?;
        if key.is_null() {
            return owned_value(Value::Null);
        }
        let found = self.env.records.find_by_natural_key(&lookup.lifecycle, &key)?;
        owned_value(found.map_or(Value::Null, Value::Ref))
    }
}

fn read_record_step<'a>(record: &'a Record, step: &PathStep, span: Span) -> EvalResult<'a> {
    match step {
        PathStep::Field { name, index: slot } => {
            let index = usize::from(*slot);
            let is_same_field = record.lifecycle.fields.get(index).is_some_and(|field| field.name == *name);
            let value = if is_same_field { record.fields.get(index) } else { record.field(name) };
            value.map(Cow::Borrowed).ok_or_else(|| fault(FaultKind::WrongType, span))
        }
        PathStep::Id => owned_value(Value::Ref(record.id)),
        PathStep::State => owned_value(Value::Text(record.state_name().clone())),
        PathStep::Owner => owned_value(Value::Text(record.owner.clone())),
        PathStep::Version => int_value(record.version, span),
        PathStep::Attempt => int_value(record.attempt, span),
        PathStep::Hold => owned_value(Value::Int(record.hold)),
        PathStep::CreatedAt => owned_value(Value::Time(record.created_at)),
        PathStep::UpdatedAt => owned_value(Value::Time(record.updated_at)),
        PathStep::StartedAt => optional_time(record.started_at),
        PathStep::FinishedAt => optional_time(record.finished_at),
    }
}
