//! What a version of a lifecycle is known by.

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::model::Lifecycle;

/// SHA-256, in hex, of the compiled form as JSON. Comments, spacing, places, texts, `about` and `decide_operation` are no part of
/// it; whatever changes what the file means is.
pub(super) fn lifecycle_hash(lifecycle: &Lifecycle) -> Result<Arc<str>, serde_json::Error> {
    let digest = Sha256::digest(serde_json::to_vec(lifecycle)?);
    let mut hex = String::with_capacity(64);
    for byte in digest {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex.into())
}
