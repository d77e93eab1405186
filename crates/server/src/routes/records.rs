//! Making records, one or many.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use onceward_core::decide::{Call, CreateRecord};
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_engine::{EngineError, Receipt, Submission};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{self, BatchItems, BoundedJson, IDEMPOTENCY_KEY, JsonBody, PathParams};
use crate::known_names;
use crate::problem::{self, Problem};
use crate::response::{RecordJson, json_ok};
use crate::telemetry;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(create)).routes(routes!(create_batch))
}

/// What a record is made of.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRecord {
    /// A UUID of version 7. Made by the server where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")]
    id: Option<RecordId>,
    /// By name; those that the lifecycle takes from a caller.
    #[serde(default)]
    #[schema(value_type = Object)]
    fields: BoundedJson<Map<String, Json>>,
    /// Any JSON. It is kept as it is written here, byte for byte; null is none.
    #[serde(default)]
    #[schema(value_type = Option<Value>)]
    payload: Option<Box<RawValue>>,
    /// Bytes in place of JSON.
    #[serde(default)]
    #[schema(content_encoding = "base64")]
    payload_base64: Option<String>,
    /// For operators: whose it is.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 1000)]
    owner: Option<String>,
    /// The record's idempotency key, in a batch. A single call has the header `Idempotency-Key`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 255)]
    key: Option<String>,
}

impl NewRecord {
    fn into_submission(self, actor: &Actor, lifecycle: &str) -> Result<Submission, Problem> {
        let content = extract::parse_payload(self.payload, self.payload_base64.as_deref())?;
        let payload = content.as_ref().map(|content| content.payload);
        let owner = self.owner.map(Into::into);
        let fields = self.fields.into_inner()?;
        let create = CreateRecord { lifecycle: lifecycle.into(), id: self.id, owner, fields, payload };
        let submission =
            Submission { payloads: content.into_iter().collect(), ..Submission::new(actor, Call::Create(create)) }
                .with_trace(telemetry::current_trace());
        Ok(match &self.key {
            Some(key) => submission.with_idempotency_key(key),
            None => submission,
        })
    }
}

/// Make a record
///
/// 201 with the new record. 200 with the first one where the same `Idempotency-Key` came before, or where a unique key
/// returns its holder.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/records", tag = "records",
    params(
        ("name" = String, Path, description = "The lifecycle's name"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]([ -~]{0,253}[!-~])?$", description = "However often it is sent, it is carried out once"),
    ),
    request_body = NewRecord,
    responses(
        (status = 201, description = "Made", body = RecordJson, headers(("ETag" = String))),
        (status = 200, description = "It was there before", body = RecordJson, headers(("ETag" = String))),
        (status = 402, description = "Not enough money", body = problem::ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "Refused", body = problem::ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "It was made before, and is gone", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn create(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(lifecycle): PathParams<String>,
    headers: HeaderMap,
    JsonBody(mut new): JsonBody<NewRecord>,
) -> Result<Response, Problem> {
    if let Some(key) = extract::header_text(&headers, &IDEMPOTENCY_KEY)? {
        if new.key.as_ref().is_some_and(|other| *other != *key) {
            return Err(Problem::bad_input("`key` and the header Idempotency-Key differ"));
        }
        new.key = Some(key.to_owned());
    }
    let submission = new.into_submission(&caller.actor, &lifecycle)?;
    let submitted = app.engine().submit(submission).await;
    let answer = submitted.map_err(|error| known_names::explain_missing_lifecycle(&app, error, &lifecycle))?;
    let status = if answer.is_new() { StatusCode::CREATED } else { StatusCode::OK };
    match &answer.record {
        Some(record) => RecordJson::response_with_etag(status, record),
        None => Err(Problem::gone(answer.subject)),
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRecordBatch {
    #[schema(value_type = Vec<NewRecord>, max_items = 1000)]
    records: BatchItems<NewRecord>,
}

/// What became of each, in the order of the call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreateBatchResult<'a> {
    results: Vec<CreateBatchItem<'a>>,
}

/// Either has its `record`, or an `error`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreateBatchItem<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<RecordJson<'a>>,
    /// Whether it is new, or was there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::ProblemBody<'a>>,
}

impl<'a> CreateBatchItem<'a> {
    fn new(answer: &'a Result<Receipt, Problem>) -> Self {
        match answer {
            Ok(answer) => Self {
                record: answer.record.as_deref().map(RecordJson::new),
                created: Some(answer.is_new()),
                error: None,
            },
            Err(problem) => Self { record: None, created: None, error: Some(problem.body()) },
        }
    }
}

/// Make many records
///
/// Each is made or refused on its own, each under its own `key`; one transaction for all of them.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/records/batch", tag = "records",
    params(("name" = String, Path, description = "The lifecycle's name")),
    request_body = NewRecordBatch,
    responses((status = 200, description = "What became of each", body = CreateBatchResult))
)]
async fn create_batch(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(lifecycle): PathParams<String>,
    JsonBody(new): JsonBody<NewRecordBatch>,
) -> Result<Response, Problem> {
    let submissions = new.records.0.into_iter().map(|new| new?.into_submission(&caller.actor, &lifecycle));
    let answers = submit_batch(&app, submissions.collect()).await?;
    let answers = answers.into_iter().map(|answer| match answer {
        Ok(answer) if answer.record.is_none() => Err(Problem::gone(answer.subject)),
        other => other,
    });
    let answers: Vec<_> = answers.collect();
    json_ok(&CreateBatchResult { results: answers.iter().map(CreateBatchItem::new).collect() })
}

/// Hand in those that are of the right shape, and answer all in their order.
pub(super) async fn submit_batch(
    app: &AppState,
    submissions: Vec<Result<Submission, Problem>>,
) -> Result<Vec<Result<Receipt, Problem>>, Problem> {
    let max_items = app.config().max_batch_items;
    if submissions.len() > max_items {
        return Err(EngineError::BatchTooLarge { max_operations: max_items }.into());
    }
    let (mut valid, mut answers) = (Vec::with_capacity(submissions.len()), Vec::with_capacity(submissions.len()));
    for submission in submissions {
        match submission {
            Ok(submission) => {
                valid.push(submission);
                answers.push(None);
            }
            Err(problem) => answers.push(Some(Err(problem))),
        }
    }
    let mut receipts = app.engine().submit_all(valid).await?.into_iter();
    let all = answers.into_iter().map(|answer| match answer {
        Some(answer) => answer,
        None => receipts.next().unwrap_or(Err(EngineError::Closed)).map_err(Problem::from),
    });
    Ok(all.collect())
}
