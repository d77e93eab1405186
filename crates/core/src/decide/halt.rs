//! Reasons for `decide` to stop early.

use std::sync::Arc;

use super::changes::{CheckQuery, Refusal};
use super::snapshot::ReadKey;
use crate::expr::{EvalFault, EvalStop};
use crate::record::{FencingToken, Record};
use crate::time::Time;
use crate::value::RecordId;

/// Ends the attempt to decide and drops the draft.
#[derive(Debug)]
pub(super) enum Halt {
    Missing(Vec<ReadKey>),
    Due(Vec<RecordId>),
    NeedsChecks(Vec<CheckQuery>),
    Refuse(Box<Refusal>),
    Fault(EvalFault),
    /// A record holds the unique key with `clash = "return"` that the creation would claim.
    ExistingRecord(RecordId),
    /// The newest log entry of a needed record is later than the operation's `now`: start again at that time.
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
            // Answers are resolved before any expression that reads them. If not, it is a bug, and a fault is the safe
            // result.
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

/// Builds a refusal about a record that the caller may know of.
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

/// Builds a refusal that names no record: there is none, or the caller may not know of it.
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

/// Reply to a worker whose token is not that of a live lease.
pub(super) const LEASE_LOST_REASON: &str = "the record has no live lease with the given token";

/// Builds the refusal for a worker whose lease has ended (EXE-8).
pub(super) fn lease_lost_refusal(record: &Record, event: &str, token: FencingToken) -> Box<Refusal> {
    match record.committed_token {
        Some(winner) if winner != token => {
            let mut refusal =
                record_refusal(record, event, 409, "already_committed", "another execution committed its effect");
            refusal.committed_token = Some(winner);
            refusal
        }
        _ => record_refusal(record, event, 409, "lease_lost", LEASE_LOST_REASON),
    }
}
