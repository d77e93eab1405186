//! Pruning: queries for prunable data and requests to delete it.
//!
//! Like an operation, a prune is loaded without locks, planned, and saved only if the loaded values are unchanged. The
//! caller chooses the records ([`RecordWithReferrers`]). [`PrunePlan`] computes from their log entries what must be
//! carried forward. The store writes that as a [`Checkpoint`](crate::log::Checkpoint) in the transaction that deletes
//! the records.

mod plan;

use std::sync::Arc;

use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::batch::IdempotencyId;
use crate::log::{LogEntry, Sha256Hash, ZERO_HASH};
use crate::read_set::RecordMeta;

pub use plan::{PruneBlocked, PrunePlan};

/// Selects a page of records that ended before the cutoff.
#[derive(Clone, Copy, Debug)]
pub struct PrunableQuery {
    /// [`PrunablePage::next`] of the previous page.
    pub after_row: u64,
    /// Only records that ended and last changed at this time or earlier.
    pub cutoff: Time,
    /// Maximum number of records to scan, including those that do not match.
    pub limit: usize,
}

/// A page of prunable records, oldest first.
#[derive(Clone, Debug, Default)]
pub struct PrunablePage {
    pub records: Vec<RecordId>,
    /// `None` if no more records can match.
    pub next: Option<u64>,
}

/// A record and the records that link to it.
#[derive(Clone, Debug)]
pub struct RecordWithReferrers {
    pub meta: RecordMeta,
    pub record: Arc<Record>,
    /// Incremented when a link to the record is added or removed.
    pub link_version: u64,
    /// All records that link to this one through any field, without duplicates.
    pub referrers: Vec<RecordId>,
}

/// A record to prune, with all of its log entries.
#[derive(Clone, Debug)]
pub struct PrunedRecord {
    pub meta: RecordMeta,
    pub record: Arc<Record>,
    /// The link version when the referrers were loaded.
    pub link_version: u64,
    pub referrers: Vec<RecordId>,
    pub entries: Vec<LogEntry>,
}

/// A prune to execute in one transaction.
#[derive(Clone, Debug)]
pub struct PruneRequest {
    pub plan: PrunePlan,
    pub now: Time,
}

/// Result of a prune.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneResult {
    /// The prune is durable; its checkpoint has this seq.
    Saved(u64),
    /// Nothing was written: a loaded value changed, or another process is pruning.
    Conflict,
}

/// How far a store's log is pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneState {
    /// Seq and hash of the newest checkpoint; 0 if there is none.
    pub checkpoint_seq: u64,
    pub checkpoint_hash: Sha256Hash,
    /// The largest pruned seq. No entry after it is missing.
    pub last_pruned_seq: u64,
}

impl Default for PruneState {
    fn default() -> Self {
        Self { checkpoint_seq: 0, checkpoint_hash: ZERO_HASH, last_pruned_seq: 0 }
    }
}

/// Selects expired idempotency keys to delete.
#[derive(Clone, Debug)]
pub struct ExpiredKeysQuery {
    /// Where the previous call ended.
    pub after: Option<IdempotencyId>,
    /// Only keys whose reply was stored at this time or earlier.
    pub cutoff: Time,
    /// Maximum number of keys to scan.
    pub limit: usize,
}

/// Selects counters to delete: those at zero, and those whose time window has expired.
#[derive(Clone, Debug, Default)]
pub struct ExpiredCountersQuery {
    /// Where the previous call ended.
    pub after: Option<CounterCursor>,
    /// Counters whose window starts before this are expired; `None` means that none is.
    pub window_cutoff: Option<Time>,
    /// Maximum number of counters to scan.
    pub limit: usize,
}

impl ExpiredCountersQuery {
    pub(crate) fn is_expired(&self, count: u64, window_start: Option<i64>) -> bool {
        let before = self.window_cutoff.zip(window_start);
        count == 0 || before.is_some_and(|(before, start)| start < before.micros())
    }
}

/// Position of a counter in a store, to continue a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterCursor {
    pub(crate) lifecycle: i64,
    pub(crate) name: i64,
    pub(crate) parts: String,
    pub(crate) window_start: i64,
}

/// Number of counters deleted, and where to continue; `None` if all were scanned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredCountersPage {
    pub deleted: u64,
    pub next: Option<CounterCursor>,
}

/// Selects answered inbox calls to delete.
#[derive(Clone, Debug)]
pub struct AnsweredCallsQuery {
    /// Id of the last call scanned before.
    pub after_id: i64,
    /// Only calls answered at this time or earlier.
    pub cutoff: Time,
    /// Maximum number of calls to scan, answered or not.
    pub limit: usize,
}

/// Number of inbox calls deleted, and where to continue; `None` if the remaining calls are too recent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnsweredCallsPage {
    pub deleted: u64,
    pub next: Option<i64>,
}

/// Number of idempotency keys deleted, and where to continue; `None` if all were scanned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredKeysPage {
    pub deleted: u64,
    pub next: Option<IdempotencyId>,
}
