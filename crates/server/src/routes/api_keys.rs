//! Manages API keys, for operators.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use onceward_core::time::Time;
use onceward_engine::{NewApiKey, RevokedApiKey};
use onceward_store::ApiKey;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{JsonBody, PathParams, QueryParams, validate_limit};
use crate::problem::Problem;
use crate::response::{Rfc3339, json_ok, json_response};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(list, create)).routes(routes!(revoke))
}

/// The name of a role or a lifecycle. The role `engine` is reserved.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,100}$")]
#[expect(dead_code, reason = "its shape stands in the contract")]
pub(crate) struct RoleOrLifecycleName(String);

/// An API key to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewApiKeyBody {
    /// The owner of the records that the API key creates and sees; not `engine`.
    #[schema(value_type = String, min_length = 1, max_length = 1000, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$")]
    owner: Arc<str>,
    /// `operator`, `producer`, `worker`, `viewer`, `metrics`, or a role that a lifecycle defines.
    #[schema(value_type = Vec<RoleOrLifecycleName>, min_items = 1, max_items = 100)]
    roles: Vec<Arc<str>>,
    /// For workers only: the lifecycles that they may lease from. Empty means all.
    #[serde(default)]
    #[schema(value_type = Vec<RoleOrLifecycleName>, max_items = 100)]
    lifecycles: Vec<Arc<str>>,
    /// A label for people.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 100, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    name: Option<Arc<str>>,
    /// When the API key becomes invalid.
    #[serde(default)]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// An API key without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub(crate) struct ApiKeyJson<'a> {
    id: &'a str,
    owner: &'a str,
    #[schema(value_type = Vec<String>)]
    roles: &'a [Arc<str>],
    /// The lifecycles that a worker may lease from; null means all.
    #[schema(value_type = Option<Vec<String>>)]
    lifecycles: Option<&'a [Arc<str>]>,
    name: &'a str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Rfc3339>,
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Rfc3339>,
}

impl<'a> ApiKeyJson<'a> {
    fn new(key: &'a ApiKey) -> Self {
        Self {
            id: &key.id,
            owner: &key.owner,
            roles: &key.roles,
            lifecycles: key.lifecycles.as_deref(),
            name: &key.name,
            created_at: Rfc3339(key.created_at),
            expires_at: key.expires_at.map(Rfc3339),
            revoked_at: key.revoked_at.map(Rfc3339),
        }
    }
}

/// A new API key with its secret, which is shown only here.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewApiKeyJson<'a> {
    /// Send it as `Authorization: Bearer …`.
    #[schema(pattern = "^ow_[0-9a-f]{16}_[0-9a-f]{64}$")]
    key: String,
    #[serde(flatten)]
    about: ApiKeyJson<'a>,
    /// Roles that neither the server nor any lifecycle defines: a typo, or meant for a future lifecycle.
    #[schema(value_type = Vec<String>)]
    unknown_roles: Vec<Arc<str>>,
}

/// A revoked API key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RevokedApiKey)]
pub(crate) struct RevokedApiKeyJson<'a> {
    #[serde(flatten)]
    about: ApiKeyJson<'a>,
    /// Number of operators' API keys that are still valid. With 0, API keys can no longer be created over HTTP: run
    /// `onceward key create --db` on the database's machine.
    operators_left: usize,
}

/// A page of API keys, oldest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKeys)]
pub(crate) struct ApiKeyPageJson<'a> {
    keys: Vec<ApiKeyJson<'a>>,
    /// Cursor of the next page; null on the last page.
    next: Option<String>,
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
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = NewApiKeyBody,
    responses((status = 201, description = "The key. Its text is shown this once.", body = NewApiKeyJson)))]
async fn create(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(body): JsonBody<NewApiKeyBody>,
) -> Result<Response, Problem> {
    let expires_at = match body.expires_at.as_deref().map(str::parse::<Time>) {
        None => None,
        Some(Ok(time)) => Some(time),
        Some(Err(_)) => return Err(Problem::invalid_input("`expires_at` is a time as in RFC 3339")),
    };
    let NewApiKeyBody { owner, roles, lifecycles, name, .. } = body;
    let new_key = NewApiKey { owner, roles, lifecycles, name: name.unwrap_or_default(), expires_at };
    let engine = app.engine();
    let keys = engine.api_keys();
    let (key, text) = keys.create(&caller.actor, new_key).await?;
    // The key exists now, so a failure here must not hide it.
    let unknown_roles = keys.unknown_roles(&key.roles).await.unwrap_or_default();
    let shape = NewApiKeyJson { key: text.reveal(), about: ApiKeyJson::new(&key), unknown_roles };
    let mut response = json_response(StatusCode::CREATED, &shape)?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// List API keys
///
/// Includes expired and revoked ones.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(ApiKeysParams),
    responses((status = 200, description = "A page of them.", body = ApiKeyPageJson)))]
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
        Some(None) => return Err(Problem::invalid_input("`cursor` is the `next` of the page before")),
    };
    let page = keys.iter().skip(from).take(limit);
    let next =
        keys.get(from.saturating_add(limit).saturating_sub(1)).filter(|_| from.saturating_add(limit) < keys.len());
    let next = next.map(|last| format!("{}-{}", last.created_at.micros(), last.id));
    json_ok(&ApiKeyPageJson { keys: page.map(ApiKeyJson::new).collect(), next })
}

/// Revoke an API key
///
/// Effective immediately in this process, and within a second in other processes on the same database. Revoking
/// again changes nothing. The last operator's API key can be revoked, too: see `operators_left`.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys", params(("id" = String, Path, description = "Of the key.")),
    responses((status = 200, description = "The key, revoked.", body = RevokedApiKeyJson)))]
async fn revoke(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<String>,
) -> Result<Response, Problem> {
    let RevokedApiKey { key, operators_left } = app.engine().api_keys().revoke(&caller.actor, &id).await?;
    json_ok(&RevokedApiKeyJson { about: ApiKeyJson::new(&key), operators_left })
}
