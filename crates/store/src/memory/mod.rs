//! The reference model: an in-memory store that is simple enough to be obviously correct. It is for tests and
//! simulations; its data is lost when the process ends.

mod api_keys;
mod definitions;
mod ledger;
mod prune;
mod read;
mod save;
mod scan;
mod state;
mod workers;

use std::collections::HashSet;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_core::decide::{Effect, ReadKey};
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::{Execution, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::account::{AccountBalance, AccountName, AccountsQuery, StatementPage, StatementQuery};
use crate::api_keys::{ApiKeyEdit, ApiKeySaveResult, ApiKeySet};
use crate::batch::{Batch, IdempotencyId, IdempotencyRecord, SaveResult};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::links::{LinkPage, LinkQuery};
use crate::log::LogEntry;
use crate::prune::{
    ExpiredCountersPage, ExpiredCountersQuery, ExpiredKeysPage, ExpiredKeysQuery, PrunablePage, PrunableQuery,
    PruneRequest, PruneResult, PruneState, RecordWithReferrers,
};
use crate::query::{
    LeaseCandidate, LeaseQuery, ListQuery, PageBudget, PageLimit, RecordPage, StateCount, VersionCount,
};
use crate::read_set::ReadSet;
use crate::stats::StoreStats;
use crate::store::Store;
use crate::webhook_secrets::{WebhookSecret, WebhookSecrets};
use crate::workers::{LeaseCounts, WorkerSighting};
use state::MemoryState;

/// A store in memory. Clones share the same data.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<MemoryState>>,
    clock: Clock,
}

impl MemoryStore {
    pub fn new(clock: Clock) -> Self {
        Self { state: Arc::new(Mutex::new(MemoryState::default())), clock }
    }

    /// No panic can occur between changes that belong together, so the state is consistent even if the lock is
    /// poisoned.
    fn lock_state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    async fn load(&self, read_set: &mut ReadSet, keys: &[ReadKey]) -> Result<(), StoreError> {
        let state = self.lock_state();
        read_set.set_generation(state.generation);
        state.load(read_set, keys);
        Ok(())
    }

    async fn save(&self, read_set: &Arc<ReadSet>, batch: &Arc<Batch>) -> Result<SaveResult, StoreError> {
        self.lock_state().save(read_set, batch)
    }

    async fn lease_candidates(&self, query: &LeaseQuery) -> Result<Vec<LeaseCandidate>, StoreError> {
        Ok(self.lock_state().lease_candidates(query))
    }

    async fn due_records(&self, due_by: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        Ok(self.lock_state().due_records(due_by, limit))
    }

    async fn log(&self, after_seq: u64, limit: impl Into<PageLimit> + Send) -> Result<Vec<LogEntry>, StoreError> {
        let state = self.lock_state();
        if after_seq < state.prune_state.last_pruned_seq {
            return Err(StoreError::LogPruned { oldest: state.prune_state.last_pruned_seq });
        }
        let mut budget = PageBudget::new(limit.into());
        let page = state
            .log
            .iter()
            .filter(|entry| entry.seq > after_seq)
            .take_while(|entry| budget.try_take(entry.text.len()));
        Ok(page.cloned().collect())
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        Ok(self.lock_state().log.last().map_or(0, |entry| entry.seq))
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let (state, mut budget) = (self.lock_state(), PageBudget::new(limit.into()));
        let own = state.log.iter().filter(|entry| entry.record == Some(record) && entry.version > after_version);
        Ok(own.take_while(|entry| budget.try_take(entry.text.len())).cloned().collect())
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        Ok(self.lock_state().snapshot.record(id).cloned())
    }

    async fn list(&self, query: &ListQuery) -> Result<RecordPage, StoreError> {
        Ok(self.lock_state().list(query))
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        Ok(self.lock_state().counts_by_state(owner))
    }

    async fn stats(&self, now: Time) -> Result<StoreStats, StoreError> {
        Ok(self.lock_state().stats(now))
    }

    async fn payload(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(self.lock_state().payloads.get(sha256).cloned())
    }

    async fn referenced_payloads(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        let state = self.lock_state();
        let had = state.snapshot.records.values().flatten().filter_map(|record| record.payload);
        Ok(had.map(|payload| payload.sha256).filter(|sha256| hashes.contains(sha256)).collect())
    }

    async fn payloads(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        let state = self.lock_state();
        Ok(sha256s.iter().map(|sha256| state.payloads.get(sha256).cloned()).collect())
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        Ok(self.lock_state().effects.get(&record).cloned())
    }

    async fn executions_page(
        &self,
        record: RecordId,
        after_token: FencingToken,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        Ok(self.lock_state().executions_page(record, after_token, limit.into()))
    }

    async fn linked_records(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        Ok(self.lock_state().linked_records(query))
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<AccountBalance>, StoreError> {
        Ok(self.lock_state().accounts(query))
    }

    async fn account(&self, account: &AccountName) -> Result<Option<AccountBalance>, StoreError> {
        Ok(self.lock_state().account(account))
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<StatementPage>, StoreError> {
        self.lock_state().statement(query)
    }

    async fn upsert_workers(&self, sightings: &[WorkerSighting]) -> Result<(), StoreError> {
        self.lock_state().upsert_workers(sightings);
        Ok(())
    }

    async fn webhook_secrets(&self, owner: &str) -> Result<Option<WebhookSecrets>, StoreError> {
        Ok(self.lock_state().webhook_secrets.get(owner).cloned())
    }

    async fn save_webhook_secrets(
        &self,
        owner: &str,
        expected: Option<WebhookSecret>,
        secrets: &WebhookSecrets,
    ) -> Result<bool, StoreError> {
        let mut state = self.lock_state();
        if state.webhook_secrets.get(owner).is_some_and(|stored| Some(stored.current) != expected) {
            return Ok(false);
        }
        state.webhook_secrets.insert(owner.to_owned(), secrets.clone());
        Ok(true)
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSighting>, StoreError> {
        Ok(self.lock_state().workers(limit))
    }

    async fn lease_counts(&self, max_timers: usize) -> Result<LeaseCounts, StoreError> {
        Ok(self.lock_state().lease_counts(max_timers))
    }

    async fn delete_stale_workers(&self, seen_before: Time, max_workers: usize) -> Result<u64, StoreError> {
        Ok(self.lock_state().delete_stale_workers(seen_before, max_workers))
    }

    async fn idempotency_records(&self, ids: &[IdempotencyId]) -> Result<Vec<Option<IdempotencyRecord>>, StoreError> {
        let state = self.lock_state();
        Ok(ids.iter().map(|name| state.idempotency_records.get(name).map(|(request, _)| request.clone())).collect())
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        Ok(Arc::clone(&self.lock_state().catalog))
    }

    fn put_lifecycles(&self, files: &InputFiles) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send {
        ready(self.lock_state().put_lifecycles(files, self.clock.now()))
    }

    async fn activate_version(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        self.lock_state().activate_version(hash, by, now)
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        Ok(self.lock_state().counts_by_version())
    }

    async fn prunable(&self, query: &PrunableQuery) -> Result<PrunablePage, StoreError> {
        Ok(self.lock_state().prunable(query))
    }

    async fn with_referrers(&self, ids: &[RecordId]) -> Result<Vec<RecordWithReferrers>, StoreError> {
        Ok(self.lock_state().with_referrers(ids))
    }

    async fn request(&self, prune: &Arc<PruneRequest>) -> Result<PruneResult, StoreError> {
        self.lock_state().prune(prune)
    }

    async fn prune_state(&self) -> Result<PruneState, StoreError> {
        Ok(self.lock_state().prune_state)
    }

    async fn delete_expired_keys(&self, query: &ExpiredKeysQuery) -> Result<ExpiredKeysPage, StoreError> {
        Ok(self.lock_state().delete_expired_keys(query))
    }

    async fn delete_expired_counters(&self, query: &ExpiredCountersQuery) -> Result<ExpiredCountersPage, StoreError> {
        Ok(self.lock_state().delete_expired_counters(query))
    }

    async fn api_keys(&self) -> Result<ApiKeySet, StoreError> {
        Ok(self.lock_state().api_keys.clone())
    }

    async fn api_keys_revision(&self) -> Result<u64, StoreError> {
        Ok(self.lock_state().api_keys.revision)
    }

    async fn edit_api_keys(&self, edit: &Arc<ApiKeyEdit>) -> Result<ApiKeySaveResult, StoreError> {
        self.lock_state().edit_api_keys(edit)
    }

    async fn now(&self) -> Result<Time, StoreError> {
        Ok(self.clock.now())
    }
}
