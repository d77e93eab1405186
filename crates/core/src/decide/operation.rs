//! What is asked of `decide`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::record::{Actor, FencingToken, PayloadRef};
use crate::time::Duration;
use crate::trace::TraceContext;
use crate::value::RecordId;

/// One event to apply, with everything that the answer may depend on besides the records: kept whole in the log, so
/// that deciding again gives the same changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Random, made by the caller of `decide`; ids of new records derive from it.
    #[serde(with = "crate::hex::number")]
    pub seed: u128,
    pub actor: Actor,
    pub call: Call,
    /// The outside's answers so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check_answers: Vec<CheckAnswer>,
    /// The request that asks, in a distributed trace: what the operation makes remembers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Call {
    Create(CreateRecord),
    /// An event called by name; `token` where a worker calls it.
    Fire {
        record: RecordId,
        event: Arc<str>,
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        input: Map<String, Json>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<FencingToken>,
        /// Refuse unless the record has this version (`If-Match`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        if_version: Option<u64>,
    },
    /// Hand the record to a worker.
    Lease {
        record: RecordId,
        worker: Arc<str>,
        /// Shorter or longer than the lifecycle's own; at most a day.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Duration>,
        /// Start at once: `IN_PROGRESS`, not `LEASED`.
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
        /// Typed by the lifecycle's `result` where it declares one.
        #[serde(default)]
        result: Json,
        /// Finish in the same operation.
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
    /// The engine: whatever is due on this record first: a timer, or a lease that ran out (lost before the commit,
    /// finished after it).
    FireDue {
        record: RecordId,
    },
    /// The engine knows that the worker is gone before its lease ran out (its own in-process worker, after a restart).
    LoseLease {
        record: RecordId,
        token: FencingToken,
    },
    /// An operator: from now on the record lives by another version of its lifecycle.
    MigrateVersion(RecordMigration),
}

/// A record carried over to another version of its lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordMigration {
    pub record: RecordId,
    /// The version's hash.
    pub target_hash: Arc<str>,
    /// State by state, where the other version calls it differently. One that is not named keeps its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub state_map: BTreeMap<Arc<str>, Arc<str>>,
    /// A record that has ended, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_ended: bool,
}

impl Call {
    /// The record that the call names; `None` where it makes one.
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
    /// Given by the caller, or derived from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RecordId>,
    /// Another owner than the actor; only operators may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadRef>,
}

/// A failure as a worker words it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    pub code: Arc<str>,
    #[serde(default)]
    pub message: Arc<str>,
    /// Counts only for codes that the lifecycle's error table does not list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
}

impl FailureReport {
    /// A failure of which the worker does not say whether trying again helps.
    pub fn new(code: &str, message: &str) -> Self {
        Self { code: code.into(), message: message.into(), retryable: None, retry_after: None }
    }
}

/// The outside's answer to one question, bound to what was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckAnswer {
    pub lifecycle: Arc<str>,
    pub check: Arc<str>,
    /// What was asked, as JSON by name, and of which payload.
    pub arguments: Map<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadRef>,
    pub answer: Map<String, Json>,
}
