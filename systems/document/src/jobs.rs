//! Jobs, by their ids. To whoever may not see one it is not there, in the same words as one that never was.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use onceward_core::decide::Call;
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_engine::Submission;
use onceward_server::{App, At, Caller, Given, Problem, ProblemShape, ok, result as as_it_is, trace};
use serde::Deserialize;
use serde_json::Map;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::JOB;
use crate::shape::JobShape;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(get))
        .routes(routes!(submit))
        .routes(routes!(cancel))
        .routes(routes!(result))
}

/// Nothing is to be said with it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DocumentNothing)]
struct Nothing {}

/// The job, if it is one and the caller may see it.
async fn job(app: &App, caller: &Caller, id: RecordId) -> Result<Arc<Record>, Problem> {
    let record = app.engine().get(&caller.actor, id).await?;
    record.filter(|record| *record.lifecycle.name == *JOB).ok_or_else(Problem::not_found)
}

async fn fire(app: &App, caller: &Caller, id: RecordId, event: &str) -> Result<Response, Problem> {
    job(app, caller, id).await?;
    let call = Call::Fire { record: id, event: event.into(), input: Map::new(), token: None, if_version: None };
    let answer = app.engine().submit(Submission::new(&caller.actor, call).traced(trace())).await?;
    let record = answer.record.ok_or_else(Problem::not_found)?;
    ok(&JobShape::of(&record))
}

/// Look at a job
#[utoipa::path(
    get, path = "/document/jobs/{id}", tag = "document",
    params(("id" = String, Path, format = Uuid, description = "The job's id")),
    responses((status = 200, description = "The job", body = JobShape))
)]
async fn get(State(app): State<App>, caller: Caller, At(id): At<RecordId>) -> Result<Response, Problem> {
    ok(&JobShape::of(&*job(&app, &caller, id).await?))
}

/// Submit a job
///
/// It is queued for a worker. 409 where it was before; the answer names its state.
#[utoipa::path(
    post, path = "/document/jobs/{id}/submit", tag = "document",
    params(("id" = String, Path, format = Uuid, description = "The job's id")),
    request_body = Nothing,
    responses(
        (status = 200, description = "Queued", body = JobShape),
        (status = 409, description = "Refused", body = ProblemShape, content_type = "application/problem+json"),
    )
)]
async fn submit(
    State(app): State<App>,
    caller: Caller,
    At(id): At<RecordId>,
    Given(Nothing {}): Given<Nothing>,
) -> Result<Response, Problem> {
    fire(&app, &caller, id, "submit").await
}

/// Cancel a job
///
/// One that waits has failed at once, as `cancelled`. One that runs is asked to stop: it goes on running until its worker has heard of
/// it, and if the worker is done first, it has succeeded. 409 where it has come to its end.
#[utoipa::path(
    post, path = "/document/jobs/{id}/cancel", tag = "document",
    params(("id" = String, Path, format = Uuid, description = "The job's id")),
    request_body = Nothing,
    responses(
        (status = 200, description = "Cancelled, or asked to stop", body = JobShape),
        (status = 409, description = "Refused", body = ProblemShape, content_type = "application/problem+json"),
    )
)]
async fn cancel(
    State(app): State<App>,
    caller: Caller,
    At(id): At<RecordId>,
    Given(Nothing {}): Given<Nothing>,
) -> Result<Response, Problem> {
    fire(&app, &caller, id, "cancel").await
}

/// The result of a job
///
/// What its worker has committed, as it is: bytes as bytes, a text as text, anything else as JSON; an empty body where there was nothing to
/// say. 404 as long as there is none.
#[utoipa::path(
    get, path = "/document/jobs/{id}/result", tag = "document",
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
async fn result(State(app): State<App>, caller: Caller, At(id): At<RecordId>) -> Result<Response, Problem> {
    job(&app, &caller, id).await?;
    let effect = app.engine().effect(&caller.actor, id).await?.ok_or_else(Problem::not_found)?;
    as_it_is(&effect)
}
