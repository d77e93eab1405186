//! API keys in the replay database.

use onceward_core::hex;

use super::rows::corrupt_row;
use super::{ReplayDatabase, ReplayTable};
use crate::StoreError;
use crate::api_keys::{ApiKeyChange, ReplayedApiKey};
use crate::log::LogEntry;

impl ReplayDatabase {
    pub fn api_key(&self, id: &str) -> Result<Option<ReplayedApiKey>, StoreError> {
        let text = self.find_row(ReplayTable::ApiKey, id)?.and_then(|row| row.value);
        text.map(|text| serde_json::from_str(&text).map_err(corrupt_row)).transpose()
    }

    fn put_api_key(&mut self, id: &str, replayed: &ReplayedApiKey) -> Result<(), StoreError> {
        let text = serde_json::to_string(replayed).map_err(corrupt_row)?;
        self.put_row(ReplayTable::ApiKey, id, Some(&text))
    }

    /// Applies a change and returns its contradictions with earlier entries.
    pub fn apply_api_key_change(&mut self, entry: &LogEntry, change: &ApiKeyChange) -> Result<Vec<String>, StoreError> {
        self.advance_to(entry.seq);
        self.api_keys_revision += 1;
        let mut problems = Vec::new();
        for id in &change.deleted {
            if self.api_key(id)?.is_none_or(|replayed| replayed.was_live_at(entry.at)) {
                problems.push(format!("API key {id} is deleted, but it does not exist or is still live"));
            }
            self.put_row(ReplayTable::ApiKey, id, None)?;
        }
        if let Some(id) = &change.revoked {
            match self.api_key(id)? {
                Some(mut replayed) if replayed.revoked_at.is_none() => {
                    replayed.revoked_at = Some(entry.at);
                    self.put_api_key(id, &replayed)?;
                }
                _ => problems.push(format!("API key {id} is revoked, but it does not exist or was already revoked")),
            }
        }
        if let Some(key) = &change.created {
            if self.find_row(ReplayTable::ApiKey, &key.id)?.is_some() {
                problems.push(format!("API key {} is created a second time", key.id));
            }
            let digest = hex::encode(&key.hash_digest);
            if let Some(other) = self.find_row(ReplayTable::ApiKeyDigest, &digest)?.and_then(|row| row.value) {
                problems.push(format!("API key {} has the same secret as API key {other}", key.id));
            }
            self.put_row(ReplayTable::ApiKeyDigest, &digest, Some(&key.id))?;
            self.put_api_key(&key.id, &ReplayedApiKey { key: key.clone(), created_at: entry.at, revoked_at: None })?;
        }
        Ok(problems)
    }
}
