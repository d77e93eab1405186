//! All keys at hand.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::time::Time;
use onceward_store::{ApiKey, KeptKeys};
use subtle::ConstantTimeEq as _;

use super::identity::Identity;
use super::text::KeyText;
use crate::error::EngineError;

/// The keys as they were at one moment.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub(super) changes: u64,
    held: HashMap<Arc<str>, Held>,
}

#[derive(Debug)]
struct Held {
    key: ApiKey,
    identity: Identity,
}

impl Ring {
    /// INV-8: an id is one key's, a secret is one key's, and nobody calls himself the engine. The database says so too; but a
    /// server does not start on one that was told otherwise.
    pub(super) fn of(kept: KeptKeys) -> Result<Self, EngineError> {
        let mut ring = Self { changes: kept.changes, held: HashMap::new() };
        let mut secrets = HashMap::new();
        for key in kept.keys {
            if let Some(other) = secrets.insert(key.hash, Arc::clone(&key.id)) {
                return Err(EngineError::KeyClash(format!("the keys {other} and {} have one secret", key.id)));
            }
            let is_engine = |name: &Arc<str>| **name == *"engine";
            if is_engine(&key.owner) || key.roles.iter().any(is_engine) {
                return Err(EngineError::KeyClash(format!(
                    "key {} is the engine's by name, and nobody's may be",
                    key.id
                )));
            }
            let (id, identity) = (Arc::clone(&key.id), Identity::of(&key));
            if ring.held.insert(Arc::clone(&id), Held { key, identity }).is_some() {
                return Err(EngineError::KeyClash(format!("there are two keys {id}")));
            }
        }
        Ok(ring)
    }

    /// Whose key this is. The same is done whether there is such a key or not.
    pub(super) fn find(&self, text: &KeyText) -> Option<&ApiKey> {
        let held = self.held.get(text.id());
        let hash = held.map_or(&[0; 32], |held| &held.key.hash);
        let is_it = bool::from(hash.ct_eq(&text.hash()));
        held.map(|held| &held.key).filter(|_| is_it)
    }

    /// Who calls with it, while it is live.
    pub(super) fn identify(&self, text: &KeyText, now: Time) -> Option<Identity> {
        let key = self.find(text)?;
        if !key.is_live(now) {
            return None;
        }
        self.held.get(&key.id).map(|held| held.identity.clone())
    }

    /// Whether a key is one that is let in; where no time is known, one that has expired is.
    pub(super) fn is_live(&self, id: &str, now: Option<Time>) -> bool {
        let key = self.held.get(id).map(|held| &held.key);
        key.is_some_and(|key| now.map_or(key.revoked_at.is_none(), |now| key.is_live(now)))
    }

    /// How many are.
    pub(super) fn live(&self, now: Time) -> usize {
        self.held.values().filter(|held| held.key.is_live(now)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &KeyText, owner: &str) -> ApiKey {
        ApiKey {
            id: Arc::clone(text.id()),
            hash: text.hash(),
            owner: owner.into(),
            roles: vec!["viewer".into()],
            lifecycles: None,
            name: "".into(),
            created_at: Time::from_secs(0),
            expires_at: None,
            revoked_at: None,
        }
    }

    fn ring(keys: Vec<ApiKey>) -> Result<Ring, EngineError> {
        Ring::of(KeptKeys { changes: 1, keys })
    }

    /// INV-8: two identities with one credential, or two credentials under one name, are refused before anybody is let in.
    #[test]
    fn a_clash_is_refused() {
        let (one, other) = (KeyText::chance().unwrap(), KeyText::chance().unwrap());
        assert!(ring(vec![key(&one, "ann"), key(&other, "bob")]).is_ok());
        let same_secret = ApiKey { hash: one.hash(), ..key(&other, "bob") };
        let same_id = ApiKey { id: Arc::clone(one.id()), ..key(&other, "bob") };
        let engine = key(&other, "engine");
        let role = ApiKey { roles: vec!["engine".into()], ..key(&other, "bob") };
        for wrong in [same_secret, same_id, engine, role] {
            let refused = ring(vec![key(&one, "ann"), wrong]).expect_err("a clash");
            assert_eq!((refused.code(), refused.status()), ("key_clash", 500));
        }
    }

    #[test]
    fn a_key_is_known_by_its_secret_while_it_is_live() {
        let (text, other) = (KeyText::chance().unwrap(), KeyText::chance().unwrap());
        let (now, later) = (Time::from_secs(10), Time::from_secs(20));
        let known = |key: ApiKey, text: &KeyText, at| {
            ring(vec![key]).unwrap().identify(text, at).map(|identity| identity.actor.id.to_string())
        };
        assert_eq!(known(key(&text, "ann"), &text, now).as_deref(), Some("ann"));
        assert_eq!(known(key(&text, "ann"), &other, now), None);
        let stolen_id = KeyText::read(&other.reveal().replace(&**other.id(), text.id())).unwrap();
        assert_eq!(known(key(&text, "ann"), &stolen_id, now), None);
        let ends = ApiKey { expires_at: Some(later), ..key(&text, "ann") };
        assert!(known(ends.clone(), &text, now).is_some() && known(ends, &text, later).is_none());
        let revoked = ApiKey { revoked_at: Some(now), ..key(&text, "ann") };
        assert_eq!(known(revoked, &text, now), None);
    }
}
