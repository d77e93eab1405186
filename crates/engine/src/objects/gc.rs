//! Garbage collection of objects that no record references.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt as _;
use onceward_store::Store;

use super::bucket::S3Bucket;
use super::errors::to_object_error;
use super::folder::{ObjectFolder, StoredObject};
use super::{ObjectBackend, ObjectStorage, run_blocking};
use crate::error::EngineError;

const MAX_HASHES_PER_QUERY: usize = 500;

/// What garbage collection deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    pub objects: u64,
    pub bytes: u64,
}

impl GcReport {
    fn add(&mut self, object: &StoredObject, is_removed: bool) {
        if is_removed {
            self.objects += 1;
            self.bytes = self.bytes.saturating_add(object.bytes);
        }
    }
}

/// Deletes objects that are at least `min_age` old and that no record references. A record is created soon after its
/// object or never, so an old unreferenced object is an orphan. Named objects are not touched.
pub async fn collect_orphans<S: Store>(
    store: &S,
    storage: &ObjectStorage,
    min_age: Duration,
) -> Result<GcReport, EngineError> {
    let mut report = GcReport::default();
    match &storage.backend {
        ObjectBackend::Folder(folder) => {
            for first in 0..=u8::MAX {
                let folder_clone = Arc::clone(folder);
                let old = run_blocking(move || folder_clone.list_stale(first, min_age)).await?;
                for chunk in old.chunks(MAX_HASHES_PER_QUERY) {
                    let at = GcTarget::Folder(folder, min_age);
                    at.delete_unreferenced(store, chunk, &mut report).await?;
                }
            }
        }
        ObjectBackend::Bucket(bucket) => {
            let now = bucket.now().await.map_err(to_object_error)?;
            bucket.delete_stale_drafts(now, min_age).await?;
            let mut old = bucket.list_stale(now, min_age).try_chunks(MAX_HASHES_PER_QUERY);
            while let Some(chunk) = old.try_next().await.map_err(|stopped| stopped.1)? {
                GcTarget::Bucket(bucket, now, min_age).delete_unreferenced(store, &chunk, &mut report).await?;
            }
        }
    }
    Ok(report)
}

/// The storage, and the minimum age.
enum GcTarget<'a> {
    Folder(&'a Arc<ObjectFolder>, Duration),
    Bucket(&'a S3Bucket, SystemTime, Duration),
}

impl GcTarget<'_> {
    async fn delete_unreferenced<S: Store>(
        &self,
        store: &S,
        candidates: &[StoredObject],
        report: &mut GcReport,
    ) -> Result<(), EngineError> {
        let hashes: Vec<[u8; 32]> = candidates.iter().map(|found| found.sha256).collect();
        let referenced = store.referenced_payloads(&hashes).await?;
        let orphans: Vec<_> = candidates.iter().filter(|found| !referenced.contains(&found.sha256)).collect();
        let mut orphans = orphans.into_iter();
        while !orphans.as_slice().is_empty() {
            self.delete_announced(&mut orphans, report).await?;
        }
        Ok(())
    }

    /// Deletes orphans under one announcement, as many as it covers.
    async fn delete_announced(
        &self,
        orphans: &mut std::vec::IntoIter<&StoredObject>,
        report: &mut GcReport,
    ) -> Result<(), EngineError> {
        match self {
            Self::Folder(folder, age) => {
                for orphan in orphans {
                    let (folder, sha256, age) = (Arc::clone(folder), orphan.sha256, *age);
                    let is_removed = run_blocking(move || folder.remove_if_stale(&sha256, age)).await?;
                    report.add(orphan, is_removed);
                }
            }
            Self::Bucket(bucket, now, age) => {
                let marker = bucket.announce_deletions().await?;
                while !marker.is_expired()
                    && let Some(orphan) = orphans.next()
                {
                    report.add(orphan, bucket.remove_if_stale(&orphan.sha256, *now, *age).await?);
                }
                bucket.end_deletions(marker).await?;
            }
        }
        Ok(())
    }
}
