//! The data of the reference model.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onceward_core::decide::{Effect, Snapshot};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::api_keys::ApiKeySet;
use crate::batch::{IdempotencyId, IdempotencyRecord};
use crate::catalog::Catalog;
use crate::log::{LogEntry, Sha256Hash};
use crate::prune::PruneState;
use crate::webhook_secrets::WebhookSecrets;
use crate::workers::{WorkerName, WorkerSighting};

/// Core's complete snapshot, and the data that core does not need.
#[derive(Debug)]
pub(super) struct MemoryState {
    /// Incremented by every save.
    pub(super) generation: u64,
    pub(super) snapshot: Snapshot,
    /// Records by row id, which counts from 1 in the order of creation.
    pub(super) ids_by_row: BTreeMap<u64, RecordId>,
    pub(super) record_meta: HashMap<RecordId, MemoryRecordMeta>,
    pub(super) effects: HashMap<RecordId, Effect>,
    pub(super) payloads: HashMap<[u8; 32], Arc<[u8]>>,
    /// With the time of the reply.
    pub(super) idempotency_records: BTreeMap<IdempotencyId, (IdempotencyRecord, Time)>,
    pub(super) prune_state: PruneState,
    pub(super) api_keys: ApiKeySet,
    pub(super) log: Vec<LogEntry>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) workers: BTreeMap<WorkerName, WorkerSighting>,
    /// By owner.
    pub(super) webhook_secrets: BTreeMap<String, WebhookSecrets>,
}

/// Data stored with a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryRecordMeta {
    pub(super) row_id: u64,
    pub(super) head_hash: Sha256Hash,
    /// Seq of the record's last log entry.
    pub(super) head_seq: u64,
    /// Incremented when a link to the record is added or removed.
    pub(super) link_version: u64,
}

impl MemoryState {
    /// Returns the last seq. Pruning never deletes the last entry.
    pub(super) fn last_seq(&self) -> u64 {
        self.log.last().map_or(0, |entry| entry.seq)
    }
}

impl Default for MemoryState {
    fn default() -> Self {
        Self {
            generation: 0,
            snapshot: Snapshot::empty_complete(),
            ids_by_row: BTreeMap::new(),
            record_meta: HashMap::new(),
            effects: HashMap::new(),
            payloads: HashMap::new(),
            idempotency_records: BTreeMap::new(),
            prune_state: PruneState::default(),
            api_keys: ApiKeySet::default(),
            log: Vec::new(),
            catalog: Arc::default(),
            workers: BTreeMap::new(),
            webhook_secrets: BTreeMap::new(),
        }
    }
}
