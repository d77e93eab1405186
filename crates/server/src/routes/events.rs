//! Fires events, one or many.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use onceward_api_types as wire;
use onceward_core::decide::Call;
use onceward_core::record::{Actor, FencingToken};
use onceward_core::value::RecordId;
use onceward_engine::{EngineError, Receipt, Submission};
use serde_json::{Map, Value as Json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::records::submit_batch;
use crate::app::AppState;
use crate::caller::Caller;
use crate::capacity::ResponseReservation;
use crate::extract::{self, BatchItems, BoundedJson, JsonBody, PathParams};
use crate::problem::{self, Problem};
use crate::response::{
    BatchResponse, RecordJson, RecordSummary, json_ok, record_json, record_summary, with_current_record,
};
use crate::telemetry;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(fire)).routes(routes!(fire_batch))
}

type EventInput = BoundedJson<Map<String, Json>>;

fn fire_result(answer: &Receipt) -> wire::FireResult<RecordJson<'_>> {
    wire::FireResult {
        record: answer.record.as_deref().map(record_json),
        spawned: answer.spawned.iter().map(|record| record.0).collect(),
    }
}

/// Fire an event
///
/// 409 if the record's state does not accept the event; 403 if the caller may not fire it. With `If-Match`, 412 if
/// the record has none of these versions.
#[utoipa::path(
    post, path = "/v1/records/{id}/events/{event}", operation_id = "fire_event", tag = "records",
    params(
        ("id" = String, Path, format = Uuid, description = "Id of the record"),
        ("event" = String, Path, description = "Name of the event"),
        ("If-Match" = Option<String>, Header, description = "Fire only if the record's ETag is one of these", pattern = "^([*]|(W/)?\"[!#-~]*\"( ?, ?(W/)?\"[!#-~]*\")*)$"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]([ -~]{0,253}[!-~])?$", description = "Makes the call safe to repeat: a repeated call returns the first response"),
    ),
    request_body = wire::NewEvent,
    responses(
        (status = 200, description = "The event was fired", body = wire::FireResult),
        (status = 402, description = "An account has insufficient funds", body = problem::ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "The lifecycle refuses the event", body = problem::ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "The record has another version", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn fire(
    State(app): State<AppState>,
    caller: Caller,
    PathParams((record, event)): PathParams<(RecordId, String)>,
    headers: HeaderMap,
    JsonBody(new): JsonBody<wire::NewEvent<EventInput>>,
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
    json_ok(&fire_result(&answer))
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

fn batch_submission(event: wire::BatchEvent<EventInput>, actor: &Actor) -> Result<Submission, Problem> {
    let call = Call::Fire {
        record: RecordId(event.record),
        event: event.event.into(),
        input: event.input.into_inner()?,
        token: event.token.map(FencingToken),
        if_version: event.version,
    };
    let submission = Submission::new(actor, call).with_trace(telemetry::current_trace());
    Ok(match &event.key {
        Some(key) => submission.with_idempotency_key(key),
        None => submission,
    })
}

type FireBatchItem<'a> = wire::FireBatchItem<RecordJson<'a>>;

fn full_item(receipt: &Receipt) -> Option<FireBatchItem<'_>> {
    let wire::FireResult { record, spawned } = fire_result(receipt);
    let record = Some(record?);
    Some(FireBatchItem { record, spawned: Some(spawned), id: None, state: None, version: None, error: None })
}

fn short_item(receipt: &Receipt) -> FireBatchItem<'static> {
    let RecordSummary { id, state, version } = record_summary(receipt, receipt.record.as_deref());
    FireBatchItem { id, state, version, record: None, spawned: None, error: None }
}

fn failed_item(problem: &Problem) -> FireBatchItem<'static> {
    let error = Some(problem.body());
    FireBatchItem { error, id: None, state: None, version: None, record: None, spawned: None }
}

/// Fire many events
///
/// Applied in order. Each event succeeds or fails on its own. An event that needs an external check is decided
/// after the check answers; later events do not wait for it. With `"return": "record"`, the results have the whole
/// records, as long as the response has space for them.
#[utoipa::path(
    post, path = "/v1/events/batch", operation_id = "fire_events", tag = "records",
    request_body = wire::NewEventBatch,
    responses((status = 200, description = "One result per event, in order", body = wire::FireBatchResult))
)]
async fn fire_batch(
    State(app): State<AppState>,
    caller: Caller,
    reservation: ResponseReservation,
    JsonBody(new): JsonBody<wire::NewEventBatch<BatchItems<wire::BatchEvent<EventInput>>>>,
) -> Result<Response, Problem> {
    let wants_records = new.returns == wire::BatchReturn::Record;
    if wants_records {
        reservation.reserve_largest().await?;
    }
    let submissions = new.events.0.into_iter().map(|event| batch_submission(event?, &caller.actor));
    let answers = submit_batch(&app, submissions.collect()).await?;
    let mut response = BatchResponse::new(app.config().max_response_bytes);
    for answer in answers {
        let receipt = match answer {
            Ok(receipt) => with_current_record(&app, &caller.actor, receipt).await,
            Err(problem) => Err(problem),
        };
        match &receipt {
            Ok(receipt) => {
                let full = full_item(receipt).filter(|_| wants_records);
                if !full.map(|item| response.try_push(&item)).transpose()?.unwrap_or(false) {
                    response.push(&short_item(receipt))?;
                }
            }
            Err(problem) => response.push(&failed_item(problem))?,
        }
    }
    Ok(response.finish())
}
