//! The result of `verify`.

use onceward_store::TableDifference;

/// Bounds memory; further differences are counted. A [`ProgressObserver`] gets all of them.
const MAX_KEPT_DIFFERENCES: usize = 1_000;

/// An operation that the same version of `decide` would decide differently today. This is not damage: the stored data
/// match the decision of that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionDrift {
    /// Seq of the operation's first entry.
    pub seq: u64,
    pub reason: String,
}

/// What `verify` read and found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Seq of the last entry that was read.
    pub seq: u64,
    pub entries: u64,
    pub records: u64,
    /// Table rows that were compared.
    pub rows: u64,
    /// Large payloads that were checked in object storage.
    pub objects: u64,
    /// Operations that were re-decided, and operations that could not be: another version of `decide` decided them,
    /// or their result is not stored.
    pub redecided: u64,
    pub not_redecided: u64,
    /// Refusals that would differ on the log's data. The save does not validate what a refusal read, so some are
    /// expected under load.
    pub other_refusals: u64,
    /// What was pruned and can no longer be verified.
    pub pruned: PrunedSummary,
    /// Rows that changed while their table was read, and were not found.
    pub changed_while_read: u64,
    pub differences: Vec<TableDifference>,
    pub more_differences: u64,
    pub drifts: Vec<DecisionDrift>,
    pub more_drifts: u64,
    /// Why verification stopped early.
    pub stopped: Option<String>,
}

/// What checkpoints say was pruned. Their counts cannot be verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrunedSummary {
    pub checkpoints: u64,
    pub records: u64,
    pub entries: u64,
    /// Last pruned seq. Operations up to here are not re-decided.
    pub floor_seq: u64,
    /// Operations that could not be re-decided: at or before `floor_seq`, or because they read pruned records.
    pub not_redecided: u64,
}

impl VerifyReport {
    /// Returns whether there is neither a difference nor a drift.
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty() && self.drifts.is_empty()
    }

    /// Returns the number of all differences, including those that were only counted.
    pub fn total_differences(&self) -> u64 {
        self.more_differences + u64::try_from(self.differences.len()).unwrap_or(u64::MAX)
    }

    pub fn total_drifts(&self) -> u64 {
        self.more_drifts + u64::try_from(self.drifts.len()).unwrap_or(u64::MAX)
    }

    /// Adds a difference; beyond the limit it is only counted.
    pub fn add_difference(&mut self, difference: TableDifference) {
        if self.differences.len() < MAX_KEPT_DIFFERENCES {
            self.differences.push(difference);
        } else {
            self.more_differences += 1;
        }
    }

    pub(super) fn add_drift(&mut self, drift: DecisionDrift) {
        if self.drifts.len() < MAX_KEPT_DIFFERENCES {
            self.drifts.push(drift);
        } else {
            self.more_drifts += 1;
        }
    }
}

/// Observes a running verification.
pub trait ProgressObserver: Send {
    fn on_difference(&mut self, _difference: &TableDifference) {}

    fn on_drift(&mut self, _drift: &DecisionDrift) {}

    /// Reports which table is read, how many rows are done, and about how many there are.
    fn on_progress(&mut self, _table_name: &'static str, _done: u64, _total: u64) {}
}

impl ProgressObserver for () {}
