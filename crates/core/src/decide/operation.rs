//! Operations: the input of `decide`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::record::{Actor, FencingToken, PayloadRef};
use crate::time::Duration;
use crate::trace::TraceContext;
use crate::value::RecordId;

/// One call to apply, with everything else that the decision depends on besides the snapshot. The log stores it whole,
/// so that re-deciding gives the same changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Random, from the caller of `decide`. Ids of new records derive from it.
    #[serde(with = "crate::hex::number")]
    pub seed: u128,
    pub actor: Actor,
    pub call: Call,
    /// Answers of external checks so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check_answers: Vec<CheckAnswer>,
    /// Trace context of the request. New records store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Call {
    Create(CreateRecord),
    /// Fires an event by name; with `token` if a worker calls it.
    Fire {
        record: RecordId,
        event: Arc<str>,
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        input: Map<String, Json>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<FencingToken>,
        /// Refuses unless the record has this version (`If-Match`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_version: Option<u64>,
    },
    /// Leases the record to a worker.
    Lease {
        record: RecordId,
        worker: Arc<str>,
        /// Overrides the lifecycle's lease duration; at most a day.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Duration>,
        /// Starts immediately: `IN_PROGRESS` instead of `LEASED`.
        start: bool,
    },
    Start {
        record: RecordId,
        token: FencingToken,
    },
    Heartbeat {
        record: RecordId,
        token: FencingToken,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Duration>,
    },
    Commit {
        record: RecordId,
        token: FencingToken,
        /// Typed by the lifecycle's `result` if declared.
        #[serde(default)]
        result: Json,
        /// Also finishes the execution.
        finish: bool,
    },
    Finish {
        record: RecordId,
        token: FencingToken,
    },
    Fail {
        record: RecordId,
        token: FencingToken,
        error: FailureReport,
    },
    Yield {
        record: RecordId,
        token: FencingToken,
    },
    /// From the engine: fires the record's first due timers, or ends its expired lease. An expired lease is lost before
    /// the commit and finished after it.
    FireDue {
        record: RecordId,
    },
    /// From the engine: the worker is gone before its lease expired, such as its own in-process worker after a restart.
    LoseLease {
        record: RecordId,
        token: FencingToken,
    },
    /// From an operator: pins the record to another version of its lifecycle.
    MigrateVersion(RecordMigration),
}

/// Version migration of one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordMigration {
    pub record: RecordId,
    /// Hash of the target version.
    pub target_hash: Arc<str>,
    /// Old state names to new ones. Other states keep their name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub state_map: BTreeMap<Arc<str>, Arc<str>>,
    /// Also migrates a record in a final state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_ended: bool,
}

impl Call {
    /// Returns the record that the call names; `None` for `Create`.
    pub const fn record(&self) -> Option<RecordId> {
        match self {
            Self::Create(_) => None,
            Self::Fire { record, .. }
            | Self::Lease { record, .. }
            | Self::Start { record, .. }
            | Self::Heartbeat { record, .. }
            | Self::Commit { record, .. }
            | Self::Finish { record, .. }
            | Self::Fail { record, .. }
            | Self::Yield { record, .. }
            | Self::FireDue { record }
            | Self::LoseLease { record, .. }
            | Self::MigrateVersion(RecordMigration { record, .. }) => Some(*record),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreateRecord {
    pub lifecycle: Arc<str>,
    /// From the caller, or else derived from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RecordId>,
    /// Owner other than the actor; only operators may set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadRef>,
}

/// A failure as reported by the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    pub code: Arc<str>,
    #[serde(default)]
    pub message: Arc<str>,
    /// Used only for codes that the lifecycle's error table does not list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
}

impl FailureReport {
    /// A failure for which the worker does not say whether a retry helps.
    pub fn new(code: &str, message: &str) -> Self {
        Self { code: code.into(), message: message.into(), retryable: None, retry_after: None }
    }
}

/// Answer to one check query, bound to that query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckAnswer {
    pub lifecycle: Arc<str>,
    pub check: Arc<str>,
    /// Arguments of the query, by name.
    pub arguments: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadRef>,
    pub answer: Map<String, Json>,
}
