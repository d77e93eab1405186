//! The typed tree.

use std::sync::Arc;

use serde::Serialize;

use crate::diagnostic::Span;
use crate::model::{FieldIndex, ValueType};
use crate::value::Value;

#[derive(Clone, Debug, Serialize)]
pub struct Expr {
    pub kind: ExprKind,
    pub value_type: ValueType,
    #[serde(skip)]
    pub span: Span,
}

#[derive(Clone, Debug, Serialize)]
pub enum ExprKind {
    Const(Value),
    Read(ValuePath),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    /// Left to right; the right side is not evaluated where the left decides; no error is absorbed.
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    Binary(BinaryOperator, Box<Expr>, Box<Expr>),
    Call(BuiltinFunction, Vec<Expr>),
    List(Vec<Expr>),
    /// `range.all(x, body)` and its kin; the variable is the local of that number.
    Comprehension {
        kind: ComprehensionKind,
        range: Box<Expr>,
        local: u16,
        body: Box<Expr>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ComprehensionKind {
    All,
    Exists,
    Filter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BuiltinFunction {
    /// Characters of a text, elements of a list.
    Size,
    /// From double (toward zero), time (whole seconds) or int.
    Int,
    /// From int or double.
    Double,
    /// From int, bool, text or ref.
    Text,
    Timestamp,
    Duration,
    StartsWith,
    EndsWith,
    Contains,
    /// Null-tolerant: where one operand is null, the other.
    Max,
    Min,
    /// `backoff(n, base_task, factor, cap)` = min(cap, base · factor^n), never overflowing.
    Backoff,
    /// `jitter(max)`: from zero up to, not including, max; a hash of record id and version.
    Jitter,
}

/// A value reached from a root by hops from record to record.
#[derive(Clone, Debug, Serialize)]
pub struct ValuePath {
    pub root: PathRoot,
    /// Each step reads from the record that stands before it; null reaches through (null's field is a fault).
    pub steps: Vec<PathStep>,
    /// The steps, by index, before which the value may be null as far as the expression itself shows: what the
    /// checker must prove. No part of what the path is, so it neither compares nor is hashed.
    #[serde(skip)]
    pub nullable_steps: Vec<u8>,
}

impl PartialEq for ValuePath {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root && self.steps == other.steps
    }
}

impl Eq for ValuePath {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PathRoot {
    /// The record itself; at least one step follows.
    Record,
    /// By index into the row's inputs.
    Input(u16),
    /// By index into the work's result fields.
    Result(u16),
    Error(ErrorPart),
    /// By index of the check and of the part of its answer.
    Answer {
        check: u16,
        part: u16,
    },
    /// By index into `[ref_type]`: a ref, or null where no record has the key.
    Lookup(u16),
    /// By index into `[links]`: a list of refs, in creation order.
    Link(u16),
    Actor(ActorPart),
    Now,
    /// A comprehension's variable.
    Local(u16),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PathStep {
    /// By name, with the slot it has in the version that was checked; a record of another version is asked by name.
    Field {
        name: Arc<str>,
        index: FieldIndex,
    },
    Id,
    State,
    Owner,
    Version,
    Attempt,
    Hold,
    CreatedAt,
    UpdatedAt,
    StartedAt,
    FinishedAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ErrorPart {
    Code,
    Message,
    Retryable,
    RetryAfter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ActorPart {
    Id,
    Roles,
    Capabilities,
    User,
}
