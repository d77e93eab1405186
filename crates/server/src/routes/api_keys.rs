//! API keys: for operators.

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
use crate::extract::{JsonBody, PathParams, QueryParams, parse_limit};
use crate::problem::Problem;
use crate::response::{Rfc3339, json_ok, json_response};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(list, create)).routes(routes!(revoke))
}

/// A role's name, or a lifecycle's; no role is called `engine`.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,100}$")]
#[expect(dead_code, reason = "its shape stands in the contract")]
pub(crate) struct RoleOrLifecycleName(String);

/// A key that is to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewApiKeyBody {
    /// Whose records are seen and made with it; not `engine`.
    #[schema(value_type = String, min_length = 1, max_length = 1000, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$")]
    owner: Arc<str>,
    /// operator, producer, worker, viewer, metrics, or a role that a lifecycle names.
    #[schema(value_type = Vec<RoleOrLifecycleName>, min_items = 1, max_items = 100)]
    roles: Vec<Arc<str>>,
    /// The lifecycles that a worker may lease from with it, and for a worker only; all of them where none are named.
    #[serde(default)]
    #[schema(value_type = Vec<RoleOrLifecycleName>, max_items = 100)]
    lifecycles: Vec<Arc<str>>,
    /// What people call it.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 100, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    name: Option<Arc<str>>,
    /// From then on it is not let in.
    #[serde(default)]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// An API key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub(crate) struct ApiKeyJson<'a> {
    id: &'a str,
    owner: &'a str,
    #[schema(value_type = Vec<String>)]
    roles: &'a [Arc<str>],
    /// The lifecycles that a worker may lease from with it; null for all of them.
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

/// A new key, with its text: the only time that it is shown.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewApiKeyJson<'a> {
    /// What to send as `Authorization: Bearer …`.
    #[schema(pattern = "^ow_[0-9a-f]{16}_[0-9a-f]{64}$")]
    key: String,
    #[serde(flatten)]
    about: ApiKeyJson<'a>,
    /// Roles of it that are not the server's own and that no lifecycle names yet: a slip, or for a lifecycle to come.
    #[schema(value_type = Vec<String>)]
    unknown_roles: Vec<Arc<str>>,
}

/// A key that was revoked.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RevokedApiKey)]
pub(crate) struct RevokedApiKeyJson<'a> {
    #[serde(flatten)]
    about: ApiKeyJson<'a>,
    /// Keys of operators that are still let in. With 0 nobody makes keys over HTTP any more: `onceward key create --db` does, beside the database.
    operators_left: usize,
}

/// Keys, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKeys)]
pub(crate) struct ApiKeyPageJson<'a> {
    keys: Vec<ApiKeyJson<'a>>,
    /// The `cursor` of the next page.
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ApiKeysParams {
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    #[param(pattern = "^[0-9]{1,18}-[0-9a-f]{16}$")]
    cursor: Option<String>,
}

/// Where a key stands among all.
fn sort_key(key: &ApiKey) -> (i64, &str) {
    (key.created_at.micros(), &key.id)
}

/// Make a key
///
/// Its text is in the answer and nowhere else. An answer that got lost cannot be had again: revoke that key and make another.
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
        Some(Err(_)) => return Err(Problem::bad_input("`expires_at` is a time as in RFC 3339")),
    };
    let NewApiKeyBody { owner, roles, lifecycles, name, .. } = body;
    let new_key = NewApiKey { owner, roles, lifecycles, name: name.unwrap_or_default(), expires_at };
    let engine = app.engine();
    let keys = engine.api_keys();
    let (key, text) = keys.create(&caller.actor, new_key).await?;
    // It is made: whatever becomes of this, it is shown.
    let unknown_roles = keys.unknown_roles(&key.roles).await.unwrap_or_default();
    let shape = NewApiKeyJson { key: text.reveal(), about: ApiKeyJson::new(&key), unknown_roles };
    let mut response = json_response(StatusCode::CREATED, &shape)?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// All keys, live or not
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(ApiKeysParams),
    responses((status = 200, description = "A page of them.", body = ApiKeyPageJson)))]
async fn list(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<ApiKeysParams>,
) -> Result<Response, Problem> {
    let limit = parse_limit(params.limit)?;
    let mut keys = app.engine().api_keys().list(&caller.actor).await?;
    keys.sort_by(|one, other| sort_key(one).cmp(&sort_key(other)));
    // The key itself may be forgotten meanwhile; its place is not.
    let from = match params
        .cursor
        .as_deref()
        .map(|text| text.split_once('-').and_then(|(at, id)| Some((at.parse().ok()?, id))))
    {
        None => 0,
        Some(Some(last)) => keys.partition_point(|key| sort_key(key) <= last),
        Some(None) => return Err(Problem::bad_input("`cursor` is the `next` of the page before")),
    };
    let page = keys.iter().skip(from).take(limit);
    let next =
        keys.get(from.saturating_add(limit).saturating_sub(1)).filter(|_| from.saturating_add(limit) < keys.len());
    let next = next.map(|last| format!("{}-{}", last.created_at.micros(), last.id));
    json_ok(&ApiKeyPageJson { keys: page.map(ApiKeyJson::new).collect(), next })
}

/// Revoke a key
///
/// At once in this process, within a second in others on the same database. A key that was revoked before stays as it is. The last
/// operator's key is revoked like any other: `operators_left` tells.
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
