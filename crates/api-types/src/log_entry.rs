//! Log entries, in a record's history and in the event stream.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use uuid::Uuid;

use crate::Execution;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogEntry {
    /// Position in the log.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub seq: u64,
    /// `seq` of the operation's first entry. Entries with the same value were committed together.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, required = true))]
    pub operation: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = Uuid))]
    pub record: Option<Uuid>,
    /// The record's version after this entry; 0 if the entry has no record.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, required = true))]
    pub version: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// The event that changed the record, fired by a caller, the engine or another record.
    pub event: String,
    /// The caller. Only in an operation's first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub actor: Option<String>,
    /// The caller's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub input: Option<Map<String, Json>>,
    /// Only in a record's first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lifecycle: Option<String>,
    /// Only in a record's first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub owner: Option<String>,
    /// The state that the record entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: Option<String>,
    /// The fields that changed.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object, required = false))]
    pub fields: Map<String, Json>,
    /// The execution that the entry started, changed or ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Execution))]
    pub execution: Option<Execution>,
    /// The committed effect: its execution and the hash of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectRef>,
    /// Transfers between accounts. Only for operators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub transfers: Vec<Transfer>,
    /// Audit tags of the transitions taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub audit: Vec<String>,
    /// A refused call that was logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<LoggedRefusal>,
    /// Number of records that pruning deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub pruned: Option<u64>,
    /// An API key that was created, revoked or deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub key: Option<Json>,
    /// Hash of this entry and the record's previous one.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{64}$", required = true))]
    pub hash: String,
}

/// A committed effect, identified by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectRef {
    pub execution: String,
    pub result_sha256: String,
}

/// A transfer between accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Transfer {
    pub from: String,
    pub to: String,
    pub asset: String,
    pub amount: i64,
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoggedRefusal {
    pub status: u16,
    pub code: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = Uuid))]
    pub record: Option<Uuid>,
    pub lifecycle: Option<String>,
    pub state: Option<String>,
}

/// A page of a record's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryPage {
    pub entries: Vec<LogEntry>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// An event of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamEvent {
    /// A `seq` of the log.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9]+$"))]
    pub id: Option<String>,
    /// `entry` if there is data.
    pub event: Option<String>,
    /// A `LogEntry` as JSON.
    pub data: Option<String>,
}
