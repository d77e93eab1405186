//! Workers' reports on their jobs, and reading executions.

use axum::extract::State;
use axum::response::Response;
use onceward_core::decide::{Call, FailureReport};
use onceward_core::execution_id::ExecutionId;
use onceward_core::record::{Actor, Execution, FencingToken};
use onceward_core::time::Duration;
use onceward_core::trace::TraceContext;
use onceward_core::value::RecordId;
use onceward_engine::{Receipt, Submission};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AllOf, Array, ArrayBuilder, ObjectBuilder, Ref};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::records::submit_batch;
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{BatchItems, BoundedJson, JsonBody, PathParams, StrictObject, decode_base64};
use crate::problem::{self, Problem};
use crate::response::{EffectJson, ExecutionJson, RecordJson, is_wrapped_base64, json_ok, wrap_base64};
use crate::telemetry;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(get)).routes(routes!(report)).routes(routes!(report_batch))
}

/// The kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportKind {
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

impl ReportKind {
    /// Parses a report name. An unknown name is an unknown route; `not_found` would look as if the job were gone.
    fn parse(name: String) -> Result<Self, Problem> {
        serde_json::from_value(Json::String(name)).map_err(|_| {
            let detail = "there is no such report: start, heartbeat, commit, finish, fail and yield are the reports";
            Problem::new(404, "unknown_route", detail)
        })
    }
}

/// The error of a failed execution.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FailureReport)]
pub(crate) struct FailureBody {
    #[schema(min_length = 1)]
    code: String,
    #[serde(default)]
    message: String,
    /// Used unless the lifecycle classifies the error code.
    #[serde(default)]
    retryable: Option<bool>,
    #[serde(default)]
    #[schema(minimum = 0, maximum = 31_536_000_000_u64)]
    retry_after_ms: Option<u64>,
}

/// A report on an execution. In a single report, the path contains the execution and the kind.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReport {
    /// Only in a batch: the execution's id.
    #[serde(default)]
    #[schema(value_type = String, required = false, pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[1-9][0-9]{0,14}$")]
    execution: Option<ExecutionId>,
    /// Only in a batch: the kind of the report.
    #[serde(default, rename = "do")]
    #[schema(value_type = ReportKind, required = false)]
    kind: Option<ReportKind>,
    /// Only in a batch: W3C trace context of this report. An invalid value is ignored.
    #[serde(default)]
    traceparent: Option<String>,
    /// The fencing token of the lease.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: u64,
    /// Commit only: the result, any JSON or as the lifecycle declares it.
    #[serde(default)]
    #[schema(value_type = Option<Value>)]
    result: Option<BoundedJson<Json>>,
    /// Commit only: the result as bytes, instead of `result`.
    #[serde(default)]
    #[schema(content_encoding = "base64")]
    result_base64: Option<String>,
    /// Commit only: also finish the execution.
    #[serde(default)]
    finish: bool,
    /// Fail only, required.
    #[serde(default)]
    #[schema(value_type = Option<FailureBody>)]
    error: Option<StrictObject<FailureBody>>,
    /// Heartbeat only: length of the lease from now on.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 86_400_000)]
    lease_ms: Option<u64>,
}

/// One year, the longest delay of a retry.
const MAX_RETRY_AFTER_MS: u64 = 31_536_000_000;

impl NewReport {
    /// Returns the execution and the kind, which batch items must contain.
    fn batch_target(&self) -> Result<(ExecutionId, ReportKind), Problem> {
        match (self.execution, self.kind) {
            (Some(at), Some(report)) => Ok((at, report)),
            _ => Err(missing_batch_target()),
        }
    }

    fn into_submission(
        self,
        actor: &Actor,
        execution_id: ExecutionId,
        kind: ReportKind,
    ) -> Result<Submission, Problem> {
        let ExecutionId { record, token } = execution_id;
        if self.execution.is_some_and(|told| told != execution_id) || self.kind.is_some_and(|told| told != kind) {
            return Err(Problem::invalid_input("`execution` and `do` are not those of the path"));
        }
        if token != FencingToken(self.token) {
            return Err(Problem::invalid_input("`token` is not this execution's"));
        }
        let call = match kind {
            ReportKind::Start => Call::Start { record, token },
            ReportKind::Heartbeat => Call::Heartbeat { record, token, lease: self.lease_ms.map(duration_from_millis) },
            ReportKind::Commit => {
                let result = parse_result(self.result, self.result_base64.as_deref())?;
                Call::Commit { record, token, result, finish: self.finish }
            }
            ReportKind::Finish => Call::Finish { record, token },
            ReportKind::Fail => {
                let Some(StrictObject(error)) = self.error else {
                    return Err(Problem::invalid_input("a failure needs its `error`"));
                };
                Call::Fail { record, token, error: error.into_failure_report()? }
            }
            ReportKind::Yield => Call::Yield { record, token },
        };
        let own = self.traceparent.as_deref().and_then(TraceContext::parse);
        Ok(Submission::new(actor, call).with_trace(own.or_else(telemetry::current_trace)))
    }
}

fn missing_batch_target() -> Problem {
    Problem::invalid_input("each report of a batch names its `execution`, and says what to `do`")
}

fn duration_from_millis(ms: u64) -> Duration {
    Duration::from_micros(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000))
}

fn parse_result(json: Option<BoundedJson<Json>>, base64: Option<&str>) -> Result<Json, Problem> {
    match (json.map(BoundedJson::into_inner).transpose()?, base64) {
        (Some(json), _) if is_wrapped_base64(&json) => Err(Problem::invalid_input(
            "an object with nothing but `$base64` is how bytes are kept: give result_base64",
        )),
        (Some(_), Some(_)) => Err(Problem::invalid_input("give result or result_base64, not both")),
        (json, None) => Ok(json.unwrap_or_default()),
        (None, Some(text)) => decode_base64(text, "result_base64").map(|_| wrap_base64(text)),
    }
}

impl FailureBody {
    fn into_failure_report(self) -> Result<FailureReport, Problem> {
        if self.code.is_empty() {
            return Err(Problem::invalid_input("an error's `code` is not empty"));
        }
        if self.retry_after_ms.is_some_and(|ms| ms > MAX_RETRY_AFTER_MS) {
            return Err(Problem::invalid_input("`retry_after_ms` is at most a year"));
        }
        Ok(FailureReport {
            retryable: self.retryable,
            retry_after: self.retry_after_ms.map(duration_from_millis),
            ..FailureReport::new(&self.code, &self.message)
        })
    }
}

/// The result of a report.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportResult<'a> {
    /// Null if the caller may no longer see it.
    execution: Option<ExecutionJson<'a>>,
    record: Option<RecordJson<'a>>,
    /// Whether the worker should stop and give up the job.
    stop: bool,
}

/// A receipt, with the reported execution if it is no longer the record's latest one.
struct ReportOutcome {
    execution_id: ExecutionId,
    receipt: Receipt,
    earlier_execution: Option<Execution>,
}

impl ReportOutcome {
    async fn load(
        app: &AppState,
        actor: &Actor,
        execution_id: ExecutionId,
        mut receipt: Receipt,
    ) -> Result<Self, Problem> {
        if receipt.no_op.is_some() {
            // A repeated report changed nothing, and the lease may be over. Show the record only if the caller may
            // still read it.
            receipt.record = app.engine().get(actor, execution_id.record).await?;
        }
        let newest = receipt.record.as_ref().and_then(|record| record.execution.as_ref());
        let is_newest = newest.is_some_and(|execution| execution.token == execution_id.token);
        let older = if is_newest { None } else { app.engine().execution(actor, execution_id).await? };
        Ok(Self { execution_id, receipt, earlier_execution: older })
    }

    fn to_json(&self) -> ReportResult<'_> {
        let execution_id = self.execution_id;
        let newest = self.receipt.record.as_ref().and_then(|record| record.execution.as_ref());
        let execution =
            newest.filter(|execution| execution.token == execution_id.token).or(self.earlier_execution.as_ref());
        ReportResult {
            execution: execution.map(|execution| ExecutionJson::new(execution_id.record, execution)),
            record: self.receipt.record.as_deref().map(RecordJson::new),
            stop: self.receipt.stop_requested,
        }
    }
}

/// Report on an execution
///
/// 409 `lease_lost` if the caller no longer holds the lease; 409 `already_committed`, with the winning effect, if
/// another execution committed.
#[utoipa::path(
    post, path = "/v1/executions/{id}/{report}", tag = "work",
    params(
        ("id" = String, Path, description = "The execution's id", pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[1-9][0-9]{0,14}$"),
        ("report" = ReportKind, Path, description = "What is reported"),
    ),
    request_body = NewReport,
    responses(
        (status = 200, description = "Taken", body = ReportResult),
        (status = 409, description = "Not taken", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn report(
    State(app): State<AppState>,
    caller: Caller,
    PathParams((execution_id, report)): PathParams<(ExecutionId, String)>,
    JsonBody(new): JsonBody<NewReport>,
) -> Result<Response, Problem> {
    let report = ReportKind::parse(report)?;
    let submission = new.into_submission(&caller.actor, execution_id, report)?;
    match app.engine().submit(submission).await {
        Ok(answer) => json_ok(&ReportOutcome::load(&app, &caller.actor, execution_id, answer).await?.to_json()),
        Err(error) => Err(with_winning_effect(&app, &caller.actor, execution_id.record, error.into()).await),
    }
}

/// Adds the winning effect to `already_committed`, if the caller may see it.
async fn with_winning_effect(app: &AppState, actor: &Actor, record: RecordId, problem: Problem) -> Problem {
    if problem.code() != "already_committed" {
        return problem;
    }
    match app.engine().effect(actor, record).await {
        Ok(Some(effect)) => {
            // Cannot fail: text, numbers and values that were JSON already.
            problem.with_member("effect", serde_json::to_value(EffectJson::new(&effect)).unwrap_or_default())
        }
        // The refusal already names the winning execution.
        Ok(None) | Err(_) => problem,
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReportBatch {
    #[schema(schema_with = batch_reports_schema)]
    reports: BatchItems<NewReport>,
}

/// Without a path, each report must contain its execution and kind.
fn batch_reports_schema() -> Array {
    let rest = ObjectBuilder::new().required("execution").required("do");
    let report = AllOf::builder().item(Ref::from_schema_name("NewReport")).item(rest);
    ArrayBuilder::new().items(report).max_items(Some(1_000)).build()
}

/// The results, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportBatchResult<'a> {
    results: Vec<ReportBatchItem<'a>>,
}

/// Has either `execution`, `record` and `stop`, or `error`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportBatchItem<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<ExecutionJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<RecordJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::ProblemBody<'a>>,
}

impl<'a> ReportBatchItem<'a> {
    fn new(outcome: &'a Result<ReportOutcome, Problem>) -> Self {
        match outcome {
            Ok(known) => {
                let ReportResult { execution, record, stop } = known.to_json();
                Self { execution, record, stop: Some(stop), error: None }
            }
            Err(problem) => Self { execution: None, record: None, stop: None, error: Some(problem.body()) },
        }
    }
}

/// Report on many executions
///
/// Applied in order. Each report succeeds or fails on its own.
#[utoipa::path(
    post, path = "/v1/executions/batch", tag = "work",
    request_body = NewReportBatch,
    responses((status = 200, description = "What became of each", body = ReportBatchResult))
)]
async fn report_batch(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(new): JsonBody<NewReportBatch>,
) -> Result<Response, Problem> {
    // An invalid report fails at its position and does not affect the others.
    let (mut execution_ids, mut submissions) = (Vec::new(), Vec::new());
    for report in new.reports.0 {
        let read = report.and_then(|report| report.batch_target().map(|target| (report, target)));
        execution_ids.push(read.as_ref().ok().map(|(_, (at, _))| *at));
        submissions.push(read.and_then(|(report, (at, what))| report.into_submission(&caller.actor, at, what)));
    }
    let answers = submit_batch(&app, submissions).await?;
    let mut outcomes = Vec::with_capacity(answers.len());
    for (at, answer) in execution_ids.into_iter().zip(answers) {
        outcomes.push(match (at, answer) {
            (Some(at), Ok(answer)) => ReportOutcome::load(&app, &caller.actor, at, answer).await,
            // Without the winning effect's content: a small request could otherwise ask for it a thousand times.
            (_, Err(problem)) => Err(problem),
            (None, Ok(_)) => Err(missing_batch_target()),
        });
    }
    json_ok(&ReportBatchResult { results: outcomes.iter().map(ReportBatchItem::new).collect() })
}

/// Get an execution
#[utoipa::path(
    get, path = "/v1/executions/{id}", tag = "work",
    params(("id" = String, Path, description = "The execution's id", pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[1-9][0-9]{0,14}$")),
    responses((status = 200, description = "The execution", body = ExecutionJson))
)]
async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(execution_id): PathParams<ExecutionId>,
) -> Result<Response, Problem> {
    let none = || Problem::new(404, "not_found", "there is no such execution, or it is not for you");
    let execution = app.engine().execution(&caller.actor, execution_id).await?.ok_or_else(none)?;
    json_ok(&ExecutionJson::new(execution_id.record, &execution))
}
