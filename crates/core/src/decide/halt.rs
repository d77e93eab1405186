//! Why deciding stops before it is done.

use std::sync::Arc;

use super::changes::{Question, Refusal};
use super::snapshot::Key;
use crate::expr::{Fault, Stop};
use crate::record::{Record, Token};
use crate::time::Time;
use crate::value::RecordId;

/// Ends the whole attempt, whatever is half done: the draft is dropped.
#[derive(Debug)]
pub(super) enum Halt {
    Missing(Vec<Key>),
    Due(Vec<RecordId>),
    Ask(Vec<Question>),
    Refuse(Box<Refusal>),
    Fault(Fault),
    /// A record that this creation would repeat holds its unique key.
    Holder(RecordId),
    /// A record in reach was logged later than the operation's `now`: begin again at that time.
    Later(Time),
}

pub(super) type Step<T> = Result<T, Halt>;

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Missing(keys) => Self::Missing(keys),
            Stop::Due(ids) => Self::Due(ids),
            Stop::Later(time) => Self::Later(time),
            Stop::Fault(fault) => Self::Fault(fault),
            // Answers are resolved before any expression that reads them; one that is not is a bug of ours, and the
            // safe answer is a fault.
            Stop::Unanswered(_) => {
                Self::Fault(Fault { kind: crate::expr::FaultKind::WrongType, at: crate::diagnostic::Span::default() })
            }
        }
    }
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A refusal about a record that the caller may know of.
pub(super) fn refusal(
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
        committed: None,
        retry_after: None,
        denial: status == 403,
    })
}

/// A refusal that names no record: none is there, or none that the caller may know of.
pub(super) fn refusal_of_call(event: &str, status: u16, code: &str, reason: impl Into<String>) -> Box<Refusal> {
    Box::new(Refusal {
        status,
        code: code.into(),
        record: None,
        lifecycle: None,
        state: None,
        event: event.into(),
        reason: reason.into(),
        audit: None,
        committed: None,
        retry_after: None,
        denial: status == 403,
    })
}

/// What a worker is told whose token is not, or no longer, that of its lease.
pub(super) const LEASE_LOST: &str = "the token is not that of a live lease on this record";

/// The answer to a worker whose lease is over (EXE-8).
pub(super) fn lease_lost(record: &Record, event: &str, token: Token) -> Box<Refusal> {
    match record.committed {
        Some(winner) if winner != token => {
            let mut refusal = refusal(record, event, 409, "already_committed", "another execution's effect has landed");
            refusal.committed = Some(winner);
            refusal
        }
        _ => refusal(record, event, 409, "lease_lost", LEASE_LOST),
    }
}
