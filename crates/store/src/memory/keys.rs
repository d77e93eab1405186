//! API keys in the reference model.

use std::sync::Arc;

use super::kept::Kept;
use crate::api_keys::{KeyEdit, KeySave};
use crate::error::StoreError;

impl Kept {
    pub(super) fn edit_keys(&mut self, edit: &KeyEdit) -> Result<KeySave, StoreError> {
        if self.keys.changes != edit.since {
            return Ok(KeySave::Conflict);
        }
        let keys = &mut self.keys.keys;
        if let Some(made) = &edit.made
            && keys.iter().any(|key| key.id == made.id || key.hash == made.hash)
        {
            return Err(StoreError::Rejected("an API key of this id or this secret exists already".to_owned()));
        }
        let entry = edit.entry()?;
        keys.retain(|key| !edit.forgotten.contains(&key.id));
        if let Some(key) = keys.iter_mut().find(|key| Some(&key.id) == edit.revoked.as_ref()) {
            key.revoked_at = Some(edit.now);
        }
        keys.extend(edit.made.clone());
        keys.sort_by_key(|key| (key.created_at, Arc::clone(&key.id)));
        self.keys.changes += 1;
        let seq = self.last() + 1;
        self.log.push(entry.at(seq));
        Ok(KeySave::Saved(seq))
    }
}
