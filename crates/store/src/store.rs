//! What every store does.

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
use crate::workers::{LeaseCounts, WorkerSighting};

/// A place where records live. It loads and saves, and decides nothing.
pub trait Store: Send + Sync {
    /// Add what these keys stand for to the base. Takes no locks: whether it still holds is for `save` to find out. What the
    /// base has already is not asked for again. A future that is dropped before it is done leaves the base empty.
    fn load(&self, read_set: &mut ReadSet, keys: &[ReadKey]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Make a batch durable, all of it or none: in one transaction, after comparing everything that it rests on with what
    /// the base was told. The base must hold all that the batch reads, and the batch's own changes applied. Both are shared, not
    /// given away: they go to the thread that writes, and are still needed for the answers.
    fn save(
        &self,
        read_set: &Arc<ReadSet>,
        batch: &Arc<Batch>,
    ) -> impl Future<Output = Result<SaveResult, StoreError>> + Send;

    /// Jobs that wait for a worker, in the order in which they should have one: by priority, then age, where a minute of
    /// waiting makes up for one of priority. Of a work key no more than may run beside those that do; of an ordered one the
    /// first only.
    fn lease_candidates(
        &self,
        query: &LeaseQuery,
    ) -> impl Future<Output = Result<Vec<LeaseCandidate>, StoreError>> + Send;

    /// Records with a timer or a lease that ends at `until` or before, the earliest first.
    fn due_records(
        &self,
        due_by: Time,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(Time, RecordId)>, StoreError>> + Send;

    /// The log after a place, in order, without a gap. [`StoreError::Pruned`] where pruning took something after it.
    fn log(
        &self,
        after_seq: u64,
        limit: impl Into<PageLimit> + Send,
    ) -> impl Future<Output = Result<Vec<LogEntry>, StoreError>> + Send;

    /// The last place in the log; 0 where nothing was written yet.
    fn last_seq(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// A record's own entries after a version, in order.
    fn history(
        &self,
        record: RecordId,
        after_version: u64,
        limit: impl Into<PageLimit> + Send,
    ) -> impl Future<Output = Result<Vec<LogEntry>, StoreError>> + Send;

    /// A record as it was last saved. Whether a timer is due on it is for the caller to see to.
    fn record(&self, id: RecordId) -> impl Future<Output = Result<Option<Arc<Record>>, StoreError>> + Send;

    fn list(&self, query: &ListQuery) -> impl Future<Output = Result<RecordPage, StoreError>> + Send;

    /// How many records are in each state, of one owner or of all; states without records are left out.
    fn counts_by_state(&self, owner: Option<&str>) -> impl Future<Output = Result<Vec<StateCount>, StoreError>> + Send;

    /// How the store stands, for who watches it all the time. Costs little, whatever it holds.
    fn stats(&self, now: Time) -> impl Future<Output = Result<StoreStats, StoreError>> + Send;

    /// How long its commits took, in microseconds, where that can be told from the rest of a save.
    fn commit_latency(&self) -> Option<HistogramSnapshot> {
        None
    }

    /// The bytes with this hash.
    fn payload(&self, sha256: &[u8; 32]) -> impl Future<Output = Result<Option<Arc<[u8]>>, StoreError>> + Send;

    /// Those among these hashes that some record has as its payload's.
    fn referenced_payloads(
        &self,
        hashes: &[[u8; 32]],
    ) -> impl Future<Output = Result<HashSet<[u8; 32]>, StoreError>> + Send;

    /// The same of many, in their order.
    fn payloads(&self, sha256s: &[[u8; 32]])
    -> impl Future<Output = Result<Vec<Option<Arc<[u8]>>>, StoreError>> + Send;

    /// What the job's committed execution left.
    fn effect(&self, record: RecordId) -> impl Future<Output = Result<Option<Effect>, StoreError>> + Send;

    /// The attempts at a job after a token, the first first.
    fn executions_page(
        &self,
        record: RecordId,
        after_token: FencingToken,
        limit: impl Into<PageLimit> + Send,
    ) -> impl Future<Output = Result<Vec<Execution>, StoreError>> + Send;

    /// All of them, for who knows that they are few.
    fn executions(&self, record: RecordId) -> impl Future<Output = Result<Vec<Execution>, StoreError>> + Send {
        self.executions_page(record, FencingToken(0), usize::MAX >> 1)
    }

    /// Records that point to another.
    fn linked_records(&self, query: &LinkQuery) -> impl Future<Output = Result<LinkPage, StoreError>> + Send;

    /// Named accounts, those that stand for the world outside too.
    fn accounts(&self, query: &AccountsQuery) -> impl Future<Output = Result<Vec<AccountBalance>, StoreError>> + Send;

    /// What a named account holds; `None` where nothing ever moved there.
    fn account(&self, account: &AccountName)
    -> impl Future<Output = Result<Option<AccountBalance>, StoreError>> + Send;

    /// What moved on a named account, the newest first.
    fn statement(
        &self,
        query: &StatementQuery,
    ) -> impl Future<Output = Result<Option<StatementPage>, StoreError>> + Send;

    /// Write down who came for jobs lately.
    fn upsert_workers(&self, sightings: &[WorkerSighting]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Who came for jobs lately, the last first.
    fn workers(&self, limit: usize) -> impl Future<Output = Result<Vec<WorkerSighting>, StoreError>> + Send;

    /// How many live leases each worker holds. Looks at no more than so many timers, the next to run out first: every lease
    /// has one, for its end.
    fn lease_counts(&self, max_timers: usize) -> impl Future<Output = Result<LeaseCounts, StoreError>> + Send;

    /// Forget workers that were last seen at this time or before, and all but the last so many; how many that were.
    fn delete_stale_workers(
        &self,
        seen_before: Time,
        max_workers: usize,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Requests that were answered before, in the order in which they are asked for.
    fn idempotency_records(
        &self,
        ids: &[IdempotencyId],
    ) -> impl Future<Output = Result<Vec<Option<IdempotencyRecord>>, StoreError>> + Send;

    /// One of them.
    fn idempotency_record(
        &self,
        id: &IdempotencyId,
    ) -> impl Future<Output = Result<Option<IdempotencyRecord>, StoreError>> + Send {
        async move { Ok(self.idempotency_records(std::slice::from_ref(id)).await?.pop().flatten()) }
    }

    /// The lifecycles that the store knows.
    fn catalog(&self) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send;

    /// Check lifecycle files and take them in: a version never seen becomes the current one of its lifecycle, a known one
    /// changes nothing.
    fn put_lifecycles(&self, files: &InputFiles) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send;

    /// Make a version that is known the current one of its lifecycle, on somebody's word, and tell so in the log. A version that is
    /// current changes nothing.
    fn activate_version(
        &self,
        hash: &str,
        by: &str,
        now: Time,
    ) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send;

    /// The lifecycles as they are now, whoever brought them: what [`definitions`](Self::definitions) may learn a moment later.
    fn refresh_catalog(&self) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send {
        self.catalog()
    }

    /// How many records live by each version, by state; none are left out that are not final.
    fn counts_by_version(&self) -> impl Future<Output = Result<Vec<VersionCount>, StoreError>> + Send;

    /// Records that ended long ago, the oldest first. Looks at no more than a bounded number.
    fn prunable(&self, query: &PrunableQuery) -> impl Future<Output = Result<PrunablePage, StoreError>> + Send;

    /// Records with all that point to them; those that are not there are left out.
    fn with_referrers(
        &self,
        ids: &[RecordId],
    ) -> impl Future<Output = Result<Vec<RecordWithReferrers>, StoreError>> + Send;

    /// Take records out, each with all of its entries, and leave a checkpoint in the log: all of it in one transaction, after
    /// comparing the records and their links with what was loaded.
    fn prune(&self, prune: &Arc<PruneRequest>) -> impl Future<Output = Result<PruneResult, StoreError>> + Send;

    /// Whether it is the caller's turn to look for what can be pruned: nobody else has looked for so long. It is written down that
    /// somebody looks now. Always, where nobody else can.
    fn claim_prune_turn(&self, min_interval: Duration) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = min_interval;
        async { Ok(true) }
    }

    /// How far the store is pruned.
    fn prune_state(&self) -> impl Future<Output = Result<PruneState, StoreError>> + Send;

    /// Forget old answers to callers' keys. Looks at no more than a bounded number.
    fn delete_expired_keys(
        &self,
        query: &ExpiredKeysQuery,
    ) -> impl Future<Output = Result<ExpiredKeysPage, StoreError>> + Send;

    /// Take away counts that tell nothing any more. Looks at no more than a bounded number; one that somebody is at stays.
    fn delete_expired_counters(
        &self,
        query: &ExpiredCountersQuery,
    ) -> impl Future<Output = Result<ExpiredCountersPage, StoreError>> + Send;

    /// All API keys, live or not.
    fn api_keys(&self) -> impl Future<Output = Result<ApiKeySet, StoreError>> + Send;

    /// How often they were changed: whether what was read of them is still so.
    fn api_keys_revision(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Change the keys and tell it in the log, in one transaction, if nobody has changed them since.
    fn edit_api_keys(
        &self,
        edit: &Arc<ApiKeyEdit>,
    ) -> impl Future<Output = Result<ApiKeySaveResult, StoreError>> + Send;

    /// A name for this opening of the store, where only one process can have it open at a time, or it was given a name that only one
    /// has at a time. What workers inside that process lease is marked with it ([`in_process_worker_name`](crate::own_worker)).
    fn instance(&self) -> Option<Arc<str>> {
        None
    }

    /// Live leases of workers inside a process that had the store open before: they are gone. None where others may have it
    /// open too, but for processes that had our name.
    fn orphaned_leases(
        &self,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(RecordId, FencingToken)>, StoreError>> + Send {
        let _ = limit;
        async { Ok(Vec::new()) }
    }

    /// Raised when another process may have written something: a hint that may come late or not at all. `None` where nobody
    /// else can write.
    fn change_notifications(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Letters that wait in the store's inbox, the first first. They are nobody else's for half a minute: a letter that is
    /// not answered by then comes again. None where there is no inbox.
    fn inbox_calls(&self, limit: usize) -> impl Future<Output = Result<Vec<InboxCall>, StoreError>> + Send {
        let _ = limit;
        async { Ok(Vec::new()) }
    }

    /// Write down what became of letters, for those who sent them.
    fn answer_inbox_calls(&self, replies: &[InboxReply]) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = replies;
        async { Ok(()) }
    }

    /// Take away letters that were answered long ago. Looks at no more than a bounded number.
    fn delete_answered_calls(
        &self,
        query: &AnsweredCallsQuery,
    ) -> impl Future<Output = Result<AnsweredCallsPage, StoreError>> + Send {
        let _ = query;
        async { Ok(AnsweredCallsPage::default()) }
    }

    /// The store's clock.
    fn now(&self) -> impl Future<Output = Result<Time, StoreError>> + Send;
}
