//! Looking at records: lists, one of them, and what belongs to it.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onceward_core::decide::sees_all;
use onceward_core::record::Token;
use onceward_core::value::RecordId;
use onceward_store::ListQuery;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::Caller;
use crate::input::{self, Asked, At};
use crate::named;
use crate::problem::Problem;
use crate::shape::{EffectShape, EntryShape, ExecutionShape, RecordShape, bytes, etag, ok};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(history))
        .routes(routes!(executions))
        .routes(routes!(payload))
        .routes(routes!(effect))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Listing {
    /// Of this lifecycle
    lifecycle: Option<String>,
    /// In this state
    state: Option<String>,
    /// Of this owner
    owner: Option<String>,
    /// At most so many; 100 where it is left out
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before
    #[param(pattern = "^[0-9]{1,19}$")]
    cursor: Option<String>,
}

/// A page of records. It may have fewer than were asked for, or none, and still have a `next`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Records<'a> {
    records: Vec<RecordShape<'a>>,
    /// Where the next page starts; null on the last.
    next: Option<String>,
}

/// List records
///
/// Those that the caller may see, oldest first. 404 where there is no such lifecycle, or no such state of it.
#[utoipa::path(
    get, path = "/v1/records", tag = "records", params(Listing),
    responses((status = 200, description = "A page of them", body = Records))
)]
async fn list(State(app): State<App>, caller: Caller, Asked(asked): Asked<Listing>) -> Result<Response, Problem> {
    named::must_be_there(&app, asked.lifecycle.as_deref(), asked.state.as_deref()).await?;
    let query = ListQuery {
        lifecycle: asked.lifecycle.map(Into::into),
        state: asked.state.map(Into::into),
        owner: asked.owner.map(Into::into),
        after: input::cursor(asked.cursor.as_deref())?,
        limit: input::limit(asked.limit)?,
        ..ListQuery::default()
    };
    let page = app.engine().list(&caller.actor, &query).await?;
    let records = page.records.iter().map(|record| RecordShape::of(record)).collect();
    ok(&Records { records, next: page.next.map(|next| next.to_string()) })
}

/// Get a record
///
/// As it is now: what is due on it is done first. With `If-None-Match`, 304 where its version is one of those.
#[utoipa::path(
    get, path = "/v1/records/{id}", tag = "records",
    params(
        ("id" = String, Path, format = Uuid, description = "The record's id"),
        ("If-None-Match" = Option<String>, Header, description = "ETags that are known already, or `*`"),
    ),
    responses(
        (status = 200, description = "The record", body = RecordShape, headers(("ETag" = String))),
        (status = 304, description = "Its version is known"),
    )
)]
async fn get(
    State(app): State<App>,
    caller: Caller,
    At(id): At<RecordId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let record = app.engine().get(&caller.actor, id).await?.ok_or_else(Problem::not_found)?;
    if input::is_known(&headers, record.version) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag(record.version))]).into_response());
    }
    RecordShape::answer(StatusCode::OK, &record)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// At most so many; 100 where it is left out
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before
    #[param(pattern = "^[0-9]{1,19}$")]
    cursor: Option<String>,
}

/// A page of a record's log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct History {
    entries: Vec<EntryShape>,
    /// Where the next page starts; null on the last.
    next: Option<String>,
}

/// A record's log
///
/// One entry for each operation that changed it, the first first.
#[utoipa::path(
    get, path = "/v1/records/{id}/history", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "The record's id"), Paging),
    responses((status = 200, description = "A page of it", body = History))
)]
async fn history(
    State(app): State<App>,
    caller: Caller,
    At(id): At<RecordId>,
    Asked(paging): Asked<Paging>,
) -> Result<Response, Problem> {
    let (limit, after) = (input::limit(paging.limit)?, input::cursor(paging.cursor.as_deref())?.unwrap_or(0));
    let page = app.engine().history(&caller.actor, id, after, limit).await?.ok_or_else(Problem::not_found)?;
    let whole = sees_all(&caller.actor);
    let entries = page.entries.iter().map(|entry| EntryShape::of(entry, whole)).collect::<Result<_, _>>()?;
    ok(&History { entries, next: page.next.map(|next| next.to_string()) })
}

/// A page of the attempts at a job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Executions<'a> {
    executions: Vec<ExecutionShape<'a>>,
    /// Where the next page starts; null on the last.
    next: Option<String>,
}

/// The attempts at a job
///
/// The first first.
#[utoipa::path(
    get, path = "/v1/records/{id}/executions", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "The record's id"), Paging),
    responses((status = 200, description = "A page of them", body = Executions))
)]
async fn executions(
    State(app): State<App>,
    caller: Caller,
    At(id): At<RecordId>,
    Asked(paging): Asked<Paging>,
) -> Result<Response, Problem> {
    let (limit, after) = (input::limit(paging.limit)?, input::cursor(paging.cursor.as_deref())?.unwrap_or(0));
    let page = app.engine().executions(&caller.actor, id, Token(after), limit).await?.ok_or_else(Problem::not_found)?;
    let executions = page.executions.iter().map(|execution| ExecutionShape::of(id, execution)).collect();
    ok(&Executions { executions, next: page.next.map(|next| next.0.to_string()) })
}

/// A record's payload
///
/// Its bytes, for the record's owner and for who holds its lease. Up to 256 KB they are said to be JSON where they were
/// given as JSON.
#[utoipa::path(
    get, path = "/v1/records/{id}/payload", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "The record's id")),
    responses(
        (status = 200, description = "The bytes", content((Vec<u8> = "application/octet-stream"), (serde_json::Value = "application/json"))),
    )
)]
async fn payload(State(app): State<App>, caller: Caller, At(id): At<RecordId>) -> Result<Response, Problem> {
    let none = || Problem::new(404, "not_found", "there is no such payload, or it is not for you");
    let reader = app.engine().payload_reader(&caller.actor, id).await?.ok_or_else(none)?;
    bytes(reader, None).await
}

/// What a job's commit left
#[utoipa::path(
    get, path = "/v1/records/{id}/effect", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "The record's id")),
    responses((status = 200, description = "The effect", body = EffectShape))
)]
async fn effect(State(app): State<App>, caller: Caller, At(id): At<RecordId>) -> Result<Response, Problem> {
    let none = || Problem::new(404, "not_found", "nothing was committed, or it is not for you");
    let effect = app.engine().effect(&caller.actor, id).await?.ok_or_else(none)?;
    ok(&EffectShape::of(&effect))
}
