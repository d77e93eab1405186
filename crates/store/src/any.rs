//! Selects a store at run time. Uses `match` instead of a trait object, because each store returns its own future
//! types. The match is a macro, because a closure cannot take stores of different types.

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
use crate::clock_guard::ClockStatus;
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
use crate::webhook_secrets::{WebhookSecret, WebhookSecrets};
use crate::workers::{LeaseCounts, WorkerSighting};

/// One of the stores. Clones share the same store.
#[derive(Clone, Debug)]
pub enum AnyStore {
    Memory(MemoryStore),
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

macro_rules! on_store {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Self::Memory($store) => $call,
            Self::Sqlite($store) => $call,
            Self::Postgres($store) => $call,
        }
    };
}

impl Store for AnyStore {
    async fn load(&self, read_set: &mut ReadSet, keys: &[ReadKey]) -> Result<(), StoreError> {
        on_store!(self, store => store.load(read_set, keys).await)
    }

    async fn save(&self, read_set: &Arc<ReadSet>, batch: &Arc<Batch>) -> Result<SaveResult, StoreError> {
        on_store!(self, store => store.save(read_set, batch).await)
    }

    async fn lease_candidates(&self, query: &LeaseQuery) -> Result<Vec<LeaseCandidate>, StoreError> {
        on_store!(self, store => store.lease_candidates(query).await)
    }

    async fn due_records(&self, due_by: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        on_store!(self, store => store.due_records(due_by, limit).await)
    }

    async fn log(&self, after_seq: u64, limit: impl Into<PageLimit> + Send) -> Result<Vec<LogEntry>, StoreError> {
        on_store!(self, store => store.log(after_seq, limit).await)
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        on_store!(self, store => store.last_seq().await)
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<LogEntry>, StoreError> {
        on_store!(self, store => store.history(record, after_version, limit).await)
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        on_store!(self, store => store.record(id).await)
    }

    async fn list(&self, query: &ListQuery) -> Result<RecordPage, StoreError> {
        on_store!(self, store => store.list(query).await)
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        on_store!(self, store => store.counts_by_state(owner).await)
    }

    async fn stats(&self, now: Time) -> Result<StoreStats, StoreError> {
        on_store!(self, store => store.stats(now).await)
    }

    fn commit_latency(&self) -> Option<HistogramSnapshot> {
        on_store!(self, store => store.commit_latency())
    }

    async fn payload(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        on_store!(self, store => store.payload(sha256).await)
    }

    async fn referenced_payloads(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        on_store!(self, store => store.referenced_payloads(hashes).await)
    }

    async fn payloads(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        on_store!(self, store => store.payloads(sha256s).await)
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        on_store!(self, store => store.effect(record).await)
    }

    async fn executions_page(
        &self,
        record: RecordId,
        after_token: FencingToken,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        on_store!(self, store => store.executions_page(record, after_token, limit).await)
    }

    async fn linked_records(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        on_store!(self, store => store.linked_records(query).await)
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<AccountBalance>, StoreError> {
        on_store!(self, store => store.accounts(query).await)
    }

    async fn account(&self, account: &AccountName) -> Result<Option<AccountBalance>, StoreError> {
        on_store!(self, store => store.account(account).await)
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<StatementPage>, StoreError> {
        on_store!(self, store => store.statement(query).await)
    }

    async fn upsert_workers(&self, sightings: &[WorkerSighting]) -> Result<(), StoreError> {
        on_store!(self, store => store.upsert_workers(sightings).await)
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSighting>, StoreError> {
        on_store!(self, store => store.workers(limit).await)
    }

    async fn lease_counts(&self, max_timers: usize) -> Result<LeaseCounts, StoreError> {
        on_store!(self, store => store.lease_counts(max_timers).await)
    }

    async fn delete_stale_workers(&self, seen_before: Time, max_workers: usize) -> Result<u64, StoreError> {
        on_store!(self, store => store.delete_stale_workers(seen_before, max_workers).await)
    }

    async fn idempotency_records(&self, ids: &[IdempotencyId]) -> Result<Vec<Option<IdempotencyRecord>>, StoreError> {
        on_store!(self, store => store.idempotency_records(ids).await)
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        on_store!(self, store => store.catalog().await)
    }

    async fn put_lifecycles(&self, files: &InputFiles) -> Result<Arc<Catalog>, StoreError> {
        on_store!(self, store => store.put_lifecycles(files).await)
    }

    async fn activate_version(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        on_store!(self, store => store.activate_version(hash, by, now).await)
    }

    async fn refresh_catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        on_store!(self, store => store.refresh_catalog().await)
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        on_store!(self, store => store.counts_by_version().await)
    }

    async fn prunable(&self, query: &PrunableQuery) -> Result<PrunablePage, StoreError> {
        on_store!(self, store => store.prunable(query).await)
    }

    async fn with_referrers(&self, ids: &[RecordId]) -> Result<Vec<RecordWithReferrers>, StoreError> {
        on_store!(self, store => store.with_referrers(ids).await)
    }

    async fn request(&self, prune: &Arc<PruneRequest>) -> Result<PruneResult, StoreError> {
        on_store!(self, store => store.request(prune).await)
    }

    async fn claim_prune_turn(&self, min_interval: Duration) -> Result<bool, StoreError> {
        on_store!(self, store => store.claim_prune_turn(min_interval).await)
    }

    async fn prune_state(&self) -> Result<PruneState, StoreError> {
        on_store!(self, store => store.prune_state().await)
    }

    async fn delete_expired_keys(&self, query: &ExpiredKeysQuery) -> Result<ExpiredKeysPage, StoreError> {
        on_store!(self, store => store.delete_expired_keys(query).await)
    }

    async fn delete_expired_counters(&self, query: &ExpiredCountersQuery) -> Result<ExpiredCountersPage, StoreError> {
        on_store!(self, store => store.delete_expired_counters(query).await)
    }

    async fn api_keys(&self) -> Result<ApiKeySet, StoreError> {
        on_store!(self, store => store.api_keys().await)
    }

    async fn api_keys_revision(&self) -> Result<u64, StoreError> {
        on_store!(self, store => store.api_keys_revision().await)
    }

    async fn edit_api_keys(&self, edit: &Arc<ApiKeyEdit>) -> Result<ApiKeySaveResult, StoreError> {
        on_store!(self, store => store.edit_api_keys(edit).await)
    }

    async fn webhook_secrets(&self, owner: &str) -> Result<Option<WebhookSecrets>, StoreError> {
        on_store!(self, store => store.webhook_secrets(owner).await)
    }

    async fn save_webhook_secrets(
        &self,
        owner: &str,
        expected: Option<WebhookSecret>,
        secrets: &WebhookSecrets,
    ) -> Result<bool, StoreError> {
        on_store!(self, store => store.save_webhook_secrets(owner, expected, secrets).await)
    }

    fn instance(&self) -> Option<Arc<str>> {
        on_store!(self, store => store.instance())
    }

    async fn orphaned_leases(&self, limit: usize) -> Result<Vec<(RecordId, FencingToken)>, StoreError> {
        on_store!(self, store => store.orphaned_leases(limit).await)
    }

    fn change_notifications(&self) -> Option<watch::Receiver<u64>> {
        on_store!(self, store => store.change_notifications())
    }

    async fn inbox_calls(&self, limit: usize) -> Result<Vec<InboxCall>, StoreError> {
        on_store!(self, store => store.inbox_calls(limit).await)
    }

    async fn answer_inbox_calls(&self, replies: &[InboxReply]) -> Result<(), StoreError> {
        on_store!(self, store => store.answer_inbox_calls(replies).await)
    }

    async fn delete_answered_calls(&self, query: &AnsweredCallsQuery) -> Result<AnsweredCallsPage, StoreError> {
        on_store!(self, store => store.delete_answered_calls(query).await)
    }

    fn clock_status(&self) -> ClockStatus {
        on_store!(self, store => store.clock_status())
    }

    async fn accept_clock(&self) -> Result<bool, StoreError> {
        on_store!(self, store => store.accept_clock().await)
    }

    async fn now(&self) -> Result<Time, StoreError> {
        on_store!(self, store => store.now().await)
    }
}
