//! A skip index into record histories. Each log entry links to the previous entry of its record, so a store walks a
//! history from its end. Callers, however, read it from the beginning, page by page. A walk remembers the entry id of
//! every 256th version, and the next page starts its walk at the nearest one. All pages together then cost about one
//! walk, not one walk each.
//!
//! Entries never change, so a remembered id stays valid until its entry is pruned. Readers check that the entry still
//! exists.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onceward_core::value::RecordId;

/// Versions between two remembered positions. A walk reads at most this many entries more than needed.
pub(crate) const SKIP_STRIDE: u64 = 256;

/// Far more records than callers page through at the same time.
const MAX_INDEXED_RECORDS: usize = 64;

/// Enough for a million entries per record. Longer histories need an occasional full walk.
const MAX_POSITIONS_PER_RECORD: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct HistorySkipIndex(Mutex<SkipPositions>);

#[derive(Debug, Default)]
struct SkipPositions {
    /// Entry id by version.
    entry_ids_by_version: HashMap<RecordId, BTreeMap<u64, u64>>,
    /// Oldest first.
    insertion_order: VecDeque<RecordId>,
}

impl HistorySkipIndex {
    fn lock(&self) -> MutexGuard<'_, SkipPositions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the version and entry id of the nearest remembered position at or after `version`.
    pub(crate) fn nearest_position(&self, record: RecordId, version: u64) -> Option<(u64, u64)> {
        let state = self.lock();
        state
            .entry_ids_by_version
            .get(&record)?
            .range(version..)
            .next()
            .map(|(version, entry_id)| (*version, *entry_id))
    }

    /// Remembers positions that a walk passed.
    pub(crate) fn insert(&self, record: RecordId, positions: impl IntoIterator<Item = (u64, u64)>) {
        let mut passed = positions.into_iter().filter(|(version, _)| version % SKIP_STRIDE == 0).peekable();
        if passed.peek().is_none() {
            return;
        }
        let mut state = self.lock();
        if !state.entry_ids_by_version.contains_key(&record) {
            state.insertion_order.push_back(record);
        }
        let entry_ids = state.entry_ids_by_version.entry(record).or_default();
        entry_ids.extend(passed);
        // Callers read the first versions first and rarely again, so drop these.
        while entry_ids.len() > MAX_POSITIONS_PER_RECORD {
            entry_ids.pop_first();
        }
        if state.insertion_order.len() > MAX_INDEXED_RECORDS
            && let Some(oldest) = state.insertion_order.pop_front()
        {
            state.entry_ids_by_version.remove(&oldest);
        }
    }

    /// Forgets a pruned record.
    pub(crate) fn remove(&self, record: RecordId) {
        let mut state = self.lock();
        if state.entry_ids_by_version.remove(&record).is_some() {
            state.insertion_order.retain(|other| *other != record);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> RecordId {
        RecordId(Uuid::from_u128(number))
    }

    #[test]
    fn nearest_position_returns_next_indexed_version() {
        let index = HistorySkipIndex::default();
        index.insert(id(1), (1..=1_000).map(|version| (version, 10 * version)));
        assert_eq!(index.nearest_position(id(1), 1), Some((256, 2_560)));
        assert_eq!(index.nearest_position(id(1), 256), Some((256, 2_560)));
        assert_eq!(index.nearest_position(id(1), 257), Some((512, 5_120)));
        assert_eq!(index.nearest_position(id(1), 900), None);
        assert_eq!(index.nearest_position(id(2), 1), None);
        index.remove(id(1));
        assert_eq!(index.nearest_position(id(1), 1), None);
    }

    #[test]
    fn index_bounds_records_and_positions_per_record() {
        let index = HistorySkipIndex::default();
        for number in 0..200 {
            index.insert(id(number), [(SKIP_STRIDE, 7)]);
        }
        let index_sizes = |anchors: &HistorySkipIndex| {
            let state = anchors.lock();
            (state.entry_ids_by_version.len(), state.insertion_order.len())
        };
        assert_eq!(index_sizes(&index), (MAX_INDEXED_RECORDS, MAX_INDEXED_RECORDS));
        assert!(index.nearest_position(id(199), 1).is_some());
        index.insert(id(199), (1..10_000).map(|number| (SKIP_STRIDE * number, number)));
        assert_eq!(index.lock().entry_ids_by_version[&id(199)].len(), MAX_POSITIONS_PER_RECORD);
    }
}
