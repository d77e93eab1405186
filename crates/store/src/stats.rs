//! How a store stands, for who watches it all the time: cheap, whatever it holds.

use std::sync::Arc;

use onceward_core::time::Time;

use crate::query::StateCount;

/// Waiting jobs of each lifecycle that are looked at, from either end of the line. The line is not in the order of waiting: whoever has a
/// low priority may wait long, and stands at the back.
pub(crate) const MAX_SCANNED_READY_PER_END: usize = 1_000;

/// Waiting jobs of each lifecycle that are counted, and no more.
pub(crate) const MAX_COUNTED_READY: usize = 10_000;

/// Timers that are looked at, the next first: so many live leases and overdue records are told apart, and no more.
pub(crate) const MAX_SCANNED_TIMERS: usize = 10_000;

/// How many there are of what, and since when the first of them waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Records by lifecycle and state: kept, not counted.
    pub state_counts: Vec<StateCount>,
    /// Since when a job waits for a worker, by lifecycle and state: the longest of the first and the last thousand in line. Where all
    /// have one priority, it is the first of them all.
    pub oldest_ready: Vec<OldestReady>,
    /// How many jobs a worker could be given now, by lifecycle. From ten thousand on there may be more.
    pub ready_counts: Vec<ReadyCount>,
    /// Leases that count. From ten thousand on there may be more.
    pub live_leases: u64,
    /// Records that should have moved by themselves. From ten thousand on there may be more.
    pub overdue_records: u64,
    /// Since when the first of them should have.
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
    /// Of several versions of a lifecycle, the one that waits longest.
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
