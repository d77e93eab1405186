//! An in-memory index of all API keys.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::time::Time;
use onceward_store::{ApiKey, ApiKeySet};
use subtle::ConstantTimeEq as _;

use super::identity::Identity;
use super::plain_key::PlainApiKey;
use crate::error::EngineError;

/// The API keys at one revision.
#[derive(Debug, Default)]
pub(super) struct Keyring {
    pub(super) revision: u64,
    entries: HashMap<Arc<str>, KeyringEntry>,
}

#[derive(Debug)]
struct KeyringEntry {
    key: ApiKey,
    identity: Identity,
}

impl Keyring {
    /// INV-8: an id and a secret belong to one key each, and no key is named `engine`. The database enforces it too;
    /// the engine refuses a damaged one.
    pub(super) fn from_key_set(key_set: ApiKeySet) -> Result<Self, EngineError> {
        let mut keyring = Self { revision: key_set.revision, entries: HashMap::new() };
        let mut secrets = HashMap::new();
        for key in key_set.keys {
            if let Some(other_id) = secrets.insert(key.hash, Arc::clone(&key.id)) {
                return Err(EngineError::ApiKeysInconsistent(format!(
                    "API keys {other_id} and {} have the same secret",
                    key.id
                )));
            }
            let is_engine = |name: &Arc<str>| **name == *"engine";
            if is_engine(&key.owner) || key.roles.iter().any(is_engine) {
                return Err(EngineError::ApiKeysInconsistent(format!(
                    "API key {} has the reserved owner or role `engine`",
                    key.id
                )));
            }
            let (id, identity) = (Arc::clone(&key.id), Identity::from_api_key(&key));
            if keyring.entries.insert(Arc::clone(&id), KeyringEntry { key, identity }).is_some() {
                return Err(EngineError::ApiKeysInconsistent(format!("two API keys have the id {id}")));
            }
        }
        Ok(keyring)
    }

    /// Returns the key with this text. Takes the same time whether the id exists or not.
    pub(super) fn find_key(&self, text: &PlainApiKey) -> Option<&ApiKey> {
        let entry = self.entries.get(text.id());
        let hash = entry.map_or(&[0; 32], |entry| &entry.key.hash);
        let is_match = bool::from(hash.ct_eq(&text.hash()));
        entry.map(|entry| &entry.key).filter(|_| is_match)
    }

    /// Returns the identity of a live key.
    pub(super) fn identify(&self, text: &PlainApiKey, now: Time) -> Option<Identity> {
        let key = self.find_key(text)?;
        if !key.is_live(now) {
            return None;
        }
        self.entries.get(&key.id).map(|held| held.identity.clone())
    }

    /// Returns whether a key is live. Without a time, an expired key counts as live.
    pub(super) fn is_live(&self, id: &str, now: Option<Time>) -> bool {
        let key = self.entries.get(id).map(|held| &held.key);
        key.is_some_and(|key| now.map_or(key.revoked_at.is_none(), |now| key.is_live(now)))
    }

    pub(super) fn live_count(&self, now: Time) -> usize {
        self.entries.values().filter(|held| held.key.is_live(now)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api_key(text: &PlainApiKey, owner: &str) -> ApiKey {
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

    fn keyring_of(keys: Vec<ApiKey>) -> Result<Keyring, EngineError> {
        Keyring::from_key_set(ApiKeySet { revision: 1, keys })
    }

    /// INV-8
    #[test]
    fn duplicate_id_or_secret_or_engine_name_is_rejected() {
        let (one, other) = (PlainApiKey::generate().unwrap(), PlainApiKey::generate().unwrap());
        assert!(keyring_of(vec![api_key(&one, "ann"), api_key(&other, "bob")]).is_ok());
        let same_secret = ApiKey { hash: one.hash(), ..api_key(&other, "bob") };
        let same_id = ApiKey { id: Arc::clone(one.id()), ..api_key(&other, "bob") };
        let engine = api_key(&other, "engine");
        let role = ApiKey { roles: vec!["engine".into()], ..api_key(&other, "bob") };
        for conflicting in [same_secret, same_id, engine, role] {
            let error = keyring_of(vec![api_key(&one, "ann"), conflicting]).expect_err("the keys conflict");
            assert_eq!((error.code(), error.status()), ("api_keys_inconsistent", 500));
        }
    }

    #[test]
    fn identify_requires_matching_secret_and_live_key() {
        let (text, other) = (PlainApiKey::generate().unwrap(), PlainApiKey::generate().unwrap());
        let (now, later) = (Time::from_secs(10), Time::from_secs(20));
        let identify = |key: ApiKey, text: &PlainApiKey, at| {
            keyring_of(vec![key]).unwrap().identify(text, at).map(|identity| identity.actor.id.to_string())
        };
        assert_eq!(identify(api_key(&text, "ann"), &text, now).as_deref(), Some("ann"));
        assert_eq!(identify(api_key(&text, "ann"), &other, now), None);
        let stolen_id = PlainApiKey::parse(&other.reveal().replace(&**other.id(), text.id())).unwrap();
        assert_eq!(identify(api_key(&text, "ann"), &stolen_id, now), None);
        let expiring = ApiKey { expires_at: Some(later), ..api_key(&text, "ann") };
        assert!(identify(expiring.clone(), &text, now).is_some() && identify(expiring, &text, later).is_none());
        let revoked = ApiKey { revoked_at: Some(now), ..api_key(&text, "ann") };
        assert_eq!(identify(revoked, &text, now), None);
    }
}
