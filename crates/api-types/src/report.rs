//! Workers' reports on their jobs.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{BatchReturn, Execution, Problem, Record};

/// The kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ReportKind {
    /// The worker starts to work.
    Start,
    /// The worker still works: extends the lease. `stop` in the response asks it to stop.
    Heartbeat,
    /// Commits the job's effect, at most once per job.
    Commit,
    /// Ends the execution successfully.
    Finish,
    /// Ends the execution with an error.
    Fail,
    /// Returns the job without counting a failure.
    Yield,
}

/// The error of a failed execution.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureReport {
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub code: String,
    #[serde(default)]
    pub message: String,
    /// Used unless the lifecycle classifies the error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// How long to wait before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 31_536_000_000_u64))]
    pub retry_after_ms: Option<u64>,
}

/// A report on an execution. In a single report, the path contains the execution and the kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct NewReport<Id = String, CommitResult = Box<RawValue>, Failure = FailureReport> {
    /// Only in a batch: the execution's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false, pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[1-9][0-9]{0,14}$"))]
    pub execution: Option<Id>,
    /// Only in a batch: the kind of the report.
    #[serde(default, rename = "do", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = ReportKind, required = false))]
    pub kind: Option<ReportKind>,
    /// Only in a batch: W3C trace context of this report. An invalid value is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The fencing token of the lease.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub token: u64,
    /// Commit only: the result, any JSON or as the lifecycle declares it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    pub result: Option<CommitResult>,
    /// Commit only: the result as bytes, instead of `result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(content_encoding = "base64"))]
    pub result_base64: Option<String>,
    /// Commit only: also finish the execution.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finish: bool,
    /// Fail only, required.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<FailureReport>))]
    pub error: Option<Failure>,
    /// Heartbeat only: length of the lease from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000))]
    pub lease_ms: Option<u64>,
}

impl NewReport {
    /// A report with this fencing token and nothing else.
    pub const fn new(token: u64) -> Self {
        Self {
            execution: None,
            kind: None,
            traceparent: None,
            token,
            result: None,
            result_base64: None,
            finish: false,
            error: None,
            lease_ms: None,
        }
    }
}

/// The result of a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct ReportResult<R = Record> {
    /// Null if the caller may no longer see it.
    pub execution: Option<Execution>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Record>))]
    pub record: Option<R>,
    /// Whether the worker should stop and give up the job.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub stop: bool,
}

/// Reports, applied in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct NewReportBatch<List = Vec<NewReport>> {
    #[cfg_attr(feature = "openapi", schema(schema_with = batch_reports_schema))]
    pub reports: List,
    /// `summary` by default.
    #[serde(default, rename = "return", skip_serializing_if = "crate::batch::is_default")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub returns: BatchReturn,
}

/// Without a path, each report must contain its execution and kind.
#[cfg(feature = "openapi")]
fn batch_reports_schema() -> utoipa::openapi::schema::Array {
    use utoipa::openapi::schema::{AllOf, ArrayBuilder, ObjectBuilder, Ref};
    let rest = ObjectBuilder::new().required("execution").required("do");
    let report = AllOf::builder().item(Ref::from_schema_name("NewReport")).item(rest);
    ArrayBuilder::new().items(report).max_items(Some(1_000)).build()
}

/// The results, in the order of the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct ReportBatchResult<R = Record> {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<ReportBatchItem>))]
    pub results: Vec<ReportBatchItem<R>>,
}

/// Has `id`, `state` and `version`, or `execution`, `record` and `stop`, or `error`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct ReportBatchItem<R = Record> {
    /// The record's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = Uuid))]
    pub id: Option<Uuid>,
    /// The record's state. Omitted if the caller may no longer see the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Record>))]
    pub record: Option<R>,
    /// Whether the worker should stop and give up the job. Beside `id`, only if true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}
