//! What an expression may look at while it is evaluated.

use std::sync::Arc;

use crate::decide::ReadKey;
use crate::diagnostic::Span;
use crate::model::LinkDef;
use crate::record::{Actor, ClassifiedFailure, Record};
use crate::time::Time;
use crate::value::{RecordId, Value};

/// The other records, as the operation has left them so far.
pub trait RecordSource {
    /// A record that is known to exist; one that does not is a fault of whoever kept the ref.
    fn record(&self, id: RecordId) -> Result<&Record, EvalStop>;
    /// The records of a link, in creation order.
    fn linked_records(&self, id: RecordId, link: &LinkDef) -> Result<Vec<RecordId>, EvalStop>;
    /// The record of this lifecycle with this natural key.
    fn find_by_natural_key(&self, lifecycle: &str, key: &Value) -> Result<Option<RecordId>, EvalStop>;
}

pub struct EvalEnv<'a> {
    pub records: &'a dyn RecordSource,
    /// The row's record as it was; at creation: defaults, then taken inputs.
    pub record: &'a Record,
    pub now: Time,
    pub actor: &'a Actor,
    /// By index into the row's inputs; absent is null.
    pub input: &'a [Value],
    /// By index into the work's result fields.
    pub result: &'a [Value],
    pub error: Option<&'a ClassifiedFailure>,
    /// By index into `[check_indexes]`; `None` where not asked yet.
    pub answers: &'a [Option<Arc<[Value]>>],
}

/// Why an evaluation gave no value.
#[derive(Clone, Debug, PartialEq)]
pub enum EvalStop {
    /// Not loaded yet.
    Missing(Vec<ReadKey>),
    /// Have a due timer, or a lease that has run out, which must be dealt with first.
    Due(Vec<RecordId>),
    /// Was logged later than the operation's `now`: decide again with `now` there.
    ClockBehind(Time),
    /// A check, by index, that has not been answered.
    UnansweredCheck(u16),
    Fault(EvalFault),
}

/// A runtime error: all is undone, never "false".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalFault {
    pub kind: FaultKind,
    pub span: Span,
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
    DanglingRef,
    #[error("the evaluation costs too much")]
    CostExceeded,
    #[error("a value is outside its field's bounds")]
    OutOfBounds,
    #[error("a negative amount of money")]
    NegativeAmount,
    #[error("a final state with money in the hold")]
    FilledHold,
    #[error("a value of another type than was checked")]
    WrongType,
}
