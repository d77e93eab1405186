//! Readiness of jobs: whether a worker may lease a record, and in which order. The store indexes it, so that leasing
//! does not scan records.

use super::snapshot::{ConcurrencyKey, concurrency_key};
use crate::expr::{ErrorPart, EvalEnv, EvalFault, EvalStop, FaultKind, PathRoot, RecordSource, eval, referenced_paths};
use crate::model::{EventKind, Lifecycle, LinkDef, StateReadiness};
use crate::record::{Actor, Record};
use crate::time::Time;
use crate::value::{RecordId, Value};

/// When and in which order a job may be leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Higher goes first.
    pub priority: i64,
    /// Since when the job is ready, or when it will be.
    pub ready_at: Time,
    /// The job's concurrency key, if the lifecycle declares one and no part of it is null.
    pub concurrency_key: Option<ConcurrencyKey>,
}

/// Returns the readiness of a record; `None` if it is not leasable until something changes it. The conditions are those
/// of `lease`, except for those that depend on other jobs of the same concurrency key.
pub fn readiness(record: &Record) -> Option<Readiness> {
    let work = record.lifecycle.work.as_ref()?;
    if record.stuck_reason.is_some() || record.committed_token.is_some() || record.live_execution().is_some() {
        return None;
    }
    let ready_at = ready_from(record)?;
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
        // If the priority cannot be evaluated, it is 0, so that the job stays leasable.
        match eval(&formula.expr, &env) {
            Ok(Value::Int(priority)) => priority,
            _ => 0,
        }
    });
    Some(Readiness { priority, ready_at, concurrency_key: concurrency_key(record) })
}

/// Returns from when the record's state makes it leasable: after the entry, the time field of the state, and the delay that
/// the worker of the last attempt asked for.
pub(super) fn ready_from(record: &Record) -> Option<Time> {
    let from_state = match record.lifecycle.states[usize::from(record.state)].readiness {
        StateReadiness::NotReady => return None,
        StateReadiness::Immediate => record.entered_at,
        StateReadiness::FromField(slot) => match record.fields[usize::from(slot)] {
            Value::Time(from) => from.max(record.entered_at),
            _ => record.entered_at,
        },
    };
    let retry_at = record.execution.as_ref().and_then(|execution| execution.aborted.as_ref()?.retry_at);
    Some(retry_at.map_or(from_state, |retry_at| retry_at.max(from_state)))
}

/// Whether a `fail` transition decides itself when the job is retried. If none does, the engine keeps the worker's delay.
pub(super) fn reads_retry_after(lifecycle: &Lifecycle) -> bool {
    lifecycle.transitions(EventKind::Fail).iter().any(|transition| {
        let formulas = transition.when.iter().chain(transition.set.iter().map(|(_, formula)| formula));
        formulas
            .flat_map(|formula| referenced_paths(&formula.expr))
            .any(|path| path.root == PathRoot::Error(ErrorPart::RetryAfter))
    })
}

/// Returns the record's concurrency key if the jobs of the key run in order, oldest first.
pub fn ordered_queue_key(record: &Record) -> Option<ConcurrencyKey> {
    let is_ordered = record.lifecycle.work.as_ref()?.concurrency.as_ref()?.ordered;
    if is_ordered && !record.is_final() { concurrency_key(record) } else { None }
}

/// Hides all other records: a priority that read one would be outdated once that record changes.
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
