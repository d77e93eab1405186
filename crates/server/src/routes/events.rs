//! Fires events, one or many.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use onceward_core::decide::Call;
use onceward_core::record::{Actor, FencingToken};
use onceward_core::value::RecordId;
use onceward_engine::{EngineError, Receipt, Submission};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::records::submit_batch;
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{self, BatchItems, BoundedJson, JsonBody, PathParams};
use crate::problem::{self, Problem};
use crate::response::{DisplayText, RecordJson, json_ok};
use crate::telemetry;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(fire)).routes(routes!(fire_batch))
}

/// The input of an event.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvent {
    /// Input by name, as the event's transitions declare it.
    #[serde(default)]
    #[schema(value_type = Object)]
    input: BoundedJson<Map<String, Json>>,
    /// The execution's fencing token, if a worker fires the event.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: Option<u64>,
}

/// The result of an event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FireResult<'a> {
    /// The record after the event. Null if the call repeats an idempotency key and the caller cannot see the record
    /// any more.
    record: Option<RecordJson<'a>>,
    /// The ids of the records that the event created.
    #[schema(value_type = Vec<String>)]
    spawned: Vec<DisplayText<RecordId>>,
}

impl<'a> FireResult<'a> {
    fn new(answer: &'a Receipt) -> Self {
        let spawned = answer.spawned.iter().copied().map(DisplayText).collect();
        Self { record: answer.record.as_deref().map(RecordJson::new), spawned }
    }
}

/// Fire an event
///
/// 409 if the record's state does not accept the event; 403 if the caller may not fire it. With `If-Match`, 412 if
/// the record has none of these versions.
#[utoipa::path(
    post, path = "/v1/records/{id}/events/{event}", tag = "records",
    params(
        ("id" = String, Path, format = Uuid, description = "The record's id"),
        ("event" = String, Path, description = "The event's name"),
        ("If-Match" = Option<String>, Header, description = "The record's ETag, or several, any of which will do", pattern = "^([*]|(W/)?\"[!#-~]*\"( ?, ?(W/)?\"[!#-~]*\")*)$"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]([ -~]{0,253}[!-~])?$", description = "However often it is sent, it is carried out once"),
    ),
    request_body = NewEvent,
    responses(
        (status = 200, description = "Taken", body = FireResult),
        (status = 402, description = "Not enough money", body = problem::ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "Refused", body = problem::ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "Another version", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn fire(
    State(app): State<AppState>,
    caller: Caller,
    PathParams((record, event)): PathParams<(RecordId, String)>,
    headers: HeaderMap,
    JsonBody(new): JsonBody<NewEvent>,
) -> Result<Response, Problem> {
    let versions = extract::parse_if_match(&headers)?;
    let if_version = versions.as_deref().map(|versions| versions.first().copied().unwrap_or(NO_SUCH_VERSION));
    let call = Call::Fire {
        record,
        event: event.into(),
        input: new.input.into_inner()?,
        token: new.token.map(FencingToken),
        if_version,
    };
    let submission = extract::with_idempotency_key(
        &headers,
        Submission::new(&caller.actor, call).with_trace(telemetry::current_trace()),
    )?;
    let answer = match versions.as_deref() {
        Some(versions @ [_, _, ..]) => submit_for_any_version(&app, submission, record, versions).await?,
        _ => app.engine().submit(submission).await?,
    };
    json_ok(&FireResult::new(&answer))
}

/// No record has this version, so the engine answers `version_mismatch`.
const NO_SUCH_VERSION: u64 = 0;

/// Submits a call that accepts several versions. The engine compares with one version only, so this submits the
/// current one if it is accepted, and retries if the record changes meanwhile. All attempts share one idempotency
/// key.
async fn submit_for_any_version(
    app: &AppState,
    mut submission: Submission,
    record: RecordId,
    versions: &[u64],
) -> Result<Receipt, EngineError> {
    submission.idempotency_key = submission.idempotency_key.map(|once| once.with_context(&format!("{versions:?}")));
    let mut attempts_left = versions.len();
    loop {
        let current = app.engine().get(&submission.actor, record).await?.map(|record| record.version);
        let fits = current.filter(|now| versions.contains(now));
        if let Call::Fire { if_version, .. } = &mut submission.call {
            *if_version = Some(fits.unwrap_or(NO_SUCH_VERSION));
        }
        attempts_left -= 1;
        match app.engine().submit(submission.clone()).await {
            Err(error) if error.code() == "version_mismatch" && fits.is_some() && attempts_left > 0 => {}
            answer => return answer,
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchEvent {
    #[schema(value_type = String, format = Uuid)]
    record: RecordId,
    #[schema(value_type = String)]
    event: Arc<str>,
    #[serde(default)]
    #[schema(value_type = Object)]
    input: BoundedJson<Map<String, Json>>,
    #[serde(default)]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: Option<u64>,
    /// Refuse unless the record has this version.
    #[serde(default)]
    #[schema(minimum = 1)]
    version: Option<u64>,
    /// The idempotency key of this event.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 255)]
    key: Option<String>,
}

impl BatchEvent {
    fn into_submission(self, actor: &Actor) -> Result<Submission, Problem> {
        let Self { record, event, input, token, version, key } = self;
        let call = Call::Fire {
            record,
            event,
            input: input.into_inner()?,
            token: token.map(FencingToken),
            if_version: version,
        };
        let submission = Submission::new(actor, call).with_trace(telemetry::current_trace());
        Ok(match &key {
            Some(key) => submission.with_idempotency_key(key),
            None => submission,
        })
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEventBatch {
    #[schema(value_type = Vec<BatchEvent>, max_items = 1000)]
    events: BatchItems<BatchEvent>,
}

/// The results, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FireBatchResult<'a> {
    results: Vec<FireBatchItem<'a>>,
}

/// Has either `record` and `spawned`, or `error`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FireBatchItem<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<RecordJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<String>, required = false)]
    spawned: Option<Vec<DisplayText<RecordId>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::ProblemBody<'a>>,
}

impl<'a> FireBatchItem<'a> {
    fn new(answer: &'a Result<Receipt, Problem>) -> Self {
        match answer {
            Ok(answer) => {
                let FireResult { record, spawned } = FireResult::new(answer);
                Self { record, spawned: Some(spawned), error: None }
            }
            Err(problem) => Self { record: None, spawned: None, error: Some(problem.body()) },
        }
    }
}

/// Fire many events
///
/// Applied in order. Each event succeeds or fails on its own. An event that needs an external check is decided
/// after the check answers; later events do not wait for it.
#[utoipa::path(
    post, path = "/v1/events/batch", tag = "records",
    request_body = NewEventBatch,
    responses((status = 200, description = "What became of each", body = FireBatchResult))
)]
async fn fire_batch(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(new): JsonBody<NewEventBatch>,
) -> Result<Response, Problem> {
    let submissions = new.events.0.into_iter().map(|event| event?.into_submission(&caller.actor));
    let answers = submit_batch(&app, submissions.collect()).await?;
    json_ok(&FireBatchResult { results: answers.iter().map(FireBatchItem::new).collect() })
}
