//! Limits how many denials and audited refusals a batch adds to the log. They change no record, so without a limit any
//! caller with an API key could grow the log without end.
//!
//! After a batch is decided and before it is saved, each owner may log `logged_denials_per_minute` refusals of each
//! kind; a refusal of more than 1 KB counts as several. Refusals beyond that are answered as usual, but only counted.
//! The kinds are separate, so that a caller cannot hide an audited refusal behind denials.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_core::decide::Operation;
use onceward_core::time::Time;
use onceward_store::{DecidedOperation, OperationOutcome};

/// The unit of a token is time: a bucket holds one minute.
const BUCKET_CAPACITY_MICROS: i64 = 60_000_000;

/// Owners with their own bucket; further owners share one.
const MAX_OWNERS: usize = 10_000;

/// An entry up to this size costs one unit; a larger one costs more.
const BYTES_PER_ENTRY: usize = 1_024;

#[derive(Debug)]
pub(crate) struct RefusalLogLimiter {
    entry_cost_micros: Option<i64>,
    denials: TokenBuckets,
    audited: TokenBuckets,
}

/// Buckets by owner.
#[derive(Debug, Default)]
struct TokenBuckets(Mutex<HashMap<Arc<str>, TokenBucket>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalKind {
    Denial,
    Audited,
}

#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    micros: i64,
    refilled_at: Time,
}

/// The charges of a batch, refunded if it is not saved.
#[derive(Debug, Default)]
pub(crate) struct LimiterCharge {
    charges: Vec<(RefusalKind, Arc<str>, i64)>,
    /// Refusals that are not logged.
    pub(crate) unlogged_refusals: u64,
}

impl RefusalLogLimiter {
    pub(crate) fn new(per_minute: u32) -> Self {
        let cost = BUCKET_CAPACITY_MICROS.checked_div(i64::from(per_minute));
        Self { entry_cost_micros: cost, denials: TokenBuckets::default(), audited: TokenBuckets::default() }
    }

    fn buckets(&self, kind: RefusalKind) -> &TokenBuckets {
        match kind {
            RefusalKind::Denial => &self.denials,
            RefusalKind::Audited => &self.audited,
        }
    }

    /// Removes the log entries that exceed their owners' limits.
    pub(crate) fn limit_entries(&self, writes: &mut [DecidedOperation], now: Time) -> LimiterCharge {
        let mut charge = LimiterCharge::default();
        for write in writes {
            let OperationOutcome::Refusal(refusal) = &mut write.outcome else { continue };
            let kind = match (refusal.is_denial, &refusal.audit) {
                (_, Some(_)) => RefusalKind::Audited,
                (true, None) => RefusalKind::Denial,
                (false, None) => continue,
            };
            if let Some((owner, cost)) = self.try_charge(kind, &write.operation, now) {
                charge.charges.push((kind, owner, cost));
            } else {
                (refusal.is_denial, refusal.audit) = (false, None);
                charge.unlogged_refusals += 1;
            }
        }
        charge
    }

    fn try_charge(&self, kind: RefusalKind, operation: &Operation, now: Time) -> Option<(Arc<str>, i64)> {
        let bytes = serde_json::to_vec(operation).map_or(usize::MAX, |text| text.len());
        let cost =
            self.entry_cost_micros?.saturating_mul(i64::try_from(bytes / BYTES_PER_ENTRY + 1).unwrap_or(i64::MAX));
        let mut owners = self.buckets(kind).lock_owners();
        if owners.len() >= MAX_OWNERS && !owners.contains_key(&operation.actor.id) {
            owners.retain(|_, credit| credit.refilled_micros(now) < BUCKET_CAPACITY_MICROS);
        }
        let is_tracked = owners.len() < MAX_OWNERS || owners.contains_key(&operation.actor.id);
        let owner = if is_tracked { Arc::clone(&operation.actor.id) } else { "".into() };
        let bucket = owners
            .entry(Arc::clone(&owner))
            .or_insert(TokenBucket { micros: BUCKET_CAPACITY_MICROS, refilled_at: now });
        *bucket = TokenBucket { micros: bucket.refilled_micros(now), refilled_at: now };
        // An entry that costs more than a full bucket is logged if the bucket is full.
        let cost = cost.min(BUCKET_CAPACITY_MICROS);
        if bucket.micros < cost {
            return None;
        }
        bucket.micros -= cost;
        Some((owner, cost))
    }

    pub(crate) fn refund(&self, charge: LimiterCharge) {
        for (kind, owner, cost) in charge.charges {
            if let Some(bucket) = self.buckets(kind).lock_owners().get_mut(&owner) {
                bucket.micros = (bucket.micros + cost).min(BUCKET_CAPACITY_MICROS);
            }
        }
    }
}

impl TokenBuckets {
    fn lock_owners(&self) -> MutexGuard<'_, HashMap<Arc<str>, TokenBucket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenBucket {
    /// A clock that was set back neither adds nor removes tokens.
    fn refilled_micros(self, now: Time) -> i64 {
        let elapsed_micros = now.micros().saturating_sub(self.refilled_at.micros()).max(0);
        self.micros.saturating_add(elapsed_micros).min(BUCKET_CAPACITY_MICROS)
    }
}
