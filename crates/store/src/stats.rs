//! Store statistics for monitoring, with a bounded cost on any amount of data.

use std::sync::Arc;

use onceward_core::time::Time;

use crate::query::StateCount;

/// Ready jobs of each lifecycle that are scanned from each end of the queue. The queue is ordered by rank, so a job of
/// low priority can be the oldest and still be near the back.
pub(crate) const MAX_SCANNED_READY_PER_END: usize = 1_000;

/// Limit for counting the ready jobs of each lifecycle.
pub(crate) const MAX_COUNTED_READY: usize = 10_000;

/// Limit for scanning timers, earliest first. It bounds the counts of live leases and overdue records.
pub(crate) const MAX_SCANNED_TIMERS: usize = 10_000;

/// Counts and ages of records, jobs, leases and overdue timers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Records by lifecycle and state. The store maintains these numbers, so reading them needs no count.
    pub state_counts: Vec<StateCount>,
    /// Oldest ready time by lifecycle and state, among the first and last thousand jobs of the queue. If all jobs have
    /// the same priority, it is the exact minimum.
    pub oldest_ready: Vec<OldestReady>,
    /// Ready jobs by lifecycle. 10,000 means that many or more.
    pub ready_counts: Vec<ReadyCount>,
    /// Live leases. 10,000 means that many or more.
    pub live_leases: u64,
    /// Records with an overdue timer. 10,000 means that many or more.
    pub overdue_records: u64,
    /// Due time of the most overdue record.
    pub overdue_since: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OldestReady {
    pub lifecycle: Arc<str>,
    pub state: Arc<str>,
    pub ready_since: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadyCount {
    pub lifecycle: Arc<str>,
    pub jobs: u64,
}

impl StoreStats {
    /// Keeps the earliest time per lifecycle and state, over all versions.
    pub(crate) fn note_oldest_ready(&mut self, lifecycle: &Arc<str>, state: &Arc<str>, ready_since: Time) {
        let found =
            self.oldest_ready.iter_mut().find(|oldest| oldest.lifecycle == *lifecycle && oldest.state == *state);
        match found {
            Some(oldest) => oldest.ready_since = oldest.ready_since.min(ready_since),
            None => self.oldest_ready.push(OldestReady {
                lifecycle: Arc::clone(lifecycle),
                state: Arc::clone(state),
                ready_since,
            }),
        }
    }
}
