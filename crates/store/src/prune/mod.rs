//! Pruning: what a store is asked for, and what it is told to let go of.
//!
//! Like an operation, a prune is loaded without locks, worked out, and saved only if what it rests on is still so. Who goes is
//! the caller's to choose ([`RecordWithReferrers`]); what must still be known of them is worked out here, from their own entries ([`PrunePlan`]),
//! and written into the log as a [`Checkpoint`](crate::log::Checkpoint) in the transaction that deletes them.

mod plan;

use std::sync::Arc;

use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::batch::IdempotencyId;
use crate::log::{LogEntry, Sha256Hash, ZERO_HASH};
use crate::read_set::RecordMeta;

pub use plan::{PruneBlocked, PrunePlan};

/// Where to look for records that ended long ago.
#[derive(Clone, Copy, Debug)]
pub struct PrunableQuery {
    /// Where the page before ended: its [`PrunablePage::next`].
    pub after_row: u64,
    /// Ended, and last changed, at this time or before.
    pub cutoff: Time,
    /// How many records to look at, old or not.
    pub limit: usize,
}

/// Oldest first.
#[derive(Clone, Debug, Default)]
pub struct PrunablePage {
    pub records: Vec<RecordId>,
    /// `None` where all that may be old was looked at.
    pub next: Option<u64>,
}

/// A record, and who points to it.
#[derive(Clone, Debug)]
pub struct RecordWithReferrers {
    pub meta: RecordMeta,
    pub record: Arc<Record>,
    /// Raised when a link to it comes or goes.
    pub link_version: u64,
    /// All records that point to it, by whatever field, each once.
    pub referrers: Vec<RecordId>,
}

/// A record that is to go, with all of its entries.
#[derive(Clone, Debug)]
pub struct PrunedRecord {
    pub meta: RecordMeta,
    pub record: Arc<Record>,
    /// As it was when its sources were looked at.
    pub link_version: u64,
    pub referrers: Vec<RecordId>,
    pub entries: Vec<LogEntry>,
}

/// What is to be pruned, in one transaction.
#[derive(Clone, Debug)]
pub struct PruneRequest {
    pub plan: PrunePlan,
    pub now: Time,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneResult {
    /// Durable; the checkpoint has this place in the log.
    Saved(u64),
    /// Nothing was written: something has changed since it was loaded, or another process prunes.
    Conflict,
}

/// How far a store is pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneState {
    /// The place and the hash of the newest checkpoint; nothing was pruned where there is none.
    pub checkpoint_seq: u64,
    pub checkpoint_hash: Sha256Hash,
    /// The last place that was taken from the log. After it nothing is missing.
    pub last_pruned_seq: u64,
}

impl Default for PruneState {
    fn default() -> Self {
        Self { checkpoint_seq: 0, checkpoint_hash: ZERO_HASH, last_pruned_seq: 0 }
    }
}

/// Old answers to callers' keys.
#[derive(Clone, Debug)]
pub struct ExpiredKeysQuery {
    /// Where the last call ended.
    pub after: Option<IdempotencyId>,
    /// Answered at this time or before.
    pub cutoff: Time,
    /// How many to look at, old or not.
    pub limit: usize,
}

/// Counts that tell nothing: of nobody, or of a window that is long over.
#[derive(Clone, Debug, Default)]
pub struct ExpiredCountersQuery {
    /// Where the last call ended.
    pub after: Option<CounterCursor>,
    /// Windows of a limit `per` a time that began before this are over; `None`: none is.
    pub window_cutoff: Option<Time>,
    /// How many to look at.
    pub limit: usize,
}

impl ExpiredCountersQuery {
    pub(crate) fn is_expired(&self, count: u64, window: Option<i64>) -> bool {
        let before = self.window_cutoff.zip(window);
        count == 0 || before.is_some_and(|(before, window)| window < before.micros())
    }
}

/// Where a count stands in a store, to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterCursor {
    pub(crate) lifecycle: i64,
    pub(crate) name: i64,
    pub(crate) parts: String,
    pub(crate) window: i64,
}

/// How many counts went, and where to go on; `None` where all were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredCountersPage {
    pub deleted: u64,
    pub next: Option<CounterCursor>,
}

/// Letters of the inbox that were answered long ago.
#[derive(Clone, Debug)]
pub struct AnsweredCallsQuery {
    /// The number of the last one that was looked at.
    pub after_id: i64,
    /// Answered at this time or before.
    pub cutoff: Time,
    /// How many to look at, answered or not.
    pub limit: usize,
}

/// How many letters went, and where to go on; `None` where those that follow are too young.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnsweredCallsPage {
    pub deleted: u64,
    pub next: Option<i64>,
}

/// How many of them were forgotten, and where to go on; `None` where all were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredKeysPage {
    pub deleted: u64,
    pub next: Option<IdempotencyId>,
}
