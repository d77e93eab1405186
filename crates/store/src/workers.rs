//! Who came for jobs lately. The log does not tell: whoever found none left nothing in it.

use std::sync::Arc;

use onceward_core::time::Time;
use sha2::{Digest, Sha256};

/// A worker, as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSighting {
    pub name: WorkerName,
    /// The lifecycles that it asked for, the last time.
    pub lifecycles: Vec<Arc<str>>,
    pub last_seen_at: Time,
}

/// What a worker calls itself, and whose it is: others may call theirs the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName {
    /// `actor.id` of the key that it comes with.
    pub holder: Arc<str>,
    pub worker: Arc<str>,
}

impl WorkerName {
    /// Short enough for every index.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut sha = Sha256::new();
        sha.update(u64::try_from(self.holder.len()).unwrap_or(u64::MAX).to_be_bytes());
        sha.update(self.holder.as_bytes());
        sha.update(self.worker.as_bytes());
        sha.finalize().into()
    }
}

/// How many live leases each worker holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// By name.
    pub workers: Vec<(WorkerName, u64)>,
    /// All of them were counted. Where many timers run out before the last lease does, there may be more.
    pub is_complete: bool,
}
