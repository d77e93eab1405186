//! Making, listing and revoking keys, and telling who calls.
//!
//! All keys are kept at hand, so that a request need not wait for the store to be let in. What is at hand is trusted for a
//! second: then the store is asked whether it has changed, so that a key that another process has revoked is let in no longer than
//! that. Where the store does not answer, nobody is let in.
//!
//! Some calls go on for long: they wait, or follow the log. [`Keys::watch`] looks at the keys once a second for all of them, so that
//! such a call ends with the key that began it.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_store::{ApiKey, KeptKeys, KeyEdit, KeySave, Store};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep};

use super::asked::{NewKey, unknown};
use super::identity::{Identity, must_be_operator};
use super::ring::Ring;
use super::text::KeyText;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::signals::Signals;

/// How long what is at hand is trusted.
const TRUST: Duration = Duration::from_secs(1);

/// Keys that are kept, live or dead. One more takes the place of the one that died first.
const MOST: usize = 10_000;

/// Changes that others made first, before giving up.
const PATIENCE: usize = 100;

/// What is known of the keys of one store.
#[derive(Debug, Default)]
pub struct KeyDesk {
    known: RwLock<Option<Known>>,
    /// Whoever asks the store asks for all.
    turn: Mutex<()>,
    /// What the last look at the keys came to; told to those who wait where a key came or died.
    looked: watch::Sender<Look>,
}

/// The keys at one moment, as far as calls that go on need to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Look {
    at: Option<Time>,
    changes: u64,
    live: usize,
}

#[derive(Clone, Debug)]
struct Known {
    ring: Arc<Ring>,
    /// When the store was last asked.
    asked: Instant,
}

impl KeyDesk {
    fn known(&self) -> Option<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn trusted(&self) -> Option<Arc<Ring>> {
        self.known().filter(|known| known.asked.elapsed() < TRUST).map(|known| known.ring)
    }

    fn learn(&self, known: Option<Known>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

/// A key that lets nobody in any more, and who is left to look after the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    pub key: ApiKey,
    /// Keys of operators that were let in the moment after. With none, only who has the database makes another.
    pub operators_left: usize,
}

/// The keys of a store.
#[derive(Debug)]
pub struct Keys<'a, S> {
    store: &'a S,
    desk: &'a KeyDesk,
    signals: Option<&'a Signals>,
}

impl<S: Store + 'static> Engine<S> {
    pub fn keys(&self) -> Keys<'_, S> {
        let shared = &*self.shared;
        Keys { store: &shared.store, desk: &shared.keys, signals: Some(&shared.signals) }
    }
}

impl<'a, S: Store> Keys<'a, S> {
    /// Without an engine: for a database that none has open.
    pub fn on(store: &'a S, desk: &'a KeyDesk) -> Self {
        Self { store, desk, signals: None }
    }

    /// Whether there was ever a key. From then on everybody needs one, also when all are revoked.
    pub async fn are_asked_for(&self) -> Result<bool, EngineError> {
        Ok(self.ring().await?.changes > 0)
    }

    /// Who calls with this key. What is no key, is not known, was revoked or has expired is all the same.
    pub async fn authenticate(&self, text: &str) -> Result<Identity, EngineError> {
        let text = KeyText::read(text).ok_or(EngineError::Unauthorized)?;
        let ring = self.ring().await?;
        let now = self.store.now().await?;
        ring.identify(&text, now).ok_or(EngineError::Unauthorized)
    }

    /// Whether whoever was let in would be let in again, as far as is known here without asking the store.
    pub fn still_lets_in(&self, identity: &Identity) -> bool {
        // Unknown for a moment after a change: whoever watches looks again at once.
        let (Some(known), at) = (self.desk.known(), self.desk.looked.borrow().at) else { return true };
        match &identity.key {
            None => known.ring.changes == 0,
            Some(key) => known.ring.is_live(key, at),
        }
    }

    /// Comes when this caller is let in no longer: its key was revoked or has expired, or it came without one and by now one is asked for.
    /// Somebody must [`watch`](Self::watch).
    pub async fn over(&self, identity: &Identity) {
        let mut looked = self.desk.looked.subscribe();
        loop {
            looked.borrow_and_update();
            if !self.still_lets_in(identity) {
                return;
            }
            // Its sender lives as long as the desk.
            let _ = looked.changed().await;
        }
    }

    /// Look at the keys every second, until this is dropped: for calls that go on.
    pub async fn watch(&self) {
        loop {
            // Where the store fails, it is asked again: meanwhile nobody new is let in.
            let _ = self.look().await;
            sleep(TRUST).await;
        }
    }

    async fn look(&self) -> Result<(), EngineError> {
        let (ring, now) = (self.ring().await?, self.store.now().await?);
        let look = Look { at: Some(now), changes: ring.changes, live: ring.live(now) };
        let is_news = self.desk.looked.send_if_modified(|last| {
            let is_news = (last.changes, last.live) != (look.changes, look.live);
            *last = look;
            is_news
        });
        // Leases that wait look up.
        if let Some(signals) = self.signals.filter(|_| is_news) {
            signals.wake_all();
        }
        Ok(())
    }

    /// All keys, the oldest first, live or not. For operators.
    pub async fn list(&self, by: &Actor) -> Result<Vec<ApiKey>, EngineError> {
        must_be_operator(by)?;
        Ok(self.store.keys().await?.keys)
    }

    /// Make a key. Its text is nowhere else: whoever loses it makes another.
    pub async fn create(&self, by: &Actor, asked: NewKey) -> Result<(ApiKey, KeyText), EngineError> {
        must_be_operator(by)?;
        let asked = asked.checked(self.store.now().await?, &self.named().await?)?;
        let text = KeyText::chance()?;
        let made = |kept: KeptKeys, now: Time| {
            let key = ApiKey {
                id: Arc::clone(text.id()),
                hash: text.hash(),
                owner: Arc::clone(&asked.owner),
                roles: asked.roles.clone(),
                lifecycles: (!asked.lifecycles.is_empty()).then(|| asked.lifecycles.clone()),
                name: Arc::clone(&asked.name),
                created_at: now,
                expires_at: asked.expires_at,
                revoked_at: None,
            };
            let forgotten = forgotten(&kept.keys, now)?;
            Ok(Some(KeyEdit { made: Some(key), forgotten, ..edit(by, &kept, now) }))
        };
        let edit = self.edit(made).await?;
        let key = edit.and_then(|edit| edit.made.clone()).ok_or(EngineError::Undecided)?;
        Ok((key, text))
    }

    /// Roles that are neither ours nor named by any lifecycle yet: with such a one alone a key does what a producer's does. Where there are
    /// no lifecycles at all, as before a first start, nothing can be said.
    pub async fn unknown_roles(&self, roles: &[Arc<str>]) -> Result<Vec<Arc<str>>, EngineError> {
        if self.store.definitions().await?.definitions.lifecycles.is_empty() {
            return Ok(Vec::new());
        }
        Ok(unknown(roles, &self.named().await?).cloned().collect())
    }

    /// The roles that lifecycles ask for.
    async fn named(&self) -> Result<BTreeSet<Arc<str>>, EngineError> {
        let catalog = self.store.definitions().await?;
        Ok(catalog.definitions.lifecycles.values().flat_map(|lifecycle| lifecycle.roles()).collect())
    }

    /// Let nobody in with a key any more: at once in this process, within a second in others. Once revoked, it stays so.
    pub async fn revoke(&self, by: &Actor, id: &str) -> Result<Revoked, EngineError> {
        must_be_operator(by)?;
        let mut found = None;
        let revoked = |kept: KeptKeys, now: Time| {
            let Some(key) = kept.keys.iter().find(|key| *key.id == *id) else { return Err(EngineError::NoSuchKey) };
            // Counted on the very keys that the change is worked out on: of two who revoke each other's key at once, the later one is told.
            let others = kept.keys.iter().filter(|other| *other.id != *id && other.is_live(now));
            let operators_left = others.filter(|other| Identity::of(other).must_be_operator().is_ok()).count();
            if key.revoked_at.is_some() {
                found = Some(Revoked { key: key.clone(), operators_left });
                return Ok(None);
            }
            let gone = ApiKey { revoked_at: Some(now), ..key.clone() };
            found = Some(Revoked { key: gone, operators_left });
            Ok(Some(KeyEdit { revoked: Some(Arc::clone(&key.id)), ..edit(by, &kept, now) }))
        };
        self.edit(revoked).await?;
        found.ok_or(EngineError::NoSuchKey)
    }

    /// Work a change out on the keys as they are, and save it if they still are so.
    async fn edit(
        &self,
        mut change: impl FnMut(KeptKeys, Time) -> Result<Option<KeyEdit>, EngineError>,
    ) -> Result<Option<Arc<KeyEdit>>, EngineError> {
        for _ in 0..PATIENCE {
            let (kept, now) = (self.store.keys().await?, self.store.now().await?);
            let Some(edit) = change(kept, now)? else { return Ok(None) };
            let edit = Arc::new(edit);
            let saved = self.store.edit_keys(&edit).await;
            // Whatever became of it: what is at hand may be wrong now, and whoever is let in from here on is looked up anew.
            let turn = self.desk.turn.lock().await;
            self.desk.learn(None);
            drop(turn);
            match saved? {
                KeySave::Saved(place) => {
                    // It is saved, whatever becomes of the look: then others look. Before anybody reads of it in the log: whoever follows that
                    // without a right to it any more is not told of what ended it.
                    let _ = self.look().await;
                    if let Some(signals) = self.signals {
                        signals.logged(place);
                    }
                    return Ok(Some(edit));
                }
                KeySave::Conflict => {}
            }
        }
        Err(EngineError::Contended)
    }

    /// The keys as they were at most a second ago.
    async fn ring(&self) -> Result<Arc<Ring>, EngineError> {
        if let Some(ring) = self.desk.trusted() {
            return Ok(ring);
        }
        let _turn = self.desk.turn.lock().await;
        // Somebody may have asked meanwhile.
        if let Some(ring) = self.desk.trusted() {
            return Ok(ring);
        }
        // Before asking: what changes after it is found the next time.
        let asked = Instant::now();
        let known = self.desk.known().map(|known| known.ring);
        let ring = match known {
            Some(ring) if ring.changes == self.store.key_changes().await? => ring,
            _ => Arc::new(Ring::of(self.store.keys().await?)?),
        };
        self.desk.learn(Some(Known { ring: Arc::clone(&ring), asked }));
        Ok(ring)
    }
}

fn edit(by: &Actor, kept: &KeptKeys, now: Time) -> KeyEdit {
    KeyEdit { actor: by.clone(), since: kept.changes, now, made: None, revoked: None, forgotten: Vec::new() }
}

/// Who makes room for one more key: those that are dead, the first of them first.
fn forgotten(keys: &[ApiKey], now: Time) -> Result<Vec<Arc<str>>, EngineError> {
    let over = (keys.len() + 1).saturating_sub(MOST);
    let mut dead: Vec<&ApiKey> = keys.iter().filter(|key| !key.is_live(now)).collect();
    if dead.len() < over {
        return Err(EngineError::TooManyKeys { most: MOST });
    }
    let died = |key: &&ApiKey| (key.revoked_at.into_iter().chain(key.expires_at).min(), Arc::clone(&key.id));
    dead.sort_by_key(died);
    Ok(dead.into_iter().take(over).map(|key| Arc::clone(&key.id)).collect())
}
