//! Computes the hash that identifies a version of a lifecycle.

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::model::Lifecycle;

/// Returns the SHA-256 of the compiled lifecycle's JSON, in hex.
///
/// The hash covers everything that changes the meaning of the file. It does not cover comments, spacing, spans, source
/// texts, `about` and `rules`.
pub(super) fn lifecycle_hash(lifecycle: &Lifecycle) -> Result<Arc<str>, serde_json::Error> {
    let digest = Sha256::digest(serde_json::to_vec(lifecycle)?);
    let mut hex = String::with_capacity(64);
    for byte in digest {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex.into())
}
