//! State that the threads of an SQLite store share.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use onceward_core::decide::ReadKey;

use crate::histogram::Histogram;
use crate::history_skip_index::HistorySkipIndex;
use crate::read_set::ReadSet;
use crate::record_cache::RecordCache;
use crate::symbols::CatalogSnapshot;

/// State that the threads of a store share.
#[derive(Debug)]
pub(super) struct SqliteShared {
    /// Incremented after every commit. Kept in memory, because only this process writes.
    pub(super) generation: AtomicU64,
    pub(super) catalog_snapshot: RwLock<CatalogSnapshot>,
    /// Updated between a commit and the next generation, so that a cached record is never older than the generation.
    pub(super) record_cache: Mutex<RecordCache>,
    /// Latencies of batch commits; nearly all of it is disk time.
    pub(super) commit_latency: Histogram,
    /// Whether the last save took less time than a runtime thread may be blocked.
    pub(super) is_disk_fast: AtomicBool,
    /// Microseconds. No delayed job is due before this time.
    pub(super) earliest_delayed_micros: AtomicI64,
    pub(super) history_index: HistorySkipIndex,
}

impl SqliteShared {
    pub(super) fn current_catalog(&self) -> CatalogSnapshot {
        self.catalog_snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn lock_record_cache(&self) -> MutexGuard<'_, RecordCache> {
        self.record_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds cached records to the read set and returns the other keys. A committed save may not be in the cache yet
    /// although other readers see it, so the read set is marked as having used the cache.
    pub(super) fn fill_from_cache(&self, read_set: &mut ReadSet, keys: &[ReadKey]) -> Vec<ReadKey> {
        if read_set.bypasses_cache() {
            return keys.to_vec();
        }
        let cache = self.lock_record_cache();
        let mut remaining = Vec::new();
        for key in keys {
            match key {
                ReadKey::Record(id) if read_set.needs_load(key) => match cache.get(*id) {
                    Some((stored, record)) => read_set.put_cached_record(stored, record),
                    None => remaining.push(key.clone()),
                },
                other => remaining.push(other.clone()),
            }
        }
        remaining
    }
}
