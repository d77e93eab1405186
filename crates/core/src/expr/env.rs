//! What an expression may look at while it is evaluated.

use std::sync::Arc;

use crate::decide::Key;
use crate::diagnostic::Span;
use crate::model::Link;
use crate::record::{Actor, Record, WorkError};
use crate::time::Time;
use crate::value::{RecordId, Value};

/// The other records, as the operation has left them so far.
pub trait World {
    /// A record that is known to exist; one that does not is a fault of whoever kept the ref.
    fn record(&self, id: RecordId) -> Result<&Record, Stop>;
    /// The records of a link, in creation order.
    fn linked(&self, of: RecordId, link: &Link) -> Result<Vec<RecordId>, Stop>;
    /// The record of this lifecycle with this natural key.
    fn by_key(&self, lifecycle: &str, key: &Value) -> Result<Option<RecordId>, Stop>;
}

pub struct Env<'a> {
    pub world: &'a dyn World,
    /// The row's record as it was; at creation: defaults, then taken inputs.
    pub record: &'a Record,
    pub now: Time,
    pub actor: &'a Actor,
    /// By index into the row's inputs; absent is null.
    pub input: &'a [Value],
    /// By index into the work's result fields.
    pub result: &'a [Value],
    pub error: Option<&'a WorkError>,
    /// By index into `[checks]`; `None` where not asked yet.
    pub answers: &'a [Option<Arc<[Value]>>],
}

/// Why an evaluation gave no value.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// Not loaded yet.
    Missing(Vec<Key>),
    /// Have a due timer, or a lease that has run out, which must be dealt with first.
    Due(Vec<RecordId>),
    /// Was logged later than the operation's `now`: decide again with `now` there.
    Later(Time),
    /// A check, by index, that has not been answered.
    Unanswered(u16),
    Fault(Fault),
}

/// A runtime error: all is undone, never "false".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    pub at: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    #[error("an operand is null")]
    Null,
    #[error("the number does not fit")]
    Overflow,
    #[error("division by zero")]
    DivisionByZero,
    #[error("not a number")]
    NotANumber,
    #[error("a record that is referred to does not exist")]
    Dangling,
    #[error("the evaluation costs too much")]
    TooCostly,
    #[error("a value is outside its field's bounds")]
    OutOfBounds,
    #[error("a negative amount of money")]
    NegativeAmount,
    #[error("a final state with money in the hold")]
    FilledHold,
    #[error("a value of another type than was checked")]
    WrongType,
}
