//! MSH-27: what became of an operation: two verdicts, each with its reason.

use std::fmt;
use std::sync::Arc;

use super::admission::AdmissionError;
use super::operation::OperationId;
use crate::decide::{NoOpReason, Refusal};

/// Both verdicts on one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationVerdict {
    /// Final, since it hangs on the operation alone.
    pub admission: Admission,
    /// As the set stands now; more operations, or other rights, may change it.
    pub status: ApplyStatus,
}

/// Whether an operation is on the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    Refused(AdmissionError),
}

/// What an operation does to the state.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplyStatus {
    Changed,
    /// Applied, and all was so already.
    NoOp(NoOpReason),
    /// Will be decided at its own place once what it waits for is there.
    Waiting(WaitReason),
    /// MSH-19: its author was suspended; it stays on the log for the day the suspension lifts.
    AuthorSuspended {
        reason: Arc<str>,
    },
    Refused(FoldRefusalReason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The operation it builds on has not arrived.
    DependencyAbsent(OperationId),
    /// The operation it builds on is here and not applied.
    DependencyUnapplied(OperationId),
    /// Nobody can answer this check of this lifecycle.
    CheckUnanswered { lifecycle: Arc<str>, check: Arc<str> },
}

/// Why an operation that is on the log is kept out of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum FoldRefusalReason {
    /// It never entered the log.
    NotAdmitted,
    /// Its author used the same clock for another operation.
    ClockReused,
    /// It says that it builds on an operation of the same time or later, which its author cannot have seen.
    DependencyNotEarlier(OperationId),
    /// It builds on one that can never be applied.
    DependencyRefused(OperationId),
    /// No valid chain of delegations covers it.
    NoAuthority { reason: Arc<str> },
    /// Another node asked for the same thing at the same time, and both cannot have it.
    Contended { with: OperationId },
    /// The lifecycle says no.
    RefusedByLifecycle(Box<Refusal>),
    /// The lifecycle is none that a fold can carry: it asks for timers or for parts of the world that are not there.
    Undecidable,
}

impl ApplyStatus {
    /// What builds on it may go ahead.
    pub const fn is_applied(&self) -> bool {
        matches!(self, Self::Changed | Self::NoOp(_))
    }

    /// Whether no further operation and no other rights can ever change it.
    pub const fn is_permanently_refused(&self) -> bool {
        matches!(
            self,
            Self::Refused(
                FoldRefusalReason::ClockReused
                    | FoldRefusalReason::DependencyNotEarlier(_)
                    | FoldRefusalReason::DependencyRefused(_)
            )
        )
    }
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admitted => f.write_str("admitted: well formed"),
            Self::Refused(why) => write!(f, "not admitted: {why}"),
        }
    }
}

impl fmt::Display for ApplyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("applied"),
            Self::NoOp(_) => f.write_str("applied: all was so already"),
            Self::Waiting(WaitReason::DependencyAbsent(id)) => write!(f, "waiting: {id} has not arrived"),
            Self::Waiting(WaitReason::DependencyUnapplied(id)) => write!(f, "waiting: {id} is not applied"),
            Self::Waiting(WaitReason::CheckUnanswered { lifecycle, check }) => {
                write!(f, "waiting: nobody answers the check `{check}` of {lifecycle}")
            }
            Self::AuthorSuspended { reason: why } => write!(f, "held: its author was suspended ({why})"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
        }
    }
}

impl fmt::Display for FoldRefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted => f.write_str("it is not on the log"),
            Self::ClockReused => f.write_str("its author used this clock for another operation"),
            Self::DependencyNotEarlier(id) => write!(f, "it builds on {id}, whose clock is not before its own"),
            Self::DependencyRefused(id) => write!(f, "it builds on {id}, which can never be applied"),
            Self::NoAuthority { reason: why } => write!(f, "no valid chain covers it ({why})"),
            Self::Contended { with } => write!(f, "{with} asked for the same at the same time"),
            Self::RefusedByLifecycle(refusal) => write!(f, "{} {}: {}", refusal.status, refusal.code, refusal.reason),
            Self::Undecidable => f.write_str("its lifecycle asks for more than a fold has"),
        }
    }
}
