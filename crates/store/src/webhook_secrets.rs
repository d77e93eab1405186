//! Secrets that sign deliveries, one per owner. They are not in the log, so neither the log stream nor `verify` shows
//! them.

use std::fmt;

use onceward_core::time::Time;
use sha2::{Digest, Sha256};

/// A secret of 256 random bits. `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WebhookSecret(pub [u8; 32]);

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("WebhookSecret(***)")
    }
}

/// The secrets that sign an owner's deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSecrets {
    pub current: WebhookSecret,
    /// The secret before the last rotation, and the time until which it signs, too.
    pub previous: Option<(WebhookSecret, Time)>,
}

/// Returns a fixed-size key for the table, because owners can be longer than an index row.
pub(crate) fn owner_digest(owner: &str) -> [u8; 32] {
    Sha256::digest(owner.as_bytes()).into()
}
