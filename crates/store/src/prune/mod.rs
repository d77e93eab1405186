//! Pruning: what a store is asked for, and what it is told to let go of.
//!
//! Like an operation, a prune is loaded without locks, worked out, and saved only if what it rests on is still so. Who goes is
//! the caller's to choose ([`Kin`]); what must still be known of them is worked out here, from their own entries ([`Carry`]),
//! and written into the log as a [`Checkpoint`](crate::log::Checkpoint) in the transaction that deletes them.

mod carry;

use std::sync::Arc;

use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::base::Stored;
use crate::batch::RequestName;
use crate::log::{Entry, Hash, NO_HASH};

pub use carry::{Carry, Unsound};

/// Where to look for records that ended long ago.
#[derive(Clone, Copy, Debug)]
pub struct OldQuery {
    /// Where the page before ended: its [`OldPage::next`].
    pub after: u64,
    /// Ended, and last changed, at this time or before.
    pub before: Time,
    /// How many records to look at, old or not.
    pub limit: usize,
}

/// Oldest first.
#[derive(Clone, Debug, Default)]
pub struct OldPage {
    pub records: Vec<RecordId>,
    /// `None` where all that may be old was looked at.
    pub next: Option<u64>,
}

/// A record, and who points to it.
#[derive(Clone, Debug)]
pub struct Kin {
    pub stored: Stored,
    pub record: Arc<Record>,
    /// Raised when a link to it comes or goes.
    pub links: u64,
    /// All records that point to it, by whatever field, each once.
    pub sources: Vec<RecordId>,
}

/// A record that is to go, with all of its entries.
#[derive(Clone, Debug)]
pub struct Taken {
    pub stored: Stored,
    pub record: Arc<Record>,
    /// As it was when its sources were looked at.
    pub links: u64,
    pub sources: Vec<RecordId>,
    pub entries: Vec<Entry>,
}

/// What is to be pruned, in one transaction.
#[derive(Clone, Debug)]
pub struct Prune {
    pub carry: Carry,
    pub now: Time,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneSave {
    /// Durable; the checkpoint has this place in the log.
    Saved(u64),
    /// Nothing was written: something has changed since it was loaded, or another process prunes.
    Conflict,
}

/// How far a store is pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The place and the hash of the newest checkpoint; nothing was pruned where there is none.
    pub checkpoint: u64,
    pub head: Hash,
    /// The last place that was taken from the log. After it nothing is missing.
    pub floor: u64,
}

impl Default for Standing {
    fn default() -> Self {
        Self { checkpoint: 0, head: NO_HASH, floor: 0 }
    }
}

/// Old answers to callers' keys.
#[derive(Clone, Debug)]
pub struct OldRequests {
    /// Where the last call ended.
    pub after: Option<RequestName>,
    /// Answered at this time or before.
    pub before: Time,
    /// How many to look at, old or not.
    pub limit: usize,
}

/// Counts that tell nothing: of nobody, or of a window that is long over.
#[derive(Clone, Debug, Default)]
pub struct OldCounts {
    /// Where the last call ended.
    pub after: Option<CountPlace>,
    /// Windows of a limit `per` a time that began before this are over; `None`: none is.
    pub windows: Option<Time>,
    /// How many to look at.
    pub limit: usize,
}

impl OldCounts {
    pub(crate) fn are_over(&self, count: u64, window: Option<i64>) -> bool {
        let before = self.windows.zip(window);
        count == 0 || before.is_some_and(|(before, window)| window < before.micros())
    }
}

/// Where a count stands in a store, to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountPlace {
    pub(crate) lifecycle: i64,
    pub(crate) name: i64,
    pub(crate) parts: String,
    pub(crate) window: i64,
}

/// How many counts went, and where to go on; `None` where all were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgottenCounts {
    pub counts: u64,
    pub next: Option<CountPlace>,
}

/// Letters of the inbox that were answered long ago.
#[derive(Clone, Debug)]
pub struct OldLetters {
    /// The number of the last one that was looked at.
    pub after: i64,
    /// Answered at this time or before.
    pub before: Time,
    /// How many to look at, answered or not.
    pub limit: usize,
}

/// How many letters went, and where to go on; `None` where those that follow are too young.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgottenLetters {
    pub letters: u64,
    pub next: Option<i64>,
}

/// How many of them were forgotten, and where to go on; `None` where all were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub requests: u64,
    pub next: Option<RequestName>,
}
