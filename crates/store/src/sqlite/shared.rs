//! What the threads of a store know together.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use onceward_core::decide::ReadKey;

use crate::histogram::Histogram;
use crate::history_skip_index::HistorySkipIndex;
use crate::read_set::ReadSet;
use crate::record_cache::RecordCache;
use crate::symbols::CatalogSnapshot;

/// What all threads of a store share.
#[derive(Debug)]
pub(super) struct SqliteShared {
    /// Raised after every commit. Only this process writes, so it need not outlive it.
    pub(super) generation: AtomicU64,
    pub(super) catalog_snapshot: RwLock<CatalogSnapshot>,
    /// Written between a commit and the next number: what is found there is never older than that number.
    pub(super) record_cache: Mutex<RecordCache>,
    /// How long the commits of batches took: nearly all of it is waiting for the disk.
    pub(super) commit_latency: Histogram,
    /// Whether the last save was done in less time than a runtime's thread may be held up for.
    pub(super) is_disk_fast: AtomicBool,
    /// In microseconds: before it, nobody in `later` is due.
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

    /// Put what was saved lately into the base; the keys that are left to look for. A save that is done and not remembered yet may
    /// be seen by those who look, so a base is told what it has from memory.
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
