//! One row: an answer to an event.

use std::sync::Arc;

use serde::Serialize;

use super::data::FieldDef;
use super::lifecycle::{FieldIndex, StateIndex, StateSet};
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
pub struct Transition {
    /// The states it answers in; empty for creation.
    pub from: StateSet,
    /// Where it goes; `None` stays (an annotation).
    pub to: Option<StateIndex>,
    /// Who may; empty: any key that may write.
    pub by: Vec<AllowedCaller>,
    pub when: Option<Formula>,
    pub refuse: Vec<RefusalClause>,
    /// What the caller may give: the fields of `take` first, then `input`.
    pub inputs: Vec<TransitionInput>,
    pub set: Vec<(FieldIndex, Formula)>,
    pub transfers: Vec<TransferAction>,
    pub spawn: Vec<SpawnAction>,
    pub require: Vec<EventAction>,
    pub cascade: Vec<EventAction>,
    pub deliver: Vec<DeliverAction>,
    /// Only under `time`.
    pub timer: Option<TimerSpec>,
    /// Only under `fail_execution`: retries without end are meant. Changes nothing but what check has to say.
    #[serde(skip)]
    pub forever_span: Option<Span>,
    pub audit: Option<Arc<str>>,
    /// Requirement ids, as `EXE-12`.
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    /// The checks that any expression of this row reads, by index.
    pub checks: Vec<u16>,
    /// Where the row's `go` stands.
    #[serde(skip)]
    pub span: Span,
    /// The line of the row's `[[on.…]]` header, from 1.
    #[serde(skip)]
    pub header_line: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum AllowedCaller {
    /// `actor.id` is the record's owner.
    Owner,
    Operator,
    /// The call carries the current token.
    Worker,
    /// Only another record's require, cascade or spawn.
    Record,
    /// An entry of `[who]`, by index.
    Predicate(u16),
}

#[derive(Clone, Debug, Serialize)]
pub struct RefusalClause {
    pub condition: Formula,
    pub status: u16,
    pub code: Arc<str>,
    pub audit: Option<Arc<str>>,
}

/// A value the caller may give.
#[derive(Clone, Debug, Serialize)]
pub struct TransitionInput {
    /// Its name, type and bounds; for `take` those of the field.
    pub field: FieldDef,
    /// The record's field that it sets (`take`); `None` for `input`.
    pub target_field: Option<FieldIndex>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TransferAction {
    pub from: AccountRef,
    pub to: AccountRef,
    pub amount: TransferAmount,
    /// The answer when the account runs short; 402 `insufficient_funds` unless said.
    pub shortage_refusal: Option<(u16, Arc<str>)>,
    #[serde(skip)]
    pub span: Span,
}

#[derive(Clone, Debug, Serialize)]
pub enum AccountRef {
    /// The record's own account.
    Hold,
    Named(AccountTemplate),
}

/// `user:{record.owner}`.
#[derive(Clone, Debug, Serialize)]
pub struct AccountTemplate {
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
pub enum TransferAmount {
    /// All there is; only from the hold.
    Rest,
    Computed(Formula),
}

#[derive(Clone, Debug, Serialize)]
pub struct SpawnAction {
    pub lifecycle: Arc<str>,
    pub condition: Option<Formula>,
    /// Given to the new record's create row, by name.
    pub fields: Vec<(Arc<str>, Formula)>,
    /// Owner of the new record; the spawner's where absent.
    pub owner: Option<Formula>,
    pub payload: SpawnPayload,
    #[serde(skip)]
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SpawnPayload {
    None,
    /// The spawner's own payload.
    CopyFromSpawner,
}

/// An event for other records: an entry of `require` or `cascade`.
#[derive(Clone, Debug, Serialize)]
pub struct EventAction {
    pub condition: Option<Formula>,
    /// Evaluates to a ref, null (no target) or a list of refs.
    pub targets: Formula,
    pub event: Arc<str>,
    pub input: Vec<(Arc<str>, Formula)>,
    #[serde(skip)]
    pub span: Span,
}

/// A message to the outside: becomes a record of `onceward.delivery`.
#[derive(Clone, Debug, Serialize)]
pub struct DeliverAction {
    pub condition: Option<Formula>,
    pub url: Formula,
    pub body: Vec<(Arc<str>, Formula)>,
    #[serde(skip)]
    pub span: Span,
}

#[derive(Clone, Debug, Serialize)]
pub enum TimerSpec {
    /// So long after entering the state; the formula gives a duration, evaluated on entering.
    AfterEntering(Formula),
    /// When the time field says; null is no timer.
    AtField(FieldIndex),
}
