//! Manages API keys, for operators.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use onceward_api_types as wire;
use onceward_core::time::Time;
use onceward_engine::{NewApiKey, RevokedApiKey};
use onceward_store::ApiKey;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{JsonBody, PathParams, QueryParams, validate_limit};
use crate::problem::Problem;
use crate::response::{json_ok, json_response, texts, timestamp};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(list, create)).routes(routes!(revoke))
}

/// Converts an API key to its JSON form, without its secret.
pub fn api_key_json(key: &ApiKey) -> wire::ApiKey {
    wire::ApiKey {
        id: key.id.to_string(),
        owner: key.owner.to_string(),
        roles: texts(&key.roles),
        lifecycles: key.lifecycles.as_deref().map(texts),
        name: key.name.to_string(),
        created_at: timestamp(key.created_at),
        expires_at: key.expires_at.map(timestamp),
        revoked_at: key.revoked_at.map(timestamp),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ApiKeysParams {
    /// Page size.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9]{1,18}-[0-9a-f]{16}$")]
    cursor: Option<String>,
}

/// Sort order of API keys, also encoded in the cursor.
fn sort_key(key: &ApiKey) -> (i64, &str) {
    (key.created_at.micros(), &key.id)
}

/// Create an API key
///
/// Only this response contains its secret. If the response is lost, revoke the API key and create another.
#[utoipa::path(post, path = "/v1/keys", operation_id = "create_api_key", tag = "keys", request_body = wire::NewApiKeyBody,
    responses((status = 201, description = "The new API key with its secret", body = wire::NewApiKeyJson)))]
async fn create(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(body): JsonBody<wire::NewApiKeyBody>,
) -> Result<Response, Problem> {
    let expires_at = match body.expires_at.as_deref().map(str::parse::<Time>) {
        None => None,
        Some(Ok(time)) => Some(time),
        Some(Err(_)) => {
            return Err(Problem::invalid_input("`expires_at` must be an RFC 3339 time, such as 2030-01-01T00:00:00Z"));
        }
    };
    let names = |names: Vec<String>| names.into_iter().map(Into::into).collect();
    let new_key = NewApiKey {
        owner: body.owner.into(),
        roles: names(body.roles),
        lifecycles: names(body.lifecycles),
        name: body.name.unwrap_or_default().into(),
        expires_at,
    };
    let engine = app.engine();
    let keys = engine.api_keys();
    let (key, text) = keys.create(&caller.actor, new_key).await?;
    // The key exists now, so a failure here must not hide it.
    let unknown_roles = keys.unknown_roles(&key.roles).await.unwrap_or_default();
    let unknown_roles = texts(&unknown_roles);
    let body = wire::NewApiKeyJson { key: text.reveal(), about: api_key_json(&key), unknown_roles };
    let mut response = json_response(StatusCode::CREATED, &body)?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// List API keys
///
/// Includes expired and revoked ones.
#[utoipa::path(get, path = "/v1/keys", operation_id = "list_api_keys", tag = "keys", params(ApiKeysParams),
    responses((status = 200, description = "A page of API keys", body = wire::ApiKeys)))]
async fn list(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<ApiKeysParams>,
) -> Result<Response, Problem> {
    let limit = validate_limit(params.limit)?;
    let mut keys = app.engine().api_keys().list(&caller.actor).await?;
    keys.sort_by(|one, other| sort_key(one).cmp(&sort_key(other)));
    // The cursor contains the sort key, so paging works even if that API key was deleted.
    let from = match params
        .cursor
        .as_deref()
        .map(|text| text.split_once('-').and_then(|(at, id)| Some((at.parse().ok()?, id))))
    {
        None => 0,
        Some(Some(last)) => keys.partition_point(|key| sort_key(key) <= last),
        Some(None) => return Err(Problem::invalid_input("`cursor` must be the `next` of the previous page")),
    };
    let page = keys.iter().skip(from).take(limit);
    let next =
        keys.get(from.saturating_add(limit).saturating_sub(1)).filter(|_| from.saturating_add(limit) < keys.len());
    let next = next.map(|last| format!("{}-{}", last.created_at.micros(), last.id));
    json_ok(&wire::ApiKeys { keys: page.map(api_key_json).collect(), next })
}

/// Revoke an API key
///
/// Effective immediately in this process, and within a second in other processes on the same database. Revoking
/// again changes nothing. The last operator's API key can be revoked, too: see `operators_left`.
#[utoipa::path(delete, path = "/v1/keys/{id}", operation_id = "revoke_api_key", tag = "keys",
    params(("id" = String, Path, description = "Id of the API key")),
    responses((status = 200, description = "The revoked API key", body = wire::RevokedApiKey)))]
async fn revoke(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<String>,
) -> Result<Response, Problem> {
    let RevokedApiKey { key, operators_left } = app.engine().api_keys().revoke(&caller.actor, &id).await?;
    json_ok(&wire::RevokedApiKey { about: api_key_json(&key), operators_left })
}
