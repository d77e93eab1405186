//! The fold itself: operations come in, rights change, and the world and the verdicts follow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admit::{Malformed, admit};
use super::clock::Moment;
use super::error::FoldError;
use super::log::{Log, Place};
use super::operation::{LogOperation, OperationId};
use super::standing::{Outside, Standing};
use super::verdict::{Admission, Applied, Reason, Verdict};
use crate::decide::Snapshot;
use crate::model::{Clock, Definitions, Lifecycle};
use crate::time::Time;

/// How much a fold may hold. Beyond the first two it says so and takes no more; beyond the third it grows slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Operations on the log.
    pub operations: usize,
    /// Operations that wait for others that have not arrived.
    pub waiting: usize,
    /// Old versions of records kept for taking operations back. The oldest are dropped first; an operation that comes in
    /// before the oldest kept one costs a fold from the start.
    pub images: usize,
}

impl Default for Bounds {
    /// A household of nodes at a thousand operations a day fills the log in three years; an image is about as large as the
    /// operation that made it.
    fn default() -> Self {
        Self { operations: 1_000_000, waiting: 10_000, images: 1_000_000 }
    }
}

/// What became of one operation that was brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    pub id: OperationId,
    /// It is on the log now and was not before.
    pub fresh: bool,
    pub verdict: Verdict,
}

/// A log of operations and the state they come to.
#[derive(Debug)]
pub struct Fold {
    pub(super) definitions: Arc<Definitions>,
    pub(super) bounds: Bounds,
    pub(super) world: Snapshot,
    pub(super) log: Log,
    /// Records in all images.
    pub(super) imaged: usize,
    /// Before this place images have been dropped.
    pub(super) undo_from: Option<Place>,
    /// Operations that asked the outside something.
    pub(super) asking: BTreeSet<Place>,
    pub(super) decided: u64,
}

impl Fold {
    pub fn new(definitions: Arc<Definitions>, bounds: Bounds) -> Result<Self, FoldError> {
        definitions.lifecycles.values().try_for_each(|lifecycle| foldable(lifecycle))?;
        Ok(Self {
            definitions,
            bounds,
            world: Snapshot::world(),
            log: Log::default(),
            imaged: 0,
            undo_from: None,
            asking: BTreeSet::new(),
            decided: 0,
        })
    }

    /// Bring operations, each with its author's standing. In any order, any number at once; one that is here already is
    /// nothing, and its standing stays as it was. All of them or, on an error, none.
    pub fn insert(
        &mut self,
        outside: &dyn Outside,
        brought: impl IntoIterator<Item = (LogOperation, Standing)>,
    ) -> Result<Vec<Receipt>, FoldError> {
        let mut order: Vec<(OperationId, Result<bool, Malformed>)> = Vec::new();
        let mut fresh: BTreeMap<OperationId, (LogOperation, Standing)> = BTreeMap::new();
        for (operation, standing) in brought {
            let id = operation.id;
            if let Err(malformed) = admit(&operation) {
                order.push((id, Err(malformed)));
                continue;
            }
            let here =
                self.log.find(id).map(|entry| &entry.operation).or_else(|| fresh.get(&id).map(|(known, _)| known));
            match here {
                Some(known) if *known != operation => return Err(FoldError::IdReused(id)),
                Some(_) => order.push((id, Ok(false))),
                None => {
                    order.push((id, Ok(true)));
                    fresh.insert(id, (operation, standing));
                }
            }
        }
        self.room_for(&fresh)?;
        let from = fresh.into_values().map(|(operation, standing)| self.log.add(operation, standing)).min();
        self.replay(outside, from);
        Ok(order.into_iter().map(|(id, admitted)| self.receipt(id, admitted)).collect())
    }

    /// Authority was withdrawn, granted anew, suspended or renewed: judge these operations by their new standing, and ask
    /// again all that was asked of the outside (MSH-20, MSH-21).
    pub fn rejudge(
        &mut self,
        outside: &dyn Outside,
        standings: impl IntoIterator<Item = (OperationId, Standing)>,
    ) -> Result<(), FoldError> {
        let standings: Vec<_> = standings.into_iter().collect();
        if let Some((id, _)) = standings.iter().find(|(id, _)| !self.log.contains(*id)) {
            return Err(FoldError::Unknown(*id));
        }
        let mut from = self.first_answered_otherwise(outside);
        for (id, standing) in standings {
            let Some(place) = self.log.place(id).cloned() else { continue };
            let Some(entry) = self.log.get_mut(&place) else { continue };
            if entry.standing != standing {
                entry.standing = standing;
                from = Some(from.map_or(place.moment, |from| from.min(place.moment)));
            }
        }
        self.replay(outside, from);
        Ok(())
    }

    /// Forget the state and make it again from the log (MSH-23).
    pub fn rebuild(&mut self, outside: &dyn Outside) {
        self.forget();
        let start = self.log.first_place();
        self.replay(outside, start.map(|place| place.moment));
    }

    /// The state.
    pub fn world(&self) -> &Snapshot {
        &self.world
    }

    /// What became of an operation; `None` for one that is not on the log.
    pub fn verdict(&self, id: OperationId) -> Option<Verdict> {
        let entry = self.log.find(id)?;
        Some(Verdict { admitted: Admission::Admitted, applied: entry.applied.clone() })
    }

    /// The log in the order in which it is folded.
    pub fn operations(&self) -> impl DoubleEndedIterator<Item = (&LogOperation, &Standing, &Applied)> {
        self.log.entries().map(|(_, entry)| (&entry.operation, &entry.standing, &entry.applied))
    }

    pub fn len(&self) -> usize {
        self.log.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The clock of the next operation that a node with all of this log authors, when its wall clock says `now`: after all
    /// that it has seen (MSH-25). `None` at the end of time.
    pub fn next_moment(&self, now: Time) -> Option<Moment> {
        match self.log.last_moment() {
            Some(last) => last.next(now),
            None => Some(Moment { wall: now, logical: 0 }),
        }
    }

    /// How often `decide` has been asked so far: what the fold costs.
    pub fn decided(&self) -> u64 {
        self.decided
    }

    fn room_for(&self, fresh: &BTreeMap<OperationId, (LogOperation, Standing)>) -> Result<(), FoldError> {
        let held = self.log.len();
        if held + fresh.len() > self.bounds.operations {
            return Err(FoldError::Full { held, most: self.bounds.operations });
        }
        let is_orphan = |operation: &LogOperation| {
            operation.after.iter().any(|id| !self.log.contains(*id) && !fresh.contains_key(id))
        };
        let orphans = fresh.values().filter(|(operation, _)| is_orphan(operation)).count();
        // Those that these would set free are counted still. Whoever is told so may bring the earlier ones first, which
        // never leaves anything waiting.
        let waiting = self.log.orphans() + orphans;
        if orphans > 0 && waiting > self.bounds.waiting {
            return Err(FoldError::TooManyWaiting { waiting, most: self.bounds.waiting });
        }
        Ok(())
    }

    fn receipt(&self, id: OperationId, admitted: Result<bool, Malformed>) -> Receipt {
        match admitted {
            Err(malformed) => {
                let applied = Applied::Refused(Reason::NotAdmitted);
                Receipt { id, fresh: false, verdict: Verdict { admitted: Admission::Refused(malformed), applied } }
            }
            Ok(fresh) => {
                let applied =
                    self.log.find(id).map_or(Applied::Refused(Reason::NotAdmitted), |entry| entry.applied.clone());
                Receipt { id, fresh, verdict: Verdict { admitted: Admission::Admitted, applied } }
            }
        }
    }

    /// The earliest moment at which the outside has changed its mind.
    fn first_answered_otherwise(&self, outside: &dyn Outside) -> Option<Moment> {
        let changed = |place: &&Place| {
            self.log.get(place).is_some_and(|entry| {
                entry.heard.iter().any(|heard| outside.answer(&entry.operation, &heard.question) != heard.answer)
            })
        };
        self.asking.iter().find(changed).map(|place| place.moment)
    }
}

/// The engine's own lifecycle comes with every set of definitions; no other may live by the engine's clock, and none may
/// reach it.
fn foldable(lifecycle: &Lifecycle) -> Result<(), FoldError> {
    let is_builtin = |name: &str| name.starts_with("onceward.");
    if is_builtin(&lifecycle.name) {
        return Ok(());
    }
    if lifecycle.clock != Clock::Operation {
        return Err(FoldError::EngineClock { lifecycle: Arc::clone(&lifecycle.name) });
    }
    let mut rows = lifecycle.events.iter().flat_map(|event| &event.rows);
    let delivers = rows.any(|row| !row.deliver.is_empty() || row.spawn.iter().any(|made| is_builtin(&made.lifecycle)));
    if delivers {
        return Err(FoldError::Delivers { lifecycle: Arc::clone(&lifecycle.name) });
    }
    Ok(())
}
