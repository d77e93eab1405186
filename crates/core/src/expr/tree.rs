//! The typed expression tree.

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
    /// Evaluates left to right and skips the right side if the left decides. Absorbs no errors, unlike CEL.
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    Binary(BinaryOperator, Box<Expr>, Box<Expr>),
    Call(BuiltinFunction, Vec<Expr>),
    List(Vec<Expr>),
    /// `range.all(x, body)`, `exists` or `filter`. `local` is the index of the variable.
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
    /// Number of characters of a text or elements of a list.
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
    /// Null-tolerant: if one operand is null, returns the other.
    Max,
    Min,
    /// `backoff(n, base, factor, cap)` = min(cap, base · factor^n). Never overflows.
    Backoff,
    /// `jitter(max)`: a duration from zero up to, but excluding, max, from a hash of record id and version.
    Jitter,
}

/// A value reached from a root through refs from record to record.
#[derive(Clone, Debug, Serialize)]
pub struct ValuePath {
    pub root: PathRoot,
    /// Each step reads from the record before it. Reading from null is a fault.
    pub steps: Vec<PathStep>,
    /// Indexes of the steps before which the value may be null, judged by the expression alone. Static analysis must
    /// prove that it is not. Not part of the path's identity, so excluded from comparison and hash.
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
    /// The record of the transition. At least one step follows.
    Record,
    /// By index of the transition's inputs.
    Input(u16),
    /// By index of the result fields of `[work]`.
    Result(u16),
    Error(ErrorPart),
    /// By index of the check and of the field of its answer.
    Answer {
        check: u16,
        part: u16,
    },
    /// By index of `[refs]`: a ref, or null if no record has the key.
    Lookup(u16),
    /// By index of `[links]`: a list of refs, in creation order.
    Link(u16),
    Actor(ActorPart),
    Now,
    /// A comprehension variable.
    Local(u16),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PathStep {
    /// A field, with its index in the compiled version. If the record has another version, the evaluator looks up the
    /// field by name.
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
