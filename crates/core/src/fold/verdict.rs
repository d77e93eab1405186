//! MSH-27: what became of an operation: two verdicts, each with its reason.

use std::fmt;
use std::sync::Arc;

use super::admit::Malformed;
use super::operation::OperationId;
use crate::decide::{NoOpReason, Refusal};

/// Both verdicts on one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Final, since it hangs on the operation alone.
    pub admitted: Admission,
    /// As the set stands now; more operations, or other rights, may change it.
    pub applied: Applied,
}

/// Whether an operation is on the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    Refused(Malformed),
}

/// What an operation does to the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    Changed,
    /// Applied, and all was so already.
    Nothing(NoOpReason),
    /// Will be decided at its own place once what it waits for is there.
    Waiting(Wait),
    /// MSH-19: its author was suspended; it stays on the log for the day the suspension lifts.
    Held {
        why: Arc<str>,
    },
    Refused(Reason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The operation it builds on has not arrived.
    Absent(OperationId),
    /// The operation it builds on is here and not applied.
    Unapplied(OperationId),
    /// Nobody can answer this check of this lifecycle.
    Unanswered { lifecycle: Arc<str>, check: Arc<str> },
}

/// Why an operation that is on the log is kept out of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// It never entered the log.
    NotAdmitted,
    /// Its author used the same clock for another operation.
    ClockReused,
    /// It says that it builds on an operation of the same time or later, which its author cannot have seen.
    NotAfter(OperationId),
    /// It builds on one that can never be applied.
    Hopeless(OperationId),
    /// No valid chain of delegations covers it.
    NoAuthority { why: Arc<str> },
    /// Another node asked for the same thing at the same time, and both cannot have it.
    Tie { with: OperationId },
    /// The lifecycle says no.
    Decided(Box<Refusal>),
    /// The lifecycle is none that a fold can carry: it asks for timers or for parts of the world that are not there.
    Undecidable,
}

impl Applied {
    /// What builds on it may go ahead.
    pub const fn is_applied(&self) -> bool {
        matches!(self, Self::Changed | Self::Nothing(_))
    }

    /// Whether no further operation and no other rights can ever change it.
    pub const fn is_hopeless(&self) -> bool {
        matches!(self, Self::Refused(Reason::ClockReused | Reason::NotAfter(_) | Reason::Hopeless(_)))
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

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("applied"),
            Self::Nothing(_) => f.write_str("applied: all was so already"),
            Self::Waiting(Wait::Absent(id)) => write!(f, "waiting: {id} has not arrived"),
            Self::Waiting(Wait::Unapplied(id)) => write!(f, "waiting: {id} is not applied"),
            Self::Waiting(Wait::Unanswered { lifecycle, check }) => {
                write!(f, "waiting: nobody answers the check `{check}` of {lifecycle}")
            }
            Self::Held { why } => write!(f, "held: its author was suspended ({why})"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted => f.write_str("it is not on the log"),
            Self::ClockReused => f.write_str("its author used this clock for another operation"),
            Self::NotAfter(id) => write!(f, "it builds on {id}, whose clock is not before its own"),
            Self::Hopeless(id) => write!(f, "it builds on {id}, which can never be applied"),
            Self::NoAuthority { why } => write!(f, "no valid chain covers it ({why})"),
            Self::Tie { with } => write!(f, "{with} asked for the same at the same time"),
            Self::Decided(refusal) => write!(f, "{} {}: {}", refusal.status, refusal.code, refusal.reason),
            Self::Undecidable => f.write_str("its lifecycle asks for more than a fold has"),
        }
    }
}
