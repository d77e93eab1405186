//! Where in the log a record's history can be entered. Each entry knows the one before it, so that a history is followed from its end; but
//! it is told from its beginning, page by page. Whoever walks back remembers a place now and then, and the next page begins at
//! the nearest: all pages together cost about one walk, not one each.
//!
//! An entry never changes, so what is remembered stays true until it is pruned; whoever goes by it looks whether it is still that.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onceward_core::value::RecordId;

/// Between two versions whose places are remembered: so much further than needed a walk goes at most.
pub(crate) const SKIP_STRIDE: u64 = 256;

/// Records of which they are remembered: as many as are paged through at the same time, by far.
const MAX_INDEXED_RECORDS: usize = 64;

/// Places of one record at most. A history of more than a million entries is walked through again now and then.
const MAX_POSITIONS_PER_RECORD: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct HistorySkipIndex(Mutex<SkipPositions>);

#[derive(Debug, Default)]
struct SkipPositions {
    /// By version.
    entry_ids_by_version: HashMap<RecordId, BTreeMap<u64, u64>>,
    /// The oldest first.
    insertion_order: VecDeque<RecordId>,
}

impl HistorySkipIndex {
    fn lock(&self) -> MutexGuard<'_, SkipPositions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version and place nearest to this version, not before it.
    pub(crate) fn nearest_position(&self, record: RecordId, version: u64) -> Option<(u64, u64)> {
        let kept = self.lock();
        kept.entry_ids_by_version.get(&record)?.range(version..).next().map(|(version, place)| (*version, *place))
    }

    /// A walk came by these versions and places.
    pub(crate) fn insert(&self, record: RecordId, positions: impl IntoIterator<Item = (u64, u64)>) {
        let mut passed = positions.into_iter().filter(|(version, _)| version % SKIP_STRIDE == 0).peekable();
        if passed.peek().is_none() {
            return;
        }
        let mut kept = self.lock();
        if !kept.entry_ids_by_version.contains_key(&record) {
            kept.insertion_order.push_back(record);
        }
        let entry_ids = kept.entry_ids_by_version.entry(record).or_default();
        entry_ids.extend(passed);
        // The first are read first, and not again.
        while entry_ids.len() > MAX_POSITIONS_PER_RECORD {
            entry_ids.pop_first();
        }
        if kept.insertion_order.len() > MAX_INDEXED_RECORDS
            && let Some(oldest) = kept.insertion_order.pop_front()
        {
            kept.entry_ids_by_version.remove(&oldest);
        }
    }

    /// What was remembered is no more: the record was pruned.
    pub(crate) fn remove(&self, record: RecordId) {
        let mut kept = self.lock();
        if kept.entry_ids_by_version.remove(&record).is_some() {
            kept.insertion_order.retain(|other| *other != record);
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
            let kept = anchors.lock();
            (kept.entry_ids_by_version.len(), kept.insertion_order.len())
        };
        assert_eq!(index_sizes(&index), (MAX_INDEXED_RECORDS, MAX_INDEXED_RECORDS));
        assert!(index.nearest_position(id(199), 1).is_some());
        index.insert(id(199), (1..10_000).map(|number| (SKIP_STRIDE * number, number)));
        assert_eq!(index.lock().entry_ids_by_version[&id(199)].len(), MAX_POSITIONS_PER_RECORD);
    }
}
