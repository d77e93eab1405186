//! A store that fails on request: before a write, or after it and before the reply.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onceward_core::decide::{Effect, ReadKey};
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::{Execution, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{
    AccountBalance, AccountName, AccountsQuery, AnsweredCallsPage, AnsweredCallsQuery, ApiKeyEdit, ApiKeySaveResult,
    ApiKeySet, Batch, Catalog, ExpiredCountersPage, ExpiredCountersQuery, ExpiredKeysPage, ExpiredKeysQuery,
    HistogramSnapshot, IdempotencyId, IdempotencyRecord, InboxCall, InboxReply, LeaseCandidate, LeaseCounts,
    LeaseQuery, LinkPage, LinkQuery, ListQuery, LogEntry, MemoryStore, PageLimit, PrunablePage, PrunableQuery,
    PruneRequest, PruneResult, PruneState, ReadSet, RecordPage, RecordWithReferrers, SaveResult, StateCount,
    StatementPage, StatementQuery, Store, StoreError, StoreStats, VersionCount, WebhookSecret, WebhookSecrets,
    WorkerSighting,
};
use tokio::sync::{Semaphore, watch};

type SaveFault = Box<dyn Fn(&Batch) -> Option<Result<SaveResult, StoreError>> + Send + Sync>;

type LostReply = Box<dyn Fn(&Batch) -> bool + Send + Sync>;

#[derive(Clone)]
pub(crate) struct FaultyStore<S = MemoryStore> {
    pub(crate) inner: S,
    /// The result of a save, instead of saving.
    save_fault: Arc<SaveFault>,
    /// Whether the save is executed and its reply lost.
    lost_reply: Arc<LostReply>,
    /// Each save consumes a permit.
    pub(crate) save_gate: Arc<Semaphore>,
    /// Saves that have reached the gate.
    pub(crate) saves_started: Arc<AtomicUsize>,
    /// Each read of the log consumes a permit.
    pub(crate) log_gate: Arc<Semaphore>,
    /// Log reads that have reached their gate, single record reads, and loads.
    pub(crate) log_reads: Arc<AtomicUsize>,
    pub(crate) single_reads: Arc<AtomicUsize>,
    pub(crate) loads: Arc<AtomicUsize>,
    pub(crate) lease_scans: Arc<AtomicUsize>,
    pub(crate) max_requested_candidates: Arc<AtomicUsize>,
    /// Records that cannot be loaded.
    pub(crate) damaged_records: Arc<Mutex<HashSet<RecordId>>>,
    /// How many more loads of these records panic.
    pub(crate) panicking_loads: Arc<Mutex<HashMap<RecordId, usize>>>,
    pub(crate) panics_on_due_records: Arc<AtomicBool>,
}

impl<S> FaultyStore<S> {
    pub(crate) async fn wait_for_saves(&self, saves: usize) {
        while self.saves_started.load(Ordering::SeqCst) < saves {
            tokio::task::yield_now().await;
        }
    }

    /// A store without faults, whose saves wait for the gate.
    pub(crate) fn gated(inner: S) -> Self {
        Self::new(inner, |_: &Batch| None).with_gate()
    }

    #[must_use]
    pub(crate) fn with_gate(self) -> Self {
        Self { save_gate: Arc::new(Semaphore::new(0)), ..self }
    }

    #[must_use]
    pub(crate) fn with_lost_replies(self, lost_reply: impl Fn(&Batch) -> bool + Send + Sync + 'static) -> Self {
        Self { lost_reply: Arc::new(Box::new(lost_reply)), ..self }
    }

    pub(crate) fn new(
        inner: S,
        save_fault: impl Fn(&Batch) -> Option<Result<SaveResult, StoreError>> + Send + Sync + 'static,
    ) -> Self {
        let save_gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self {
            inner,
            save_fault: Arc::new(Box::new(save_fault)),
            lost_reply: Arc::new(Box::new(|_: &Batch| false)),
            save_gate,
            saves_started: Arc::default(),
            log_gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            log_reads: Arc::default(),
            single_reads: Arc::default(),
            loads: Arc::default(),
            lease_scans: Arc::default(),
            max_requested_candidates: Arc::default(),
            damaged_records: Arc::default(),
            panicking_loads: Arc::default(),
            panics_on_due_records: Arc::default(),
        }
    }
}

impl<S: Store> Store for FaultyStore<S> {
    async fn load(&self, base: &mut ReadSet, keys: &[ReadKey]) -> Result<(), StoreError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        let is_damaged =
            |key: &ReadKey| matches!(key, ReadKey::Record(id) if self.damaged_records.lock().unwrap().contains(id));
        if keys.iter().any(is_damaged) {
            return Err(StoreError::Corrupt("a record".to_owned()));
        }
        let must_panic = keys.iter().any(|key| {
            let ReadKey::Record(id) = key else { return false };
            let mut panicking = self.panicking_loads.lock().unwrap();
            panicking.get_mut(id).is_some_and(|left| std::mem::replace(left, left.saturating_sub(1)) > 0)
        });
        assert!(!must_panic, "simulated bug in the load");
        self.inner.load(base, keys).await
    }

    async fn save(&self, base: &Arc<ReadSet>, batch: &Arc<Batch>) -> Result<SaveResult, StoreError> {
        self.saves_started.fetch_add(1, Ordering::SeqCst);
        self.save_gate.acquire().await.expect("the semaphore stays open").forget();
        if let Some(fault) = (self.save_fault)(batch) {
            return fault;
        }
        let saved = self.inner.save(base, batch).await;
        if matches!(saved, Ok(SaveResult::Saved { .. })) && (self.lost_reply)(batch) {
            return Err(StoreError::Unavailable("the answer was lost".to_owned()));
        }
        saved
    }

    async fn lease_candidates(&self, query: &LeaseQuery) -> Result<Vec<LeaseCandidate>, StoreError> {
        self.lease_scans.fetch_add(1, Ordering::SeqCst);
        self.max_requested_candidates.fetch_max(query.limit, Ordering::SeqCst);
        self.inner.lease_candidates(query).await
    }

    async fn due_records(&self, now: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        assert!(!self.panics_on_due_records.load(Ordering::SeqCst), "simulated bug in the scheduler");
        self.inner.due_records(now, limit).await
    }

    async fn log(&self, after: u64, limit: impl Into<PageLimit> + Send) -> Result<Vec<LogEntry>, StoreError> {
        self.log_reads.fetch_add(1, Ordering::SeqCst);
        self.log_gate.acquire().await.expect("the semaphore stays open").forget();
        self.inner.log(after, limit).await
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        self.inner.last_seq().await
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        most: impl Into<PageLimit> + Send,
    ) -> Result<Vec<LogEntry>, StoreError> {
        self.inner.history(record, after_version, most).await
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        self.single_reads.fetch_add(1, Ordering::SeqCst);
        self.inner.record(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<RecordPage, StoreError> {
        self.inner.list(query).await
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        self.inner.counts_by_state(owner).await
    }

    async fn stats(&self, now: Time) -> Result<StoreStats, StoreError> {
        self.inner.stats(now).await
    }

    async fn payload(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        self.inner.payload(sha256).await
    }

    async fn referenced_payloads(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        self.inner.referenced_payloads(hashes).await
    }

    async fn payloads(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        self.inner.payloads(sha256s).await
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        self.inner.effect(record).await
    }

    async fn executions_page(
        &self,
        record: RecordId,
        after: FencingToken,
        most: impl Into<PageLimit> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        self.inner.executions_page(record, after, most).await
    }

    async fn linked_records(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        self.inner.linked_records(query).await
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<AccountBalance>, StoreError> {
        self.inner.accounts(query).await
    }

    async fn account(&self, account: &AccountName) -> Result<Option<AccountBalance>, StoreError> {
        self.inner.account(account).await
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<StatementPage>, StoreError> {
        self.inner.statement(query).await
    }

    async fn upsert_workers(&self, seen: &[WorkerSighting]) -> Result<(), StoreError> {
        self.inner.upsert_workers(seen).await
    }

    async fn webhook_secrets(&self, owner: &str) -> Result<Option<WebhookSecrets>, StoreError> {
        self.inner.webhook_secrets(owner).await
    }

    async fn save_webhook_secrets(
        &self,
        owner: &str,
        expected: Option<WebhookSecret>,
        secrets: &WebhookSecrets,
    ) -> Result<bool, StoreError> {
        self.inner.save_webhook_secrets(owner, expected, secrets).await
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSighting>, StoreError> {
        self.inner.workers(limit).await
    }

    async fn lease_counts(&self, limit: usize) -> Result<LeaseCounts, StoreError> {
        self.inner.lease_counts(limit).await
    }

    async fn delete_stale_workers(&self, before: Time, most: usize) -> Result<u64, StoreError> {
        self.inner.delete_stale_workers(before, most).await
    }

    async fn idempotency_records(&self, names: &[IdempotencyId]) -> Result<Vec<Option<IdempotencyRecord>>, StoreError> {
        self.inner.idempotency_records(names).await
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        self.inner.catalog().await
    }

    async fn put_lifecycles(&self, files: &InputFiles) -> Result<Arc<Catalog>, StoreError> {
        self.inner.put_lifecycles(files).await
    }

    async fn activate_version(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        self.inner.activate_version(hash, by, now).await
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        self.inner.counts_by_version().await
    }

    async fn prunable(&self, query: &PrunableQuery) -> Result<PrunablePage, StoreError> {
        self.inner.prunable(query).await
    }

    async fn with_referrers(&self, ids: &[RecordId]) -> Result<Vec<RecordWithReferrers>, StoreError> {
        self.inner.with_referrers(ids).await
    }

    async fn request(&self, prune: &Arc<PruneRequest>) -> Result<PruneResult, StoreError> {
        self.inner.request(prune).await
    }

    async fn claim_prune_turn(&self, rest: std::time::Duration) -> Result<bool, StoreError> {
        self.inner.claim_prune_turn(rest).await
    }

    async fn prune_state(&self) -> Result<PruneState, StoreError> {
        self.inner.prune_state().await
    }

    async fn delete_expired_keys(&self, old: &ExpiredKeysQuery) -> Result<ExpiredKeysPage, StoreError> {
        self.inner.delete_expired_keys(old).await
    }

    async fn delete_expired_counters(&self, old: &ExpiredCountersQuery) -> Result<ExpiredCountersPage, StoreError> {
        self.inner.delete_expired_counters(old).await
    }

    async fn api_keys(&self) -> Result<ApiKeySet, StoreError> {
        self.inner.api_keys().await
    }

    async fn api_keys_revision(&self) -> Result<u64, StoreError> {
        self.inner.api_keys_revision().await
    }

    async fn edit_api_keys(&self, edit: &Arc<ApiKeyEdit>) -> Result<ApiKeySaveResult, StoreError> {
        self.inner.edit_api_keys(edit).await
    }

    fn commit_latency(&self) -> Option<HistogramSnapshot> {
        self.inner.commit_latency()
    }

    async fn refresh_catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        self.inner.refresh_catalog().await
    }

    fn clock_status(&self) -> onceward_store::ClockStatus {
        self.inner.clock_status()
    }

    async fn accept_clock(&self) -> Result<bool, StoreError> {
        self.inner.accept_clock().await
    }

    fn instance(&self) -> Option<Arc<str>> {
        self.inner.instance()
    }

    async fn orphaned_leases(&self, limit: usize) -> Result<Vec<(RecordId, FencingToken)>, StoreError> {
        self.inner.orphaned_leases(limit).await
    }

    fn change_notifications(&self) -> Option<watch::Receiver<u64>> {
        self.inner.change_notifications()
    }

    async fn inbox_calls(&self, limit: usize) -> Result<Vec<InboxCall>, StoreError> {
        self.inner.inbox_calls(limit).await
    }

    async fn answer_inbox_calls(&self, answers: &[InboxReply]) -> Result<(), StoreError> {
        self.inner.answer_inbox_calls(answers).await
    }

    async fn delete_answered_calls(&self, old: &AnsweredCallsQuery) -> Result<AnsweredCallsPage, StoreError> {
        self.inner.delete_answered_calls(old).await
    }

    async fn now(&self) -> Result<Time, StoreError> {
        self.inner.now().await
    }
}
