//! A cache of the records that this process saved. A job that was just created or leased is often read next, usually
//! unchanged by other processes. If it was changed, the save detects that, as for any loaded value. A refusal is not
//! validated by a save, so it is decided again on values from the database.
//!
//! While other processes write, nothing is cached, because a stale value costs a whole batch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::decide::ReadKey;
use onceward_core::record::Record;

use crate::read_set::{ReadSet, RecordMeta};
use crate::record_cache::RecordCache;

/// After this time without a notification from another process, this process counts as the sole writer.
const SOLE_WRITER_DELAY: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct SoleWriterCache(Mutex<SoleWriterState>);

#[derive(Debug, Default)]
struct SoleWriterState {
    records: RecordCache,
    /// Number of notifications from other processes so far.
    seen_changes: u64,
    /// When the last one arrived.
    last_change_at: Option<Instant>,
}

impl SoleWriterCache {
    fn lock(&self) -> MutexGuard<'_, SoleWriterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds cached records to the read set, unless other processes are writing.
    pub(super) fn fill(&self, read_set: &mut ReadSet, keys: &[ReadKey], seen_changes: u64) {
        if read_set.bypasses_cache() {
            return;
        }
        let mut state = self.lock();
        if state.seen_changes != seen_changes {
            *state =
                SoleWriterState { seen_changes, last_change_at: Some(Instant::now()), ..SoleWriterState::default() };
        }
        if state.last_change_at.is_some_and(|since| since.elapsed() < SOLE_WRITER_DELAY) {
            return;
        }
        for key in keys {
            if let ReadKey::Record(id) = key
                && read_set.needs_load(key)
                && let Some((stored, record)) = state.records.get(*id)
            {
                read_set.put_cached_record(stored, record);
            }
        }
    }

    /// Caches saved records.
    pub(super) fn insert_saved(&self, saved: impl Iterator<Item = (RecordMeta, Arc<Record>)>) {
        let records = &mut self.lock().records;
        for (stored, record) in saved {
            // Two saves can arrive here in another order than their commits.
            if records.version(record.id).is_none_or(|version| version <= stored.version) {
                records.put(stored, &record);
            }
        }
    }

    /// Removes records that have changed.
    pub(super) fn invalidate(&self, keys: &[ReadKey]) {
        let records = &mut self.lock().records;
        for key in keys {
            if let ReadKey::Record(id) = key {
                records.remove(*id);
            }
        }
    }

    /// Empties the cache, because the outcome of a save is unknown.
    pub(super) fn clear(&self) {
        self.lock().records.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_cache::tests::test_record;
    use onceward_core::value::RecordId;

    /// Returns the version that a read set gets from the cache.
    fn cached_version(cache: &SoleWriterCache, mut base: ReadSet, key: &ReadKey, seen_changes: u64) -> Option<u64> {
        cache.fill(&mut base, std::slice::from_ref(key), seen_changes);
        let ReadKey::Record(id) = key else { return None };
        let version = base.record_meta(*id).map(|stored| stored.version);
        assert_eq!(base.used_cache(), version.is_some());
        version
    }

    #[test]
    fn cache_returns_newest_saved_version_until_another_process_writes() {
        let cache = SoleWriterCache::default();
        let (first, second) = (test_record(7, 1), test_record(7, 2));
        let key = ReadKey::Record(first.1.id);
        assert_eq!(cached_version(&cache, ReadSet::default(), &key, 0), None);
        cache.insert_saved([second].into_iter());
        cache.insert_saved([first.clone()].into_iter());
        assert_eq!(
            cached_version(&cache, ReadSet::default(), &key, 0),
            Some(2),
            "an older version does not replace a newer one"
        );
        assert_eq!(cached_version(&cache, ReadSet::uncached(), &key, 0), None);
        cache.invalidate(std::slice::from_ref(&key));
        assert_eq!(cached_version(&cache, ReadSet::default(), &key, 0), None);
        cache.insert_saved([first.clone()].into_iter());
        assert_eq!(cached_version(&cache, ReadSet::default(), &key, 1), None, "another writer is active");
        cache.insert_saved([first].into_iter());
        assert_eq!(cached_version(&cache, ReadSet::default(), &key, 1), None, "another writer was active recently");
        cache.clear();
        assert!(cache.lock().records.version(RecordId(uuid::Uuid::from_u128(7))).is_none());
    }
}
