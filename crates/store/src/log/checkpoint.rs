//! The checkpoint: the log entry that pruning appends. It lists the pruned records and the values that later entries
//! still need.

use std::sync::Arc;

use onceward_core::decide::{CounterKey, UniqueKey};
use onceward_core::hex;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde::{Deserialize, Serialize};

use super::entry::Sha256Hash;
use super::seq_ranges::SeqRanges;

/// Records that were pruned together, each with all of its log entries. The checkpoint carries forward the changes that
/// these entries made elsewhere, so that the remaining log still replays to the stored tables.
///
/// A checkpoint belongs to no record. Checkpoints form their own hash chain: each hash covers the previous checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Seq of the previous checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_seq: Option<u64>,
    /// All pruned records had ended by this time.
    pub cutoff: Time,
    pub pruned: Vec<PrunedCount>,
    /// Seqs of the pruned entries.
    pub seqs: SeqRanges,
    /// Digest over the id and the last entry's hash of each pruned record, in the order of their first entries.
    #[serde(with = "hex::hash")]
    pub digest: Sha256Hash,
    /// Sums that the pruned entries transferred to named accounts, by asset and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<(Arc<str>, Arc<str>, i64)>,
    /// Sums that the pruned entries transferred to holds of remaining records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<(RecordId, i64)>,
    /// Sums that the pruned entries added to counters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<(CounterKey, i64)>,
    /// The last write to each unique key: its seq, the key, and the holder since then. Includes all permanent keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uniques: Vec<(u64, UniqueKey, Option<RecordId>)>,
    /// How often links to remaining records were added or removed, including the removals by this checkpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<(RecordId, u64)>,
    /// Unique keys and counters that the records held until they were pruned.
    #[serde(default, skip_serializing_if = "ReleasedKeys::is_empty")]
    pub released: ReleasedKeys,
}

/// Number of pruned records by lifecycle, owner and final state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PrunedCount {
    pub lifecycle: Arc<str>,
    pub owner: Arc<str>,
    pub state: Arc<str>,
    pub records: u64,
}

/// Unique keys and counters with an `in` list of states, of records that ended in one of these states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasedKeys {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uniques: Vec<UniqueKey>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<(CounterKey, i64)>,
}

impl ReleasedKeys {
    fn is_empty(&self) -> bool {
        self.uniques.is_empty() && self.counts.is_empty()
    }
}

impl Checkpoint {
    /// Returns the number of pruned records.
    pub fn pruned_records(&self) -> u64 {
        self.pruned.iter().map(|share| share.records).fold(0, u64::saturating_add)
    }

    /// Returns the largest pruned seq. No entry after it is missing.
    pub fn last_pruned_seq(&self) -> u64 {
        self.seqs.last().unwrap_or(0)
    }
}
