//! API keys, as the log tells of them.

use onceward_core::hex;

use super::kept::unreadable;
use super::{Kind, Scratch};
use crate::StoreError;
use crate::api_keys::{KeyChange, KnownKey};
use crate::log::Entry;

impl Scratch {
    pub fn api_key(&self, id: &str) -> Result<Option<KnownKey>, StoreError> {
        let text = self.keyed(Kind::ApiKey, id)?.and_then(|kept| kept.value);
        text.map(|text| serde_json::from_str(&text).map_err(unreadable)).transpose()
    }

    fn put_key(&mut self, id: &str, known: &KnownKey) -> Result<(), StoreError> {
        let text = serde_json::to_string(known).map_err(unreadable)?;
        self.put(Kind::ApiKey, id, Some(&text))
    }

    /// Carry a change over. What cannot be so is told.
    pub fn change_keys(&mut self, entry: &Entry, change: &KeyChange) -> Result<Vec<String>, StoreError> {
        self.pass(entry.seq);
        self.key_changes += 1;
        let mut wrong = Vec::new();
        for id in &change.forgotten {
            if self.api_key(id)?.is_none_or(|known| known.was_live(entry.at)) {
                wrong.push(format!("key {id} is forgotten, and is not there or still live"));
            }
            self.put(Kind::ApiKey, id, None)?;
        }
        if let Some(id) = &change.revoked {
            match self.api_key(id)? {
                Some(mut known) if known.revoked_at.is_none() => {
                    known.revoked_at = Some(entry.at);
                    self.put_key(id, &known)?;
                }
                _ => wrong.push(format!("key {id} is revoked, and is not there or was revoked before")),
            }
        }
        if let Some(key) = &change.made {
            if self.keyed(Kind::ApiKey, &key.id)?.is_some() {
                wrong.push(format!("key {} is made a second time", key.id));
            }
            let mark = hex::encode(&key.mark);
            if let Some(other) = self.keyed(Kind::KeyMark, &mark)?.and_then(|kept| kept.value) {
                wrong.push(format!("key {} has the secret of key {other}", key.id));
            }
            self.put(Kind::KeyMark, &mark, Some(&key.id))?;
            self.put_key(&key.id, &KnownKey { key: key.clone(), created_at: entry.at, revoked_at: None })?;
        }
        Ok(wrong)
    }
}
