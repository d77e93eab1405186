//! Creates records, one or many.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use onceward_api_types as wire;
use onceward_core::decide::{Call, CreateRecord};
use onceward_core::record::{Actor, Record};
use onceward_core::value::RecordId;
use onceward_engine::{EngineError, Receipt, Submission};
use serde_json::{Map, Value as Json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::capacity::ResponseReservation;
use crate::extract::{self, BatchItems, BoundedJson, IDEMPOTENCY_KEY, JsonBody, PathParams};
use crate::known_names;
use crate::problem::{self, Problem};
use crate::response::{
    BatchResponse, RecordJson, RecordSummary, record_json, record_response, record_summary, with_current_record,
};
use crate::telemetry;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(create)).routes(routes!(create_batch))
}

type NewRecord = wire::NewRecord<BoundedJson<Map<String, Json>>>;

fn create_submission(new: NewRecord, actor: &Actor, lifecycle: &str) -> Result<Submission, Problem> {
    let content = extract::parse_payload(new.payload, new.payload_base64.as_deref())?;
    let payload = content.as_ref().map(|content| content.payload);
    let (id, owner) = (new.id.map(RecordId), new.owner.map(Into::into));
    let create = CreateRecord { lifecycle: lifecycle.into(), id, owner, fields: new.fields.into_inner()?, payload };
    let submission =
        Submission { payloads: content.into_iter().collect(), ..Submission::new(actor, Call::Create(create)) }
            .with_trace(telemetry::current_trace());
    Ok(match &new.key {
        Some(key) => submission.with_idempotency_key(key),
        None => submission,
    })
}

/// Create a record
///
/// 201 with the new record. 200 with the existing record if the `Idempotency-Key` was used before, or if a unique
/// key is configured to return its holder.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/records", operation_id = "create_record", tag = "records",
    params(
        ("name" = String, Path, description = "Name of the lifecycle"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]([ -~]{0,253}[!-~])?$", description = "Makes the call safe to repeat: a repeated call returns the first response"),
    ),
    request_body = wire::NewRecord,
    responses(
        (status = 201, description = "The record was created", body = wire::Record, headers(("ETag" = String))),
        (status = 200, description = "The record exists already: the idempotency key or a unique key found it", body = wire::Record, headers(("ETag" = String))),
        (status = 402, description = "An account has insufficient funds", body = problem::ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "The lifecycle refuses to create the record", body = problem::ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "The record was created earlier, but was pruned or the caller may no longer read it", body = problem::ProblemBody, content_type = "application/problem+json"),
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
            return Err(Problem::invalid_input("`key` differs from the header `Idempotency-Key`"));
        }
        new.key = Some(key.to_owned());
    }
    let submission = create_submission(new, &caller.actor, &lifecycle)?;
    let submitted = app.engine().submit(submission).await;
    let answer = submitted.map_err(|error| known_names::explain_missing_lifecycle(&app, error, &lifecycle))?;
    let status = if answer.is_new() { StatusCode::CREATED } else { StatusCode::OK };
    match &answer.record {
        Some(record) => record_response(status, record),
        None => Err(Problem::gone(answer.subject)),
    }
}

type CreateBatchItem<'a> = wire::CreateBatchItem<RecordJson<'a>>;

fn full_item<'a>(receipt: &Receipt, record: &'a Record) -> CreateBatchItem<'a> {
    let (record, created) = (Some(record_json(record)), Some(receipt.is_new()));
    CreateBatchItem { record, created, id: None, state: None, version: None, error: None }
}

fn short_item(receipt: &Receipt, record: &Record) -> CreateBatchItem<'static> {
    let RecordSummary { id, state, version } = record_summary(receipt, Some(record));
    CreateBatchItem { id, state, version, created: Some(receipt.is_new()), record: None, error: None }
}

fn failed_item(problem: &Problem) -> CreateBatchItem<'static> {
    let error = Some(problem.body());
    CreateBatchItem { error, id: None, state: None, version: None, record: None, created: None }
}

/// Create many records
///
/// In one transaction. Each record is created or refused on its own, with its own `key`. If the response has no more
/// space, the results have ids, states and versions instead of records.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/records/batch", operation_id = "create_records", tag = "records",
    params(("name" = String, Path, description = "Name of the lifecycle")),
    request_body = wire::NewRecordBatch,
    responses((status = 200, description = "One result per record, in order", body = wire::CreateBatchResult))
)]
async fn create_batch(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(lifecycle): PathParams<String>,
    reservation: ResponseReservation,
    JsonBody(new): JsonBody<wire::NewRecordBatch<BatchItems<NewRecord>>>,
) -> Result<Response, Problem> {
    reservation.reserve_largest().await?;
    let submissions = new.records.0.into_iter().map(|new| create_submission(new?, &caller.actor, &lifecycle));
    let answers = submit_batch(&app, submissions.collect()).await?;
    let mut response = BatchResponse::new(app.config().max_response_bytes);
    for answer in answers {
        let receipt = match answer {
            Ok(receipt) => with_current_record(&app, &caller.actor, receipt).await,
            Err(problem) => Err(problem),
        };
        match receipt.as_ref().map(|receipt| (receipt, receipt.record.as_deref())) {
            Ok((receipt, Some(record))) => {
                if !response.try_push(&full_item(receipt, record))? {
                    response.push(&short_item(receipt, record))?;
                }
            }
            Ok((receipt, None)) => response.push(&failed_item(&Problem::gone(receipt.subject)))?,
            Err(problem) => response.push(&failed_item(problem))?,
        }
    }
    Ok(response.finish())
}

/// Submits the valid submissions and returns all results in their order.
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
