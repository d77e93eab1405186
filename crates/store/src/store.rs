//! The trait that all stores implement.

use std::collections::HashSet;
use std::future::Future;
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
use crate::prune::{
    AnsweredCallsPage, AnsweredCallsQuery, ExpiredCountersPage, ExpiredCountersQuery, ExpiredKeysPage,
    ExpiredKeysQuery, PrunablePage, PrunableQuery, PruneRequest, PruneResult, PruneState, RecordWithReferrers,
};
use crate::query::{LeaseCandidate, LeaseQuery, ListQuery, PageLimit, RecordPage, StateCount, VersionCount};
use crate::read_set::ReadSet;
use crate::stats::StoreStats;
use crate::webhook_secrets::{WebhookSecret, WebhookSecrets};
use crate::workers::{LeaseCounts, WorkerSighting};

/// A database of records and their log. It loads and saves and makes no decisions.
pub trait Store: Send + Sync {
    /// Loads the values of these keys into the read set, except those that it already has. Takes no locks; `save`
    /// validates the values. If the future is dropped before it completes, the read set is empty.
    fn load(&self, read_set: &mut ReadSet, keys: &[ReadKey]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Saves a batch atomically: in one transaction, after comparing everything that it read with the read set. The
    /// read set must contain all values that the batch read, and the batch's own changes must be applied to it. Both
    /// arguments are shared, because the writer thread needs them and the caller still needs them for the replies. If it
    /// panics or returns [`StoreError::Panicked`], nothing was written.
    fn save(
        &self,
        read_set: &Arc<ReadSet>,
        batch: &Arc<Batch>,
    ) -> impl Future<Output = Result<SaveResult, StoreError>> + Send;

    /// Returns ready jobs by rank: longest ready first, where each step of priority counts as one more minute of
    /// waiting. For each concurrency key, returns at most as many jobs as its limit still allows; for an ordered
    /// key, only the first job.
    fn lease_candidates(
        &self,
        query: &LeaseQuery,
    ) -> impl Future<Output = Result<Vec<LeaseCandidate>, StoreError>> + Send;

    /// Returns records with a timer or lease that is due at `due_by` or earlier, earliest first.
    fn due_records(
        &self,
        due_by: Time,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(Time, RecordId)>, StoreError>> + Send;

    /// Returns the log after `after_seq`, in order and without gaps. Fails with [`StoreError::LogPruned`] if pruning
    /// deleted an entry after that seq.
    fn log(
        &self,
        after_seq: u64,
        limit: impl Into<PageLimit> + Send,
    ) -> impl Future<Output = Result<Vec<LogEntry>, StoreError>> + Send;

    /// Returns the last seq of the log; 0 for an empty log.
    fn last_seq(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Returns a record's log entries after a version, in order.
    fn history(
        &self,
        record: RecordId,
        after_version: u64,
        limit: impl Into<PageLimit> + Send,
    ) -> impl Future<Output = Result<Vec<LogEntry>, StoreError>> + Send;

    /// Returns a record as last saved. The caller must check whether a timer is due.
    fn record(&self, id: RecordId) -> impl Future<Output = Result<Option<Arc<Record>>, StoreError>> + Send;

    fn list(&self, query: &ListQuery) -> impl Future<Output = Result<RecordPage, StoreError>> + Send;

    /// Returns the number of records in each state, of one owner or of all. States without records are omitted.
    fn counts_by_state(&self, owner: Option<&str>) -> impl Future<Output = Result<Vec<StateCount>, StoreError>> + Send;

    /// Returns statistics for monitoring, at a cost that does not grow with the data.
    fn stats(&self, now: Time) -> impl Future<Output = Result<StoreStats, StoreError>> + Send;

    /// Returns the latencies of commits in microseconds, if the store can measure them apart from the rest of a save.
    fn commit_latency(&self) -> Option<HistogramSnapshot> {
        None
    }

    /// Returns the payload bytes with this hash.
    fn payload(&self, sha256: &[u8; 32]) -> impl Future<Output = Result<Option<Arc<[u8]>>, StoreError>> + Send;

    /// Returns the hashes that belong to the payload of at least one record.
    fn referenced_payloads(
        &self,
        hashes: &[[u8; 32]],
    ) -> impl Future<Output = Result<HashSet<[u8; 32]>, StoreError>> + Send;

    /// Like [`payload`](Self::payload), but for several hashes; returns the results in the same order.
    fn payloads(&self, sha256s: &[[u8; 32]])
    -> impl Future<Output = Result<Vec<Option<Arc<[u8]>>>, StoreError>> + Send;

    /// Returns the effect of the job's committed execution.
    fn effect(&self, record: RecordId) -> impl Future<Output = Result<Option<Effect>, StoreError>> + Send;

    /// Returns a page of a job's executions after a token, oldest first.
    fn executions_page(
        &self,
        record: RecordId,
        after_token: FencingToken,
        limit: impl Into<PageLimit> + Send,
    ) -> impl Future<Output = Result<Vec<Execution>, StoreError>> + Send;

    /// Returns all executions of a job. Use it only if they are known to be few.
    fn executions(&self, record: RecordId) -> impl Future<Output = Result<Vec<Execution>, StoreError>> + Send {
        self.executions_page(record, FencingToken(0), usize::MAX >> 1)
    }

    /// Returns a page of the records that link to a record.
    fn linked_records(&self, query: &LinkQuery) -> impl Future<Output = Result<LinkPage, StoreError>> + Send;

    /// Returns a page of named accounts, including outside accounts.
    fn accounts(&self, query: &AccountsQuery) -> impl Future<Output = Result<Vec<AccountBalance>, StoreError>> + Send;

    /// Returns a named account; `None` if it never had a transfer.
    fn account(&self, account: &AccountName)
    -> impl Future<Output = Result<Option<AccountBalance>, StoreError>> + Send;

    /// Returns a page of a named account's statement, newest entry first.
    fn statement(
        &self,
        query: &StatementQuery,
    ) -> impl Future<Output = Result<Option<StatementPage>, StoreError>> + Send;

    /// Stores when workers last polled for jobs.
    fn upsert_workers(&self, sightings: &[WorkerSighting]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the workers that polled last, latest first.
    fn workers(&self, limit: usize) -> impl Future<Output = Result<Vec<WorkerSighting>, StoreError>> + Send;

    /// Returns the number of live leases of each worker. Scans at most `max_timers` timers, earliest first; each lease
    /// has a timer for its expiry.
    fn lease_counts(&self, max_timers: usize) -> impl Future<Output = Result<LeaseCounts, StoreError>> + Send;

    /// Deletes workers last seen at `seen_before` or earlier, and all but the latest `max_workers`. Returns the number
    /// deleted.
    fn delete_stale_workers(
        &self,
        seen_before: Time,
        max_workers: usize,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Returns the stored idempotency records, in the order of `ids`.
    fn idempotency_records(
        &self,
        ids: &[IdempotencyId],
    ) -> impl Future<Output = Result<Vec<Option<IdempotencyRecord>>, StoreError>> + Send;

    /// Like [`idempotency_records`](Self::idempotency_records), but for one id.
    fn idempotency_record(
        &self,
        id: &IdempotencyId,
    ) -> impl Future<Output = Result<Option<IdempotencyRecord>, StoreError>> + Send {
        async move { Ok(self.idempotency_records(std::slice::from_ref(id)).await?.pop().flatten()) }
    }

    /// Returns the catalog of lifecycle versions. It may lack versions that another process has just added.
    fn catalog(&self) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send;

    /// Analyzes lifecycle files and adds them. A new version becomes the current one of its lifecycle; a known version
    /// changes nothing.
    fn put_lifecycles(&self, files: &InputFiles) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send;

    /// Makes a known version the current one of its lifecycle and logs the activation with its actor. If the version is
    /// already current, changes nothing.
    fn activate_version(
        &self,
        hash: &str,
        by: &str,
        now: Time,
    ) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send;

    /// Like [`catalog`](Self::catalog), but includes everything that other processes have committed.
    fn refresh_catalog(&self) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send {
        self.catalog()
    }

    /// Returns the number of records of each version by state. Includes at least all states that are not final.
    fn counts_by_version(&self) -> impl Future<Output = Result<Vec<VersionCount>, StoreError>> + Send;

    /// Returns records that ended before the cutoff, oldest first. Scans a bounded number of records.
    fn prunable(&self, query: &PrunableQuery) -> impl Future<Output = Result<PrunablePage, StoreError>> + Send;

    /// Returns records with all records that link to them. Unknown ids are omitted.
    fn with_referrers(
        &self,
        ids: &[RecordId],
    ) -> impl Future<Output = Result<Vec<RecordWithReferrers>, StoreError>> + Send;

    /// Deletes records with all their log entries and appends a checkpoint, in one transaction, after comparing the
    /// records and their links with the loaded ones.
    fn request(&self, prune: &Arc<PruneRequest>) -> impl Future<Output = Result<PruneResult, StoreError>> + Send;

    /// Returns whether the caller should look for prunable records now: no process has done so for `min_interval`. If
    /// so, stores the current time. Always true if no other process can open the store.
    fn claim_prune_turn(&self, min_interval: Duration) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = min_interval;
        async { Ok(true) }
    }

    /// Returns how far the log is pruned.
    fn prune_state(&self) -> impl Future<Output = Result<PruneState, StoreError>> + Send;

    /// Deletes idempotency records older than the cutoff. Scans a bounded number.
    fn delete_expired_keys(
        &self,
        query: &ExpiredKeysQuery,
    ) -> impl Future<Output = Result<ExpiredKeysPage, StoreError>> + Send;

    /// Deletes counters at zero or with an expired window. Scans a bounded number and skips counters that another
    /// transaction holds.
    fn delete_expired_counters(
        &self,
        query: &ExpiredCountersQuery,
    ) -> impl Future<Output = Result<ExpiredCountersPage, StoreError>> + Send;

    /// Returns all API keys, including expired and revoked ones.
    fn api_keys(&self) -> impl Future<Output = Result<ApiKeySet, StoreError>> + Send;

    /// Returns [`ApiKeySet::revision`], to check whether keys that were read before are still current.
    fn api_keys_revision(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Changes the API keys and logs the change, in one transaction, if no other change came in between.
    fn edit_api_keys(
        &self,
        edit: &Arc<ApiKeyEdit>,
    ) -> impl Future<Output = Result<ApiKeySaveResult, StoreError>> + Send;

    /// Returns the secrets that sign an owner's deliveries; `None` before their first use.
    fn webhook_secrets(&self, owner: &str) -> impl Future<Output = Result<Option<WebhookSecrets>, StoreError>> + Send;

    /// Saves an owner's secrets if the stored current one is `expected`, or if there is none yet. Returns whether they
    /// were saved.
    fn save_webhook_secrets(
        &self,
        owner: &str,
        expected: Option<WebhookSecret>,
        secrets: &WebhookSecrets,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns the name of this instance, if no other running process can have the same name: either only one process
    /// can open the store, or the operator assigned the name. In-process workers lease under it (see
    /// [`in_process_worker_name`](crate::in_process_worker_name)).
    fn instance(&self) -> Option<Arc<str>> {
        None
    }

    /// Returns live leases of in-process workers of earlier instances, which no longer run. If several processes can
    /// open the store, returns only those of earlier instances with the same assigned name.
    fn orphaned_leases(
        &self,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(RecordId, FencingToken)>, StoreError>> + Send {
        let _ = limit;
        async { Ok(Vec::new()) }
    }

    /// Returns a channel that changes when another process may have committed. Notifications can be late or missing.
    /// `None` if no other process can write.
    fn change_notifications(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Returns pending inbox calls, oldest first, and reserves them for 30 seconds. A call without an answer by then is
    /// returned again. Empty if the store has no inbox.
    fn inbox_calls(&self, limit: usize) -> impl Future<Output = Result<Vec<InboxCall>, StoreError>> + Send {
        let _ = limit;
        async { Ok(Vec::new()) }
    }

    /// Stores the results of inbox calls for their senders.
    fn answer_inbox_calls(&self, replies: &[InboxReply]) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = replies;
        async { Ok(()) }
    }

    /// Deletes inbox calls that were answered before the cutoff. Scans a bounded number.
    fn delete_answered_calls(
        &self,
        query: &AnsweredCallsQuery,
    ) -> impl Future<Output = Result<AnsweredCallsPage, StoreError>> + Send {
        let _ = query;
        async { Ok(AnsweredCallsPage::default()) }
    }

    /// Returns whether the store follows its clock. By default it always does.
    fn clock_status(&self) -> ClockStatus {
        ClockStatus::default()
    }

    /// Accepts the clock's time after a jump, on an operator's decision. Other processes on the same database follow the
    /// same jump. Returns false if there is no hold.
    fn accept_clock(&self) -> impl Future<Output = Result<bool, StoreError>> + Send {
        async { Ok(false) }
    }

    /// Returns the time of the store's clock; during a hold, the last good time plus the time elapsed since then.
    fn now(&self) -> impl Future<Output = Result<Time, StoreError>> + Send;
}
