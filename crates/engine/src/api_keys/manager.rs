//! Creates, lists and revokes API keys, and authenticates callers.
//!
//! All keys are cached, so that authentication does not wait for the store. The cache is valid for a second; then the
//! store's revision is compared. So a key that another process revoked works for at most one more second. If the store
//! does not answer, no caller is authenticated.
//!
//! Long calls wait or follow the log. [`ApiKeys::watch_changes`] checks the keys once a second for all of them, so that
//! a call ends when its key does.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_store::{ApiKey, ApiKeyEdit, ApiKeySaveResult, ApiKeySet, Store};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep};

use super::identity::{Identity, require_operator};
use super::keyring::Keyring;
use super::new_key::{NewApiKey, unknown_roles};
use super::plain_key::PlainApiKey;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::notifier::Notifier;

/// Bounds how long a key works after another process revoked it.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// Live and dead keys. If it is reached, a new key replaces the key that died first.
const MAX_API_KEYS: usize = 10_000;

/// Each conflict means that another edit was saved.
const MAX_EDIT_CONFLICTS: usize = 100;

/// The cached API keys of one store.
#[derive(Debug, Default)]
pub struct ApiKeyCache {
    cached: RwLock<Option<CachedKeyring>>,
    /// Only one caller refreshes the cache.
    refresh_lock: Mutex<()>,
    /// Result of the last check; subscribers are notified if a key was created or died.
    status: watch::Sender<ApiKeyStatus>,
}

/// What long calls need to know of the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ApiKeyStatus {
    observed_at: Option<Time>,
    revision: u64,
    live_keys: usize,
}

#[derive(Clone, Debug)]
struct CachedKeyring {
    keyring: Arc<Keyring>,
    /// When the store was last queried.
    fetched_at: Instant,
}

impl ApiKeyCache {
    fn cached(&self) -> Option<CachedKeyring> {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fresh_keyring(&self) -> Option<Arc<Keyring>> {
        self.cached().filter(|cached| cached.fetched_at.elapsed() < CACHE_TTL).map(|cached| cached.keyring)
    }

    fn set_cached(&self, cached: Option<CachedKeyring>) {
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = cached;
    }
}

/// A revoked key, and how many operators remain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedApiKey {
    pub key: ApiKey,
    /// Live operator keys after the revocation. With none, only a user with access to the database can create another.
    pub operators_left: usize,
}

/// The API keys of a store.
#[derive(Debug)]
pub struct ApiKeys<'a, S> {
    store: &'a S,
    cache: &'a ApiKeyCache,
    notifier: Option<&'a Notifier>,
}

impl<S: Store + 'static> Engine<S> {
    pub fn api_keys(&self) -> ApiKeys<'_, S> {
        let shared = &*self.shared;
        ApiKeys { store: &shared.store, cache: &shared.api_keys, notifier: Some(&shared.notifier) }
    }
}

impl<'a, S: Store> ApiKeys<'a, S> {
    /// For a database that no engine has open.
    pub fn on_store(store: &'a S, cache: &'a ApiKeyCache) -> Self {
        Self { store, cache, notifier: None }
    }

    /// Returns whether a key was ever created. From then on every caller needs one, even if all are revoked.
    pub async fn is_auth_required(&self) -> Result<bool, EngineError> {
        Ok(self.current_keyring().await?.revision > 0)
    }

    /// Authenticates a key. A malformed, unknown, revoked or expired key gives the same error.
    pub async fn authenticate(&self, text: &str) -> Result<Identity, EngineError> {
        let text = PlainApiKey::parse(text).ok_or(EngineError::Unauthorized)?;
        let keyring = self.current_keyring().await?;
        let now = self.store.now().await?;
        keyring.identify(&text, now).ok_or(EngineError::Unauthorized)
    }

    /// Returns whether the identity is still valid by the cache, without a query of the store.
    pub fn is_still_valid(&self, identity: &Identity) -> bool {
        // The cache is empty for a moment after an edit; `refresh_status` fills it at once.
        let (Some(cached), at) = (self.cache.cached(), self.cache.status.borrow().observed_at) else { return true };
        match &identity.api_key_id {
            None => cached.keyring.revision == 0,
            Some(key) => cached.keyring.is_live(key, at),
        }
    }

    /// Waits until the identity is invalid: its key was revoked or expired, or it has none and authentication is now
    /// required. Requires a running [`watch_changes`](Self::watch_changes).
    pub async fn wait_until_invalid(&self, identity: &Identity) {
        let mut status = self.cache.status.subscribe();
        loop {
            status.borrow_and_update();
            if !self.is_still_valid(identity) {
                return;
            }
            // The sender lives as long as the cache.
            let _ = status.changed().await;
        }
    }

    /// Checks the keys every second until dropped, for long calls.
    pub async fn watch_changes(&self) {
        loop {
            // If the store fails, the next check retries; until then no new caller is authenticated.
            let _ = self.refresh_status().await;
            sleep(CACHE_TTL).await;
        }
    }

    async fn refresh_status(&self) -> Result<(), EngineError> {
        let (keyring, now) = (self.current_keyring().await?, self.store.now().await?);
        let status =
            ApiKeyStatus { observed_at: Some(now), revision: keyring.revision, live_keys: keyring.live_count(now) };
        let has_changed = self.cache.status.send_if_modified(|last| {
            let has_changed = (last.revision, last.live_keys) != (status.revision, status.live_keys);
            *last = status;
            has_changed
        });
        // Waiting leases call `keep_waiting` again.
        if let Some(notifier) = self.notifier.filter(|_| has_changed) {
            notifier.wake_all();
        }
        Ok(())
    }

    /// Lists all keys, oldest first, live or not. Requires an operator.
    pub async fn list(&self, actor: &Actor) -> Result<Vec<ApiKey>, EngineError> {
        require_operator(actor)?;
        Ok(self.store.api_keys().await?.keys)
    }

    /// Creates a key. Its text is not stored: if the holder loses it, it cannot be recovered. The first key must have
    /// the role `operator`: it ends open access, and without an operator no caller could create another key.
    pub async fn create(&self, actor: &Actor, new_key: NewApiKey) -> Result<(ApiKey, PlainApiKey), EngineError> {
        require_operator(actor)?;
        let new_key = new_key.validated(self.store.now().await?, &self.lifecycle_roles().await?)?;
        let text = PlainApiKey::generate()?;
        let create_edit = |key_set: ApiKeySet, now: Time| {
            if key_set.revision == 0 && !new_key.roles.iter().any(|role| **role == *"operator") {
                return Err(EngineError::OperatorKeyRequired);
            }
            let key = ApiKey {
                id: Arc::clone(text.id()),
                hash: text.hash(),
                owner: Arc::clone(&new_key.owner),
                roles: new_key.roles.clone(),
                lifecycles: (!new_key.lifecycles.is_empty()).then(|| new_key.lifecycles.clone()),
                name: Arc::clone(&new_key.name),
                created_at: now,
                expires_at: new_key.expires_at,
                revoked_at: None,
            };
            let removed = keys_to_remove(&key_set.keys, now)?;
            Ok(Some(ApiKeyEdit { created: Some(key), deleted: removed, ..new_edit(actor, &key_set, now) }))
        };
        let edit = self.save_edit(create_edit).await?;
        let key = edit.and_then(|edit| edit.created.clone()).ok_or(EngineError::Undecided)?;
        Ok((key, text))
    }

    /// Returns the roles that are neither built in nor named by a lifecycle. A key with only such a role has a
    /// producer's rights. If there are no lifecycles yet, returns none.
    pub async fn unknown_roles(&self, roles: &[Arc<str>]) -> Result<Vec<Arc<str>>, EngineError> {
        if self.store.catalog().await?.definitions.lifecycles.is_empty() {
            return Ok(Vec::new());
        }
        Ok(unknown_roles(roles, &self.lifecycle_roles().await?).cloned().collect())
    }

    /// Returns the roles that lifecycles name.
    async fn lifecycle_roles(&self) -> Result<BTreeSet<Arc<str>>, EngineError> {
        let catalog = self.store.catalog().await?;
        Ok(catalog.definitions.lifecycles.values().flat_map(|lifecycle| lifecycle.referenced_roles()).collect())
    }

    /// Revokes a key: at once in this process, within a second in others. Revocation is permanent.
    pub async fn revoke(&self, actor: &Actor, id: &str) -> Result<RevokedApiKey, EngineError> {
        require_operator(actor)?;
        let mut found = None;
        let revoke_edit = |key_set: ApiKeySet, now: Time| {
            let Some(key) = key_set.keys.iter().find(|key| *key.id == *id) else {
                return Err(EngineError::ApiKeyNotFound);
            };
            // Counted on the key set that the edit is based on. If two operators revoke each other's keys, the later
            // one sees the correct count.
            let others = key_set.keys.iter().filter(|other| *other.id != *id && other.is_live(now));
            let operators_left =
                others.filter(|other| Identity::from_api_key(other).require_operator().is_ok()).count();
            if key.revoked_at.is_some() {
                found = Some(RevokedApiKey { key: key.clone(), operators_left });
                return Ok(None);
            }
            let revoked_key = ApiKey { revoked_at: Some(now), ..key.clone() };
            found = Some(RevokedApiKey { key: revoked_key, operators_left });
            Ok(Some(ApiKeyEdit { revoked: Some(Arc::clone(&key.id)), ..new_edit(actor, &key_set, now) }))
        };
        self.save_edit(revoke_edit).await?;
        found.ok_or(EngineError::ApiKeyNotFound)
    }

    /// Computes an edit on the current keys, and saves it if they are unchanged; retries on conflict.
    async fn save_edit(
        &self,
        mut change: impl FnMut(ApiKeySet, Time) -> Result<Option<ApiKeyEdit>, EngineError>,
    ) -> Result<Option<Arc<ApiKeyEdit>>, EngineError> {
        for _ in 0..MAX_EDIT_CONFLICTS {
            let (key_set, now) = (self.store.api_keys().await?, self.store.now().await?);
            let Some(edit) = change(key_set, now)? else { return Ok(None) };
            let edit = Arc::new(edit);
            let save_result = self.store.edit_api_keys(&edit).await;
            // Even after an error the cache may be stale: the next caller must query the store.
            let refresh_guard = self.cache.refresh_lock.lock().await;
            self.cache.set_cached(None);
            drop(refresh_guard);
            match save_result? {
                ApiKeySaveResult::Saved(seq) => {
                    // The edit is saved even if this refresh fails. It comes before the log notification, so that a
                    // stream whose key just died does not show the entry that revoked it.
                    let _ = self.refresh_status().await;
                    if let Some(notifier) = self.notifier {
                        notifier.advance_log(seq);
                    }
                    return Ok(Some(edit));
                }
                ApiKeySaveResult::Conflict => {}
            }
        }
        Err(EngineError::TooManyConflicts)
    }

    /// Returns keys that are at most [`CACHE_TTL`] old.
    async fn current_keyring(&self) -> Result<Arc<Keyring>, EngineError> {
        if let Some(ring) = self.cache.fresh_keyring() {
            return Ok(ring);
        }
        let _refresh_guard = self.cache.refresh_lock.lock().await;
        // Another caller may have refreshed it.
        if let Some(ring) = self.cache.fresh_keyring() {
            return Ok(ring);
        }
        // Taken before the query: a change after it is found by the next refresh.
        let fetched_at = Instant::now();
        let cached = self.cache.cached().map(|cached| cached.keyring);
        let keyring = match cached {
            Some(ring) if ring.revision == self.store.api_keys_revision().await? => ring,
            _ => Arc::new(Keyring::from_key_set(self.store.api_keys().await?)?),
        };
        self.cache.set_cached(Some(CachedKeyring { keyring: Arc::clone(&keyring), fetched_at }));
        Ok(keyring)
    }
}

fn new_edit(actor: &Actor, key_set: &ApiKeySet, now: Time) -> ApiKeyEdit {
    ApiKeyEdit {
        actor: actor.clone(),
        expected_revision: key_set.revision,
        now,
        created: None,
        revoked: None,
        deleted: Vec::new(),
    }
}

/// Returns the dead keys that a new key replaces, oldest first.
fn keys_to_remove(keys: &[ApiKey], now: Time) -> Result<Vec<Arc<str>>, EngineError> {
    let excess = (keys.len() + 1).saturating_sub(MAX_API_KEYS);
    let mut invalid: Vec<&ApiKey> = keys.iter().filter(|key| !key.is_live(now)).collect();
    if invalid.len() < excess {
        return Err(EngineError::TooManyApiKeys { max_keys: MAX_API_KEYS });
    }
    let ended_at = |key: &&ApiKey| (key.revoked_at.into_iter().chain(key.expires_at).min(), Arc::clone(&key.id));
    invalid.sort_by_key(ended_at);
    Ok(invalid.into_iter().take(excess).map(|key| Arc::clone(&key.id)).collect())
}
