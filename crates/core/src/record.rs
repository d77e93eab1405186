//! Records, their executions, and the actors of operations.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{Lifecycle, StateIndex};
use crate::time::{Duration, Time};
use crate::trace::TraceContext;
use crate::value::{RecordId, Value};

/// One instance of a lifecycle.
#[derive(Clone, Debug)]
pub struct Record {
    pub id: RecordId,
    /// The lifecycle version that the record is pinned to.
    pub lifecycle: Arc<Lifecycle>,
    pub state: StateIndex,
    /// Grows by one with each operation that changes the record; 1 after creation.
    pub version: u64,
    pub owner: Arc<str>,
    /// Values by [`FieldIndex`](crate::model::FieldIndex).
    pub fields: Vec<Value>,
    /// Number of leases so far, and so the token of the newest lease (EXE-1, EXE-8).
    pub attempt: u64,
    pub created_at: Time,
    /// Time of the record's newest log entry. No later operation on the record has an earlier `now`.
    pub updated_at: Time,
    /// Time of the first lease.
    pub started_at: Option<Time>,
    /// When the record entered a final state.
    pub finished_at: Option<Time>,
    /// When the record entered its state. `after` timers count from here.
    pub entered_at: Time,
    /// The balance of the record's own account, in the lifecycle's asset.
    pub hold: i64,
    /// The pending timers of the current state.
    pub timers: Vec<Timer>,
    /// The newest execution, live or ended; `None` before the first lease.
    pub execution: Option<Execution>,
    /// Token of the execution that committed; at most one per record (EXE-12).
    pub committed_token: Option<FencingToken>,
    pub payload: Option<PayloadRef>,
    /// Why the record is stuck: one of the engine's own events failed on it.
    pub stuck_reason: Option<Arc<str>>,
    /// Trace of the request that created the record. No decision depends on it.
    pub trace: Option<TraceContext>,
}

/// A pending `[[on.time]]` transition: its index among the event's transitions, and when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    pub transition: u16,
    pub due_at: Time,
}

/// Reference to a payload. Lifecycles see only its hash and size (DOC-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadRef {
    #[serde(with = "crate::hex::hash")]
    pub sha256: [u8; 32],
    pub bytes: u64,
}

/// Fencing token: the number of the lease among all leases of its record. Grows, and is never reused (EXE-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(pub u64);

/// One leased attempt (EXE-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// Also the number of the attempt. With the record's id it forms the
    /// [`ExecutionId`](crate::execution_id::ExecutionId).
    pub token: FencingToken,
    pub worker: Arc<str>,
    /// `actor.id` of the API key that took the lease. The engine accepts reports only from this holder (EXE-8).
    pub holder: Arc<str>,
    pub status: ExecutionStatus,
    pub leased_at: Time,
    pub expires_at: Time,
    /// The length that the lease call asked for; `None` for that of the lifecycle. A heartbeat without a length keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_duration: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<AbortReason>,
    /// COMMITTED by an internal transition: only a `finish` transition may now change the record's state.
    #[serde(default, skip_serializing_if = "is_false")]
    pub finish_pending: bool,
    /// The concurrency key that the execution counts under, if the lifecycle limits concurrency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<Vec<Arc<str>>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires the signature")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Why an execution was aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortReason {
    /// The failure's code, or `left` if the record left its state during the lease.
    pub code: Arc<str>,
    /// The failure's message, or which event made the record leave its state; empty if there is none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub message: Arc<str>,
    /// As classified by the lifecycle.
    pub retryable: bool,
    /// When the job may be leased again: set by the worker's `retry_after`, unless the lifecycle's transitions read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
}

impl AbortReason {
    /// An abort that no worker reported.
    pub(crate) fn by_engine(code: &str, message: &str) -> Self {
        Self { code: code.into(), message: message.into(), retryable: false, retry_at: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionStatus {
    Leased,
    InProgress,
    Committed,
    Done,
    Aborted,
}

impl ExecutionStatus {
    /// Neither DONE nor ABORTED.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Leased | Self::InProgress | Self::Committed)
    }
}

impl Record {
    pub fn live_execution(&self) -> Option<&Execution> {
        self.execution.as_ref().filter(|execution| execution.status.is_live())
    }

    /// COMMITTED with `finish` pending: only a `finish` transition may change the record's state.
    pub fn awaits_finish(&self) -> bool {
        self.execution.as_ref().is_some_and(|e| e.status == ExecutionStatus::Committed && e.finish_pending)
    }

    pub fn is_final(&self) -> bool {
        self.lifecycle.states[usize::from(self.state)].is_final
    }

    pub fn state_name(&self) -> &Arc<str> {
        &self.lifecycle.states[usize::from(self.state)].name
    }

    pub fn field(&self, name: &str) -> Option<&Value> {
        self.lifecycle.field_index(name).map(|slot| &self.fields[usize::from(slot)])
    }

    /// Returns the value of a text field.
    pub fn text_field(&self, field: &str) -> Option<&str> {
        match self.field(field) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of an int field.
    pub fn int_field(&self, field: &str) -> Option<i64> {
        match self.field(field) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns the value of a time field.
    pub fn time_field(&self, field: &str) -> Option<Time> {
        match self.field(field) {
            Some(Value::Time(time)) => Some(*time),
            _ => None,
        }
    }

    /// Returns the record that a ref field points to.
    pub fn ref_field(&self, field: &str) -> Option<RecordId> {
        match self.field(field) {
            Some(Value::Ref(id)) => Some(*id),
            _ => None,
        }
    }
}

/// The caller of an operation. All transitions that the operation causes run with the same actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Owner of the API key; `engine` for timers and lost leases.
    pub id: Arc<str>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Arc<str>>,
    /// Capabilities at the operation's time; only in folds over a signed log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Arc<str>>,
    /// The author has the user's own authority; only in folds over a signed log.
    #[serde(default, skip_serializing_if = "is_false")]
    pub user: bool,
}

impl Actor {
    pub fn new(id: &str, roles: &[&str]) -> Self {
        Self {
            id: id.into(),
            roles: roles.iter().map(|role| Arc::from(*role)).collect(),
            capabilities: Vec::new(),
            user: false,
        }
    }

    /// The engine: timers, lost leases, recovery.
    pub fn engine() -> Self {
        Self::new("engine", &["engine"])
    }

    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|own| **own == *role)
    }

    /// An actor with no role except `viewer` and `metrics` only reads. Authors of signed operations have capabilities
    /// instead of roles.
    pub fn can_write(&self) -> bool {
        self.has_role_beyond(&["viewer", "metrics"])
    }

    /// Whether the actor may create records and fire events on its own records: it has a role other than `viewer`,
    /// `metrics` and `worker`.
    pub fn can_create_and_fire(&self) -> bool {
        self.has_role_beyond(&["viewer", "metrics", "worker"])
    }

    fn has_role_beyond(&self, excluded: &[&str]) -> bool {
        self.user || !self.capabilities.is_empty() || self.roles.iter().any(|role| !excluded.contains(&&**role))
    }
}

/// A failed execution as reported by the worker, or by the engine for a lost worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassifiedFailure {
    pub code: Arc<str>,
    pub message: Arc<str>,
    /// After the lifecycle's error table has been applied.
    pub retryable: bool,
    pub retry_after: Option<Duration>,
}
