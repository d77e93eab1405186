//! Sightings of workers: when each last polled for jobs. The log cannot provide this, because a poll without jobs
//! writes no entry.

use std::sync::Arc;

use onceward_core::time::Time;
use sha2::{Digest, Sha256};

/// A worker and when it last polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSighting {
    pub name: WorkerName,
    /// The lifecycles of its last poll.
    pub lifecycles: Vec<Arc<str>>,
    pub last_seen_at: Time,
}

/// A worker's own name with its holder, because workers of different holders can have the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName {
    /// `actor.id` of the worker's API key.
    pub holder: Arc<str>,
    pub worker: Arc<str>,
}

impl WorkerName {
    /// Returns a fixed-size hash for indexes, because names can be long.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut sha = Sha256::new();
        sha.update(u64::try_from(self.holder.len()).unwrap_or(u64::MAX).to_be_bytes());
        sha.update(self.holder.as_bytes());
        sha.update(self.worker.as_bytes());
        sha.finalize().into()
    }
}

/// Number of live leases of each worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Ordered by name.
    pub workers: Vec<(WorkerName, u64)>,
    /// Whether all leases were counted. False if the scan reached its limit of timers.
    pub is_complete: bool,
}
