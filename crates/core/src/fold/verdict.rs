//! MSH-27: the two verdicts on an operation, each with its reason.

use std::fmt;
use std::sync::Arc;

use super::admission::AdmissionError;
use super::operation::OperationId;
use crate::decide::{NoOpReason, Refusal};

/// Both verdicts on one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationVerdict {
    /// Final, since it depends on the operation alone.
    pub admission: Admission,
    /// Status for the current set. More operations or other rights may change it.
    pub status: ApplyStatus,
}

/// Whether an operation is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    Refused(AdmissionError),
}

/// Effect of an operation on the state.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplyStatus {
    Changed,
    /// Applied, but nothing changed.
    NoOp(NoOpReason),
    /// To be decided at its own position once its dependencies and check answers are there.
    Waiting(WaitReason),
    /// MSH-19: the author was suspended. The operation stays in the log until the suspension ends.
    AuthorSuspended {
        reason: Arc<str>,
    },
    Refused(FoldRefusalReason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// A dependency has not arrived.
    DependencyAbsent(OperationId),
    /// A dependency is in the log but not applied.
    DependencyUnapplied(OperationId),
    /// The resolver has no answer to this check.
    CheckUnanswered { lifecycle: Arc<str>, check: Arc<str> },
}

/// Why an operation has no effect on the state.
#[derive(Clone, Debug, PartialEq)]
pub enum FoldRefusalReason {
    /// The operation was not admitted to the log.
    NotAdmitted,
    /// The operation's author used the same timestamp for another operation.
    ClockReused,
    /// A dependency has the same or a later timestamp, so the author cannot have seen it.
    DependencyNotEarlier(OperationId),
    /// A dependency can never be applied.
    DependencyRefused(OperationId),
    /// No valid chain of delegations covers it.
    NoAuthority { reason: Arc<str> },
    /// Another node claimed the same record at the same timestamp, and both claims exclude each other.
    Contended { with: OperationId },
    /// `decide` refused it.
    RefusedByLifecycle(Box<Refusal>),
    /// The lifecycle needs timers or data that a fold does not have.
    Undecidable,
}

impl ApplyStatus {
    /// Whether operations that depend on this one may go ahead.
    pub const fn is_applied(&self) -> bool {
        matches!(self, Self::Changed | Self::NoOp(_))
    }

    /// Whether no other operation and no change of authority can change the status.
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
            Self::NoOp(_) => f.write_str("applied: no change"),
            Self::Waiting(WaitReason::DependencyAbsent(id)) => write!(f, "waiting: {id} has not arrived"),
            Self::Waiting(WaitReason::DependencyUnapplied(id)) => write!(f, "waiting: {id} is not applied"),
            Self::Waiting(WaitReason::CheckUnanswered { lifecycle, check }) => {
                write!(f, "waiting: the check `{check}` of {lifecycle} has no answer")
            }
            Self::AuthorSuspended { reason: why } => write!(f, "held: its author is suspended ({why})"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
        }
    }
}

impl fmt::Display for FoldRefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted => f.write_str("it is not on the log"),
            Self::ClockReused => f.write_str("its author used the same timestamp for another operation"),
            Self::DependencyNotEarlier(id) => write!(f, "it depends on {id}, whose timestamp is not earlier"),
            Self::DependencyRefused(id) => write!(f, "it depends on {id}, which can never be applied"),
            Self::NoAuthority { reason: why } => write!(f, "its author has no authority for it ({why})"),
            Self::Contended { with } => write!(f, "it conflicts with {with}, which has the same timestamp"),
            Self::RefusedByLifecycle(refusal) => write!(f, "{} {}: {}", refusal.status, refusal.code, refusal.reason),
            Self::Undecidable => f.write_str("its lifecycle needs data that a fold does not have"),
        }
    }
}
