//! What was found.

use onceward_store::TableDifference;

/// So many differences are kept in the report; the rest is counted. Whoever wants all of them watches.
const MAX_KEPT_DIFFERENCES: usize = 1_000;

/// An operation that would be decided otherwise today, by the same version of the deciding code. Not damage: what is kept is
/// what was decided then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionDrift {
    /// The place of the operation's first entry.
    pub seq: u64,
    pub reason: String,
}

/// What `verifier` has seen and found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// The last entry that was read.
    pub seq: u64,
    pub entries: u64,
    pub records: u64,
    /// Rows of tables that were compared.
    pub rows: u64,
    /// Large payloads that were looked for beside the database.
    pub objects: u64,
    /// Operations that were decided again, and how many of them could not be: decided by another version of the deciding
    /// code, or by a result that is not kept.
    pub decided: u64,
    pub undecided: u64,
    /// Refusals that would be answered otherwise on what the log says. A refusal rests on what had been loaded, which nobody
    /// compares again, so that under load there may be some.
    pub other_refusals: u64,
    /// What pruning took, which can no longer be proved.
    pub pruned: PrunedSummary,
    /// Rows that came while their table was read, and were not met.
    pub changed_while_read: u64,
    pub differences: Vec<TableDifference>,
    pub more_differences: u64,
    pub drifts: Vec<DecisionDrift>,
    pub more_drifts: u64,
    /// Why it did not go on to the end.
    pub stopped: Option<String>,
}

/// What checkpoints say that pruning took: they are taken at their word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrunedSummary {
    pub checkpoints: u64,
    pub records: u64,
    pub entries: u64,
    /// The last place that was taken. Operations up to here are not decided again.
    pub floor_seq: u64,
    /// Operations that could not be decided again: up to the floor, or by records that are gone.
    pub undecided: u64,
}

impl VerifyReport {
    /// Nothing differs and nothing has drifted.
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty() && self.drifts.is_empty()
    }

    /// All differences, also those that were only counted.
    pub fn total_differences(&self) -> u64 {
        self.more_differences + u64::try_from(self.differences.len()).unwrap_or(u64::MAX)
    }

    pub fn total_drifts(&self) -> u64 {
        self.more_drifts + u64::try_from(self.drifts.len()).unwrap_or(u64::MAX)
    }

    /// One more. So many are kept; of the others there is a number.
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

/// Whoever wants to know before it is over.
pub trait ProgressObserver: Send {
    fn on_difference(&mut self, _difference: &TableDifference) {}

    fn on_drift(&mut self, _drift: &DecisionDrift) {}

    /// What is being read, how much of it is done, and about how much there is.
    fn on_progress(&mut self, _table_name: &'static str, _done: u64, _total: u64) {}
}

/// Nobody watches.
impl ProgressObserver for () {}
