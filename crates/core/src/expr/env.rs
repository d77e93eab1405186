//! The environment of an evaluation: the values and records that an expression may read.

use std::sync::Arc;

use crate::decide::ReadKey;
use crate::diagnostic::Span;
use crate::model::LinkDef;
use crate::record::{Actor, ClassifiedFailure, Record};
use crate::time::Time;
use crate::value::{RecordId, Value};

/// Access to other records, including the changes of the operation so far.
pub trait RecordSource {
    /// Returns a record that a ref names. If the record does not exist, the result is a fault.
    fn record(&self, id: RecordId) -> Result<&Record, EvalStop>;
    /// Returns the records of a link, in creation order.
    fn linked_records(&self, id: RecordId, link: &LinkDef) -> Result<Vec<RecordId>, EvalStop>;
    /// Returns the record of the lifecycle with this natural key.
    fn find_by_natural_key(&self, lifecycle: &str, key: &Value) -> Result<Option<RecordId>, EvalStop>;
}

pub struct EvalEnv<'a> {
    pub records: &'a dyn RecordSource,
    /// The record before the transition. At creation: the defaults, overwritten by the taken inputs.
    pub record: &'a Record,
    pub now: Time,
    pub actor: &'a Actor,
    /// By index of the transition's inputs. An absent input is null.
    pub input: &'a [Value],
    /// By index of the result fields of `[work]`.
    pub result: &'a [Value],
    pub error: Option<&'a ClassifiedFailure>,
    /// By index of `[checks]`. `None` if the check has no answer yet.
    pub answers: &'a [Option<Arc<[Value]>>],
}

/// Why an evaluation returned no value.
#[derive(Clone, Debug, PartialEq)]
pub enum EvalStop {
    /// These reads are not loaded yet.
    Missing(Vec<ReadKey>),
    /// These records have a due timer or an expired lease, which the engine must process first.
    Due(Vec<RecordId>),
    /// A record was logged later than the operation's `now`. The engine must decide again with this time.
    ClockBehind(Time),
    /// The check with this index has no answer yet.
    UnansweredCheck(u16),
    Fault(EvalFault),
}

/// A runtime error. The engine rolls back the operation; the expression never counts as false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalFault {
    pub kind: FaultKind,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    #[error("an operand is null")]
    Null,
    #[error("the number is out of range")]
    Overflow,
    #[error("division by zero")]
    DivisionByZero,
    #[error("not a number")]
    NotANumber,
    #[error("a referenced record does not exist")]
    DanglingRef,
    #[error("the evaluation costs too much")]
    CostExceeded,
    #[error("a value is outside its field's bounds")]
    OutOfBounds,
    #[error("the amount of a transfer is negative")]
    NegativeAmount,
    #[error("the hold has money in a final state")]
    FilledHold,
    #[error("a value has another type than the analysis proved")]
    WrongType,
}
