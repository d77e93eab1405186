//! Reads records, their history, executions, payloads and effects.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onceward_api_types as wire;
use onceward_core::decide::reads_everything;
use onceward_core::record::FencingToken;
use onceward_core::value::RecordId;
use onceward_store::ListQuery;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::capacity::ResponseReservation;
use crate::extract::{self, PathParams, QueryParams};
use crate::known_names;
use crate::problem::Problem;
use crate::response::{
    bytes_response, effect_json, etag_value, execution_json, json_ok, log_entry_json, record_json, record_response,
};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
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
pub(crate) struct RecordsParams {
    /// Only records of this lifecycle
    lifecycle: Option<String>,
    /// Only records in this state
    state: Option<String>,
    /// Only records of this owner
    owner: Option<String>,
    /// Page size; 100 by default
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the previous page
    #[param(pattern = "^[0-9]{1,19}$")]
    cursor: Option<String>,
}

/// List records
///
/// The records that the caller may see, oldest first. 404 if the lifecycle or the state does not exist.
#[utoipa::path(
    get, path = "/v1/records", operation_id = "list_records", tag = "records", params(RecordsParams),
    responses((status = 200, description = "A page of records", body = wire::RecordPage))
)]
async fn list(
    State(app): State<AppState>,
    caller: Caller,
    reservation: ResponseReservation,
    QueryParams(params): QueryParams<RecordsParams>,
) -> Result<Response, Problem> {
    known_names::require_known(&app, params.lifecycle.as_deref(), params.state.as_deref()).await?;
    let query = ListQuery {
        lifecycle: params.lifecycle.map(Into::into),
        state: params.state.map(Into::into),
        owner: params.owner.map(Into::into),
        after: extract::parse_cursor(params.cursor.as_deref())?,
        limit: extract::validate_limit(params.limit)?,
        ..ListQuery::default()
    };
    reservation.reserve_largest().await?;
    let page = app.engine().list(&caller.actor, &query).await?;
    let records = page.records.iter().map(|record| record_json(record)).collect();
    json_ok(&wire::RecordPage { records, next: page.next.map(|next| next.to_string()) })
}

/// Get a record
///
/// Fires due timers first. 304 if `If-None-Match` contains the record's version.
#[utoipa::path(
    get, path = "/v1/records/{id}", operation_id = "get_record", tag = "records",
    params(
        ("id" = String, Path, format = Uuid, description = "Id of the record"),
        ("If-None-Match" = Option<String>, Header, description = "Return the record only if its ETag is not one of these"),
    ),
    responses(
        (status = 200, description = "The record", body = wire::Record, headers(("ETag" = String))),
        (status = 304, description = "The record's ETag is one of `If-None-Match`"),
    )
)]
async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let record = app.engine().get(&caller.actor, id).await?.ok_or_else(Problem::not_found)?;
    if extract::if_none_match_contains(&headers, record.version) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag_value(record.version))]).into_response());
    }
    record_response(StatusCode::OK, &record)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageParams {
    /// Page size; 100 by default
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the previous page
    #[param(pattern = "^[0-9]{1,19}$")]
    cursor: Option<String>,
}

/// Get a record's log
///
/// One entry per operation that changed the record, oldest first.
#[utoipa::path(
    get, path = "/v1/records/{id}/history", operation_id = "get_record_history", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "Id of the record"), PageParams),
    responses((status = 200, description = "A page of log entries", body = wire::HistoryPage))
)]
async fn history(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    reservation: ResponseReservation,
    QueryParams(paging): QueryParams<PageParams>,
) -> Result<Response, Problem> {
    let (limit, after) =
        (extract::validate_limit(paging.limit)?, extract::parse_cursor(paging.cursor.as_deref())?.unwrap_or(0));
    reservation.reserve_largest().await?;
    let page = app.engine().history(&caller.actor, id, after, limit).await?.ok_or_else(Problem::not_found)?;
    let include_transfers = reads_everything(&caller.actor);
    let entries =
        page.entries.iter().map(|entry| log_entry_json(entry, include_transfers)).collect::<Result<_, _>>()?;
    json_ok(&wire::HistoryPage { entries, next: page.next.map(|next| next.to_string()) })
}

/// List a job's executions
///
/// Oldest first.
#[utoipa::path(
    get, path = "/v1/records/{id}/executions", operation_id = "list_record_executions", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "Id of the record"), PageParams),
    responses((status = 200, description = "A page of executions", body = wire::ExecutionPage))
)]
async fn executions(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    QueryParams(paging): QueryParams<PageParams>,
) -> Result<Response, Problem> {
    let (limit, after) =
        (extract::validate_limit(paging.limit)?, extract::parse_cursor(paging.cursor.as_deref())?.unwrap_or(0));
    let page =
        app.engine().executions(&caller.actor, id, FencingToken(after), limit).await?.ok_or_else(Problem::not_found)?;
    let executions = page.executions.iter().map(|execution| execution_json(id, execution)).collect();
    json_ok(&wire::ExecutionPage { executions, next: page.next.map(|next| next.0.to_string()) })
}

/// Get a record's payload
///
/// For the record's owner and the holder of its lease. Up to 256 KB, the content type is `application/json` if the
/// bytes are JSON.
#[utoipa::path(
    get, path = "/v1/records/{id}/payload", operation_id = "get_record_payload", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "Id of the record")),
    responses(
        (status = 200, description = "The payload", content((Vec<u8> = "application/octet-stream"), (serde_json::Value = "application/json"))),
    )
)]
async fn payload(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    reservation: ResponseReservation,
) -> Result<Response, Problem> {
    let not_found =
        || Problem::new(404, "not_found", "the record has no payload, does not exist, or the caller may not read it");
    let payload = app.engine().readable_payload(&caller.actor, id).await?.ok_or_else(not_found)?;
    // The database returns a payload as a whole.
    reservation.reserve(usize::try_from(payload.bytes).unwrap_or(usize::MAX)).await?;
    let reader = app.engine().open_payload(payload).await?.ok_or_else(not_found)?;
    // Object storage returns it in chunks.
    reservation.try_resize(reader.max_buffered_bytes());
    bytes_response(reader, None).await
}

/// Get a job's effect
#[utoipa::path(
    get, path = "/v1/records/{id}/effect", operation_id = "get_record_effect", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "Id of the record")),
    responses((status = 200, description = "The effect", body = wire::Effect))
)]
async fn effect(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
) -> Result<Response, Problem> {
    let not_found = || {
        Problem::new(404, "not_found", "the record has no effect yet, does not exist, or the caller may not read it")
    };
    let effect = app.engine().effect(&caller.actor, id).await?.ok_or_else(not_found)?;
    json_ok(&effect_json(&effect))
}
