//! What the reference model keeps.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onceward_core::decide::{Effect, Snapshot};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::api_keys::KeptKeys;
use crate::batch::{Request, RequestName};
use crate::catalog::Catalog;
use crate::log::{Entry, Hash};
use crate::prune::Standing;
use crate::workers::{WorkerName, WorkerSeen};

/// Core's own complete world, and beside it what core has no need of.
#[derive(Debug)]
pub(super) struct Kept {
    /// Raised by every save.
    pub(super) generation: u64,
    pub(super) world: Snapshot,
    /// Records by the order of their creation, from 1.
    pub(super) rows: BTreeMap<u64, RecordId>,
    pub(super) beside: HashMap<RecordId, Beside>,
    pub(super) effects: HashMap<RecordId, Effect>,
    pub(super) contents: HashMap<[u8; 32], Arc<[u8]>>,
    /// With the time when each was answered.
    pub(super) requests: BTreeMap<RequestName, (Request, Time)>,
    pub(super) pruned: Standing,
    pub(super) keys: KeptKeys,
    pub(super) log: Vec<Entry>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) workers: BTreeMap<WorkerName, WorkerSeen>,
}

/// What is kept beside a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    pub(super) row: u64,
    pub(super) head: Hash,
    /// The place of its last log entry.
    pub(super) entry: u64,
    /// Raised when a link to the record comes or goes.
    pub(super) links: u64,
}

impl Kept {
    /// The last place in the log. What stands there is never pruned.
    pub(super) fn last(&self) -> u64 {
        self.log.last().map_or(0, |entry| entry.seq)
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            generation: 0,
            world: Snapshot::world(),
            rows: BTreeMap::new(),
            beside: HashMap::new(),
            effects: HashMap::new(),
            contents: HashMap::new(),
            requests: BTreeMap::new(),
            pruned: Standing::default(),
            keys: KeptKeys::default(),
            log: Vec::new(),
            catalog: Arc::default(),
            workers: BTreeMap::new(),
        }
    }
}
