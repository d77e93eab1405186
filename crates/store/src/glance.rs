//! How a store stands, for who watches it all the time: cheap, whatever it holds.

use std::sync::Arc;

use onceward_core::time::Time;

use crate::query::StateCount;

/// Waiting jobs of each lifecycle that are looked at, from either end of the line. The line is not in the order of waiting: whoever has a
/// low priority may wait long, and stands at the back.
pub(crate) const ENDS: usize = 1_000;

/// Waiting jobs of each lifecycle that are counted, and no more.
pub(crate) const COUNTED: usize = 10_000;

/// Timers that are looked at, the next first: so many live leases and overdue records are told apart, and no more.
pub(crate) const TIMERS: usize = 10_000;

/// How many there are of what, and since when the first of them waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Records by lifecycle and state: kept, not counted.
    pub counts: Vec<StateCount>,
    /// Since when a job waits for a worker, by lifecycle and state: the longest of the first and the last thousand in line. Where all
    /// have one priority, it is the first of them all.
    pub oldest: Vec<Oldest>,
    /// How many jobs a worker could be given now, by lifecycle. From ten thousand on there may be more.
    pub ready: Vec<Ready>,
    /// Leases that count. From ten thousand on there may be more.
    pub leases: u64,
    /// Records that should have moved by themselves. From ten thousand on there may be more.
    pub overdue: u64,
    /// Since when the first of them should have.
    pub overdue_since: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Oldest {
    pub lifecycle: Arc<str>,
    pub state: Arc<str>,
    pub since: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ready {
    pub lifecycle: Arc<str>,
    pub jobs: u64,
}

impl Glance {
    /// Of several versions of a lifecycle, the one that waits longest.
    pub(crate) fn waits(&mut self, lifecycle: &Arc<str>, state: &Arc<str>, since: Time) {
        let found = self.oldest.iter_mut().find(|oldest| oldest.lifecycle == *lifecycle && oldest.state == *state);
        match found {
            Some(oldest) => oldest.since = oldest.since.min(since),
            None => self.oldest.push(Oldest { lifecycle: Arc::clone(lifecycle), state: Arc::clone(state), since }),
        }
    }
}
