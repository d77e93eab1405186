//! Transitions: one `[[on.EVENT]]` entry each.

use std::sync::Arc;

use serde::Serialize;

use super::data::FieldDef;
use super::lifecycle::{FieldIndex, StateIndex, StateSet};
use crate::diagnostic::Span;
use crate::expr::Expr;

/// A compiled expression with its source text, which diagrams and messages show.
#[derive(Clone, Debug, Serialize)]
pub struct Formula {
    pub expr: Expr,
    #[serde(skip)]
    pub text: Arc<str>,
}

/// One `[[on.EVENT]]` entry.
#[derive(Clone, Debug, Serialize)]
pub struct Transition {
    /// States in which it applies; empty for creation.
    pub from: StateSet,
    /// Target state; `None` for an internal transition.
    pub to: Option<StateIndex>,
    /// Callers that may fire it; empty: every API key that may write.
    pub by: Vec<AllowedCaller>,
    pub when: Option<Formula>,
    pub refuse: Vec<RefusalClause>,
    /// Values that the caller may give: the fields of `take` first, then `input`.
    pub inputs: Vec<TransitionInput>,
    pub set: Vec<(FieldIndex, Formula)>,
    pub transfers: Vec<TransferAction>,
    pub spawn: Vec<SpawnAction>,
    pub require: Vec<EventAction>,
    pub cascade: Vec<EventAction>,
    pub deliver: Vec<DeliverAction>,
    /// Only for `time`.
    pub timer: Option<TimerSpec>,
    /// Only for `fail`: declares that unbounded retries are intended. Only the static analysis reads it.
    #[serde(skip)]
    pub forever_span: Option<Span>,
    pub audit: Option<Arc<str>>,
    /// Requirement ids, such as `EXE-12`.
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    /// Indexes of the checks that its expressions read.
    pub checks: Vec<u16>,
    /// Span of its `go`.
    #[serde(skip)]
    pub span: Span,
    /// Line of its `[[on.…]]` header, from 1.
    #[serde(skip)]
    pub header_line: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum AllowedCaller {
    /// `actor.id` is the record's owner.
    Owner,
    Operator,
    /// The call carries the current fencing token.
    Worker,
    /// Another record's require, cascade or spawn.
    Record,
    /// Index of an entry of `[who]`.
    Predicate(u16),
}

#[derive(Clone, Debug, Serialize)]
pub struct RefusalClause {
    pub condition: Formula,
    pub status: u16,
    pub code: Arc<str>,
    pub audit: Option<Arc<str>>,
}

/// A value that the caller may give.
#[derive(Clone, Debug, Serialize)]
pub struct TransitionInput {
    /// Name, type and bounds; for `take`, those of the record's field.
    pub field: FieldDef,
    /// The record's field that it sets (`take`); `None` for `input`.
    pub target_field: Option<FieldIndex>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TransferAction {
    pub from: AccountRef,
    pub to: AccountRef,
    pub amount: TransferAmount,
    /// Refusal if the account's balance is too low; 402 `insufficient_funds` by default.
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

/// An account name with placeholders, such as `user:{record.owner}`.
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
    /// The whole balance; only from the hold.
    Rest,
    Computed(Formula),
}

#[derive(Clone, Debug, Serialize)]
pub struct SpawnAction {
    pub lifecycle: Arc<str>,
    pub condition: Option<Formula>,
    /// Inputs of the new record's `create` transition, by name.
    pub fields: Vec<(Arc<str>, Formula)>,
    /// Owner of the new record; by default the spawner's owner.
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

/// Sends an event to other records: an entry of `require` or `cascade`.
#[derive(Clone, Debug, Serialize)]
pub struct EventAction {
    pub condition: Option<Formula>,
    /// Evaluates to a ref, a list of refs, or null (no target).
    pub targets: Formula,
    pub event: Arc<str>,
    pub input: Vec<(Arc<str>, Formula)>,
    #[serde(skip)]
    pub span: Span,
}

/// Sends a message to a URL, as a record of `onceward.delivery`.
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
    /// A delay after entering the state. The formula gives a duration and is evaluated on entering.
    AfterEntering(Formula),
    /// At the time in the field; null sets no timer.
    AtField(FieldIndex),
}
