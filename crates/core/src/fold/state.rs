//! The fold itself: operations come in, rights change, and the world and the verdicts follow.

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

/// How much a fold may hold. Beyond the first two it says so and takes no more; beyond the third it grows slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldLimits {
    /// Operations on the log.
    pub max_operations: usize,
    /// Operations that wait for others that have not arrived.
    pub max_waiting: usize,
    /// Old versions of records kept for taking operations back. The oldest are dropped first; an operation that comes in
    /// before the oldest kept one costs a fold from the start.
    pub max_before_image_records: usize,
}

impl Default for FoldLimits {
    /// A household of nodes at a thousand operations a day fills the log in three years; an image is about as large as the
    /// operation that made it.
    fn default() -> Self {
        Self { max_operations: 1_000_000, max_waiting: 10_000, max_before_image_records: 1_000_000 }
    }
}

/// What became of one operation that was brought.
#[derive(Clone, Debug, PartialEq)]
pub struct FoldReceipt {
    pub id: OperationId,
    /// It is on the log now and was not before.
    pub is_new: bool,
    pub verdict: OperationVerdict,
}

/// A log of operations and the state they come to.
#[derive(Debug)]
pub struct Fold {
    pub(super) definitions: Arc<Definitions>,
    pub(super) limits: FoldLimits,
    pub(super) snapshot: Snapshot,
    pub(super) log: FoldLog,
    /// Records in all images.
    pub(super) before_image_records: usize,
    /// Before this place images have been dropped.
    pub(super) oldest_before_image: Option<FoldPosition>,
    /// Operations that asked the outside something.
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

    /// Bring operations, each with its author's standing. In any order, any number at once; one that is here already is
    /// nothing, and its standing stays as it was. All of them or, on an error, none.
    pub fn insert(
        &mut self,
        resolver: &dyn CheckResolver,
        operations: impl IntoIterator<Item = (LogOperation, Authority)>,
    ) -> Result<Vec<FoldReceipt>, FoldError> {
        let mut order: Vec<(OperationId, Result<bool, AdmissionError>)> = Vec::new();
        let mut new_operations: BTreeMap<OperationId, (LogOperation, Authority)> = BTreeMap::new();
        for (operation, standing) in operations {
            let id = operation.id;
            if let Err(admission_error) = validate_operation(&operation) {
                order.push((id, Err(admission_error)));
                continue;
            }
            let existing = self
                .log
                .find(id)
                .map(|entry| &entry.operation)
                .or_else(|| new_operations.get(&id).map(|(known, _)| known));
            match existing {
                Some(known) if *known != operation => return Err(FoldError::IdReused(id)),
                Some(_) => order.push((id, Ok(false))),
                None => {
                    order.push((id, Ok(true)));
                    new_operations.insert(id, (operation, standing));
                }
            }
        }
        self.ensure_capacity(&new_operations)?;
        let from = new_operations.into_values().map(|(operation, standing)| self.log.insert(operation, standing)).min();
        self.replay_from(resolver, from);
        Ok(order.into_iter().map(|(id, admitted)| self.receipt(id, admitted)).collect())
    }

    /// Authority was withdrawn, granted anew, suspended or renewed: judge these operations by their new standing, and ask
    /// again all that was asked of the outside (MSH-20, MSH-21).
    pub fn reevaluate(
        &mut self,
        resolver: &dyn CheckResolver,
        authorities: impl IntoIterator<Item = (OperationId, Authority)>,
    ) -> Result<(), FoldError> {
        let standings: Vec<_> = authorities.into_iter().collect();
        if let Some((id, _)) = standings.iter().find(|(id, _)| !self.log.contains(*id)) {
            return Err(FoldError::UnknownOperation(*id));
        }
        let mut from = self.first_changed_answer(resolver);
        for (id, standing) in standings {
            let Some(place) = self.log.position(id).cloned() else { continue };
            let Some(entry) = self.log.get_mut(&place) else { continue };
            if entry.authority != standing {
                entry.authority = standing;
                from = Some(from.map_or(place.timestamp, |from| from.min(place.timestamp)));
            }
        }
        self.replay_from(resolver, from);
        Ok(())
    }

    /// Forget the state and make it again from the log (MSH-23).
    pub fn rebuild(&mut self, resolver: &dyn CheckResolver) {
        self.reset_state();
        let start = self.log.first_position();
        self.replay_from(resolver, start.map(|place| place.timestamp));
    }

    /// The state.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What became of an operation; `None` for one that is not on the log.
    pub fn verdict(&self, id: OperationId) -> Option<OperationVerdict> {
        let entry = self.log.find(id)?;
        Some(OperationVerdict { admission: Admission::Admitted, status: entry.status.clone() })
    }

    /// The log in the order in which it is folded.
    pub fn operations(&self) -> impl DoubleEndedIterator<Item = (&LogOperation, &Authority, &ApplyStatus)> {
        self.log.entries().map(|(_, entry)| (&entry.operation, &entry.authority, &entry.status))
    }

    pub fn len(&self) -> usize {
        self.log.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The clock of the next operation that a node with all of this log authors, when its wall clock says `now`: after all
    /// that it has seen (MSH-25). `None` at the end of time.
    pub fn next_timestamp(&self, now: Time) -> Option<HybridTimestamp> {
        match self.log.last_timestamp() {
            Some(last) => last.next(now),
            None => Some(HybridTimestamp { wall_time: now, logical_counter: 0 }),
        }
    }

    /// How often `decide` has been asked so far: what the fold costs.
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
        // Those that these would set free are counted still. Whoever is told so may bring the earlier ones first, which
        // never leaves anything waiting.
        let waiting = self.log.waiting_count() + orphans;
        if orphans > 0 && waiting > self.limits.max_waiting {
            return Err(FoldError::TooManyWaiting { waiting, max_waiting: self.limits.max_waiting });
        }
        Ok(())
    }

    fn receipt(&self, id: OperationId, admission: Result<bool, AdmissionError>) -> FoldReceipt {
        match admission {
            Err(malformed) => {
                let applied = ApplyStatus::Refused(FoldRefusalReason::NotAdmitted);
                FoldReceipt {
                    id,
                    is_new: false,
                    verdict: OperationVerdict { admission: Admission::Refused(malformed), status: applied },
                }
            }
            Ok(fresh) => {
                let applied = self
                    .log
                    .find(id)
                    .map_or(ApplyStatus::Refused(FoldRefusalReason::NotAdmitted), |entry| entry.status.clone());
                FoldReceipt {
                    id,
                    is_new: fresh,
                    verdict: OperationVerdict { admission: Admission::Admitted, status: applied },
                }
            }
        }
    }

    /// The earliest moment at which the outside has changed its mind.
    fn first_changed_answer(&self, resolver: &dyn CheckResolver) -> Option<HybridTimestamp> {
        let changed = |place: &&FoldPosition| {
            self.log.get(place).is_some_and(|entry| {
                entry
                    .check_exchanges
                    .iter()
                    .any(|heard| resolver.resolve(&entry.operation, &heard.query) != heard.answer)
            })
        };
        self.positions_with_checks.iter().find(changed).map(|place| place.timestamp)
    }
}

/// The engine's own lifecycle comes with every set of definitions; no other may live by the engine's clock, and none may
/// reach it.
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
