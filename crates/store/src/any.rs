//! Selects a store at run time. Uses `match` instead of a trait object, because each store returns its own future
//! types.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Effect, ReadKey};
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::{Execution, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use tokio::sync::watch;

use crate::account::{AccountBalance, AccountName, AccountsQuery, StatementPage, StatementQuery};
use crate::api_keys::{ApiKeyEdit, ApiKeySaveResult, ApiKeySet};
use crate::batch::{Batch, IdempotencyId, IdempotencyRecord, SaveResult};
use crate::catalog::Catalog;
use crate::error::StoreError;
use crate::histogram::HistogramSnapshot;
use crate::inbox::{InboxCall, InboxReply};
use crate::links::{LinkPage, LinkQuery};
use crate::log::LogEntry;
use crate::memory::MemoryStore;
use crate::postgres::PostgresStore;
use crate::prune::{
    AnsweredCallsPage, AnsweredCallsQuery, ExpiredCountersPage, ExpiredCountersQuery, ExpiredKeysPage,
    ExpiredKeysQuery, PrunablePage, PrunableQuery, PruneRequest, PruneResult, PruneState, RecordWithReferrers,
};
use crate::query::{LeaseCandidate, LeaseQuery, ListQuery, PageLimit, RecordPage, StateCount, VersionCount};
use crate::read_set::ReadSet;
use crate::sqlite::SqliteStore;
use crate::stats::StoreStats;
use crate::store::Store;
use crate::workers::{LeaseCounts, WorkerSighting};

/// One of the stores. Clones share the same store.
#[derive(Clone, Debug)]
pub enum AnyStore {
    Memory(MemoryStore),
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

impl Store for AnyStore {
    async fn load(&self, read_set: &mut ReadSet, keys: &[ReadKey]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.load(read_set, keys).await,
            Self::Sqlite(store) => store.load(read_set, keys).await,
            Self::Postgres(store) => store.load(read_set, keys).await,
        }
    }

    async fn save(&self, read_set: &Arc<ReadSet>, batch: &Arc<Batch>) -> Result<SaveResult, StoreError> {
        match self {
            Self::Memory(store) => store.save(read_set, batch).await,
            Self::Sqlite(store) => store.save(read_set, batch).await,
            Self::Postgres(store) => store.save(read_set, batch).await,
        }
    }

    async fn lease_candidates(&self, query: &LeaseQuery) -> Result<Vec<LeaseCandidate>, StoreError> {
        match self {
            Self::Memory(store) => store.lease_candidates(query).await,
            Self::Sqlite(store) => store.lease_candidates(query).await,
            Self::Postgres(store) => store.lease_candidates(query).await,
        }
    }

    async fn due_records(&self, due_by: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        match self {
            Self::Memory(store) => store.due_records(due_by, limit).await,
            Self::Sqlite(store) => store.due_records(due_by, limit).await,
            Self::Postgres(store) => store.due_records(due_by, limit).await,
        }
    }

    async fn log(&self, after_seq: u64, limit: impl Into<PageLimit> + Send) -> Result<Vec<LogEntry>, StoreError> {
        match self {
            Self::Memory(store) => store.log(after_seq, limit).await,
            Self::Sqlite(store) => store.log(after_seq, limit).await,
            Self::Postgres(store) => store.log(after_seq, limit).await,
        }
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        match self {
            Self::Memory(store) => store.last_seq().await,
            Self::Sqlite(store) => store.last_seq().await,
            Self::Postgres(store) => store.last_seq().await,
        }
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<LogEntry>, StoreError> {
        match self {
            Self::Memory(store) => store.history(record, after_version, limit).await,
            Self::Sqlite(store) => store.history(record, after_version, limit).await,
            Self::Postgres(store) => store.history(record, after_version, limit).await,
        }
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        match self {
            Self::Memory(store) => store.record(id).await,
            Self::Sqlite(store) => store.record(id).await,
            Self::Postgres(store) => store.record(id).await,
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<RecordPage, StoreError> {
        match self {
            Self::Memory(store) => store.list(query).await,
            Self::Sqlite(store) => store.list(query).await,
            Self::Postgres(store) => store.list(query).await,
        }
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        match self {
            Self::Memory(store) => store.counts_by_state(owner).await,
            Self::Sqlite(store) => store.counts_by_state(owner).await,
            Self::Postgres(store) => store.counts_by_state(owner).await,
        }
    }

    async fn stats(&self, now: Time) -> Result<StoreStats, StoreError> {
        match self {
            Self::Memory(store) => store.stats(now).await,
            Self::Sqlite(store) => store.stats(now).await,
            Self::Postgres(store) => store.stats(now).await,
        }
    }

    fn commit_latency(&self) -> Option<HistogramSnapshot> {
        match self {
            Self::Memory(store) => store.commit_latency(),
            Self::Sqlite(store) => store.commit_latency(),
            Self::Postgres(store) => store.commit_latency(),
        }
    }

    async fn payload(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        match self {
            Self::Memory(store) => store.payload(sha256).await,
            Self::Sqlite(store) => store.payload(sha256).await,
            Self::Postgres(store) => store.payload(sha256).await,
        }
    }

    async fn referenced_payloads(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        match self {
            Self::Memory(store) => store.referenced_payloads(hashes).await,
            Self::Sqlite(store) => store.referenced_payloads(hashes).await,
            Self::Postgres(store) => store.referenced_payloads(hashes).await,
        }
    }

    async fn payloads(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        match self {
            Self::Memory(store) => store.payloads(sha256s).await,
            Self::Sqlite(store) => store.payloads(sha256s).await,
            Self::Postgres(store) => store.payloads(sha256s).await,
        }
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        match self {
            Self::Memory(store) => store.effect(record).await,
            Self::Sqlite(store) => store.effect(record).await,
            Self::Postgres(store) => store.effect(record).await,
        }
    }

    async fn executions_page(
        &self,
        record: RecordId,
        after_token: FencingToken,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        match self {
            Self::Memory(store) => store.executions_page(record, after_token, limit).await,
            Self::Sqlite(store) => store.executions_page(record, after_token, limit).await,
            Self::Postgres(store) => store.executions_page(record, after_token, limit).await,
        }
    }

    async fn linked_records(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        match self {
            Self::Memory(store) => store.linked_records(query).await,
            Self::Sqlite(store) => store.linked_records(query).await,
            Self::Postgres(store) => store.linked_records(query).await,
        }
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<AccountBalance>, StoreError> {
        match self {
            Self::Memory(store) => store.accounts(query).await,
            Self::Sqlite(store) => store.accounts(query).await,
            Self::Postgres(store) => store.accounts(query).await,
        }
    }

    async fn account(&self, account: &AccountName) -> Result<Option<AccountBalance>, StoreError> {
        match self {
            Self::Memory(store) => store.account(account).await,
            Self::Sqlite(store) => store.account(account).await,
            Self::Postgres(store) => store.account(account).await,
        }
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<StatementPage>, StoreError> {
        match self {
            Self::Memory(store) => store.statement(query).await,
            Self::Sqlite(store) => store.statement(query).await,
            Self::Postgres(store) => store.statement(query).await,
        }
    }

    async fn upsert_workers(&self, sightings: &[WorkerSighting]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.upsert_workers(sightings).await,
            Self::Sqlite(store) => store.upsert_workers(sightings).await,
            Self::Postgres(store) => store.upsert_workers(sightings).await,
        }
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSighting>, StoreError> {
        match self {
            Self::Memory(store) => store.workers(limit).await,
            Self::Sqlite(store) => store.workers(limit).await,
            Self::Postgres(store) => store.workers(limit).await,
        }
    }

    async fn lease_counts(&self, max_timers: usize) -> Result<LeaseCounts, StoreError> {
        match self {
            Self::Memory(store) => store.lease_counts(max_timers).await,
            Self::Sqlite(store) => store.lease_counts(max_timers).await,
            Self::Postgres(store) => store.lease_counts(max_timers).await,
        }
    }

    async fn delete_stale_workers(&self, seen_before: Time, max_workers: usize) -> Result<u64, StoreError> {
        match self {
            Self::Memory(store) => store.delete_stale_workers(seen_before, max_workers).await,
            Self::Sqlite(store) => store.delete_stale_workers(seen_before, max_workers).await,
            Self::Postgres(store) => store.delete_stale_workers(seen_before, max_workers).await,
        }
    }

    async fn idempotency_records(&self, ids: &[IdempotencyId]) -> Result<Vec<Option<IdempotencyRecord>>, StoreError> {
        match self {
            Self::Memory(store) => store.idempotency_records(ids).await,
            Self::Sqlite(store) => store.idempotency_records(ids).await,
            Self::Postgres(store) => store.idempotency_records(ids).await,
        }
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        match self {
            Self::Memory(store) => store.catalog().await,
            Self::Sqlite(store) => store.catalog().await,
            Self::Postgres(store) => store.catalog().await,
        }
    }

    async fn put_lifecycles(&self, files: &InputFiles) -> Result<Arc<Catalog>, StoreError> {
        match self {
            Self::Memory(store) => store.put_lifecycles(files).await,
            Self::Sqlite(store) => store.put_lifecycles(files).await,
            Self::Postgres(store) => store.put_lifecycles(files).await,
        }
    }

    async fn activate_version(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        match self {
            Self::Memory(store) => store.activate_version(hash, by, now).await,
            Self::Sqlite(store) => store.activate_version(hash, by, now).await,
            Self::Postgres(store) => store.activate_version(hash, by, now).await,
        }
    }

    async fn refresh_catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        match self {
            Self::Memory(store) => store.refresh_catalog().await,
            Self::Sqlite(store) => store.refresh_catalog().await,
            Self::Postgres(store) => store.refresh_catalog().await,
        }
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        match self {
            Self::Memory(store) => store.counts_by_version().await,
            Self::Sqlite(store) => store.counts_by_version().await,
            Self::Postgres(store) => store.counts_by_version().await,
        }
    }

    async fn prunable(&self, query: &PrunableQuery) -> Result<PrunablePage, StoreError> {
        match self {
            Self::Memory(store) => store.prunable(query).await,
            Self::Sqlite(store) => store.prunable(query).await,
            Self::Postgres(store) => store.prunable(query).await,
        }
    }

    async fn with_referrers(&self, ids: &[RecordId]) -> Result<Vec<RecordWithReferrers>, StoreError> {
        match self {
            Self::Memory(store) => store.with_referrers(ids).await,
            Self::Sqlite(store) => store.with_referrers(ids).await,
            Self::Postgres(store) => store.with_referrers(ids).await,
        }
    }

    async fn request(&self, prune: &Arc<PruneRequest>) -> Result<PruneResult, StoreError> {
        match self {
            Self::Memory(store) => store.request(prune).await,
            Self::Sqlite(store) => store.request(prune).await,
            Self::Postgres(store) => store.request(prune).await,
        }
    }

    async fn claim_prune_turn(&self, min_interval: Duration) -> Result<bool, StoreError> {
        match self {
            Self::Memory(store) => store.claim_prune_turn(min_interval).await,
            Self::Sqlite(store) => store.claim_prune_turn(min_interval).await,
            Self::Postgres(store) => store.claim_prune_turn(min_interval).await,
        }
    }

    async fn prune_state(&self) -> Result<PruneState, StoreError> {
        match self {
            Self::Memory(store) => store.prune_state().await,
            Self::Sqlite(store) => store.prune_state().await,
            Self::Postgres(store) => store.prune_state().await,
        }
    }

    async fn delete_expired_keys(&self, query: &ExpiredKeysQuery) -> Result<ExpiredKeysPage, StoreError> {
        match self {
            Self::Memory(store) => store.delete_expired_keys(query).await,
            Self::Sqlite(store) => store.delete_expired_keys(query).await,
            Self::Postgres(store) => store.delete_expired_keys(query).await,
        }
    }

    async fn delete_expired_counters(&self, query: &ExpiredCountersQuery) -> Result<ExpiredCountersPage, StoreError> {
        match self {
            Self::Memory(store) => store.delete_expired_counters(query).await,
            Self::Sqlite(store) => store.delete_expired_counters(query).await,
            Self::Postgres(store) => store.delete_expired_counters(query).await,
        }
    }

    async fn api_keys(&self) -> Result<ApiKeySet, StoreError> {
        match self {
            Self::Memory(store) => store.api_keys().await,
            Self::Sqlite(store) => store.api_keys().await,
            Self::Postgres(store) => store.api_keys().await,
        }
    }

    async fn api_keys_revision(&self) -> Result<u64, StoreError> {
        match self {
            Self::Memory(store) => store.api_keys_revision().await,
            Self::Sqlite(store) => store.api_keys_revision().await,
            Self::Postgres(store) => store.api_keys_revision().await,
        }
    }

    async fn edit_api_keys(&self, edit: &Arc<ApiKeyEdit>) -> Result<ApiKeySaveResult, StoreError> {
        match self {
            Self::Memory(store) => store.edit_api_keys(edit).await,
            Self::Sqlite(store) => store.edit_api_keys(edit).await,
            Self::Postgres(store) => store.edit_api_keys(edit).await,
        }
    }

    fn instance(&self) -> Option<Arc<str>> {
        match self {
            Self::Memory(store) => store.instance(),
            Self::Sqlite(store) => store.instance(),
            Self::Postgres(store) => store.instance(),
        }
    }

    async fn orphaned_leases(&self, limit: usize) -> Result<Vec<(RecordId, FencingToken)>, StoreError> {
        match self {
            Self::Memory(store) => store.orphaned_leases(limit).await,
            Self::Sqlite(store) => store.orphaned_leases(limit).await,
            Self::Postgres(store) => store.orphaned_leases(limit).await,
        }
    }

    fn change_notifications(&self) -> Option<watch::Receiver<u64>> {
        match self {
            Self::Memory(store) => store.change_notifications(),
            Self::Sqlite(store) => store.change_notifications(),
            Self::Postgres(store) => store.change_notifications(),
        }
    }

    async fn inbox_calls(&self, limit: usize) -> Result<Vec<InboxCall>, StoreError> {
        match self {
            Self::Memory(store) => store.inbox_calls(limit).await,
            Self::Sqlite(store) => store.inbox_calls(limit).await,
            Self::Postgres(store) => store.inbox_calls(limit).await,
        }
    }

    async fn answer_inbox_calls(&self, replies: &[InboxReply]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.answer_inbox_calls(replies).await,
            Self::Sqlite(store) => store.answer_inbox_calls(replies).await,
            Self::Postgres(store) => store.answer_inbox_calls(replies).await,
        }
    }

    async fn delete_answered_calls(&self, query: &AnsweredCallsQuery) -> Result<AnsweredCallsPage, StoreError> {
        match self {
            Self::Memory(store) => store.delete_answered_calls(query).await,
            Self::Sqlite(store) => store.delete_answered_calls(query).await,
            Self::Postgres(store) => store.delete_answered_calls(query).await,
        }
    }

    async fn now(&self) -> Result<Time, StoreError> {
        match self {
            Self::Memory(store) => store.now().await,
            Self::Sqlite(store) => store.now().await,
            Self::Postgres(store) => store.now().await,
        }
    }
}
