//! API keys in the reference model.

use std::sync::Arc;

use super::state::MemoryState;
use crate::api_keys::{ApiKeyEdit, ApiKeySaveResult};
use crate::error::StoreError;

impl MemoryState {
    pub(super) fn edit_api_keys(&mut self, edit: &ApiKeyEdit) -> Result<ApiKeySaveResult, StoreError> {
        if self.api_keys.revision != edit.expected_revision {
            return Ok(ApiKeySaveResult::Conflict);
        }
        let keys = &mut self.api_keys.keys;
        if let Some(made) = &edit.created
            && keys.iter().any(|key| key.id == made.id || key.hash == made.hash)
        {
            return Err(StoreError::Rejected("an API key with the same id or secret exists".to_owned()));
        }
        let entry = edit.log_entry()?;
        keys.retain(|key| !edit.deleted.contains(&key.id));
        if let Some(key) = keys.iter_mut().find(|key| Some(&key.id) == edit.revoked.as_ref()) {
            key.revoked_at = Some(edit.now);
        }
        keys.extend(edit.created.clone());
        keys.sort_by_key(|key| (key.created_at, Arc::clone(&key.id)));
        self.api_keys.revision += 1;
        let seq = self.last_seq() + 1;
        self.log.push(entry.with_seq(seq));
        Ok(ApiKeySaveResult::Saved(seq))
    }
}
