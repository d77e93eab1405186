//! Results of `decide`: changes, no-ops, refusals, and requests for more data.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::snapshot::{CounterKey, ReadKey, UniqueKey};
use crate::record::{Execution, FencingToken, PayloadRef, Record};
use crate::time::{Duration, Time};
use crate::value::RecordId;

#[derive(Clone, Debug)]
pub enum Decision {
    /// Commit these changes, all or none.
    Changes(Box<Changes>),
    /// Nothing to change and nothing to log.
    NoOp(NoOp),
    /// The operation is refused; no record changes.
    Refusal(Box<Refusal>),
    /// Load these keys and decide again.
    Missing(Vec<ReadKey>),
    /// Apply [`Call::FireDue`](super::Call::FireDue) to these records first, each as its own operation, and decide
    /// again. Use `at` or later as the time: a record's newest log entry may be later than the clock's `now`, and at
    /// `now` nothing would be due.
    Due { records: Vec<RecordId>, at: Time },
    /// Run these external checks and decide again with the answers.
    NeedsChecks(Vec<CheckQuery>),
}

#[derive(Clone, Debug)]
pub struct Changes {
    /// The operation's time: not before the `updated_at` of any record that it touches.
    pub now: Time,
    /// Each changed record once, in the order of first change.
    pub records: Vec<RecordChange>,
    /// Unique keys claimed (`Some`) and released (`None`).
    pub unique_claims: Vec<(UniqueKey, Option<RecordId>)>,
    pub counter_deltas: Vec<(CounterKey, i64)>,
    pub transfers: Vec<Transfer>,
    /// Executions that started, changed or ended.
    pub executions: Vec<(RecordId, Execution)>,
    pub effects: Vec<Effect>,
    /// Payloads created by the operation (delivery bodies).
    pub payloads: Vec<NewPayload>,
    pub audit_entries: Vec<AuditEntry>,
    /// A lease extended by a heartbeat. Writes no log entry and does not raise the record's version.
    pub heartbeat: Option<(RecordId, Execution)>,
    /// The heartbeat's reply asks the worker to stop.
    pub stop_requested: bool,
    /// The record that the call is about.
    pub subject: RecordId,
    /// The read set: every key that the decision depends on. `save` must find them unchanged.
    pub read_keys: Vec<ReadKey>,
}

#[derive(Clone, Debug)]
pub struct RecordChange {
    /// `None` for a new record.
    pub before: Option<Arc<Record>>,
    pub after: Arc<Record>,
    /// The transitions taken, in order: the event, and the index among the event's transitions.
    pub transitions: Vec<(Arc<str>, u16)>,
}

/// A ledger account. Only the record's own transitions can name its hold.
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
    /// The record whose transition made the transfer.
    pub caused_by: RecordId,
}

/// Result of a committed execution: at most one per job, ever (EXE-12).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    pub record: RecordId,
    /// Token of the committed execution.
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
    /// The record that already is as requested, or that holds the unique key.
    pub subject: RecordId,
    pub reason: NoOpReason,
    /// Records that hold the unique keys of records that the transitions would have spawned. The caller may lack the
    /// right to read them.
    pub existing: Vec<RecordId>,
    pub read_keys: Vec<ReadKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoOpReason {
    /// The transitions taken change nothing.
    Unchanged,
    /// A repeated call; the reply is the same as the first time (EXE-8).
    Repeated,
    /// The subject holds a unique key with `clash = "return"`.
    ExistingRecord,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub status: u16,
    /// Stable: one of the engine's codes, or one that the lifecycle declares.
    pub code: Arc<str>,
    pub record: Option<RecordId>,
    pub lifecycle: Option<Arc<str>>,
    pub state: Option<Arc<str>>,
    pub event: Arc<str>,
    /// One sentence for a person. Never contains a payload, or a record that the caller may not read.
    pub reason: String,
    /// Tag of the log entry without a record, if the refusal is audited.
    pub audit: Option<Arc<str>>,
    /// For `already_committed`: the token of the execution that committed.
    pub committed_token: Option<FencingToken>,
    /// For a limit with a window: the time until the next window begins.
    pub retry_after: Option<Duration>,
    /// The caller lacks the right (403, or 404 to hide the record). Denials are logged at a bounded rate (INV-9).
    pub is_denial: bool,
}

/// A query to an outside service.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckQuery {
    pub lifecycle: Arc<str>,
    pub check: Arc<str>,
    pub arguments: Map<String, Json>,
    pub payload: Option<PayloadRef>,
}
