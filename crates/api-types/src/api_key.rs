//! API keys.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The name of a role or a lifecycle. The role `engine` is reserved.
#[cfg(feature = "openapi")]
#[derive(Debug, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,100}$")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct RoleOrLifecycleName(String);

/// An API key to create.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewApiKeyBody {
    /// The owner of the records that the API key creates and sees; not `engine`.
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 1, max_length = 1000, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$")
    )]
    pub owner: String,
    /// `operator`, `producer`, `worker`, `viewer`, `metrics`, or a role that a lifecycle defines.
    #[serde(deserialize_with = "crate::bounded::names")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<RoleOrLifecycleName>, min_items = 1, max_items = 100))]
    pub roles: Vec<String>,
    /// For workers only: the lifecycles that they may lease from. Empty means all.
    #[serde(default, deserialize_with = "crate::bounded::names")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<RoleOrLifecycleName>, max_items = 100))]
    pub lifecycles: Vec<String>,
    /// A label for people.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 100, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"))]
    pub name: Option<String>,
    /// When the API key becomes invalid.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub expires_at: Option<String>,
}

/// An API key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiKey {
    pub id: String,
    pub owner: String,
    pub roles: Vec<String>,
    /// The lifecycles that a worker may lease from; null means all.
    pub lifecycles: Option<Vec<String>>,
    pub name: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub expires_at: Option<Timestamp>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub revoked_at: Option<Timestamp>,
}

/// A new API key with its secret. Only this response contains the secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewApiKeyJson {
    /// Send it as `Authorization: Bearer …`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^ow_[0-9a-f]{16}_[0-9a-f]{64}$"))]
    pub key: String,
    #[serde(flatten)]
    pub about: ApiKey,
    /// Roles that neither the server nor any lifecycle defines: a typo, or meant for a future lifecycle.
    pub unknown_roles: Vec<String>,
}

/// A revoked API key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RevokedApiKey {
    #[serde(flatten)]
    pub about: ApiKey,
    /// Number of operators' API keys that are still valid. With 0, API keys can no longer be created over HTTP: run
    /// `onceward key create --db` on the database's machine.
    pub operators_left: usize,
}

/// A page of API keys, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiKeys {
    pub keys: Vec<ApiKey>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}
