//! Where in the log a record's history can be entered. Each entry knows the one before it, so that a history is followed from its end; but
//! it is told from its beginning, page by page. Whoever walks back remembers a place now and then, and the next page begins at
//! the nearest: all pages together cost about one walk, not one each.
//!
//! An entry never changes, so what is remembered stays true until it is pruned; whoever goes by it looks whether it is still that.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onceward_core::value::RecordId;

/// Between two versions whose places are remembered: so much further than needed a walk goes at most.
pub(crate) const EVERY: u64 = 256;

/// Records of which they are remembered: as many as are paged through at the same time, by far.
const RECORDS: usize = 64;

/// Places of one record at most. A history of more than a million entries is walked through again now and then.
const PLACES: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Anchors(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// By version.
    places: HashMap<RecordId, BTreeMap<u64, u64>>,
    /// The oldest first.
    order: VecDeque<RecordId>,
}

impl Anchors {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version and place nearest to this version, not before it.
    pub(crate) fn from(&self, record: RecordId, version: u64) -> Option<(u64, u64)> {
        let kept = self.kept();
        kept.places.get(&record)?.range(version..).next().map(|(version, place)| (*version, *place))
    }

    /// A walk came by these versions and places.
    pub(crate) fn keep(&self, record: RecordId, passed: impl IntoIterator<Item = (u64, u64)>) {
        let mut passed = passed.into_iter().filter(|(version, _)| version % EVERY == 0).peekable();
        if passed.peek().is_none() {
            return;
        }
        let mut kept = self.kept();
        if !kept.places.contains_key(&record) {
            kept.order.push_back(record);
        }
        let places = kept.places.entry(record).or_default();
        places.extend(passed);
        // The first are read first, and not again.
        while places.len() > PLACES {
            places.pop_first();
        }
        if kept.order.len() > RECORDS
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.places.remove(&oldest);
        }
    }

    /// What was remembered is no more: the record was pruned.
    pub(crate) fn forget(&self, record: RecordId) {
        let mut kept = self.kept();
        if kept.places.remove(&record).is_some() {
            kept.order.retain(|other| *other != record);
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
    fn the_nearest_place_that_was_passed() {
        let anchors = Anchors::default();
        anchors.keep(id(1), (1..=1_000).map(|version| (version, 10 * version)));
        assert_eq!(anchors.from(id(1), 1), Some((256, 2_560)));
        assert_eq!(anchors.from(id(1), 256), Some((256, 2_560)));
        assert_eq!(anchors.from(id(1), 257), Some((512, 5_120)));
        assert_eq!(anchors.from(id(1), 900), None);
        assert_eq!(anchors.from(id(2), 1), None);
        anchors.forget(id(1));
        assert_eq!(anchors.from(id(1), 1), None);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let anchors = Anchors::default();
        for number in 0..200 {
            anchors.keep(id(number), [(EVERY, 7)]);
        }
        let kept = |anchors: &Anchors| {
            let kept = anchors.kept();
            (kept.places.len(), kept.order.len())
        };
        assert_eq!(kept(&anchors), (RECORDS, RECORDS));
        assert!(anchors.from(id(199), 1).is_some());
        anchors.keep(id(199), (1..10_000).map(|number| (EVERY * number, number)));
        assert_eq!(anchors.kept().places[&id(199)].len(), PLACES);
    }
}
