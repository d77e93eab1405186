//! Objects that no record has.

use std::sync::Arc;
use std::time::Duration;

use onceward_store::Store;

use super::{Objects, blocking};
use crate::error::EngineError;

/// Hashes that the store is asked about at once.
const ASKED: usize = 500;

/// What was taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub objects: u64,
    pub bytes: u64,
}

/// Take out the objects that no record of the store has and that were brought at least so long ago. Whoever brings an object
/// makes its record soon after, or never; so an old one that nobody has is nobody's.
pub async fn collect<S: Store>(store: &S, objects: &Objects, age: Duration) -> Result<Collected, EngineError> {
    let mut collected = Collected::default();
    for first in 0..=u8::MAX {
        let folder = Arc::clone(&objects.folder);
        let old = blocking(move || folder.old(first, age)).await?;
        for some in old.chunks(ASKED) {
            let hashes: Vec<[u8; 32]> = some.iter().map(|found| found.sha256).collect();
            let had = store.referenced(&hashes).await?;
            for found in some.iter().filter(|found| !had.contains(&found.sha256)) {
                let (folder, sha256) = (Arc::clone(&objects.folder), found.sha256);
                if blocking(move || folder.remove(&sha256, age)).await? {
                    collected.objects += 1;
                    collected.bytes = collected.bytes.saturating_add(found.bytes);
                }
            }
        }
    }
    Ok(collected)
}
