//! What comes over the wire, with types. A later server may say more: what is not known here is left aside.

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

/// A record as the server shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: Uuid,
    pub lifecycle: String,
    pub state: String,
    /// Grows by one with each operation that changes the record.
    pub version: u64,
    pub owner: String,
    #[serde(default)]
    pub fields: Map<String, Json>,
    /// The leases it ever had.
    #[serde(default)]
    pub attempt: u64,
    #[serde(default)]
    pub payload: Option<PayloadRef>,
    /// Why the engine's own events leave it alone: one of them failed on it.
    #[serde(default)]
    pub stuck: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The first lease.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When it entered a final state.
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
}

/// A payload by its hash and size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadRef {
    pub sha256: String,
    pub bytes: u64,
}

impl PayloadRef {
    /// Whether it is these bytes that it means.
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        use std::fmt::Write as _;
        let mut hash = String::with_capacity(64);
        for byte in Sha256::digest(bytes) {
            // Into a text nothing fails to be written.
            let _ = write!(hash, "{byte:02x}");
        }
        u64::try_from(bytes.len()).is_ok_and(|length| length == self.bytes) && self.sha256 == hash
    }
}

impl Record {
    /// A field's value; null where it is not set or there is none of this name.
    pub fn field(&self, name: &str) -> Json {
        self.fields.get(name).cloned().unwrap_or_default()
    }
}

/// Some records, and where the next ones begin.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordPage {
    pub records: Vec<Record>,
    /// To ask for the next page with; nothing where this was the last.
    #[serde(default)]
    pub next: Option<String>,
}

/// One turn of one worker at a job.
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

/// A job in this worker's hands.
#[derive(Clone, Debug, Deserialize)]
pub struct LeasedJob {
    /// Of the execution.
    pub id: String,
    /// To be shown with every report.
    pub token: u64,
    pub attempt: u64,
    pub expires_at: Timestamp,
    /// What was left of the lease when the server answered; older servers do not say.
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
    /// Its payload, where it came along.
    pub fn payload(&self) -> Option<Payload> {
        let bytes = || self.payload_base64.clone().map(Payload::Bytes);
        self.payload.clone().map(Payload::Json).or_else(bytes)
    }

    /// Whether there is a payload that is too large to come along, and must be fetched.
    pub fn needs_payload_fetch(&self) -> bool {
        self.payload.is_none() && self.payload_base64.is_none() && self.record.payload.is_some()
    }

    /// How long it was leased for. The lease is the newest thing that happened to the record.
    pub fn lease_duration(&self) -> Duration {
        let whole = Duration::try_from(self.expires_at.duration_since(self.record.updated_at)).unwrap_or_default();
        whole.max(self.remaining_of(whole))
    }

    /// What was left of the lease when the answer came: less than its length where the answer to an earlier question was lost, and
    /// the lease was found again by its key.
    pub fn remaining_lease(&self) -> Duration {
        self.remaining_of(self.lease_duration())
    }

    fn remaining_of(&self, whole: Duration) -> Duration {
        self.expires_in_ms.map_or(whole, Duration::from_millis)
    }
}

/// What an event led to.
#[derive(Clone, Debug, Deserialize)]
pub struct FireResult {
    /// Nothing where a key came before, and the record is gone meanwhile or no longer for this caller.
    pub record: Option<Record>,
    /// The records that it made.
    #[serde(default)]
    pub spawned: Vec<Uuid>,
}

/// What a report led to.
#[derive(Clone, Debug, Deserialize)]
pub struct ReportResult {
    #[serde(default)]
    pub execution: Option<Execution>,
    #[serde(default)]
    pub record: Option<Record>,
    /// A heartbeat's word to the worker: stop.
    #[serde(default)]
    pub stop: bool,
}

/// One of the answers to a batch: each of its calls is taken or refused on its own.
#[derive(Clone, Debug)]
pub enum BatchItemResult<T> {
    Succeeded(T),
    Refused(Problem),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BatchItemResult<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        // As it is written first, since only then is it known which of the two it is.
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

/// An entry of the log: what happened to a record, or was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its place in the log.
    pub seq: u64,
    #[serde(default)]
    pub record: Option<Uuid>,
    /// The record's version after it.
    #[serde(default)]
    pub version: u64,
    pub at: Timestamp,
    pub event: String,
    /// Who called; in an operation's first entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// In a record's first entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// The state that it entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The turn of a worker that it began, changed or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    /// A call that was refused and left a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Json>,
    /// Everything else that the server tells of it.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}
