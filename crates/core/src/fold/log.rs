//! The operations that are here, in the order in which they are folded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::clock::Moment;
use super::image::Image;
use super::judge::Heard;
use super::operation::{LogOperation, OperationId};
use super::standing::Standing;
use super::verdict::{Applied, Wait};

/// Where an operation stands: by clock, then by author. The id parts only those that are refused for sharing both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) moment: Moment,
    pub(super) author: Arc<str>,
    pub(super) id: OperationId,
}

impl Place {
    pub(super) fn of(operation: &LogOperation) -> Self {
        Self { moment: operation.moment, author: Arc::clone(&operation.author), id: operation.id }
    }

    /// Before everything of that moment.
    pub(super) fn start_of(moment: Moment) -> Self {
        Self { moment, author: "".into(), id: OperationId([0; 32]) }
    }

    fn shares_clock(&self, other: &Self) -> bool {
        self.moment == other.moment && self.author == other.author
    }
}

/// An operation and what became of it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) operation: LogOperation,
    pub(super) standing: Standing,
    pub(super) applied: Applied,
    /// How to take back what it changed; dropped for the oldest when too many are kept.
    pub(super) image: Option<Image>,
    /// What the outside was asked about it, also while it was weighed against rivals.
    pub(super) heard: Vec<Heard>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    entries: BTreeMap<Place, Entry>,
    places: HashMap<OperationId, Place>,
    /// Who waits for an operation that has not arrived.
    wanted: BTreeMap<OperationId, BTreeSet<OperationId>>,
    /// Those who wait so, and for how many.
    orphans: BTreeMap<OperationId, usize>,
}

impl Log {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn orphans(&self) -> usize {
        self.orphans.len()
    }

    pub(super) fn contains(&self, id: OperationId) -> bool {
        self.places.contains_key(&id)
    }

    pub(super) fn place(&self, id: OperationId) -> Option<&Place> {
        self.places.get(&id)
    }

    pub(super) fn get(&self, place: &Place) -> Option<&Entry> {
        self.entries.get(place)
    }

    pub(super) fn get_mut(&mut self, place: &Place) -> Option<&mut Entry> {
        self.entries.get_mut(place)
    }

    pub(super) fn find(&self, id: OperationId) -> Option<&Entry> {
        self.entries.get(self.places.get(&id)?)
    }

    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (&Place, &Entry)> {
        self.entries.iter()
    }

    pub(super) fn places_from(&self, from: &Place) -> Vec<Place> {
        self.entries.range(from..).map(|(place, _)| place.clone()).collect()
    }

    pub(super) fn entries_from_mut(&mut self, from: &Place) -> impl DoubleEndedIterator<Item = (&Place, &mut Entry)> {
        self.entries.range_mut(from..)
    }

    pub(super) fn first_place(&self) -> Option<Place> {
        self.entries.first_key_value().map(|(place, _)| place.clone())
    }

    pub(super) fn drop_images(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.image = None);
    }

    pub(super) fn last_moment(&self) -> Option<Moment> {
        self.entries.last_key_value().map(|(place, _)| place.moment)
    }

    /// Put an operation that is not here yet in its place. The earliest moment at which anything may now be judged
    /// otherwise: its own, or that of one that has waited for it though it cannot have seen it.
    pub(super) fn add(&mut self, operation: LogOperation, standing: Standing) -> Moment {
        let place = Place::of(&operation);
        let mut from = place.moment;
        for waiting in self.wanted.remove(&operation.id).unwrap_or_default() {
            if let Some(waits) = self.places.get(&waiting) {
                from = from.min(waits.moment);
            }
            if let Some(left) = self.orphans.get_mut(&waiting) {
                *left -= 1;
                if *left == 0 {
                    self.orphans.remove(&waiting);
                }
            }
        }
        let absent: BTreeSet<OperationId> = operation.after.iter().copied().filter(|id| !self.contains(*id)).collect();
        if !absent.is_empty() {
            self.orphans.insert(operation.id, absent.len());
        }
        // Judged before anybody reads it: a replay follows every addition.
        let applied = Applied::Waiting(Wait::Unapplied(operation.id));
        for id in absent {
            self.wanted.entry(id).or_default().insert(operation.id);
        }
        self.places.insert(operation.id, place.clone());
        self.entries.insert(place, Entry { operation, standing, applied, image: None, heard: Vec::new() });
        from
    }

    /// MSH-25: each author's clock strictly increases, so two operations of one author at one moment are both lies. Which
    /// of them came first is nothing that a set could tell.
    pub(super) fn is_clock_reused(&self, place: &Place) -> bool {
        let before = self.entries.range(..place).next_back();
        let after = self.entries.range((Bound::Excluded(place), Bound::Unbounded)).next();
        before.into_iter().chain(after).any(|(other, _)| other.shares_clock(place))
    }
}
