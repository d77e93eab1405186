//! A key as its holder has it.

use std::fmt;
use std::sync::Arc;

use onceward_core::hex;
use sha2::{Digest, Sha256};

use crate::error::EngineError;

/// So that programs that look for lost secrets know one when they see it.
const API_KEY_PREFIX: &str = "ow_";

/// Enough that two never meet.
const ID_BYTES: usize = 8;

/// `ow_<id>_<secret>`. The id is public, the secret is 256 bits of chance that nobody else has: a store keeps its hash only.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainApiKey {
    id: Arc<str>,
    secret: [u8; 32],
}

impl PlainApiKey {
    /// A new one.
    pub(super) fn generate() -> Result<Self, EngineError> {
        let (mut id, mut secret) = ([0; ID_BYTES], [0; 32]);
        let random_error = |error: getrandom::Error| EngineError::RandomUnavailable(error.to_string());
        getrandom::fill(&mut id).map_err(random_error)?;
        getrandom::fill(&mut secret).map_err(random_error)?;
        Ok(Self { id: hex::encode(&id).into(), secret })
    }

    /// What a caller sent. `None` where it cannot be a key at all.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(API_KEY_PREFIX)?.split_once('_')?;
        hex::decode::<ID_BYTES>(id)?;
        let secret = hex::decode(secret)?;
        Some(Self { id: id.into(), secret })
    }

    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// One round of SHA-256, and no slow hash with salt: those are for secrets that people choose. Nobody guesses 256 bits,
    /// whatever a guess costs; and a key is looked at with every request (docs/decisions/0037).
    pub(super) fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }

    /// The whole of it, for its holder: nowhere else may it appear.
    pub fn reveal(&self) -> String {
        format!("{API_KEY_PREFIX}{}_{}", self.id, hex::encode(&self.secret))
    }
}

impl fmt::Debug for PlainApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText({API_KEY_PREFIX}{}_***)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revealed_key_parses_back_and_debug_hides_secret() {
        let key = PlainApiKey::generate().expect("chance");
        let revealed = key.reveal();
        assert_eq!(revealed.len(), 3 + 16 + 1 + 64);
        assert_eq!(PlainApiKey::parse(&revealed).as_ref(), Some(&key));
        assert_ne!(PlainApiKey::generate().expect("chance"), key);
        let debug = format!("{key:?}");
        assert!(debug.contains(&**key.id()) && !debug.contains(&revealed[20..]), "{debug}");
    }

    #[test]
    fn malformed_key_text_is_not_parsed() {
        let revealed = PlainApiKey::generate().expect("chance").reveal();
        let longer = format!("{revealed}0");
        let without_prefix = revealed.replace("ow_", "");
        let bad_id = revealed.replace("ow_", "ow_+");
        for text in [
            "",
            "ow_",
            "ow__",
            "ow_1_2",
            "Bearer x",
            &longer,
            &without_prefix,
            &bad_id,
            &revealed[..79],
            "ow_\u{e9}_\u{e9}",
        ] {
            assert!(PlainApiKey::parse(text).is_none(), "{text}");
        }
    }
}
