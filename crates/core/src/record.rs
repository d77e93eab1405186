//! A record as an operation sees it, and the live execution it carries.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{Lifecycle, StateIndex};
use crate::time::Time;
use crate::trace::TraceContext;
use crate::value::{RecordId, Value};

/// One living instance of a lifecycle.
#[derive(Clone, Debug)]
pub struct Record {
    pub id: RecordId,
    /// The version of the lifecycle that this record lives by.
    pub lifecycle: Arc<Lifecycle>,
    pub state: StateIndex,
    /// Grows by one with each operation that changes the record; 1 after creation.
    pub version: u64,
    pub owner: Arc<str>,
    /// By slot, as the lifecycle's fields are numbered.
    pub fields: Vec<Value>,
    /// The leases this record has ever had; also the token of the newest (EXE-1, EXE-8).
    pub attempt: u64,
    pub created_at: Time,
    /// When the newest log entry of this record was decided; `narrowed` never goes below it.
    pub updated_at: Time,
    /// The first lease.
    pub started_at: Option<Time>,
    /// When it entered a final state.
    pub finished_at: Option<Time>,
    /// When it entered its state; what `after` counts from.
    pub entered_at: Time,
    /// The balance of the record's own account, in the lifecycle's asset.
    pub hold: i64,
    /// The pending timers of the current state.
    pub timers: Vec<Timer>,
    /// The newest execution, live or ended; `None` before the first lease.
    pub execution: Option<Execution>,
    /// The token of the execution whose effect landed; at most one, ever (EXE-12).
    pub committed_token: Option<FencingToken>,
    pub payload: Option<PayloadRef>,
    /// Why the engine's own events no longer touch it: one of them faulted.
    pub stuck_reason: Option<Arc<str>>,
    /// Of the request that made it. Nothing is decided by it.
    pub trace: Option<TraceContext>,
}

/// A `[[env_where.time]]` row that waits: the row's index among the event's rows, and when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    pub transition: u16,
    pub due_at: Time,
}

/// Content that lifecycles cannot read: known by hash and size only (DOC-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadRef {
    #[serde(with = "crate::hex::hash")]
    pub sha256: [u8; 32],
    pub bytes: u64,
}

/// Fencing token: the number of the lease among all leases of its record. Grows, is never reused (EXE-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(pub u64);

/// One leased attempt (EXE-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// Also the attempt's number, and with its record's id the execution's own: [`ExecutionId`](crate::execution_id::ExecutionId).
    pub token: FencingToken,
    pub worker: Arc<str>,
    /// `actor.id` of the key that took the lease: nobody else's reports count (EXE-8).
    pub holder: Arc<str>,
    pub status: ExecutionStatus,
    pub leased_at: Time,
    pub expires_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<AbortReason>,
    /// COMMITTED by a row that stayed: a finish row must still move the record, and nothing else may.
    #[serde(default, skip_serializing_if = "is_false")]
    pub finish_pending: bool,
    /// The work key it counts under, where the lifecycle limits work per key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<Vec<Arc<str>>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Why an execution was aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortReason {
    /// The error's code, or `left` where the record moved away under the lease.
    pub code: Arc<str>,
    /// As the lifecycle classed it.
    pub retryable: bool,
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
    /// Neither DONE nor ABORTED: the lease counts.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Leased | Self::InProgress | Self::Committed)
    }
}

impl Record {
    pub fn live_execution(&self) -> Option<&Execution> {
        self.execution.as_ref().filter(|execution| execution.status.is_live())
    }

    /// COMMITTED and waiting for its finish row: nothing else may move the record.
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

    /// What a field says, where it says a text.
    pub fn text_field(&self, field: &str) -> Option<&str> {
        match self.field(field) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// What a field says, where it says a number.
    pub fn int_field(&self, field: &str) -> Option<i64> {
        match self.field(field) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// What a field says, where it says a moment.
    pub fn time_field(&self, field: &str) -> Option<Time> {
        match self.field(field) {
            Some(Value::Time(time)) => Some(*time),
            _ => None,
        }
    }

    /// The record that a field names.
    pub fn ref_field(&self, field: &str) -> Option<RecordId> {
        match self.field(field) {
            Some(Value::Ref(id)) => Some(*id),
            _ => None,
        }
    }
}

/// Whoever started an operation, through all that it causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The key's owner; `engine` for time and lost leases.
    pub id: Arc<str>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Arc<str>>,
    /// Held at the operation's time; only folds over a signed log have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Arc<str>>,
    /// Speaks with the user's own authority; only in folds over a signed log.
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

    /// The engine itself: timers, lost leases, recovery.
    pub fn engine() -> Self {
        Self::new("engine", &["engine"])
    }

    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|own| **own == *role)
    }

    /// A key with no role but `viewer` and `metrics` may look only. The author of a signed operation has capabilities instead.
    pub fn can_write(&self) -> bool {
        self.has_role_beyond(&["viewer", "metrics"])
    }

    /// Whether it creates records and moves its own: a producer, an operator, whoever has a role that lifecycles name. One that is
    /// only a worker does not.
    pub fn can_produce(&self) -> bool {
        self.has_role_beyond(&["viewer", "metrics", "worker"])
    }

    fn has_role_beyond(&self, excluded: &[&str]) -> bool {
        self.user || !self.capabilities.is_empty() || self.roles.iter().any(|role| !excluded.contains(&&**role))
    }
}

/// What a worker, or the engine in its place, reports of a failed execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassifiedFailure {
    pub code: Arc<str>,
    pub message: Arc<str>,
    /// After the lifecycle's error table had its say.
    pub retryable: bool,
    pub retry_after: Option<crate::time::Duration>,
}
