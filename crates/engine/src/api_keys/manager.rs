//! Making, listing and revoking keys, and telling who calls.
//!
//! All keys are kept at hand, so that a request need not wait for the store to be let in. What is at hand is trusted for a
//! second: then the store is asked whether it has changed, so that a key that another process has revoked is let in no longer than
//! that. Where the store does not answer, nobody is let in.
//!
//! Some calls go on for long: they wait, or follow the log. [`ApiKeys::watch`] looks at the keys once a second for all of them, so that
//! such a call ends with the key that began it.

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

/// How long what is at hand is trusted.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// Keys that are kept, live or dead. One more takes the place of the one that died first.
const MAX_API_KEYS: usize = 10_000;

/// Changes that others made first, before giving up.
const MAX_EDIT_CONFLICTS: usize = 100;

/// What is known of the keys of one store.
#[derive(Debug, Default)]
pub struct ApiKeyCache {
    cached: RwLock<Option<CachedKeyring>>,
    /// Whoever asks the store asks for all.
    refresh_lock: Mutex<()>,
    /// What the last look at the keys came to; told to those who wait where a key came or died.
    status: watch::Sender<ApiKeyStatus>,
}

/// The keys at one moment, as far as calls that go on need to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ApiKeyStatus {
    observed_at: Option<Time>,
    revision: u64,
    live_keys: usize,
}

#[derive(Clone, Debug)]
struct CachedKeyring {
    keyring: Arc<Keyring>,
    /// When the store was last asked.
    fetched_at: Instant,
}

impl ApiKeyCache {
    fn cached(&self) -> Option<CachedKeyring> {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fresh_keyring(&self) -> Option<Arc<Keyring>> {
        self.cached().filter(|known| known.fetched_at.elapsed() < CACHE_TTL).map(|known| known.keyring)
    }

    fn set_cached(&self, cached: Option<CachedKeyring>) {
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = cached;
    }
}

/// A key that lets nobody in any more, and who is left to look after the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedApiKey {
    pub key: ApiKey,
    /// Keys of operators that were let in the moment after. With none, only who has the database makes another.
    pub operators_left: usize,
}

/// The keys of a store.
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
    /// Without an engine: for a database that none has open.
    pub fn on_store(store: &'a S, cache: &'a ApiKeyCache) -> Self {
        Self { store, cache, notifier: None }
    }

    /// Whether there was ever a key. From then on everybody needs one, also when all are revoked.
    pub async fn is_auth_required(&self) -> Result<bool, EngineError> {
        Ok(self.current_keyring().await?.revision > 0)
    }

    /// Who calls with this key. What is no key, is not known, was revoked or has expired is all the same.
    pub async fn authenticate(&self, text: &str) -> Result<Identity, EngineError> {
        let text = PlainApiKey::parse(text).ok_or(EngineError::Unauthorized)?;
        let keyring = self.current_keyring().await?;
        let now = self.store.now().await?;
        keyring.identify(&text, now).ok_or(EngineError::Unauthorized)
    }

    /// Whether whoever was let in would be let in again, as far as is known here without asking the store.
    pub fn is_still_valid(&self, identity: &Identity) -> bool {
        // Unknown for a moment after a change: whoever watches looks again at once.
        let (Some(known), at) = (self.cache.cached(), self.cache.status.borrow().observed_at) else { return true };
        match &identity.api_key_id {
            None => known.keyring.revision == 0,
            Some(key) => known.keyring.is_live(key, at),
        }
    }

    /// Comes when this caller is let in no longer: its key was revoked or has expired, or it came without one and by now one is asked for.
    /// Somebody must [`watch`](Self::watch).
    pub async fn wait_until_invalid(&self, identity: &Identity) {
        let mut status = self.cache.status.subscribe();
        loop {
            status.borrow_and_update();
            if !self.is_still_valid(identity) {
                return;
            }
            // Its sender lives as long as the desk.
            let _ = status.changed().await;
        }
    }

    /// Look at the keys every second, until this is dropped: for calls that go on.
    pub async fn watch_changes(&self) {
        loop {
            // Where the store fails, it is asked again: meanwhile nobody new is let in.
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
        // Leases that wait look up.
        if let Some(notifier) = self.notifier.filter(|_| has_changed) {
            notifier.wake_all();
        }
        Ok(())
    }

    /// All keys, the oldest first, live or not. For operators.
    pub async fn list(&self, actor: &Actor) -> Result<Vec<ApiKey>, EngineError> {
        require_operator(actor)?;
        Ok(self.store.api_keys().await?.keys)
    }

    /// Make a key. Its text is nowhere else: whoever loses it makes another.
    pub async fn create(&self, actor: &Actor, new_key: NewApiKey) -> Result<(ApiKey, PlainApiKey), EngineError> {
        require_operator(actor)?;
        let new_key = new_key.validated(self.store.now().await?, &self.lifecycle_roles().await?)?;
        let text = PlainApiKey::generate()?;
        let create_edit = |kept: ApiKeySet, now: Time| {
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
            let removed = keys_to_remove(&kept.keys, now)?;
            Ok(Some(ApiKeyEdit { created: Some(key), deleted: removed, ..new_edit(actor, &kept, now) }))
        };
        let edit = self.save_edit(create_edit).await?;
        let key = edit.and_then(|edit| edit.created.clone()).ok_or(EngineError::Undecided)?;
        Ok((key, text))
    }

    /// Roles that are neither ours nor named by any lifecycle yet: with such a one alone a key does what a producer's does. Where there are
    /// no lifecycles at all, as before a first start, nothing can be said.
    pub async fn unknown_roles(&self, roles: &[Arc<str>]) -> Result<Vec<Arc<str>>, EngineError> {
        if self.store.catalog().await?.definitions.lifecycles.is_empty() {
            return Ok(Vec::new());
        }
        Ok(unknown_roles(roles, &self.lifecycle_roles().await?).cloned().collect())
    }

    /// The roles that lifecycles ask for.
    async fn lifecycle_roles(&self) -> Result<BTreeSet<Arc<str>>, EngineError> {
        let catalog = self.store.catalog().await?;
        Ok(catalog.definitions.lifecycles.values().flat_map(|lifecycle| lifecycle.referenced_roles()).collect())
    }

    /// Let nobody in with a key any more: at once in this process, within a second in others. Once revoked, it stays so.
    pub async fn revoke(&self, actor: &Actor, id: &str) -> Result<RevokedApiKey, EngineError> {
        require_operator(actor)?;
        let mut found = None;
        let revoke_edit = |kept: ApiKeySet, now: Time| {
            let Some(key) = kept.keys.iter().find(|key| *key.id == *id) else {
                return Err(EngineError::ApiKeyNotFound);
            };
            // Counted on the very keys that the change is worked out on: of two who revoke each other's key at once, the later one is told.
            let others = kept.keys.iter().filter(|other| *other.id != *id && other.is_live(now));
            let operators_left =
                others.filter(|other| Identity::from_api_key(other).require_operator().is_ok()).count();
            if key.revoked_at.is_some() {
                found = Some(RevokedApiKey { key: key.clone(), operators_left });
                return Ok(None);
            }
            let revoked_key = ApiKey { revoked_at: Some(now), ..key.clone() };
            found = Some(RevokedApiKey { key: revoked_key, operators_left });
            Ok(Some(ApiKeyEdit { revoked: Some(Arc::clone(&key.id)), ..new_edit(actor, &kept, now) }))
        };
        self.save_edit(revoke_edit).await?;
        found.ok_or(EngineError::ApiKeyNotFound)
    }

    /// Work a change out on the keys as they are, and save it if they still are so.
    async fn save_edit(
        &self,
        mut change: impl FnMut(ApiKeySet, Time) -> Result<Option<ApiKeyEdit>, EngineError>,
    ) -> Result<Option<Arc<ApiKeyEdit>>, EngineError> {
        for _ in 0..MAX_EDIT_CONFLICTS {
            let (key_set, now) = (self.store.api_keys().await?, self.store.now().await?);
            let Some(edit) = change(key_set, now)? else { return Ok(None) };
            let edit = Arc::new(edit);
            let save_result = self.store.edit_api_keys(&edit).await;
            // Whatever became of it: what is at hand may be wrong now, and whoever is let in from here on is looked up anew.
            let refresh_guard = self.cache.refresh_lock.lock().await;
            self.cache.set_cached(None);
            drop(refresh_guard);
            match save_result? {
                ApiKeySaveResult::Saved(seq) => {
                    // It is saved, whatever becomes of the look: then others look. Before anybody reads of it in the log: whoever follows that
                    // without a right to it any more is not told of what ended it.
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

    /// The keys as they were at most a second ago.
    async fn current_keyring(&self) -> Result<Arc<Keyring>, EngineError> {
        if let Some(ring) = self.cache.fresh_keyring() {
            return Ok(ring);
        }
        let _refresh_guard = self.cache.refresh_lock.lock().await;
        // Somebody may have asked meanwhile.
        if let Some(ring) = self.cache.fresh_keyring() {
            return Ok(ring);
        }
        // Before asking: what changes after it is found the next time.
        let fetched_at = Instant::now();
        let cached = self.cache.cached().map(|known| known.keyring);
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

/// Who makes room for one more key: those that are dead, the first of them first.
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
