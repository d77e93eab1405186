//! Types of the API's JSON. Unknown members of newer servers are ignored.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::error::Problem;
use crate::payload::{Payload, from_base64};

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: Uuid,
    pub lifecycle: String,
    pub state: String,
    /// Increases by one with each operation that changes the record.
    pub version: u64,
    pub owner: String,
    #[serde(default)]
    pub fields: Map<String, Json>,
    /// How often the record was leased.
    #[serde(default)]
    pub attempt: u64,
    #[serde(default)]
    pub payload: Option<PayloadRef>,
    /// Why the engine no longer fires timers and other engine events on this record: one of them failed.
    #[serde(default)]
    pub stuck: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When it was first leased.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When it entered a final state.
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
}

/// Hash and size of a payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadRef {
    pub sha256: String,
    pub bytes: u64,
}

impl PayloadRef {
    /// Returns whether these bytes have this hash and size.
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        use std::fmt::Write as _;
        let mut hash = String::with_capacity(64);
        for byte in Sha256::digest(bytes) {
            // Writing to a `String` cannot fail.
            let _ = write!(hash, "{byte:02x}");
        }
        u64::try_from(bytes.len()).is_ok_and(|length| length == self.bytes) && self.sha256 == hash
    }
}

impl Record {
    /// Returns a field's value; null if it is not set or does not exist.
    pub fn field(&self, name: &str) -> Json {
        self.fields.get(name).cloned().unwrap_or_default()
    }
}

/// A page of records.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordPage {
    pub records: Vec<Record>,
    /// Cursor of the next page; `None` on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// One leased attempt at a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    /// The record's id, a dot, and the attempt.
    pub id: String,
    #[serde(default)]
    pub attempt: u64,
    #[serde(default)]
    pub worker: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

/// A leased job.
#[derive(Clone, Debug, Deserialize)]
pub struct LeasedJob {
    /// Id of the execution.
    pub id: String,
    /// Fencing token, part of every report.
    pub token: u64,
    pub attempt: u64,
    pub expires_at: Timestamp,
    /// Remaining lease when the server answered; `None` from older servers.
    #[serde(default)]
    expires_in_ms: Option<u64>,
    pub record: Record,
    #[serde(default)]
    payload: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "from_base64")]
    payload_base64: Option<Bytes>,
    #[serde(default)]
    pub traceparent: Option<String>,
}

impl LeasedJob {
    /// Returns the payload, if the response contained it.
    pub fn payload(&self) -> Option<Payload> {
        let bytes = || self.payload_base64.clone().map(Payload::Bytes);
        self.payload.clone().map(Payload::Json).or_else(bytes)
    }

    /// Returns whether the payload was too large for the response and must be downloaded.
    pub fn needs_payload_fetch(&self) -> bool {
        self.payload.is_none() && self.payload_base64.is_none() && self.record.payload.is_some()
    }

    /// Returns the length of the lease. Leasing was the record's latest change, so `updated_at` is its start.
    pub fn lease_duration(&self) -> Duration {
        let whole = Duration::try_from(self.expires_at.duration_since(self.record.updated_at)).unwrap_or_default();
        whole.max(self.remaining_of(whole))
    }

    /// Returns the remaining lease when the response arrived. Less than the whole if a repeated request returned a
    /// lease whose first response was lost.
    pub fn remaining_lease(&self) -> Duration {
        self.remaining_of(self.lease_duration())
    }

    fn remaining_of(&self, whole: Duration) -> Duration {
        self.expires_in_ms.map_or(whole, Duration::from_millis)
    }
}

/// The result of an event.
#[derive(Clone, Debug, Deserialize)]
pub struct FireResult {
    /// `None` if the call repeated an idempotency key and the caller cannot see the record any more.
    pub record: Option<Record>,
    /// The records that the event created.
    #[serde(default)]
    pub spawned: Vec<Uuid>,
}

/// The result of a report.
#[derive(Clone, Debug, Deserialize)]
pub struct ReportResult {
    #[serde(default)]
    pub execution: Option<Execution>,
    #[serde(default)]
    pub record: Option<Record>,
    /// Whether the worker should stop and give up the job.
    #[serde(default)]
    pub stop: bool,
}

/// The result of one item of a batch.
#[derive(Clone, Debug)]
pub enum BatchItemResult<T> {
    Succeeded(T),
    Refused(Problem),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BatchItemResult<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        // Keep the raw text, because only its content tells which variant it is.
        let text = <&RawValue>::deserialize(deserializer)?;
        let refused: BatchItemError = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        match refused.error {
            Some(problem) => Ok(Self::Refused(problem.with_body_retry_after())),
            None => serde_json::from_str(text.get()).map(Self::Succeeded).map_err(D::Error::custom),
        }
    }
}

#[derive(Deserialize)]
struct BatchItemError {
    #[serde(default)]
    error: Option<Problem>,
}

#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(crate) struct BatchResults<T> {
    pub(crate) results: Vec<BatchItemResult<T>>,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Position in the log.
    pub seq: u64,
    #[serde(default)]
    pub record: Option<Uuid>,
    /// The record's version after this entry.
    #[serde(default)]
    pub version: u64,
    pub at: Timestamp,
    pub event: String,
    /// The caller. Only in an operation's first entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Only in a record's first entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// The state that the record entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The execution that the entry started, changed or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    /// A refused call that was logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Json>,
    /// All other members.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}
