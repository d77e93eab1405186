//! Reading along a path, from record to record.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::env::{FaultKind, Stop};
use super::super::tree::{ActorPart, ErrorPart, Path, Root, Step};
use super::machine::{Got, Machine, fault};
use crate::diagnostic::Span;
use crate::record::Record;
use crate::time::Time;
use crate::value::Value;

#[expect(clippy::unnecessary_wraps, reason = "it stands where an evaluation ends, which may fault")]
fn owned<'a>(value: Value) -> Got<'a> {
    Ok(Cow::Owned(value))
}

fn names(list: &[Arc<str>]) -> Value {
    Value::List(list.iter().cloned().map(Value::Text).collect())
}

fn number<'a>(number: u64, at: Span) -> Got<'a> {
    i64::try_from(number).map_or_else(|_| Err(fault(FaultKind::Overflow, at)), |number| owned(Value::Int(number)))
}

fn moment<'a>(time: Option<Time>) -> Got<'a> {
    owned(time.map_or(Value::Null, Value::Time))
}

impl<'a> Machine<'a> {
    pub(super) fn read(&mut self, path: &'a Path, at: Span) -> Got<'a> {
        self.spend(path.steps.len(), at)?;
        let (mut value, steps) = match (path.root, path.steps.split_first()) {
            (Root::Record, Some((first, rest))) => (from_record(self.env.record, first, at)?, rest),
            (Root::Record, None) => return owned(Value::Ref(self.env.record.id)),
            (root, _) => (self.root(root, at)?, path.steps.as_slice()),
        };
        for step in steps {
            let id = match &*value {
                Value::Ref(id) => *id,
                Value::Null => return Err(fault(FaultKind::Null, at)),
                _ => return Err(fault(FaultKind::WrongType, at)),
            };
            value = match step {
                Step::Id => Cow::Owned(Value::Ref(id)),
                step => from_record(self.env.world.record(id)?, step, at)?,
            };
        }
        Ok(value)
    }

    #[inline(never)]
    fn root(&mut self, root: Root, at: Span) -> Got<'a> {
        let env = self.env;
        let missing = || fault(FaultKind::WrongType, at);
        match root {
            Root::Record => owned(Value::Ref(env.record.id)),
            Root::Input(index) => Ok(env.input.get(usize::from(index)).map_or(Cow::Owned(Value::Null), Cow::Borrowed)),
            Root::Result(index) => {
                Ok(env.result.get(usize::from(index)).map_or(Cow::Owned(Value::Null), Cow::Borrowed))
            }
            Root::Error(part) => {
                let error = env.error.ok_or_else(missing)?;
                owned(match part {
                    ErrorPart::Code => Value::Text(error.code.clone()),
                    ErrorPart::Message => Value::Text(error.message.clone()),
                    ErrorPart::Retryable => Value::Bool(error.retryable),
                    ErrorPart::RetryAfter => error.retry_after.map_or(Value::Null, Value::Duration),
                })
            }
            Root::Answer { check, part } => match env.answers.get(usize::from(check)) {
                Some(Some(answer)) => answer.get(usize::from(part)).map(Cow::Borrowed).ok_or_else(missing),
                _ => Err(Box::new(Stop::Unanswered(check))),
            },
            Root::Lookup(index) => self.lookup(index, at),
            Root::Link(index) => {
                let link = env.record.lifecycle.links.get(usize::from(index)).ok_or_else(missing)?;
                let records = env.world.linked(env.record.id, link)?;
                owned(Value::List(records.into_iter().map(Value::Ref).collect()))
            }
            Root::Actor(part) => owned(match part {
                ActorPart::Id => Value::Text(env.actor.id.clone()),
                ActorPart::Roles => names(&env.actor.roles),
                ActorPart::Capabilities => names(&env.actor.capabilities),
                ActorPart::User => Value::Bool(env.actor.user),
            }),
            Root::Now => owned(Value::Time(env.now)),
            Root::Local(index) => self.locals.get(usize::from(index)).cloned().map(Cow::Owned).ok_or_else(missing),
        }
    }

    /// The record with the key that the lookup's own expression gives. That expression runs by itself, with none of
    /// this one's variables; one that looked up in turn might never end, and is a fault.
    #[inline(never)]
    fn lookup(&mut self, index: u16, at: Span) -> Got<'a> {
        let wrong = || fault(FaultKind::WrongType, at);
        let lookup = self.env.record.lifecycle.lookups.get(usize::from(index)).ok_or_else(wrong)?;
        let mut inner = self.inner().ok_or_else(wrong)?;
        let key = inner.run(&lookup.key.expr)?;
        if key.is_null() {
            return owned(Value::Null);
        }
        let found = self.env.world.by_key(&lookup.lifecycle, &key)?;
        owned(found.map_or(Value::Null, Value::Ref))
    }
}

fn from_record<'a>(record: &'a Record, step: &Step, at: Span) -> Got<'a> {
    match step {
        Step::Field { name, slot } => {
            let index = usize::from(*slot);
            let here = record.lifecycle.fields.get(index).is_some_and(|field| field.name == *name);
            let value = if here { record.fields.get(index) } else { record.field(name) };
            value.map(Cow::Borrowed).ok_or_else(|| fault(FaultKind::WrongType, at))
        }
        Step::Id => owned(Value::Ref(record.id)),
        Step::State => owned(Value::Text(record.state_name().clone())),
        Step::Owner => owned(Value::Text(record.owner.clone())),
        Step::Version => number(record.version, at),
        Step::Attempt => number(record.attempt, at),
        Step::Hold => owned(Value::Int(record.hold)),
        Step::CreatedAt => owned(Value::Time(record.created_at)),
        Step::UpdatedAt => owned(Value::Time(record.updated_at)),
        Step::StartedAt => moment(record.started_at),
        Step::FinishedAt => moment(record.finished_at),
    }
}
