//! API keys as a store keeps them. The store keeps only the hash of a key's secret. The log keeps a hash of that hash,
//! so that `verify` can compare keys.

use std::fmt;
use std::sync::Arc;

use onceward_core::hex;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::log::{NewLogEntry, Sha256Hash, api_key_entry};

/// An API key: live, expired or revoked.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Public: part of the key's text, of lists and of the log.
    pub id: Arc<str>,
    /// SHA-256 of the secret.
    pub hash: Sha256Hash,
    /// The key's owner: `actor.id` of every call made with it.
    pub owner: Arc<str>,
    pub roles: Vec<Arc<str>>,
    /// The lifecycles that a worker may lease from with this key; `None` means all.
    pub lifecycles: Option<Vec<Arc<str>>>,
    /// Display name.
    pub name: Arc<str>,
    pub created_at: Time,
    pub expires_at: Option<Time>,
    pub revoked_at: Option<Time>,
}

impl ApiKey {
    /// Returns whether the key is neither revoked nor expired.
    pub fn is_live(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    /// Returns the part of the key that the log stores.
    fn to_logged(&self) -> LoggedApiKey {
        LoggedApiKey {
            id: Arc::clone(&self.id),
            hash_digest: Sha256::digest(self.hash).into(),
            owner: Arc::clone(&self.owner),
            roles: self.roles.clone(),
            lifecycles: self.lifecycles.clone(),
            name: Arc::clone(&self.name),
            expires_at: self.expires_at,
        }
    }
}

/// Omits the hash, so that it never appears in logs.
impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("id", &self.id)
            .field("owner", &self.owner)
            .field("roles", &self.roles)
            .field("revoked_at", &self.revoked_at)
            .finish_non_exhaustive()
    }
}

/// All API keys of a store, oldest first.
#[derive(Clone, Debug, Default)]
pub struct ApiKeySet {
    /// Number of changes so far. An edit is saved only if this number is still the one it was computed from.
    pub revision: u64,
    pub keys: Vec<ApiKey>,
}

/// A change of the API keys.
#[derive(Clone, Debug)]
pub struct ApiKeyEdit {
    pub actor: Actor,
    /// [`ApiKeySet::revision`] from which the edit was computed.
    pub expected_revision: u64,
    pub now: Time,
    /// A key created at `now`.
    pub created: Option<ApiKey>,
    /// Id of a key revoked at `now`.
    pub revoked: Option<Arc<str>>,
    /// Ids of revoked or expired keys to delete.
    pub deleted: Vec<Arc<str>>,
}

impl ApiKeyEdit {
    pub(crate) fn log_entry(&self) -> Result<NewLogEntry, StoreError> {
        let change = ApiKeyChange {
            actor: self.actor.clone(),
            created: self.created.as_ref().map(ApiKey::to_logged),
            revoked: self.revoked.clone(),
            deleted: self.deleted.clone(),
        };
        api_key_entry(&change, self.now)
    }
}

/// Result of [`Store::edit_api_keys`](crate::Store::edit_api_keys).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiKeySaveResult {
    /// The edit is durable; its log entry has this seq.
    Saved(u64),
    /// Nothing was written: the keys changed since `expected_revision`.
    Conflict,
}

/// A change of the API keys as the log stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyChange {
    pub actor: Actor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<LoggedApiKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<Arc<str>>,
}

/// A new API key as the log stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedApiKey {
    pub id: Arc<str>,
    /// SHA-256 of the stored hash, so that the log reveals neither the secret nor its hash.
    #[serde(with = "hex::hash")]
    pub hash_digest: Sha256Hash,
    pub owner: Arc<str>,
    pub roles: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycles: Option<Vec<Arc<str>>>,
    pub name: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// An API key as rebuilt from the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayedApiKey {
    pub key: LoggedApiKey,
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Time>,
}

impl ReplayedApiKey {
    pub(crate) fn from_stored(key: &ApiKey) -> Self {
        Self { key: key.to_logged(), created_at: key.created_at, revoked_at: key.revoked_at }
    }

    /// Returns whether the key was neither revoked nor expired at that time.
    pub(crate) fn was_live_at(&self, at: Time) -> bool {
        self.revoked_at.is_none() && self.key.expires_at.is_none_or(|end| at < end)
    }
}

/// Encodes a list of names as JSON for one column.
pub(crate) fn write_names(names: &[Arc<str>]) -> Result<String, StoreError> {
    serde_json::to_string(names).map_err(|error| StoreError::Rejected(error.to_string()))
}

pub(crate) fn read_names(text: &str) -> Result<Vec<Arc<str>>, StoreError> {
    serde_json::from_str(text)
        .map_err(|error| StoreError::corrupt(format!("the roles or lifecycles of an API key are unreadable: {error}")))
}
