//! The [`Store`] trait for PostgreSQL: each method runs one query or one transaction of the modules beside it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use crate::clock::GuardedClock;
use crate::clock_guard::ClockStatus;
use crate::error::StoreError;
use crate::histogram::HistogramSnapshot;
use crate::inbox::{InboxCall, InboxReply};
use crate::links::{LinkPage, LinkQuery};
use crate::log::LogEntry;
use crate::prune::{
    AnsweredCallsPage, AnsweredCallsQuery, ExpiredCountersPage, ExpiredCountersQuery, ExpiredKeysPage,
    ExpiredKeysQuery, PrunablePage, PrunableQuery, PruneRequest, PruneResult, PruneState, RecordWithReferrers,
};
use crate::query::{LeaseCandidate, LeaseQuery, ListQuery, PageLimit, RecordPage, StateCount, VersionCount};
use crate::read_set::ReadSet;
use crate::stats::StoreStats;
use crate::store::Store;
use crate::webhook_secrets::{WebhookSecret, WebhookSecrets};
use crate::workers::{LeaseCounts, WorkerSighting};

use super::instance::Instance;
use super::load::{LoadDetail, LoadRequest};
use super::pipeline::Pipeline;
use super::{
    MAX_CATALOG_REFRESHES, PostgresStore, api_keys, clock, definitions, housekeeping, inbox, instance, leasing, ledger,
    prune, read, rows, save, stats, webhook_secrets, workers,
};

impl Store for PostgresStore {
    async fn load(&self, read_set: &mut ReadSet, keys: &[ReadKey]) -> Result<(), StoreError> {
        self.inner.record_cache.fill(read_set, keys, self.inner.notify_channel.foreign_change_count());
        for round in 0.. {
            let snapshot = self.inner.current_catalog();
            let mut pipeline = Pipeline::default();
            let load_request = LoadRequest::new(&mut pipeline, &snapshot.symbols, read_set, keys, LoadDetail::Full)?;
            if pipeline.is_empty() {
                break;
            }
            let newest = pipeline.add(definitions::SELECT_NEWEST_REVISION_SQL, Vec::new());
            // A refusal depends on the values loaded here, and no save validates them. So they must not contain a part
            // of another transaction.
            let answers = if load_request.needs_snapshot() {
                self.inner.run_in_snapshot(&pipeline).await?
            } else {
                self.inner.run_pipeline(&pipeline).await?
            };
            let newest = answers[newest].first().map_or(Ok(0), |row| rows::u32_column(row, 0))?;
            // Names that were unknown may be known by now, so load everything again.
            let is_new = newest > snapshot.catalog.revision();
            if (is_new || load_request.newest_version_number(&answers)? > snapshot.catalog.newest_version_number())
                && round < MAX_CATALOG_REFRESHES
            {
                self.inner.reload_catalog().await?;
                continue;
            }
            load_request.fill(read_set, &answers, &snapshot, LoadDetail::Full)?;
            break;
        }
        Ok(())
    }

    async fn save(&self, read_set: &Arc<ReadSet>, batch: &Arc<Batch>) -> Result<SaveResult, StoreError> {
        // In a separate task, so that a cancelled caller does not leave an unfinished transaction.
        let commit_sent = Arc::new(AtomicBool::new(false));
        let work =
            save::save(Arc::clone(&self.inner), Arc::clone(read_set), Arc::clone(batch), Arc::clone(&commit_sent));
        tokio::spawn(work).await.unwrap_or_else(|error| {
            // A panic closes the connection, and the server rolls back what was not committed.
            Err(if error.is_panic() && !commit_sent.load(Ordering::SeqCst) {
                StoreError::Panicked
            } else {
                StoreError::Unavailable(format!("the task that saved the batch ended before its result: {error}"))
            })
        })
    }

    async fn lease_candidates(&self, query: &LeaseQuery) -> Result<Vec<LeaseCandidate>, StoreError> {
        leasing::lease_candidates(&self.inner, query).await
    }

    async fn due_records(&self, due_by: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        leasing::due_records(&self.inner, due_by, limit).await
    }

    async fn log(&self, after_seq: u64, limit: impl Into<PageLimit> + Send) -> Result<Vec<LogEntry>, StoreError> {
        read::log(&self.inner, after_seq, limit.into()).await
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        read::last_seq(&self.inner).await
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<LogEntry>, StoreError> {
        read::history(&self.inner, record, after_version, limit.into()).await
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        read::record(&self.inner, id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<RecordPage, StoreError> {
        read::list(&self.inner, query).await
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        read::counts_by_state(&self.inner, owner).await
    }

    async fn stats(&self, now: Time) -> Result<StoreStats, StoreError> {
        stats::read_stats(&self.inner, now).await
    }

    fn commit_latency(&self) -> Option<HistogramSnapshot> {
        Some(self.inner.commit_latency.snapshot())
    }

    async fn payload(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        read::payload(&self.inner, sha256).await
    }

    async fn referenced_payloads(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        read::referenced_payloads(&self.inner, hashes).await
    }

    async fn payloads(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        read::payloads(&self.inner, sha256s).await
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        read::effect(&self.inner, record).await
    }

    async fn executions_page(
        &self,
        record: RecordId,
        after_token: FencingToken,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        read::executions_page(&self.inner, record, after_token, limit.into()).await
    }

    async fn linked_records(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        read::linked_records(&self.inner, query).await
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<AccountBalance>, StoreError> {
        ledger::accounts(&self.inner, query).await
    }

    async fn account(&self, account: &AccountName) -> Result<Option<AccountBalance>, StoreError> {
        ledger::account(&self.inner, account).await
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<StatementPage>, StoreError> {
        ledger::statement(&self.inner, query).await
    }

    async fn upsert_workers(&self, sightings: &[WorkerSighting]) -> Result<(), StoreError> {
        workers::upsert_workers(&self.inner, sightings).await
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSighting>, StoreError> {
        workers::list_workers(&self.inner, limit).await
    }

    async fn lease_counts(&self, max_timers: usize) -> Result<LeaseCounts, StoreError> {
        workers::lease_counts(&self.inner, max_timers).await
    }

    async fn delete_stale_workers(&self, seen_before: Time, max_workers: usize) -> Result<u64, StoreError> {
        workers::delete_stale_workers(&self.inner, seen_before, max_workers).await
    }

    async fn idempotency_records(&self, ids: &[IdempotencyId]) -> Result<Vec<Option<IdempotencyRecord>>, StoreError> {
        read::idempotency_records(&self.inner, ids).await
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        Ok(Arc::clone(&self.inner.current_catalog().catalog))
    }

    async fn put_lifecycles(&self, files: &InputFiles) -> Result<Arc<Catalog>, StoreError> {
        let snapshot = definitions::put_lifecycles(&self.inner, files, self.now().await?).await?;
        Ok(Arc::clone(&self.inner.update_catalog(snapshot).catalog))
    }

    async fn activate_version(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        let snapshot = definitions::activate_version(&self.inner, hash, by, now).await?;
        Ok(Arc::clone(&self.inner.update_catalog(snapshot).catalog))
    }

    async fn refresh_catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        Ok(Arc::clone(&self.inner.newest_catalog().await?.catalog))
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        read::counts_by_version(&self.inner).await
    }

    async fn prunable(&self, query: &PrunableQuery) -> Result<PrunablePage, StoreError> {
        prune::prunable(&self.inner, query).await
    }

    async fn with_referrers(&self, ids: &[RecordId]) -> Result<Vec<RecordWithReferrers>, StoreError> {
        prune::with_referrers(&self.inner, ids).await
    }

    async fn request(&self, prune: &Arc<PruneRequest>) -> Result<PruneResult, StoreError> {
        // In a separate task, so that a cancelled caller does not leave an unfinished transaction.
        let work = prune::prune(Arc::clone(&self.inner), Arc::clone(prune));
        let join_error =
            |error: tokio::task::JoinError| StoreError::Unavailable(format!("the prune task ended early: {error}"));
        tokio::spawn(work).await.map_err(join_error)?
    }

    async fn claim_prune_turn(&self, min_interval: Duration) -> Result<bool, StoreError> {
        prune::claim_prune_turn(&self.inner, min_interval).await
    }

    async fn prune_state(&self) -> Result<PruneState, StoreError> {
        prune::prune_state(&self.inner).await
    }

    async fn delete_expired_keys(&self, query: &ExpiredKeysQuery) -> Result<ExpiredKeysPage, StoreError> {
        prune::delete_expired_keys(&self.inner, query).await
    }

    async fn delete_expired_counters(&self, query: &ExpiredCountersQuery) -> Result<ExpiredCountersPage, StoreError> {
        housekeeping::delete_expired_counters(&self.inner, query).await
    }

    async fn api_keys(&self) -> Result<ApiKeySet, StoreError> {
        api_keys::api_keys(&self.inner).await
    }

    async fn api_keys_revision(&self) -> Result<u64, StoreError> {
        api_keys::revision(&self.inner).await
    }

    async fn edit_api_keys(&self, edit: &Arc<ApiKeyEdit>) -> Result<ApiKeySaveResult, StoreError> {
        // In a separate task, so that a cancelled caller does not leave an unfinished transaction.
        let work = api_keys::edit_api_keys(Arc::clone(&self.inner), Arc::clone(edit));
        let join_error = |error: tokio::task::JoinError| {
            StoreError::Unavailable(format!("the API key edit task ended early: {error}"))
        };
        tokio::spawn(work).await.map_err(join_error)?
    }

    async fn webhook_secrets(&self, owner: &str) -> Result<Option<WebhookSecrets>, StoreError> {
        webhook_secrets::webhook_secrets(&self.inner, owner).await
    }

    async fn save_webhook_secrets(
        &self,
        owner: &str,
        expected: Option<WebhookSecret>,
        secrets: &WebhookSecrets,
    ) -> Result<bool, StoreError> {
        webhook_secrets::save_webhook_secrets(&self.inner, owner, expected, secrets).await
    }

    fn instance(&self) -> Option<Arc<str>> {
        self.inner.instance.get().map(Instance::worker_mark)
    }

    async fn orphaned_leases(&self, limit: usize) -> Result<Vec<(RecordId, FencingToken)>, StoreError> {
        match self.inner.instance.get() {
            Some(own) => instance::orphaned_leases(&self.inner, own, limit).await,
            None => Ok(Vec::new()),
        }
    }

    fn change_notifications(&self) -> Option<watch::Receiver<u64>> {
        Some(self.inner.notify_channel.subscribe())
    }

    async fn inbox_calls(&self, limit: usize) -> Result<Vec<InboxCall>, StoreError> {
        inbox::claim_calls(&self.inner, limit).await
    }

    async fn answer_inbox_calls(&self, replies: &[InboxReply]) -> Result<(), StoreError> {
        inbox::answer_calls(&self.inner, replies).await
    }

    async fn delete_answered_calls(&self, query: &AnsweredCallsQuery) -> Result<AnsweredCallsPage, StoreError> {
        housekeeping::delete_answered_calls(&self.inner, query).await
    }

    fn clock_status(&self) -> ClockStatus {
        self.inner.clock.guarded().map(GuardedClock::status).unwrap_or_default()
    }

    async fn accept_clock(&self) -> Result<bool, StoreError> {
        clock::accept(&self.inner).await
    }

    async fn now(&self) -> Result<Time, StoreError> {
        clock::now(&self.inner).await
    }
}
