//! Why deciding stops before it is done.

use std::sync::Arc;

use super::changes::{CheckQuery, Refusal};
use super::snapshot::ReadKey;
use crate::expr::{EvalFault, EvalStop};
use crate::record::{FencingToken, Record};
use crate::time::Time;
use crate::value::RecordId;

/// Ends the whole attempt, whatever is half done: the draft is dropped.
#[derive(Debug)]
pub(super) enum Halt {
    Missing(Vec<ReadKey>),
    Due(Vec<RecordId>),
    NeedsChecks(Vec<CheckQuery>),
    Refuse(Box<Refusal>),
    Fault(EvalFault),
    /// A record that this creation would repeat holds its unique key.
    ExistingRecord(RecordId),
    /// A record in reach was logged later than the operation's `narrowed`: begin again at that time.
    ClockBehind(Time),
}

pub(super) type DecideResult<T> = Result<T, Halt>;

impl From<EvalStop> for Halt {
    fn from(stop: EvalStop) -> Self {
        match stop {
            EvalStop::Missing(keys) => Self::Missing(keys),
            EvalStop::Due(ids) => Self::Due(ids),
            EvalStop::ClockBehind(time) => Self::ClockBehind(time),
            EvalStop::Fault(fault) => Self::Fault(fault),
            // Answers are resolved before any expression that reads them; one that is not is a bug of ours, and the
            // safe answer is a fault.
            EvalStop::UnansweredCheck(_) => Self::Fault(EvalFault {
                kind: crate::expr::FaultKind::WrongType,
                span: crate::diagnostic::Span::default(),
            }),
        }
    }
}

impl From<EvalFault> for Halt {
    fn from(fault: EvalFault) -> Self {
        Self::Fault(fault)
    }
}

/// A refusal about a record that the caller may know of.
pub(super) fn record_refusal(
    record: &Record,
    event: &str,
    status: u16,
    code: &str,
    reason: impl Into<String>,
) -> Box<Refusal> {
    Box::new(Refusal {
        status,
        code: code.into(),
        record: Some(record.id),
        lifecycle: Some(Arc::clone(&record.lifecycle.name)),
        state: Some(Arc::clone(record.state_name())),
        event: event.into(),
        reason: reason.into(),
        audit: None,
        committed_token: None,
        retry_after: None,
        is_denial: status == 403,
    })
}

/// A refusal that names no record: none is there, or none that the caller may know of.
pub(super) fn recordless_refusal(event: &str, status: u16, code: &str, reason: impl Into<String>) -> Box<Refusal> {
    Box::new(Refusal {
        status,
        code: code.into(),
        record: None,
        lifecycle: None,
        state: None,
        event: event.into(),
        reason: reason.into(),
        audit: None,
        committed_token: None,
        retry_after: None,
        is_denial: status == 403,
    })
}

/// What a worker is told whose token is not, or no longer, that of its lease.
pub(super) const LEASE_LOST_REASON: &str = "the token is not that of a live lease on this record";

/// The answer to a worker whose lease is over (EXE-8).
pub(super) fn lease_lost_refusal(record: &Record, event: &str, token: FencingToken) -> Box<Refusal> {
    match record.committed_token {
        Some(winner) if winner != token => {
            let mut refusal =
                record_refusal(record, event, 409, "already_committed", "another execution's effect has landed");
            refusal.committed_token = Some(winner);
            refusal
        }
        _ => record_refusal(record, event, 409, "lease_lost", LEASE_LOST_REASON),
    }
}
