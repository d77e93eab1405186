//! The fold: inserts operations, re-evaluates authority, and keeps the state and the verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::{AdmissionError, validate_operation};
use super::authority::{Authority, CheckResolver};
use super::clock::HybridTimestamp;
use super::error::FoldError;
use super::log::{FoldLog, FoldPosition};
use super::operation::{LogOperation, OperationId};
use super::verdict::{Admission, ApplyStatus, FoldRefusalReason, OperationVerdict};
use crate::decide::Snapshot;
use crate::model::{ClockSource, Definitions, Lifecycle};
use crate::time::Time;

/// Limits of a fold. Beyond the first two, inserts fail; beyond the third, late operations cost more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldLimits {
    /// Operations in the log.
    pub max_operations: usize,
    /// Operations that wait for missing dependencies.
    pub max_waiting: usize,
    /// Old versions of records in before-images. The oldest images are dropped first. An operation before the oldest
    /// image costs a replay from the start.
    pub max_before_image_records: usize,
}

impl Default for FoldLimits {
    /// A household of nodes with a thousand operations a day fills the log in three years. A before-image is about as
    /// large as its operation.
    fn default() -> Self {
        Self { max_operations: 1_000_000, max_waiting: 10_000, max_before_image_records: 1_000_000 }
    }
}

/// Result of inserting one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct FoldReceipt {
    pub id: OperationId,
    /// The operation was added to the log by this call.
    pub is_new: bool,
    pub verdict: OperationVerdict,
}

/// A log of operations and the resulting state.
#[derive(Debug)]
pub struct Fold {
    pub(super) definitions: Arc<Definitions>,
    pub(super) limits: FoldLimits,
    pub(super) snapshot: Snapshot,
    pub(super) log: FoldLog,
    /// Records in all before-images.
    pub(super) before_image_records: usize,
    /// Images before this position have been dropped.
    pub(super) oldest_before_image: Option<FoldPosition>,
    /// Operations that ran external checks.
    pub(super) positions_with_checks: BTreeSet<FoldPosition>,
    pub(super) decide_calls: u64,
}

impl Fold {
    pub fn new(definitions: Arc<Definitions>, limits: FoldLimits) -> Result<Self, FoldError> {
        definitions.lifecycles.values().try_for_each(|lifecycle| ensure_foldable(lifecycle))?;
        Ok(Self {
            definitions,
            limits,
            snapshot: Snapshot::empty_complete(),
            log: FoldLog::default(),
            before_image_records: 0,
            oldest_before_image: None,
            positions_with_checks: BTreeSet::new(),
            decide_calls: 0,
        })
    }

    /// Inserts operations, each with its author's authority, in any order and number. An operation that is already in
    /// the log is ignored, and its authority stays unchanged. On an error, inserts none.
    pub fn insert(
        &mut self,
        resolver: &dyn CheckResolver,
        operations: impl IntoIterator<Item = (LogOperation, Authority)>,
    ) -> Result<Vec<FoldReceipt>, FoldError> {
        let mut order: Vec<(OperationId, Result<bool, AdmissionError>)> = Vec::new();
        let mut new_operations: BTreeMap<OperationId, (LogOperation, Authority)> = BTreeMap::new();
        for (operation, authority) in operations {
            let id = operation.id;
            if let Err(admission_error) = validate_operation(&operation) {
                order.push((id, Err(admission_error)));
                continue;
            }
            let existing = self
                .log
                .find(id)
                .map(|entry| &entry.operation)
                .or_else(|| new_operations.get(&id).map(|(existing, _)| existing));
            match existing {
                Some(existing) if *existing != operation => return Err(FoldError::IdReused(id)),
                Some(_) => order.push((id, Ok(false))),
                None => {
                    order.push((id, Ok(true)));
                    new_operations.insert(id, (operation, authority));
                }
            }
        }
        self.ensure_capacity(&new_operations)?;
        let from =
            new_operations.into_values().map(|(operation, authority)| self.log.insert(operation, authority)).min();
        self.replay_from(resolver, from);
        Ok(order.into_iter().map(|(id, admitted)| self.insert_result(id, admitted)).collect())
    }

    /// Changes the authority of operations, and runs the external checks of all operations again (MSH-20, MSH-21).
    pub fn reevaluate(
        &mut self,
        resolver: &dyn CheckResolver,
        authorities: impl IntoIterator<Item = (OperationId, Authority)>,
    ) -> Result<(), FoldError> {
        let authorities: Vec<_> = authorities.into_iter().collect();
        if let Some((id, _)) = authorities.iter().find(|(id, _)| !self.log.contains(*id)) {
            return Err(FoldError::UnknownOperation(*id));
        }
        let mut from = self.first_changed_check_answer(resolver);
        for (id, authority) in authorities {
            let Some(position) = self.log.position(id).cloned() else { continue };
            let Some(entry) = self.log.get_mut(&position) else { continue };
            if entry.authority != authority {
                entry.authority = authority;
                from = Some(from.map_or(position.timestamp, |from| from.min(position.timestamp)));
            }
        }
        self.replay_from(resolver, from);
        Ok(())
    }

    /// Rebuilds the state from the log (MSH-23).
    pub fn rebuild(&mut self, resolver: &dyn CheckResolver) {
        self.reset_state();
        let start = self.log.first_position();
        self.replay_from(resolver, start.map(|position| position.timestamp));
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the verdict on an operation; `None` if it is not in the log.
    pub fn verdict(&self, id: OperationId) -> Option<OperationVerdict> {
        let entry = self.log.find(id)?;
        Some(OperationVerdict { admission: Admission::Admitted, status: entry.status.clone() })
    }

    /// The log in fold order.
    pub fn operations(&self) -> impl DoubleEndedIterator<Item = (&LogOperation, &Authority, &ApplyStatus)> {
        self.log.entries().map(|(_, entry)| (&entry.operation, &entry.authority, &entry.status))
    }

    pub fn len(&self) -> usize {
        self.log.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the timestamp for the next operation of a node that has seen this whole log, with `now` on its wall
    /// clock: later than all that it has seen (MSH-25). Returns `None` at the end of the time range.
    pub fn next_timestamp(&self, now: Time) -> Option<HybridTimestamp> {
        match self.log.last_timestamp() {
            Some(last) => last.next(now),
            None => Some(HybridTimestamp { wall_time: now, logical_counter: 0 }),
        }
    }

    /// Number of calls to `decide` so far: the cost of the fold.
    pub fn decide_calls(&self) -> u64 {
        self.decide_calls
    }

    fn ensure_capacity(
        &self,
        new_operations: &BTreeMap<OperationId, (LogOperation, Authority)>,
    ) -> Result<(), FoldError> {
        let current = self.log.len();
        if current + new_operations.len() > self.limits.max_operations {
            return Err(FoldError::LogFull { operations: current, max_operations: self.limits.max_operations });
        }
        let is_orphan = |operation: &LogOperation| {
            operation.dependencies.iter().any(|id| !self.log.contains(*id) && !new_operations.contains_key(id))
        };
        let orphans = new_operations.values().filter(|(operation, _)| is_orphan(operation)).count();
        // Counts operations that these would unblock, too. The caller can insert the earlier operations first, which
        // never leaves any waiting.
        let waiting = self.log.waiting_count() + orphans;
        if orphans > 0 && waiting > self.limits.max_waiting {
            return Err(FoldError::TooManyWaiting { waiting, max_waiting: self.limits.max_waiting });
        }
        Ok(())
    }

    /// Returns the result of inserting an operation: `admission` is whether it was new, or why it was not admitted.
    fn insert_result(&self, id: OperationId, admission: Result<bool, AdmissionError>) -> FoldReceipt {
        match admission {
            Err(malformed) => {
                let applied = ApplyStatus::Refused(FoldRefusalReason::NotAdmitted);
                FoldReceipt {
                    id,
                    is_new: false,
                    verdict: OperationVerdict { admission: Admission::Refused(malformed), status: applied },
                }
            }
            Ok(is_new) => {
                let applied = self
                    .log
                    .find(id)
                    .map_or(ApplyStatus::Refused(FoldRefusalReason::NotAdmitted), |entry| entry.status.clone());
                FoldReceipt {
                    id,
                    is_new,
                    verdict: OperationVerdict { admission: Admission::Admitted, status: applied },
                }
            }
        }
    }

    /// Returns the earliest timestamp at which the answer to an external check has changed.
    fn first_changed_check_answer(&self, resolver: &dyn CheckResolver) -> Option<HybridTimestamp> {
        let changed = |position: &&FoldPosition| {
            self.log.get(position).is_some_and(|entry| {
                entry
                    .check_exchanges
                    .iter()
                    .any(|exchange| resolver.resolve(&entry.operation, &exchange.query) != exchange.answer)
            })
        };
        self.positions_with_checks.iter().find(changed).map(|position| position.timestamp)
    }
}

/// The engine's own lifecycles are part of every set of definitions. All others must use the operation's clock, and
/// none may spawn one of the engine's.
fn ensure_foldable(lifecycle: &Lifecycle) -> Result<(), FoldError> {
    let is_builtin = |name: &str| name.starts_with("onceward.");
    if is_builtin(&lifecycle.name) {
        return Ok(());
    }
    if lifecycle.clock != ClockSource::Operation {
        return Err(FoldError::EngineClock { lifecycle: Arc::clone(&lifecycle.name) });
    }
    let mut transitions = lifecycle.events.iter().flat_map(|event| &event.transitions);
    let delivers = transitions.any(|transition| {
        !transition.deliver.is_empty() || transition.spawn.iter().any(|made| is_builtin(&made.lifecycle))
    });
    if delivers {
        return Err(FoldError::HasDeliveries { lifecycle: Arc::clone(&lifecycle.name) });
    }
    Ok(())
}
