//! What `decide` answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::snapshot::{CounterKey, ReadKey, UniqueKey};
use crate::record::{Execution, FencingToken, PayloadRef, Record};
use crate::time::{Duration, Time};
use crate::value::RecordId;

#[derive(Clone, Debug)]
pub enum Decision {
    /// Do this, all of it or none.
    Changes(Box<Changes>),
    /// Already so: nothing to do, nothing to log.
    NoOp(NoOp),
    /// Not allowed; no record changes.
    Refusal(Box<Refusal>),
    /// Load these and ask again.
    Missing(Vec<ReadKey>),
    /// Apply `Call::Due` to these first, each an operation of its own, and ask again. At this time or later: a record in
    /// reach may have been logged after the clock's `now`, and by the clock alone nothing would be due.
    Due { records: Vec<RecordId>, at: Time },
    /// Put these questions to the outside and ask again with the answers.
    NeedsChecks(Vec<CheckQuery>),
}

#[derive(Clone, Debug)]
pub struct Changes {
    /// The operation's one time: not below the last logged time of any record it touches.
    pub now: Time,
    /// Each record that changes, once, in the order first changed.
    pub records: Vec<RecordChange>,
    /// Keys claimed (`Some`) and released (`None`).
    pub unique_claims: Vec<(UniqueKey, Option<RecordId>)>,
    pub counter_deltas: Vec<(CounterKey, i64)>,
    pub transfers: Vec<Transfer>,
    /// Executions that began, moved or ended.
    pub executions: Vec<(RecordId, Execution)>,
    pub effects: Vec<Effect>,
    /// Contents that came into being inside the operation (message bodies).
    pub payloads: Vec<NewPayload>,
    pub audit_entries: Vec<AuditEntry>,
    /// A lease extended by a heartbeat: no log entry, no version.
    pub heartbeat: Option<(RecordId, Execution)>,
    /// The heartbeat's word to the worker.
    pub stop_requested: bool,
    /// The record that the caller asked about.
    pub subject: RecordId,
    /// Every key the decision rests on: what `save` must find unchanged.
    pub read_keys: Vec<ReadKey>,
}

#[derive(Clone, Debug)]
pub struct RecordChange {
    /// `None` for a new record.
    pub before: Option<Arc<Record>>,
    pub after: Arc<Record>,
    /// The rows taken, in order: event and the row's number among the event's rows.
    pub transitions: Vec<(Arc<str>, u16)>,
}

/// A ledger account. A record's own hold is known by the record; nobody else can name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Account {
    Named { asset: Arc<str>, name: Arc<str> },
    Hold { asset: Arc<str>, record: RecordId },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    pub from: Account,
    pub to: Account,
    pub amount: i64,
    /// The record whose row moved it.
    pub caused_by: RecordId,
}

/// What a committed execution leaves: at most one per job, ever (EXE-12).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    pub record: RecordId,
    /// Of the execution that left it.
    pub token: FencingToken,
    pub result: Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPayload {
    pub payload: PayloadRef,
    pub bytes: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub record: Option<RecordId>,
    pub tag: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoOp {
    /// The record that already is as asked, or that holds the key.
    pub subject: RecordId,
    pub reason: NoOpReason,
    /// Where the rows would have spawned: who holds the keys of what they would have made. The caller may not be one to see them.
    pub existing: Vec<RecordId>,
    pub read_keys: Vec<ReadKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoOpReason {
    /// The rows taken change nothing.
    Unchanged,
    /// The same call came before; the answer is as it was then (EXE-8).
    Repeated,
    /// A unique key with `clash = "return"` is held by the subject.
    ExistingRecord,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub status: u16,
    /// Stable; ours, or one that the lifecycle names.
    pub code: Arc<str>,
    pub record: Option<RecordId>,
    pub lifecycle: Option<Arc<str>>,
    pub state: Option<Arc<str>>,
    pub event: Arc<str>,
    /// One sentence for a person. Never shows a payload, nor a record that the caller may not read.
    pub reason: String,
    /// Tag of the recordless log entry, where the refusal is audited.
    pub audit: Option<Arc<str>>,
    /// `already_committed`: the execution whose effect won.
    pub committed_token: Option<FencingToken>,
    /// A limit `window` a time: when the next one begins.
    pub retry_after: Option<Duration>,
    /// A denial (403 or 404 for want of right) is logged, rate-bounded (INV-9).
    pub is_denial: bool,
}

/// A question to the outside.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckQuery {
    pub lifecycle: Arc<str>,
    pub check: Arc<str>,
    pub arguments: Map<String, Json>,
    pub payload: Option<PayloadRef>,
}
