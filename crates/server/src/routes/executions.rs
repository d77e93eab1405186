//! Workers' reports on their jobs, and reading executions.

use axum::extract::State;
use axum::response::Response;
use onceward_api_types as wire;
use onceward_api_types::ReportKind;
use onceward_core::decide::{Call, FailureReport};
use onceward_core::execution_id::ExecutionId;
use onceward_core::record::{Actor, Execution, FencingToken};
use onceward_core::time::Duration;
use onceward_core::trace::TraceContext;
use onceward_core::value::RecordId;
use onceward_engine::{Receipt, Submission};
use serde_json::Value as Json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::records::submit_batch;
use crate::app::AppState;
use crate::caller::Caller;
use crate::capacity::ResponseReservation;
use crate::extract::{BatchItems, BoundedJson, JsonBody, PathParams, StrictObject, decode_base64};
use crate::problem::{self, Problem};
use crate::response::{
    BatchResponse, RecordJson, RecordSummary, effect_json, execution_json, is_wrapped_base64, json_ok, record_json,
    record_summary, wrap_base64,
};
use crate::telemetry;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(get)).routes(routes!(report)).routes(routes!(report_batch))
}

/// A report whose parts are parsed and limited.
type NewReport = wire::NewReport<ExecutionId, BoundedJson<Json>, StrictObject<wire::FailureReport>>;

/// Parses a report name. An unknown name is an unknown route; `not_found` would look as if the job were gone.
fn parse_report_kind(name: String) -> Result<ReportKind, Problem> {
    serde_json::from_value(Json::String(name)).map_err(|_| {
        let detail = "unknown report; expected start, heartbeat, commit, finish, fail or yield";
        Problem::new(404, "unknown_route", detail)
    })
}

/// One year, the longest delay of a retry.
const MAX_RETRY_AFTER_MS: u64 = 31_536_000_000;

/// Returns the execution and the kind, which batch items must contain.
fn batch_target(report: &NewReport) -> Result<(ExecutionId, ReportKind), Problem> {
    match (report.execution, report.kind) {
        (Some(at), Some(report)) => Ok((at, report)),
        _ => Err(missing_batch_target()),
    }
}

fn report_submission(
    report: NewReport,
    actor: &Actor,
    execution_id: ExecutionId,
    kind: ReportKind,
) -> Result<Submission, Problem> {
    let ExecutionId { record, token } = execution_id;
    if report.execution.is_some_and(|given| given != execution_id) || report.kind.is_some_and(|given| given != kind) {
        return Err(Problem::invalid_input("`execution` and `do` differ from the path"));
    }
    if token != FencingToken(report.token) {
        return Err(Problem::invalid_input(
            "`token` is not the fencing token of this execution; send the `token` that the lease call returned with it",
        ));
    }
    let call = match kind {
        ReportKind::Start => Call::Start { record, token },
        ReportKind::Heartbeat => Call::Heartbeat { record, token, lease: report.lease_ms.map(duration_from_millis) },
        ReportKind::Commit => {
            let result = parse_result(report.result, report.result_base64.as_deref())?;
            Call::Commit { record, token, result, finish: report.finish }
        }
        ReportKind::Finish => Call::Finish { record, token },
        ReportKind::Fail => {
            let Some(StrictObject(error)) = report.error else {
                return Err(Problem::invalid_input("a `fail` report needs `error`"));
            };
            Call::Fail { record, token, error: parse_failure(&error)? }
        }
        ReportKind::Yield => Call::Yield { record, token },
    };
    let own = report.traceparent.as_deref().and_then(TraceContext::parse);
    Ok(Submission::new(actor, call).with_trace(own.or_else(telemetry::current_trace)))
}

fn missing_batch_target() -> Problem {
    Problem::invalid_input("each report of a batch needs `execution` and `do`")
}

fn duration_from_millis(ms: u64) -> Duration {
    Duration::from_micros(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000))
}

fn parse_result(json: Option<BoundedJson<Json>>, base64: Option<&str>) -> Result<Json, Problem> {
    match (json.map(BoundedJson::into_inner).transpose()?, base64) {
        (Some(json), _) if is_wrapped_base64(&json) => Err(Problem::invalid_input(
            "`result` must not be an object with `$base64` only; use `result_base64` for bytes",
        )),
        (Some(_), Some(_)) => Err(Problem::invalid_input("`result` and `result_base64` are mutually exclusive")),
        (json, None) => Ok(json.unwrap_or_default()),
        (None, Some(text)) => decode_base64(text, "result_base64").map(|_| wrap_base64(text)),
    }
}

fn parse_failure(failure: &wire::FailureReport) -> Result<FailureReport, Problem> {
    if failure.code.is_empty() {
        return Err(Problem::invalid_input("`error.code` must not be empty"));
    }
    if failure.retry_after_ms.is_some_and(|ms| ms > MAX_RETRY_AFTER_MS) {
        return Err(Problem::invalid_input("`retry_after_ms` must be at most one year"));
    }
    Ok(FailureReport {
        retryable: failure.retryable,
        retry_after: failure.retry_after_ms.map(duration_from_millis),
        ..FailureReport::new(&failure.code, &failure.message)
    })
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
        wants_execution: bool,
    ) -> Result<Self, Problem> {
        if receipt.no_op.is_some() {
            // A repeated report changed nothing, and the lease may be over. Show the record only if the caller may
            // still read it.
            receipt.record = app.engine().get(actor, execution_id.record).await?;
        }
        let newest = receipt.record.as_ref().and_then(|record| record.execution.as_ref());
        let is_newest = newest.is_some_and(|execution| execution.token == execution_id.token);
        let needs_older = wants_execution && !is_newest;
        let older = if needs_older { app.engine().execution(actor, execution_id).await? } else { None };
        Ok(Self { execution_id, receipt, earlier_execution: older })
    }

    fn to_json(&self) -> wire::ReportResult<RecordJson<'_>> {
        let execution_id = self.execution_id;
        let newest = self.receipt.record.as_ref().and_then(|record| record.execution.as_ref());
        let execution =
            newest.filter(|execution| execution.token == execution_id.token).or(self.earlier_execution.as_ref());
        wire::ReportResult {
            execution: execution.map(|execution| execution_json(execution_id.record, execution)),
            record: self.receipt.record.as_deref().map(record_json),
            stop: self.receipt.stop_requested,
        }
    }
}

/// Report on an execution
///
/// 409 `lease_lost` if the caller no longer holds the lease; 409 `already_committed`, with the winning effect, if
/// another execution committed.
#[utoipa::path(
    post, path = "/v1/executions/{id}/{report}", operation_id = "report_execution", tag = "work",
    params(
        ("id" = String, Path, description = "Id of the execution", pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[1-9][0-9]{0,14}$"),
        ("report" = ReportKind, Path, description = "Kind of report"),
    ),
    request_body = wire::NewReport,
    responses(
        (status = 200, description = "The report was accepted", body = wire::ReportResult),
        (status = 409, description = "The report was rejected: the lease is lost, or an effect is already committed", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn report(
    State(app): State<AppState>,
    caller: Caller,
    PathParams((execution_id, report)): PathParams<(ExecutionId, String)>,
    JsonBody(new): JsonBody<NewReport>,
) -> Result<Response, Problem> {
    let report = parse_report_kind(report)?;
    let submission = report_submission(new, &caller.actor, execution_id, report)?;
    match app.engine().submit(submission).await {
        Ok(answer) => json_ok(&ReportOutcome::load(&app, &caller.actor, execution_id, answer, true).await?.to_json()),
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
            problem.with_member("effect", serde_json::to_value(effect_json(&effect)).unwrap_or_default())
        }
        // The refusal already names the winning execution.
        Ok(None) | Err(_) => problem,
    }
}

type ReportBatchItem<'a> = wire::ReportBatchItem<RecordJson<'a>>;

fn full_item(outcome: &ReportOutcome) -> ReportBatchItem<'_> {
    let wire::ReportResult { execution, record, stop } = outcome.to_json();
    ReportBatchItem { execution, record, stop: Some(stop), id: None, state: None, version: None, error: None }
}

fn short_item(receipt: &Receipt) -> ReportBatchItem<'static> {
    let RecordSummary { id, state, version } = record_summary(receipt, receipt.record.as_deref());
    let stop = receipt.stop_requested.then_some(true);
    ReportBatchItem { id, state, version, stop, execution: None, record: None, error: None }
}

fn failed_item(problem: &Problem) -> ReportBatchItem<'static> {
    let error = Some(problem.body());
    ReportBatchItem { error, id: None, state: None, version: None, execution: None, record: None, stop: None }
}

/// Report on many executions
///
/// Applied in order. Each report succeeds or fails on its own. With `"return": "record"`, the results have the
/// executions and the whole records, as long as the response has space for them.
#[utoipa::path(
    post, path = "/v1/executions/batch", operation_id = "report_executions", tag = "work",
    request_body = wire::NewReportBatch,
    responses((status = 200, description = "One result per report, in order", body = wire::ReportBatchResult))
)]
async fn report_batch(
    State(app): State<AppState>,
    caller: Caller,
    reservation: ResponseReservation,
    JsonBody(new): JsonBody<wire::NewReportBatch<BatchItems<NewReport>>>,
) -> Result<Response, Problem> {
    let wants_records = new.returns == wire::BatchReturn::Record;
    if wants_records {
        reservation.reserve_largest().await?;
    }
    // An invalid report fails at its position and does not affect the others.
    let (mut execution_ids, mut submissions) = (Vec::new(), Vec::new());
    for report in new.reports.0 {
        let read = report.and_then(|report| batch_target(&report).map(|target| (report, target)));
        execution_ids.push(read.as_ref().ok().map(|(_, (at, _))| *at));
        submissions.push(read.and_then(|(report, (at, what))| report_submission(report, &caller.actor, at, what)));
    }
    let answers = submit_batch(&app, submissions).await?;
    let mut response = BatchResponse::new(app.config().max_response_bytes);
    for (at, answer) in execution_ids.into_iter().zip(answers) {
        let outcome = match (at, answer) {
            (Some(at), Ok(receipt)) => ReportOutcome::load(&app, &caller.actor, at, receipt, wants_records).await,
            // Without the winning effect's content: a small request could otherwise ask for it a thousand times.
            (_, Err(problem)) => Err(problem),
            (None, Ok(_)) => Err(missing_batch_target()),
        };
        match &outcome {
            Ok(outcome) => {
                if !(wants_records && response.try_push(&full_item(outcome))?) {
                    response.push(&short_item(&outcome.receipt))?;
                }
            }
            Err(problem) => response.push(&failed_item(problem))?,
        }
    }
    Ok(response.finish())
}

/// Get an execution
#[utoipa::path(
    get, path = "/v1/executions/{id}", operation_id = "get_execution", tag = "work",
    params(("id" = String, Path, description = "Id of the execution", pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[1-9][0-9]{0,14}$")),
    responses((status = 200, description = "The execution", body = wire::Execution))
)]
async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(execution_id): PathParams<ExecutionId>,
) -> Result<Response, Problem> {
    let not_found = || Problem::new(404, "not_found", "the execution does not exist, or the caller may not read it");
    let execution = app.engine().execution(&caller.actor, execution_id).await?.ok_or_else(not_found)?;
    json_ok(&execution_json(execution_id.record, &execution))
}
