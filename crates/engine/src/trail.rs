//! How many denials and audited refusals are logged. They change nothing, so whoever has a key could make the log grow with
//! them without end: each owner has so many of each a minute, and the others are counted, not logged. Apart, so that whoever wants
//! to leave no audit cannot spend it on denials before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_core::decide::Operation;
use onceward_core::time::Time;
use onceward_store::{Outcome, Write};

/// Credit is time: a full minute of it is as much as may be saved up.
const FULL: i64 = 60_000_000;

/// Owners that are told apart; those beyond share one credit.
const OWNERS: usize = 10_000;

/// An entry of so many bytes costs as much as one; a larger one costs more.
const BYTES: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Trail {
    /// What one entry costs.
    cost: Option<i64>,
    denials: Credits,
    audited: Credits,
}

/// What each owner has.
#[derive(Debug, Default)]
struct Credits(Mutex<HashMap<Arc<str>, Credit>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Denial,
    Audited,
}

#[derive(Clone, Copy, Debug)]
struct Credit {
    micros: i64,
    at: Time,
}

/// What a batch has spent, to be given back where it was not saved.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    by: Vec<(Kind, Arc<str>, i64)>,
    /// Refusals that leave no entry.
    pub(crate) untold: u64,
}

impl Trail {
    pub(crate) fn new(per_minute: u32) -> Self {
        let cost = FULL.checked_div(i64::from(per_minute));
        Self { cost, denials: Credits::default(), audited: Credits::default() }
    }

    fn credits(&self, kind: Kind) -> &Credits {
        match kind {
            Kind::Denial => &self.denials,
            Kind::Audited => &self.audited,
        }
    }

    /// Let those refusals of a batch leave no entry that their owners cannot afford.
    pub(crate) fn bound(&self, writes: &mut [Write], now: Time) -> Spent {
        let mut spent = Spent::default();
        for write in writes {
            let Outcome::Refusal(refusal) = &mut write.outcome else { continue };
            let kind = match (refusal.denial, &refusal.audit) {
                (_, Some(_)) => Kind::Audited,
                (true, None) => Kind::Denial,
                (false, None) => continue,
            };
            if let Some((owner, cost)) = self.spend(kind, &write.operation, now) {
                spent.by.push((kind, owner, cost));
            } else {
                (refusal.denial, refusal.audit) = (false, None);
                spent.untold += 1;
            }
        }
        spent
    }

    fn spend(&self, kind: Kind, operation: &Operation, now: Time) -> Option<(Arc<str>, i64)> {
        let bytes = serde_json::to_vec(operation).map_or(usize::MAX, |text| text.len());
        let cost = self.cost?.saturating_mul(i64::try_from(bytes / BYTES + 1).unwrap_or(i64::MAX));
        let mut owners = self.credits(kind).owners();
        if owners.len() >= OWNERS && !owners.contains_key(&operation.actor.id) {
            owners.retain(|_, credit| credit.grown(now) < FULL);
        }
        let known = owners.len() < OWNERS || owners.contains_key(&operation.actor.id);
        let owner = if known { Arc::clone(&operation.actor.id) } else { "".into() };
        let credit = owners.entry(Arc::clone(&owner)).or_insert(Credit { micros: FULL, at: now });
        *credit = Credit { micros: credit.grown(now), at: now };
        // What costs more than can ever be saved up is told where nothing else was.
        let cost = cost.min(FULL);
        if credit.micros < cost {
            return None;
        }
        credit.micros -= cost;
        Some((owner, cost))
    }

    pub(crate) fn give_back(&self, spent: Spent) {
        for (kind, owner, cost) in spent.by {
            if let Some(credit) = self.credits(kind).owners().get_mut(&owner) {
                credit.micros = (credit.micros + cost).min(FULL);
            }
        }
    }
}

impl Credits {
    fn owners(&self) -> MutexGuard<'_, HashMap<Arc<str>, Credit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Credit {
    /// A clock that was set back gives nothing, and takes nothing.
    fn grown(self, now: Time) -> i64 {
        let passed = now.micros().saturating_sub(self.at.micros()).max(0);
        self.micros.saturating_add(passed).min(FULL)
    }
}
