//! A key as its holder has it.

use std::fmt;
use std::sync::Arc;

use onceward_core::hex;
use sha2::{Digest, Sha256};

use crate::error::EngineError;

/// So that programs that look for lost secrets know one when they see it.
const PREFIX: &str = "ow_";

/// Enough that two never meet.
const ID_BYTES: usize = 8;

/// `ow_<id>_<secret>`. The id is public, the secret is 256 bits of chance that nobody else has: a store keeps its hash only.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText {
    id: Arc<str>,
    secret: [u8; 32],
}

impl KeyText {
    /// A new one.
    pub(super) fn chance() -> Result<Self, EngineError> {
        let (mut id, mut secret) = ([0; ID_BYTES], [0; 32]);
        let none = |error: getrandom::Error| EngineError::NoChance(error.to_string());
        getrandom::fill(&mut id).map_err(none)?;
        getrandom::fill(&mut secret).map_err(none)?;
        Ok(Self { id: hex::encode(&id).into(), secret })
    }

    /// What a caller sent. `None` where it cannot be a key at all.
    pub fn read(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        hex::decode::<ID_BYTES>(id)?;
        let secret = hex::decode(secret)?;
        Some(Self { id: id.into(), secret })
    }

    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// One round of SHA-256, and no slow hash with salt: those are for secrets that people choose. Nobody guesses 256 bits,
    /// whatever a guess costs; and a key is looked at with every request (docs/decisions/0106).
    pub(super) fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }

    /// The whole of it, for its holder: nowhere else may it appear.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, hex::encode(&self.secret))
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText({PREFIX}{}_***)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_shown_and_tells_nothing_else() {
        let key = KeyText::chance().expect("chance");
        let shown = key.reveal();
        assert_eq!(shown.len(), 3 + 16 + 1 + 64);
        assert_eq!(KeyText::read(&shown).as_ref(), Some(&key));
        assert_ne!(KeyText::chance().expect("chance"), key);
        let debug = format!("{key:?}");
        assert!(debug.contains(&**key.id()) && !debug.contains(&shown[20..]), "{debug}");
    }

    #[test]
    fn what_is_no_key_is_not_read() {
        let shown = KeyText::chance().expect("chance").reveal();
        let longer = format!("{shown}0");
        let cut = shown.replace("ow_", "");
        let wrong = shown.replace("ow_", "ow_+");
        for text in ["", "ow_", "ow__", "ow_1_2", "Bearer x", &longer, &cut, &wrong, &shown[..79], "ow_\u{e9}_\u{e9}"] {
            assert!(KeyText::read(text).is_none(), "{text}");
        }
    }
}
