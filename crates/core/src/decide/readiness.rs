//! Whether a job waits for a worker, and where it stands among those that do: what a store keeps so that leasing never has
//! to look through records.

use super::snapshot::{ConcurrencyKey, concurrency_key};
use crate::expr::{EvalEnv, EvalFault, EvalStop, FaultKind, RecordSource, eval};
use crate::model::{LinkDef, StateReadiness};
use crate::record::{Actor, Record};
use crate::time::Time;
use crate::value::{RecordId, Value};

/// A job that a worker may have, from some time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Larger goes first.
    pub priority: i64,
    /// When it began to wait, or will.
    pub ready_at: Time,
    /// The work key that it shares with others, where the lifecycle names one and no part of it is null.
    pub concurrency_key: Option<ConcurrencyKey>,
}

/// How a record waits for a worker; `None` where nobody may lease it until something moves it. The same conditions as
/// `lease` has, but for those that depend on other jobs of its key.
pub fn readiness(record: &Record) -> Option<Readiness> {
    let work = record.lifecycle.work.as_ref()?;
    if record.stuck_reason.is_some() || record.committed_token.is_some() || record.live_execution().is_some() {
        return None;
    }
    let ready_at = match record.lifecycle.states[usize::from(record.state)].readiness {
        StateReadiness::NotReady => return None,
        StateReadiness::Immediate => record.entered_at,
        StateReadiness::FromField(slot) => match record.fields[usize::from(slot)] {
            Value::Time(from) => from.max(record.entered_at),
            _ => record.entered_at,
        },
    };
    let priority = work.priority.as_ref().map_or(0, |formula| {
        let actor = Actor::engine();
        let env = EvalEnv {
            records: &NoOtherRecords,
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
    Some(Readiness { priority, ready_at, concurrency_key: concurrency_key(record) })
}

/// Whether the record stands in a queue whose jobs go one after another, oldest first.
pub fn ordered_queue_key(record: &Record) -> Option<ConcurrencyKey> {
    let is_ordered = record.lifecycle.work.as_ref()?.concurrency.as_ref()?.ordered;
    if is_ordered && !record.is_final() { concurrency_key(record) } else { None }
}

/// No other record: a priority that followed one would be out of date as soon as that one changed.
struct NoOtherRecords;

impl RecordSource for NoOtherRecords {
    fn record(&self, _: RecordId) -> Result<&Record, EvalStop> {
        Err(dangling_ref_stop())
    }

    fn linked_records(&self, _: RecordId, _: &LinkDef) -> Result<Vec<RecordId>, EvalStop> {
        Err(dangling_ref_stop())
    }

    fn find_by_natural_key(&self, _: &str, _: &Value) -> Result<Option<RecordId>, EvalStop> {
        Err(dangling_ref_stop())
    }
}

fn dangling_ref_stop() -> EvalStop {
    EvalStop::Fault(EvalFault { kind: FaultKind::DanglingRef, span: crate::diagnostic::Span::default() })
}
