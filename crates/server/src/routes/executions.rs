//! What workers report of their jobs, and looking at an attempt.

use axum::extract::State;
use axum::response::Response;
use onceward_core::decide::{Call, ErrorReport};
use onceward_core::execution_id::ExecutionId;
use onceward_core::record::{Actor, Execution, Token};
use onceward_core::time::Duration;
use onceward_core::trace::Trace;
use onceward_core::value::RecordId;
use onceward_engine::{Answer, Submission};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AllOf, Array, ArrayBuilder, ObjectBuilder, Ref};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::records::submit;
use crate::app::App;
use crate::caller::Caller;
use crate::input::{At, Calls, Given, Object, Small, from_base64};
use crate::observe;
use crate::problem::{self, Problem};
use crate::shape::{EffectShape, ExecutionShape, RecordShape, is_bytes, of_bytes, ok};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(get)).routes(routes!(report)).routes(routes!(report_batch))
}

/// What is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The work begins.
    Start,
    /// It goes on: the lease is kept. `stop` in the answer asks to give up.
    Heartbeat,
    /// The effect lands, once.
    Commit,
    /// The execution is done.
    Finish,
    /// It failed.
    Fail,
    /// The job is given back unharmed.
    Yield,
}

impl Report {
    /// A name that is none is no word on the job: it would read as if that were gone.
    fn named(name: String) -> Result<Self, Problem> {
        serde_json::from_value(Json::String(name)).map_err(|_| {
            let detail = "there is no such report: start, heartbeat, commit, finish, fail and yield are the reports";
            Problem::new(404, "no_such_route", detail)
        })
    }
}

/// A failure.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WorkError)]
pub(crate) struct Failure {
    #[schema(min_length = 1)]
    code: String,
    #[serde(default)]
    message: String,
    /// Counts where the lifecycle does not class the code itself.
    #[serde(default)]
    retryable: Option<bool>,
    #[serde(default)]
    #[schema(minimum = 0, maximum = 31_536_000_000_u64)]
    retry_after_ms: Option<u64>,
}

/// A report. By itself, its path says of which execution it is, and what it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReport {
    /// In a batch: the execution's id.
    #[serde(default)]
    #[schema(value_type = String, required = false, pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[1-9][0-9]{0,14}$")]
    execution: Option<ExecutionId>,
    /// In a batch: what is reported.
    #[serde(default, rename = "do")]
    #[schema(value_type = Report, required = false)]
    report: Option<Report>,
    /// In a batch: W3C trace context, each report's own. One that is none is passed over, as in the header.
    #[serde(default)]
    traceparent: Option<String>,
    /// Of the lease.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: u64,
    /// Of a commit: any JSON, or as the lifecycle declares it.
    #[serde(default)]
    #[schema(value_type = Option<Value>)]
    result: Option<Small<Json>>,
    /// Of a commit: bytes in place of JSON.
    #[serde(default)]
    #[schema(content_encoding = "base64")]
    result_base64: Option<String>,
    /// Of a commit: whether the execution is done with it.
    #[serde(default)]
    finish: bool,
    /// Of a failure.
    #[serde(default)]
    #[schema(value_type = Option<Failure>)]
    error: Option<Object<Failure>>,
    /// Of a heartbeat: how long the lease is from now on.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 86_400_000)]
    lease_ms: Option<u64>,
}

/// A year: no wait is longer.
const LONGEST_WAIT_MS: u64 = 31_536_000_000;

impl NewReport {
    /// Of which execution it is, and what, as a batch tells it.
    fn told(&self) -> Result<(ExecutionId, Report), Problem> {
        match (self.execution, self.report) {
            (Some(at), Some(report)) => Ok((at, report)),
            _ => Err(not_told()),
        }
    }

    fn submission(self, actor: &Actor, at: ExecutionId, report: Report) -> Result<Submission, Problem> {
        let ExecutionId { record, token } = at;
        if self.execution.is_some_and(|told| told != at) || self.report.is_some_and(|told| told != report) {
            return Err(Problem::bad_input("`execution` and `do` are not those of the path"));
        }
        if token != Token(self.token) {
            return Err(Problem::bad_input("`token` is not this execution's"));
        }
        let call = match report {
            Report::Start => Call::Start { record, token },
            Report::Heartbeat => Call::Heartbeat { record, token, lease: self.lease_ms.map(length) },
            Report::Commit => {
                let result = result(self.result, self.result_base64.as_deref())?;
                Call::Commit { record, token, result, finish: self.finish }
            }
            Report::Finish => Call::Finish { record, token },
            Report::Fail => {
                let Some(Object(error)) = self.error else {
                    return Err(Problem::bad_input("a failure needs its `error`"));
                };
                Call::Fail { record, token, error: error.report()? }
            }
            Report::Yield => Call::Yield { record, token },
        };
        let own = self.traceparent.as_deref().and_then(Trace::parse);
        Ok(Submission::new(actor, call).traced(own.or_else(observe::trace)))
    }
}

fn not_told() -> Problem {
    Problem::bad_input("each report of a batch names its `execution`, and says what to `do`")
}

fn length(ms: u64) -> Duration {
    Duration::from_micros(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000))
}

fn result(json: Option<Small<Json>>, base64: Option<&str>) -> Result<Json, Problem> {
    match (json.map(Small::open).transpose()?, base64) {
        (Some(json), _) if is_bytes(&json) => {
            Err(Problem::bad_input("an object with nothing but `$base64` is how bytes are kept: give result_base64"))
        }
        (Some(_), Some(_)) => Err(Problem::bad_input("give result or result_base64, not both")),
        (json, None) => Ok(json.unwrap_or_default()),
        (None, Some(text)) => from_base64(text, "result_base64").map(|_| of_bytes(text)),
    }
}

impl Failure {
    fn report(self) -> Result<ErrorReport, Problem> {
        if self.code.is_empty() {
            return Err(Problem::bad_input("an error's `code` is not empty"));
        }
        if self.retry_after_ms.is_some_and(|ms| ms > LONGEST_WAIT_MS) {
            return Err(Problem::bad_input("`retry_after_ms` is at most a year"));
        }
        Ok(ErrorReport {
            retryable: self.retryable,
            retry_after: self.retry_after_ms.map(length),
            ..ErrorReport::new(&self.code, &self.message)
        })
    }
}

/// What came of a report.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reported<'a> {
    /// Null where the caller may no longer look at it.
    execution: Option<ExecutionShape<'a>>,
    record: Option<RecordShape<'a>>,
    /// Whether the worker is asked to give up.
    stop: bool,
}

/// An answer, and the execution that it is about where another has begun since.
struct Known {
    at: ExecutionId,
    answer: Answer,
    older: Option<Execution>,
}

impl Known {
    async fn of(app: &App, actor: &Actor, at: ExecutionId, mut answer: Answer) -> Result<Self, Problem> {
        if answer.already.is_some() {
            // Nothing was done, and the lease may be long over: what the record is now is not for everybody who once had it.
            answer.record = app.engine().get(actor, at.record).await?;
        }
        let newest = answer.record.as_ref().and_then(|record| record.execution.as_ref());
        let is_newest = newest.is_some_and(|execution| execution.token == at.token);
        let older = if is_newest { None } else { app.engine().execution(actor, at).await? };
        Ok(Self { at, answer, older })
    }

    fn shape(&self) -> Reported<'_> {
        let at = self.at;
        let newest = self.answer.record.as_ref().and_then(|record| record.execution.as_ref());
        let execution = newest.filter(|execution| execution.token == at.token).or(self.older.as_ref());
        Reported {
            execution: execution.map(|execution| ExecutionShape::of(at.record, execution)),
            record: self.answer.record.as_deref().map(RecordShape::of),
            stop: self.answer.stop,
        }
    }
}

/// Report on a job
///
/// 409 `lease_lost` where the job is no longer the caller's; 409 `already_committed` with the effect that won.
#[utoipa::path(
    post, path = "/v1/executions/{id}/{report}", tag = "work",
    params(
        ("id" = String, Path, description = "The execution's id", pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[1-9][0-9]{0,14}$"),
        ("report" = Report, Path, description = "What is reported"),
    ),
    request_body = NewReport,
    responses(
        (status = 200, description = "Taken", body = Reported),
        (status = 409, description = "Not taken", body = problem::Shape, content_type = "application/problem+json"),
    )
)]
async fn report(
    State(app): State<App>,
    caller: Caller,
    At((at, report)): At<(ExecutionId, String)>,
    Given(new): Given<NewReport>,
) -> Result<Response, Problem> {
    let report = Report::named(report)?;
    let submission = new.submission(&caller.actor, at, report)?;
    match app.engine().submit(submission).await {
        Ok(answer) => ok(&Known::of(&app, &caller.actor, at, answer).await?.shape()),
        Err(error) => Err(with_effect(&app, &caller.actor, at.record, error.into()).await),
    }
}

/// What won, for one who comes too late and may see it.
async fn with_effect(app: &App, actor: &Actor, record: RecordId, problem: Problem) -> Problem {
    if problem.code() != "already_committed" {
        return problem;
    }
    match app.engine().effect(actor, record).await {
        Ok(Some(effect)) => {
            // Text, numbers and what was JSON already.
            problem.with("effect", serde_json::to_value(EffectShape::of(&effect)).unwrap_or_default())
        }
        // The refusal names its execution.
        Ok(None) | Err(_) => problem,
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReports {
    #[schema(schema_with = told_in_full)]
    reports: Calls<NewReport>,
}

/// Here they have no path to say the rest.
fn told_in_full() -> Array {
    let rest = ObjectBuilder::new().required("execution").required("do");
    let report = AllOf::builder().item(Ref::from_schema_name("NewReport")).item(rest);
    ArrayBuilder::new().items(report).max_items(Some(1_000)).build()
}

/// What became of each, in the order of the call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportedAll<'a> {
    results: Vec<ReportedOne<'a>>,
}

/// Either has `execution`, `record` and `stop`, or an `error`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportedOne<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<ExecutionShape<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<RecordShape<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::Shape<'a>>,
}

impl<'a> ReportedOne<'a> {
    fn of(known: &'a Result<Known, Problem>) -> Self {
        match known {
            Ok(known) => {
                let Reported { execution, record, stop } = known.shape();
                Self { execution, record, stop: Some(stop), error: None }
            }
            Err(problem) => Self { execution: None, record: None, stop: None, error: Some(problem.shape()) },
        }
    }
}

/// Report on many jobs
///
/// In their order, each taken or refused on its own.
#[utoipa::path(
    post, path = "/v1/executions/batch", tag = "work",
    request_body = NewReports,
    responses((status = 200, description = "What became of each", body = ReportedAll))
)]
async fn report_batch(
    State(app): State<App>,
    caller: Caller,
    Given(new): Given<NewReports>,
) -> Result<Response, Problem> {
    // One that cannot be told apart is refused in its place, and keeps nobody from the others.
    let (mut told, mut submissions) = (Vec::new(), Vec::new());
    for report in new.reports.0 {
        let read = report.and_then(|report| report.told().map(|told| (report, told)));
        told.push(read.as_ref().ok().map(|(_, (at, _))| *at));
        submissions.push(read.and_then(|(report, (at, what))| report.submission(&caller.actor, at, what)));
    }
    let answers = submit(&app, submissions).await?;
    let mut known = Vec::with_capacity(answers.len());
    for (at, answer) in told.into_iter().zip(answers) {
        known.push(match (at, answer) {
            (Some(at), Ok(answer)) => Known::of(&app, &caller.actor, at, answer).await,
            // Of an effect that won only whose it is: a thousand times the whole of it would be asked for with a few bytes.
            (_, Err(problem)) => Err(problem),
            (None, Ok(_)) => Err(not_told()),
        });
    }
    ok(&ReportedAll { results: known.iter().map(ReportedOne::of).collect() })
}

/// An attempt at a job
#[utoipa::path(
    get, path = "/v1/executions/{id}", tag = "work",
    params(("id" = String, Path, description = "The execution's id", pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.[1-9][0-9]{0,14}$")),
    responses((status = 200, description = "The execution", body = ExecutionShape))
)]
async fn get(State(app): State<App>, caller: Caller, At(at): At<ExecutionId>) -> Result<Response, Problem> {
    let none = || Problem::new(404, "not_found", "there is no such execution, or it is not for you");
    let execution = app.engine().execution(&caller.actor, at).await?.ok_or_else(none)?;
    ok(&ExecutionShape::of(at.record, &execution))
}
