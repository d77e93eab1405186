//! The operations that are here, in the order in which they are folded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::authority::Authority;
use super::before_image::BeforeImage;
use super::clock::HybridTimestamp;
use super::eligibility::CheckExchange;
use super::operation::{LogOperation, OperationId};
use super::verdict::{ApplyStatus, WaitReason};

/// Where an operation stands: by clock, then by author. The id parts only those that are refused for sharing both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FoldPosition {
    pub(super) timestamp: HybridTimestamp,
    pub(super) author: Arc<str>,
    pub(super) id: OperationId,
}

impl FoldPosition {
    pub(super) fn of_operation(operation: &LogOperation) -> Self {
        Self { timestamp: operation.timestamp, author: Arc::clone(&operation.author), id: operation.id }
    }

    /// Before everything of that moment.
    pub(super) fn first_at(timestamp: HybridTimestamp) -> Self {
        Self { timestamp, author: "".into(), id: OperationId([0; 32]) }
    }

    fn shares_clock(&self, other: &Self) -> bool {
        self.timestamp == other.timestamp && self.author == other.author
    }
}

/// An operation and what became of it.
#[derive(Debug)]
pub(super) struct FoldEntry {
    pub(super) operation: LogOperation,
    pub(super) authority: Authority,
    pub(super) status: ApplyStatus,
    /// How to take back what it changed; dropped for the oldest when too many are kept.
    pub(super) before_image: Option<BeforeImage>,
    /// What the outside was asked about it, also while it was weighed against rivals.
    pub(super) check_exchanges: Vec<CheckExchange>,
}

#[derive(Debug, Default)]
pub(super) struct FoldLog {
    entries: BTreeMap<FoldPosition, FoldEntry>,
    positions: HashMap<OperationId, FoldPosition>,
    /// Who waits for an operation that has not arrived.
    waiting_for: BTreeMap<OperationId, BTreeSet<OperationId>>,
    /// Those who wait so, and for how many.
    missing_dependencies: BTreeMap<OperationId, usize>,
}

impl FoldLog {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.missing_dependencies.len()
    }

    pub(super) fn contains(&self, id: OperationId) -> bool {
        self.positions.contains_key(&id)
    }

    pub(super) fn position(&self, id: OperationId) -> Option<&FoldPosition> {
        self.positions.get(&id)
    }

    pub(super) fn get(&self, position: &FoldPosition) -> Option<&FoldEntry> {
        self.entries.get(position)
    }

    pub(super) fn get_mut(&mut self, position: &FoldPosition) -> Option<&mut FoldEntry> {
        self.entries.get_mut(position)
    }

    pub(super) fn find(&self, id: OperationId) -> Option<&FoldEntry> {
        self.entries.get(self.positions.get(&id)?)
    }

    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (&FoldPosition, &FoldEntry)> {
        self.entries.iter()
    }

    pub(super) fn positions_from(&self, from: &FoldPosition) -> Vec<FoldPosition> {
        self.entries.range(from..).map(|(place, _)| place.clone()).collect()
    }

    pub(super) fn entries_from_mut(
        &mut self,
        from: &FoldPosition,
    ) -> impl DoubleEndedIterator<Item = (&FoldPosition, &mut FoldEntry)> {
        self.entries.range_mut(from..)
    }

    pub(super) fn first_position(&self) -> Option<FoldPosition> {
        self.entries.first_key_value().map(|(place, _)| place.clone())
    }

    pub(super) fn drop_before_images(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.before_image = None);
    }

    pub(super) fn last_timestamp(&self) -> Option<HybridTimestamp> {
        self.entries.last_key_value().map(|(place, _)| place.timestamp)
    }

    /// Put an operation that is not here yet in its place. The earliest moment at which anything may now be judged
    /// otherwise: its own, or that of one that has waited for it though it cannot have seen it.
    pub(super) fn insert(&mut self, operation: LogOperation, authority: Authority) -> HybridTimestamp {
        let position = FoldPosition::of_operation(&operation);
        let mut from = position.timestamp;
        for waiting_id in self.waiting_for.remove(&operation.id).unwrap_or_default() {
            if let Some(waiting_position) = self.positions.get(&waiting_id) {
                from = from.min(waiting_position.timestamp);
            }
            if let Some(left) = self.missing_dependencies.get_mut(&waiting_id) {
                *left -= 1;
                if *left == 0 {
                    self.missing_dependencies.remove(&waiting_id);
                }
            }
        }
        let absent: BTreeSet<OperationId> =
            operation.dependencies.iter().copied().filter(|id| !self.contains(*id)).collect();
        if !absent.is_empty() {
            self.missing_dependencies.insert(operation.id, absent.len());
        }
        // Judged before anybody reads it: a replay follows every addition.
        let applied = ApplyStatus::Waiting(WaitReason::DependencyUnapplied(operation.id));
        for id in absent {
            self.waiting_for.entry(id).or_default().insert(operation.id);
        }
        self.positions.insert(operation.id, position.clone());
        self.entries.insert(
            position,
            FoldEntry { operation, authority, status: applied, before_image: None, check_exchanges: Vec::new() },
        );
        from
    }

    /// MSH-25: each author's clock strictly increases, so two operations of one author at one moment are both lies. Which
    /// of them came first is nothing that a set could tell.
    pub(super) fn is_clock_reused(&self, position: &FoldPosition) -> bool {
        let before = self.entries.range(..position).next_back();
        let after = self.entries.range((Bound::Excluded(position), Bound::Unbounded)).next();
        before.into_iter().chain(after).any(|(other, _)| other.shares_clock(position))
    }
}
