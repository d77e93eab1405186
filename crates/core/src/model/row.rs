//! One row: an answer to an event.

use std::sync::Arc;

use serde::Serialize;

use super::data::Field;
use super::lifecycle::{Slot, StateIx, StateSet};
use crate::diagnostic::Span;
use crate::expr::Expr;

/// A compiled expression with the text it came from, for pictures and messages.
#[derive(Clone, Debug, Serialize)]
pub struct Formula {
    pub expr: Expr,
    #[serde(skip)]
    pub text: Arc<str>,
}

/// One row under an event.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The states it answers in; empty for creation.
    pub from: StateSet,
    /// Where it goes; `None` stays (an annotation).
    pub to: Option<StateIx>,
    /// Who may; empty: any key that may write.
    pub by: Vec<By>,
    pub when: Option<Formula>,
    pub refuse: Vec<Refuse>,
    /// What the caller may give: the fields of `take` first, then `input`.
    pub inputs: Vec<Input>,
    pub set: Vec<(Slot, Formula)>,
    pub moves: Vec<Move>,
    pub spawn: Vec<Spawn>,
    pub require: Vec<Cause>,
    pub cascade: Vec<Cause>,
    pub deliver: Vec<Deliver>,
    /// Only under `time`.
    pub timing: Option<Timing>,
    /// Only under `fail`: retries without end are meant. Changes nothing but what check has to say.
    #[serde(skip)]
    pub forever: Option<Span>,
    pub audit: Option<Arc<str>>,
    /// Requirement ids, as `EXE-12`.
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    /// The checks that any expression of this row reads, by index.
    pub checks: Vec<u16>,
    /// Where the row's `go` stands.
    #[serde(skip)]
    pub at: Span,
    /// The line of the row's `[[on.…]]` header, from 1.
    #[serde(skip)]
    pub line: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum By {
    /// `actor.id` is the record's owner.
    Owner,
    Operator,
    /// The call carries the current token.
    Worker,
    /// Only another record's require, cascade or spawn.
    Record,
    /// An entry of `[who]`, by index.
    Who(u16),
}

#[derive(Clone, Debug, Serialize)]
pub struct Refuse {
    pub condition: Formula,
    pub status: u16,
    pub code: Arc<str>,
    pub audit: Option<Arc<str>>,
}

/// A value the caller may give.
#[derive(Clone, Debug, Serialize)]
pub struct Input {
    /// Its name, type and bounds; for `take` those of the field.
    pub field: Field,
    /// The record's field that it sets (`take`); `None` for `input`.
    pub take: Option<Slot>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Move {
    pub from: AccountRef,
    pub to: AccountRef,
    pub amount: Amount,
    /// The answer when the account runs short; 402 `insufficient_funds` unless said.
    pub short: Option<(u16, Arc<str>)>,
    #[serde(skip)]
    pub at: Span,
}

#[derive(Clone, Debug, Serialize)]
pub enum AccountRef {
    /// The record's own account.
    Hold,
    Named(Template),
}

/// `user:{record.owner}`.
#[derive(Clone, Debug, Serialize)]
pub struct Template {
    pub parts: Vec<TemplatePart>,
    #[serde(skip)]
    pub text: Arc<str>,
}

#[derive(Clone, Debug, Serialize)]
pub enum TemplatePart {
    Literal(Arc<str>),
    Value(Expr),
}

#[derive(Clone, Debug, Serialize)]
pub enum Amount {
    /// All there is; only from the hold.
    Rest,
    Formula(Formula),
}

#[derive(Clone, Debug, Serialize)]
pub struct Spawn {
    pub lifecycle: Arc<str>,
    pub condition: Option<Formula>,
    /// Given to the new record's create row, by name.
    pub fields: Vec<(Arc<str>, Formula)>,
    /// Owner of the new record; the spawner's where absent.
    pub owner: Option<Formula>,
    pub payload: SpawnPayload,
    #[serde(skip)]
    pub at: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SpawnPayload {
    None,
    /// The spawner's own payload.
    Same,
}

/// An event for other records: an entry of `require` or `cascade`.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    pub condition: Option<Formula>,
    /// Evaluates to a ref, null (no target) or a list of refs.
    pub to: Formula,
    pub event: Arc<str>,
    pub input: Vec<(Arc<str>, Formula)>,
    #[serde(skip)]
    pub at: Span,
}

/// A message to the outside: becomes a record of `onceward.delivery`.
#[derive(Clone, Debug, Serialize)]
pub struct Deliver {
    pub condition: Option<Formula>,
    pub to: Formula,
    pub body: Vec<(Arc<str>, Formula)>,
    #[serde(skip)]
    pub at: Span,
}

#[derive(Clone, Debug, Serialize)]
pub enum Timing {
    /// So long after entering the state; the formula gives a duration, evaluated on entering.
    After(Formula),
    /// When the time field says; null is no timer.
    At(Slot),
}
