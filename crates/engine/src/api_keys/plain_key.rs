//! An API key in plain text.

use std::fmt;
use std::sync::Arc;

use onceward_core::hex;
use sha2::{Digest, Sha256};

use crate::error::EngineError;

/// Lets secret scanners recognize a leaked key.
const API_KEY_PREFIX: &str = "ow_";

/// 64 random bits: ids do not collide.
const ID_BYTES: usize = 8;

/// `ow_<id>_<secret>`. The id is public. The secret is 256 random bits; the store keeps only its hash.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainApiKey {
    id: Arc<str>,
    secret: [u8; 32],
}

impl PlainApiKey {
    pub(super) fn generate() -> Result<Self, EngineError> {
        let (mut id, mut secret) = ([0; ID_BYTES], [0; 32]);
        let random_error = |error: getrandom::Error| EngineError::RandomUnavailable(error.to_string());
        getrandom::fill(&mut id).map_err(random_error)?;
        getrandom::fill(&mut secret).map_err(random_error)?;
        Ok(Self { id: hex::encode(&id).into(), secret })
    }

    /// Parses a key that a caller sent. `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(API_KEY_PREFIX)?.split_once('_')?;
        hex::decode::<ID_BYTES>(id)?;
        let secret = hex::decode(secret)?;
        Some(Self { id: id.into(), secret })
    }

    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// One SHA-256 without salt. Slow hashes protect secrets that people choose; 256 random bits cannot be guessed, and
    /// the hash is computed on every request (docs/decisions/0037).
    pub(super) fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }

    /// Returns the whole key for its holder. It must not appear anywhere else.
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
