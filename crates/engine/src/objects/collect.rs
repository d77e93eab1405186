//! Objects that no record has.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt as _;
use onceward_store::Store;

use super::bucket::Bucket;
use super::folder::{Folder, Found};
use super::trouble::trouble;
use super::{ObjectError, Objects, Place, blocking};
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
/// makes its record soon after, or never; so an old one that nobody has is nobody's. What has a name of a system's own is not
/// looked at.
pub async fn collect<S: Store>(store: &S, objects: &Objects, age: Duration) -> Result<Collected, EngineError> {
    let mut collected = Collected::default();
    match &objects.place {
        Place::Folder(folder) => {
            for first in 0..=u8::MAX {
                let looking = Arc::clone(folder);
                let old = blocking(move || looking.old(first, age)).await?;
                for some in old.chunks(ASKED) {
                    let at = At::Folder(folder, age);
                    at.take_out(store, some, &mut collected).await?;
                }
            }
        }
        Place::Bucket(bucket) => {
            let now = bucket.now().await.map_err(trouble)?;
            bucket.sweep(now, age).await?;
            let mut old = bucket.old(now, age).try_chunks(ASKED);
            while let Some(some) = old.try_next().await.map_err(|stopped| stopped.1)? {
                At::Bucket(bucket, now, age).take_out(store, &some, &mut collected).await?;
            }
        }
    }
    Ok(collected)
}

/// Where, and how old it must be.
enum At<'a> {
    Folder(&'a Arc<Folder>, Duration),
    Bucket(&'a Bucket, SystemTime, Duration),
}

impl At<'_> {
    async fn take_out<S: Store>(
        &self,
        store: &S,
        some: &[Found],
        collected: &mut Collected,
    ) -> Result<(), EngineError> {
        let hashes: Vec<[u8; 32]> = some.iter().map(|found| found.sha256).collect();
        let had = store.referenced(&hashes).await?;
        for found in some.iter().filter(|found| !had.contains(&found.sha256)) {
            if self.remove(found.sha256).await? {
                collected.objects += 1;
                collected.bytes = collected.bytes.saturating_add(found.bytes);
            }
        }
        Ok(())
    }

    async fn remove(&self, sha256: [u8; 32]) -> Result<bool, ObjectError> {
        match self {
            Self::Folder(folder, age) => {
                let (folder, age) = (Arc::clone(folder), *age);
                blocking(move || folder.remove(&sha256, age)).await
            }
            Self::Bucket(bucket, now, age) => bucket.remove(&sha256, *now, *age).await,
        }
    }
}
