//! The admitted operations in fold order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::authority::Authority;
use super::before_image::BeforeImage;
use super::clock::HybridTimestamp;
use super::eligibility::CheckExchange;
use super::operation::{LogOperation, OperationId};
use super::verdict::{ApplyStatus, WaitReason};

/// Position in fold order: by timestamp, then by author. The id separates only operations that are refused for sharing
/// both.
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

    /// The position before all operations with this timestamp.
    pub(super) fn first_at(timestamp: HybridTimestamp) -> Self {
        Self { timestamp, author: "".into(), id: OperationId([0; 32]) }
    }

    fn shares_clock(&self, other: &Self) -> bool {
        self.timestamp == other.timestamp && self.author == other.author
    }
}

/// An operation with its status.
#[derive(Debug)]
pub(super) struct FoldEntry {
    pub(super) operation: LogOperation,
    pub(super) authority: Authority,
    pub(super) status: ApplyStatus,
    /// Reverts the operation. The fold drops the oldest images if it holds too many.
    pub(super) before_image: Option<BeforeImage>,
    /// Check queries and answers for the operation, including those from comparing rivals.
    pub(super) check_exchanges: Vec<CheckExchange>,
}

#[derive(Debug, Default)]
pub(super) struct FoldLog {
    entries: BTreeMap<FoldPosition, FoldEntry>,
    positions: HashMap<OperationId, FoldPosition>,
    /// Waiting operations, by the missing dependency.
    waiting_for: BTreeMap<OperationId, BTreeSet<OperationId>>,
    /// Number of missing dependencies of each waiting operation.
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
        self.entries.range(from..).map(|(position, _)| position.clone()).collect()
    }

    pub(super) fn entries_from_mut(
        &mut self,
        from: &FoldPosition,
    ) -> impl DoubleEndedIterator<Item = (&FoldPosition, &mut FoldEntry)> {
        self.entries.range_mut(from..)
    }

    pub(super) fn first_position(&self) -> Option<FoldPosition> {
        self.entries.first_key_value().map(|(position, _)| position.clone())
    }

    pub(super) fn drop_before_images(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.before_image = None);
    }

    pub(super) fn last_timestamp(&self) -> Option<HybridTimestamp> {
        self.entries.last_key_value().map(|(position, _)| position.timestamp)
    }

    /// Inserts a new operation. Returns the earliest timestamp whose operations must be evaluated again: its own, or
    /// that of an earlier operation that waited for it although it cannot have seen it.
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
        // A placeholder: a replay follows every insertion and sets the status before it is read.
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

    /// MSH-25: an author's clock strictly increases, so if two operations of one author have the same timestamp, both
    /// are refused. The set does not tell which came first.
    pub(super) fn is_clock_reused(&self, position: &FoldPosition) -> bool {
        let before = self.entries.range(..position).next_back();
        let after = self.entries.range((Bound::Excluded(position), Bound::Unbounded)).next();
        before.into_iter().chain(after).any(|(other, _)| other.shares_clock(position))
    }
}
