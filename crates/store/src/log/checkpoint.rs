//! The entry that pruning leaves in the log: what it took, and what of it must still be known.

use std::sync::Arc;

use onceward_core::decide::{CounterKey, UniqueKey};
use onceward_core::hex;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde::{Deserialize, Serialize};

use super::entry::Sha256Hash;
use super::seq_ranges::SeqRanges;

/// Records that were pruned together, each with all of its entries. What those entries had left elsewhere is carried forward
/// here, so that the rest of the log still comes to what the tables say.
///
/// Checkpoints belong to no record and are chained among themselves: the hash of each is over the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The place of the checkpoint before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_seq: Option<u64>,
    /// All of them had ended at this time or before.
    pub cutoff: Time,
    pub pruned: Vec<PrunedCount>,
    /// The places that their entries had.
    pub seqs: SeqRanges,
    /// Of the id and the last entry's hash of each, in the order of their first entries.
    #[serde(with = "hex::hash")]
    pub digest: Sha256Hash,
    /// What their entries moved to named accounts, by asset and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<(Arc<str>, Arc<str>, i64)>,
    /// What they moved to the holds of records that stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<(RecordId, i64)>,
    /// What they counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<(CounterKey, i64)>,
    /// The last word on keys: the place where it was said, the key, and who holds it from there on. All permanent ones are here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uniques: Vec<(u64, UniqueKey, Option<RecordId>)>,
    /// How often links to records that stay came and went, their going now included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<(RecordId, u64)>,
    /// What they held and counted in until now, and no longer do.
    #[serde(default, skip_serializing_if = "ReleasedKeys::is_empty")]
    pub released: ReleasedKeys,
}

/// Records of one lifecycle and owner that ended in one state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PrunedCount {
    pub lifecycle: Arc<str>,
    pub owner: Arc<str>,
    pub state: Arc<str>,
    pub records: u64,
}

/// Keys and limits `in` states, of records that ended in one of them.
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
    /// How many records were taken.
    pub fn pruned_records(&self) -> u64 {
        self.pruned.iter().map(|share| share.records).fold(0, u64::saturating_add)
    }

    /// The last place that was taken: what follows it is still whole.
    pub fn last_pruned_seq(&self) -> u64 {
        self.seqs.last().unwrap_or(0)
    }
}
