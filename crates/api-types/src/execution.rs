//! Executions and effects.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;
use uuid::Uuid;

/// One leased attempt at a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Execution {
    /// The record's id, a dot, and the attempt.
    #[cfg_attr(feature = "openapi", schema(example = "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b.1"))]
    pub id: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = Uuid))]
    pub record: Uuid,
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub attempt: u64,
    /// The fencing token. Send it with every report.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub token: u64,
    pub worker: String,
    // Text, so that a client accepts a status that a newer server added.
    #[cfg_attr(feature = "openapi", schema(value_type = ExecutionStatus))]
    pub status: Cow<'static, str>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub leased_at: Timestamp,
    /// When the lease expires, unless a heartbeat extends it.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub expires_at: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub started_at: Option<Timestamp>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub finished_at: Option<Timestamp>,
    pub aborted: Option<AbortReason>,
}

/// Status of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ExecutionStatus {
    Leased,
    InProgress,
    Committed,
    Done,
    Aborted,
}

impl From<ExecutionStatus> for Cow<'static, str> {
    fn from(status: ExecutionStatus) -> Self {
        Self::Borrowed(match status {
            ExecutionStatus::Leased => "LEASED",
            ExecutionStatus::InProgress => "IN_PROGRESS",
            ExecutionStatus::Committed => "COMMITTED",
            ExecutionStatus::Done => "DONE",
            ExecutionStatus::Aborted => "ABORTED",
        })
    }
}

/// Why an execution was aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AbortReason {
    /// The failure's code; `lost`, `yielded`, or `left` if an event took the record out of its working state.
    pub code: String,
    /// The worker's message, at most 1000 characters; may be empty.
    #[serde(default)]
    pub message: String,
    pub retryable: bool,
    /// When the job may be leased again, if the worker asked for a delay that the lifecycle does not decide itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub retry_at: Option<Timestamp>,
}

/// A page of a job's executions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionPage {
    pub executions: Vec<Execution>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// The committed result of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct Effect<CommitResult = Json> {
    /// The execution that committed it.
    pub execution: String,
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub token: u64,
    #[serde(
        default = "Option::default",
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none",
        bound(deserialize = "CommitResult: Deserialize<'de>")
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Value, nullable))]
    pub result: Option<CommitResult>,
    /// Replaces `result` if the result is bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub result_base64: Option<String>,
}

/// Distinguishes a null result from a missing one.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
