//! Routes of one document job: read, submit, cancel and result. A job that the caller may not see answers like a
//! missing one.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use onceward_core::value::RecordId;
use onceward_engine::Receipt;
use onceward_server::{
    AppState, Caller, EmptyBody, JsonBody, PathParams, Problem, ProblemBody, effect_response, fire_event, json_ok,
    require_visible,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::JOB_LIFECYCLE;
use crate::response::DocumentJobJson;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default()
        .routes(routes!(get))
        .routes(routes!(submit))
        .routes(routes!(cancel))
        .routes(routes!(result))
}

/// Builds the response from the job's record after the event.
fn job_response(receipt: &Receipt) -> Result<Response, Problem> {
    let record = receipt.record.as_ref().ok_or_else(|| Problem::gone(receipt.subject))?;
    json_ok(&DocumentJobJson::from_record(record))
}

/// Get a document job
#[utoipa::path(
    get, path = "/document/jobs/{id}", operation_id = "get_document_job", tag = "document",
    params(("id" = String, Path, format = Uuid, description = "The job's id")),
    responses((status = 200, description = "The job", body = DocumentJobJson))
)]
async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
) -> Result<Response, Problem> {
    json_ok(&DocumentJobJson::from_record(&*require_visible(&app, &caller, JOB_LIFECYCLE, id).await?))
}

/// Submit a job
///
/// Queues the job for a worker. If the job was submitted before, the answer is 409 with the job's state.
#[utoipa::path(
    post, path = "/document/jobs/{id}/submit", operation_id = "submit_document_job", tag = "document",
    params(
        ("id" = String, Path, format = Uuid, description = "The job's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes the call safe to repeat: a repeated call returns the first response"),
    ),
    request_body = EmptyBody,
    responses(
        (status = 200, description = "Queued", body = DocumentJobJson),
        (status = 409, description = "Refused", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn submit(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    headers: HeaderMap,
    JsonBody(EmptyBody {}): JsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    job_response(&fire_event(&app, &caller, (JOB_LIFECYCLE, id), "submit", &headers).await?)
}

/// Cancel a job
///
/// The job fails at once with the error `cancelled`. If it runs, its execution is aborted: the worker is told to stop at
/// its next heartbeat, and a later commit is refused. What the worker has done outside Onceward is not undone. If the job
/// has succeeded, the answer is 409 `already_committed`; if it has failed, 409 `wrong_state`.
#[utoipa::path(
    post, path = "/document/jobs/{id}/cancel", operation_id = "cancel_document_job", tag = "document",
    params(
        ("id" = String, Path, format = Uuid, description = "The job's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes the call safe to repeat: a repeated call returns the first response"),
    ),
    request_body = EmptyBody,
    responses(
        (status = 200, description = "Cancelled", body = DocumentJobJson),
        (status = 409, description = "Refused", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn cancel(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    headers: HeaderMap,
    JsonBody(EmptyBody {}): JsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    job_response(&fire_event(&app, &caller, (JOB_LIFECYCLE, id), "cancel", &headers).await?)
}

/// Get the result of a document job
///
/// Returns the result as the worker committed it: bytes as bytes, text as text, anything else as JSON. The body is
/// empty if the worker committed no value. Before the job has a result, the answer is 404.
#[utoipa::path(
    get, path = "/document/jobs/{id}/result", operation_id = "get_document_result", tag = "document",
    params(("id" = String, Path, format = Uuid, description = "The job's id")),
    responses((
        status = 200, description = "The result",
        content(
            (Vec<u8> = "application/octet-stream"),
            (String = "text/plain; charset=utf-8"),
            (serde_json::Value = "application/json"),
        ),
    ))
)]
async fn result(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
) -> Result<Response, Problem> {
    require_visible(&app, &caller, JOB_LIFECYCLE, id).await?;
    let effect = app.engine().effect(&caller.actor, id).await?.ok_or_else(Problem::not_found)?;
    effect_response(&effect)
}
