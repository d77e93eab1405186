//! Whether a job waits for a worker, and where it stands among those that do: what a store keeps so that leasing never has
//! to look through records.

use super::snapshot::{QueueKey, queue_of};
use crate::expr::{Env, Fault, FaultKind, Stop, World, eval};
use crate::model::{Link, Ready};
use crate::record::{Actor, Record};
use crate::time::Time;
use crate::value::{RecordId, Value};

/// A job that a worker may have, from some time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Larger goes first.
    pub priority: i64,
    /// When it began to wait, or will.
    pub from: Time,
    /// The work key that it shares with others, where the lifecycle names one and no part of it is null.
    pub key: Option<QueueKey>,
}

/// How a record waits for a worker; `None` where nobody may lease it until something moves it. The same conditions as
/// `lease` has, but for those that depend on other jobs of its key.
pub fn readiness(record: &Record) -> Option<Waiting> {
    let work = record.lifecycle.work.as_ref()?;
    if record.stuck.is_some() || record.committed.is_some() || record.live_execution().is_some() {
        return None;
    }
    let from = match record.lifecycle.states[usize::from(record.state)].ready {
        Ready::No => return None,
        Ready::Yes => record.entered_at,
        Ready::From(slot) => match record.fields[usize::from(slot)] {
            Value::Time(from) => from.max(record.entered_at),
            _ => record.entered_at,
        },
    };
    let priority = work.priority.as_ref().map_or(0, |formula| {
        let actor = Actor::engine();
        let env = Env {
            world: &Alone,
            record,
            now: record.updated_at,
            actor: &actor,
            input: &[],
            result: &[],
            error: None,
            answers: &[],
        };
        // A priority that cannot be worked out from the record is none: the job must not be lost for it.
        match eval(&formula.expr, &env) {
            Ok(Value::Int(priority)) => priority,
            _ => 0,
        }
    });
    Some(Waiting { priority, from, key: queue_of(record) })
}

/// Whether the record stands in a queue whose jobs go one after another, oldest first.
pub fn in_order(record: &Record) -> Option<QueueKey> {
    let ordered = record.lifecycle.work.as_ref()?.key.as_ref()?.ordered;
    if ordered && !record.is_final() { queue_of(record) } else { None }
}

/// No other record: a priority that followed one would be out of date as soon as that one changed.
struct Alone;

impl World for Alone {
    fn record(&self, _: RecordId) -> Result<&Record, Stop> {
        Err(nobody())
    }

    fn linked(&self, _: RecordId, _: &Link) -> Result<Vec<RecordId>, Stop> {
        Err(nobody())
    }

    fn by_key(&self, _: &str, _: &Value) -> Result<Option<RecordId>, Stop> {
        Err(nobody())
    }
}

fn nobody() -> Stop {
    Stop::Fault(Fault { kind: FaultKind::Dangling, at: crate::diagnostic::Span::default() })
}
