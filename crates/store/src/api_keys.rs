//! API keys as a store keeps them: who may call, and as whom. The secret of a key is nowhere, only its hash is; and the log has
//! not even that, but a hash of the hash, by which `verify` knows the one from another.

use std::fmt;
use std::sync::Arc;

use onceward_core::hex;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::log::{NewLogEntry, Sha256Hash, api_key_entry};

/// One key, live or not.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Public: it stands in the key's text, in lists and in the log.
    pub id: Arc<str>,
    /// SHA-256 of the secret.
    pub hash: Sha256Hash,
    /// Whose key it is: `actor.id` of every call with it.
    pub owner: Arc<str>,
    pub roles: Vec<Arc<str>>,
    /// The lifecycles that a worker may lease from with it; `None` for all of them.
    pub lifecycles: Option<Vec<Arc<str>>>,
    /// What people call it.
    pub name: Arc<str>,
    pub created_at: Time,
    pub expires_at: Option<Time>,
    pub revoked_at: Option<Time>,
}

impl ApiKey {
    /// Whether calls with it are let in.
    pub fn is_live(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    /// What the log tells of it.
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

/// Without the hash: it is of no use to a reader of logs.
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

/// All keys of a store, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct ApiKeySet {
    /// How often they were changed. What was worked out on one number is saved only on the same.
    pub revision: u64,
    pub keys: Vec<ApiKey>,
}

/// One change of the keys.
#[derive(Clone, Debug)]
pub struct ApiKeyEdit {
    /// Who does it.
    pub actor: Actor,
    /// [`ApiKeySet::revision`] when it was worked out.
    pub expected_revision: u64,
    pub now: Time,
    /// A new key, made `now`.
    pub created: Option<ApiKey>,
    /// A key that is revoked `now`.
    pub revoked: Option<Arc<str>>,
    /// Keys that are dead already, and no longer kept.
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

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiKeySaveResult {
    /// Durable; its entry has this place in the log.
    Saved(u64),
    /// Nothing was written: the keys have changed since.
    Conflict,
}

/// What the log tells of a change.
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

/// A new key, by the entry that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedApiKey {
    pub id: Arc<str>,
    /// Of the hash that is kept: whoever reads the log learns neither the secret nor its hash.
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

/// A key as the log tells it.
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

    /// Whether calls with it were let in at that time.
    pub(crate) fn was_live_at(&self, at: Time) -> bool {
        self.revoked_at.is_none() && self.key.expires_at.is_none_or(|end| at < end)
    }
}

/// A list of names in one column.
pub(crate) fn write_names(names: &[Arc<str>]) -> Result<String, StoreError> {
    serde_json::to_string(names).map_err(|error| StoreError::Rejected(error.to_string()))
}

pub(crate) fn read_names(text: &str) -> Result<Vec<Arc<str>>, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::corrupt(format!("the names of an API key: {error}")))
}
