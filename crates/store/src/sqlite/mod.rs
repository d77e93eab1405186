//! The embedded store: one SQLite file, one writer thread and a few reader threads.
//!
//! A save is one transaction and is durable before its result is returned (`synchronous=FULL`). Tables reference
//! records by dense row ids. The schema enforces constraints, such as one effect per job, no negative balance and
//! unique keys, but no lifecycle rules.

mod api_keys;
mod backup;
mod clock;
mod definitions;
mod delayed;
mod errors;
mod lanes;
mod leasing;
mod ledger;
mod load;
mod migrate;
mod open;
mod prepared;
mod prune;
mod read;
mod reader;
mod rows;
mod save;
mod scan;
mod scanner;
mod shared;
mod stats;
mod status;
mod symbols;
mod thread_pool;
mod transaction;
mod wal;
mod wal_checkpoint;
mod webhook_secrets;
mod workers;
mod write;

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use onceward_core::decide::{Effect, ReadKey};
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::{Execution, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::Connection;

use crate::account::{AccountBalance, AccountName, AccountsQuery, StatementPage, StatementQuery};
use crate::api_keys::{ApiKeyEdit, ApiKeySaveResult, ApiKeySet};
use crate::batch::{Batch, IdempotencyId, IdempotencyRecord, SaveResult};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::clock_guard::ClockStatus;
use crate::error::StoreError;
use crate::histogram::{Histogram, HistogramSnapshot, LATENCY_BUCKETS_MICROS};
use crate::history_skip_index::HistorySkipIndex;
use crate::links::{LinkPage, LinkQuery};
use crate::log::LogEntry;
use crate::prune::{
    ExpiredCountersPage, ExpiredCountersQuery, ExpiredKeysPage, ExpiredKeysQuery, PrunablePage, PrunableQuery,
    PruneRequest, PruneResult, PruneState, RecordWithReferrers,
};
use crate::query::{LeaseCandidate, LeaseQuery, ListQuery, PageLimit, RecordPage, StateCount, VersionCount};
use crate::read_set::ReadSet;
use crate::schema::SchemaStatus;
use crate::stats::StoreStats;
use crate::store::Store;
use crate::symbols::CatalogSnapshot;
use crate::webhook_secrets::{WebhookSecret, WebhookSecrets};
use crate::workers::{LeaseCounts, WorkerSighting};
use crate::write_set::EncodedEntries;
pub use backup::{BackupError, BackupReport, backup_database};
use leasing::LeaseScan;
use open::EngineLock;
use reader::{SqliteReader, roll_back_open};
use save::SqliteWriter;
pub use scanner::SqliteScanner;
use shared::SqliteShared;
use thread_pool::ThreadPool;
use transaction::OnBusy;
use wal_checkpoint::WalCheckpointer;

/// Allows loading for the next batch, a list and a log stream at the same time.
const READER_THREADS: usize = 3;

/// Up to this many operations are saved on the caller's thread, if the writer is idle and the disk was fast the last
/// time: waking the writer thread and being woken by it takes longer than the disk. The same limit applies to candidate
/// queries and loads, which read one or two pages that are nearly always in memory.
const MAX_INLINE_OPERATIONS: usize = 16;

/// A store in an SQLite file. Clones share the same store. Dropping the last one closes the file.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    inner: Arc<SqliteInner>,
}

#[derive(Debug)]
struct SqliteInner {
    // Dropped in this order: the readers, the writer, then the lock.
    readers: ThreadPool<SqliteReader>,
    inline_reader: Mutex<SqliteReader>,
    writer: ThreadPool<SqliteWriter>,
    shared: Arc<SqliteShared>,
    clock: Clock,
    /// A random name that no other instance has.
    instance: Arc<str>,
    _lock: EngineLock,
}

impl SqliteStore {
    /// Opens or creates a database file. Fails while another engine has it open.
    pub fn open(path: impl AsRef<Path>, clock: Clock) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let lock = EngineLock::acquire(path)?;
        let connection = open::open_writer(path)?;
        clock::start(&connection, &clock)?;
        let snapshot = definitions::load_catalog(&connection)?;
        let shared = Arc::new(SqliteShared {
            generation: AtomicU64::new(1),
            catalog_snapshot: RwLock::new(snapshot),
            record_cache: Mutex::default(),
            commit_latency: Histogram::new(LATENCY_BUCKETS_MICROS),
            is_disk_fast: AtomicBool::new(false),
            earliest_delayed_micros: AtomicI64::new(delayed::earliest_ready_at(&connection)?.micros()),
            history_index: HistorySkipIndex::default(),
        });
        let reader = || Ok(SqliteReader { connection: open::open_reader(path)?, shared: Arc::clone(&shared) });
        let readers = (0..READER_THREADS).map(|_| reader()).collect::<Result<Vec<_>, StoreError>>()?;
        let inline_reader = Mutex::new(reader()?);
        let writer = SqliteWriter::new(connection, Arc::clone(&shared), WalCheckpointer::start(path)?)?;
        let inner = SqliteInner {
            readers: ThreadPool::start("read", readers, |reader| roll_back_open(&reader.connection))?,
            inline_reader,
            writer: ThreadPool::start("write", vec![writer], SqliteWriter::recover)?,
            shared,
            clock,
            // `RandomState` provides randomness without another dependency.
            instance: format!("{:016x}", RandomState::new().hash_one(std::process::id())).into(),
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns how many threads a runtime should have beside this store. One core is left for the writer thread. If
    /// every core had a runtime thread, these would wake each other needlessly and compete with the writer (decision
    /// 0020).
    pub fn runtime_threads() -> usize {
        std::thread::available_parallelism().map_or(1, |cores| thread_pool::runtime_threads_beside_writer(cores.get()))
    }

    /// Reads the schema version of a file. Writes nothing and works while an engine has the file open.
    pub fn schema(path: impl AsRef<Path>) -> Result<SchemaStatus, StoreError> {
        migrate::schema_status(&open::open_reader(path.as_ref())?, migrate::MIGRATIONS)
    }

    /// Migrates a file, as opening it does, and returns the status before. Fails while an engine has the file open.
    pub fn migrate(path: impl AsRef<Path>) -> Result<SchemaStatus, StoreError> {
        let path = path.as_ref();
        let before = Self::schema(path)?;
        if !before.pending.is_empty() {
            let _lock = EngineLock::acquire(path)?;
            drop(open::open_writer(path)?);
        }
        Ok(before)
    }

    async fn scan_ready(&self, query: &LeaseQuery) -> Result<LeaseScan, StoreError> {
        if query.limit <= MAX_INLINE_OPERATIONS
            && let Ok(reader) = self.inner.inline_reader.try_lock()
        {
            return reader.read(|connection, snapshot| leasing::scan_ready(connection, snapshot, query));
        }
        let query = query.clone();
        self.read(move |connection, snapshot| leasing::scan_ready(connection, snapshot, &query)).await
    }

    async fn read<R: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection, &CatalogSnapshot) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.inner.readers.run(move |reader| reader.read(job)).await
    }
}

impl Store for SqliteStore {
    async fn load(&self, read_set: &mut ReadSet, keys: &[ReadKey]) -> Result<(), StoreError> {
        // Read before anything is loaded, so that `save` detects writes since then.
        read_set.set_generation(self.inner.shared.generation.load(Ordering::Acquire));
        let keys = self.inner.shared.fill_from_cache(read_set, keys);
        if keys.is_empty() {
            return Ok(());
        }
        if keys.len() <= MAX_INLINE_OPERATIONS
            && self.inner.shared.is_disk_fast.load(Ordering::Relaxed)
            && let Ok(reader) = self.inner.inline_reader.try_lock()
        {
            return reader.read(|connection, snapshot| load::load(connection, snapshot, read_set, &keys));
        }
        let mut loading = std::mem::take(read_set);
        *read_set = self
            .read(move |connection, snapshot| load::load(connection, snapshot, &mut loading, &keys).map(|()| loading))
            .await?;
        Ok(())
    }

    async fn save(&self, read_set: &Arc<ReadSet>, batch: &Arc<Batch>) -> Result<SaveResult, StoreError> {
        // Encoded on the caller's thread, so that the writer can work on another batch meanwhile.
        let encoded = Arc::new(EncodedEntries::encode(read_set, batch)?);
        if batch.operations.len() <= MAX_INLINE_OPERATIONS && self.inner.shared.is_disk_fast.load(Ordering::Relaxed) {
            // Only the writer thread checkpoints the WAL or waits for another writing process.
            let save = |writer: &mut SqliteWriter| writer.save(read_set, batch, &encoded, OnBusy::Fail);
            match self.inner.writer.try_inline(|writer| !writer.is_checkpointing(), save) {
                Err(_) | Ok(Err(StoreError::Busy)) => {}
                Ok(saved) => return saved,
            }
        }
        let (read_set, batch) = (Arc::clone(read_set), Arc::clone(batch));
        self.inner.writer.run(move |writer| writer.save(&read_set, &batch, &encoded, OnBusy::Wait)).await
    }

    async fn lease_candidates(&self, query: &LeaseQuery) -> Result<Vec<LeaseCandidate>, StoreError> {
        let (now, shared) = (query.now, &self.inner.shared);
        let has_due_delayed = || shared.earliest_delayed_micros.load(Ordering::Acquire) <= now.micros();
        if has_due_delayed() {
            self.inner.writer.run(move |writer| writer.promote_due(now, &[])).await?;
        }
        let mut previous_early_keys = Vec::new();
        loop {
            let LeaseScan { candidates: found, early_keys: early } = self.scan_ready(query).await?;
            // The same keys again: their rows are damaged, and another attempt cannot repair them.
            if (early.is_empty() || early == previous_early_keys) && (found.len() >= query.limit || !has_due_delayed())
            {
                return Ok(found);
            }
            previous_early_keys.clone_from(&early);
            self.inner.writer.run(move |writer| writer.promote_due(now, &early)).await?;
        }
    }

    async fn due_records(&self, due_by: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        self.read(move |connection, _| leasing::due_records(connection, due_by, limit)).await
    }

    async fn log(&self, after_seq: u64, limit: impl Into<PageLimit> + Send) -> Result<Vec<LogEntry>, StoreError> {
        let page_limit = limit.into();
        self.read(move |connection, _| read::log(connection, after_seq, page_limit)).await
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        self.read(|connection, _| read::last_seq(connection)).await
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let page_limit = limit.into();
        let shared = Arc::clone(&self.inner.shared);
        self.read(move |connection, _| {
            read::history(connection, &shared.history_index, record, after_version, page_limit)
        })
        .await
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        self.read(
            move |connection, snapshot| Ok(load::load_record(connection, snapshot, id)?.map(|(_, record)| record)),
        )
        .await
    }

    async fn list(&self, query: &ListQuery) -> Result<RecordPage, StoreError> {
        let query = query.clone();
        self.read(move |connection, snapshot| read::list(connection, snapshot, &query)).await
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        let owner = owner.map(str::to_owned);
        self.read(move |connection, snapshot| read::counts_by_state(connection, snapshot, owner.as_deref())).await
    }

    async fn stats(&self, now: Time) -> Result<StoreStats, StoreError> {
        self.read(move |connection, snapshot| stats::read_stats(connection, snapshot, now)).await
    }

    fn commit_latency(&self) -> Option<HistogramSnapshot> {
        Some(self.inner.shared.commit_latency.snapshot())
    }

    async fn payload(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        let sha256 = *sha256;
        self.read(move |connection, _| read::payload(connection, &sha256)).await
    }

    async fn referenced_payloads(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        let hashes = hashes.to_vec();
        self.read(move |connection, _| read::referenced_payloads(connection, &hashes)).await
    }

    async fn payloads(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        let sha256s = sha256s.to_vec();
        self.read(move |connection, _| sha256s.iter().map(|sha256| read::payload(connection, sha256)).collect()).await
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        self.read(move |connection, _| read::effect(connection, record)).await
    }

    async fn executions_page(
        &self,
        record: RecordId,
        after_token: FencingToken,
        limit: impl Into<PageLimit> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        let page_limit = limit.into();
        self.read(move |connection, _| read::executions_page(connection, record, after_token, page_limit)).await
    }

    async fn linked_records(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        let query = query.clone();
        self.read(move |connection, snapshot| read::linked_records(connection, snapshot, &query)).await
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<AccountBalance>, StoreError> {
        let query = query.clone();
        self.read(move |connection, _| ledger::accounts(connection, &query)).await
    }

    async fn account(&self, account: &AccountName) -> Result<Option<AccountBalance>, StoreError> {
        let account = account.clone();
        self.read(move |connection, _| ledger::account(connection, &account)).await
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<StatementPage>, StoreError> {
        let query = query.clone();
        self.read(move |connection, _| ledger::statement(connection, &query)).await
    }

    async fn upsert_workers(&self, sightings: &[WorkerSighting]) -> Result<(), StoreError> {
        let sightings = sightings.to_vec();
        self.inner.writer.run(move |writer| writer.upsert_workers(&sightings)).await
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSighting>, StoreError> {
        self.read(move |connection, _| workers::list_workers(connection, limit)).await
    }

    async fn lease_counts(&self, max_timers: usize) -> Result<LeaseCounts, StoreError> {
        self.read(move |connection, _| workers::lease_counts(connection, max_timers)).await
    }

    async fn delete_stale_workers(&self, seen_before: Time, max_workers: usize) -> Result<u64, StoreError> {
        self.inner.writer.run(move |writer| writer.delete_stale_workers(seen_before, max_workers)).await
    }

    async fn idempotency_records(&self, ids: &[IdempotencyId]) -> Result<Vec<Option<IdempotencyRecord>>, StoreError> {
        let ids = ids.to_vec();
        self.read(move |connection, _| ids.iter().map(|name| read::idempotency_record(connection, name)).collect())
            .await
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, StoreError> {
        Ok(self.inner.shared.current_catalog().catalog)
    }

    async fn put_lifecycles(&self, files: &InputFiles) -> Result<Arc<Catalog>, StoreError> {
        let (files, now) = (files.clone(), self.inner.clock.now());
        let put = move |writer: &mut SqliteWriter| {
            let snapshot = writer.shared.current_catalog();
            let new = definitions::put_lifecycles(&mut writer.connection, &snapshot, &files, now)?;
            Ok(update_catalog(writer, &snapshot, new))
        };
        self.inner.writer.run(put).await
    }

    async fn activate_version(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        let (hash, by) = (hash.to_owned(), by.to_owned());
        let activate = move |writer: &mut SqliteWriter| {
            let snapshot = writer.shared.current_catalog();
            let new = definitions::activate_version(&mut writer.connection, &snapshot, &hash, &by, now)?;
            Ok(update_catalog(writer, &snapshot, new))
        };
        self.inner.writer.run(activate).await
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        self.read(|connection, snapshot| read::counts_by_version(connection, &snapshot.catalog, &snapshot.symbols))
            .await
    }

    async fn prunable(&self, query: &PrunableQuery) -> Result<PrunablePage, StoreError> {
        let query = *query;
        self.read(move |connection, _| prune::prunable(connection, &query)).await
    }

    async fn with_referrers(&self, ids: &[RecordId]) -> Result<Vec<RecordWithReferrers>, StoreError> {
        let ids = ids.to_vec();
        self.read(move |connection, snapshot| prune::with_referrers(connection, snapshot, &ids)).await
    }

    async fn request(&self, prune: &Arc<PruneRequest>) -> Result<PruneResult, StoreError> {
        let prune = Arc::clone(prune);
        self.inner.writer.run(move |writer| writer.prune(&prune)).await
    }

    async fn prune_state(&self) -> Result<PruneState, StoreError> {
        self.read(|connection, _| prune::prune_state(connection)).await
    }

    async fn delete_expired_keys(&self, query: &ExpiredKeysQuery) -> Result<ExpiredKeysPage, StoreError> {
        let query = query.clone();
        self.inner.writer.run(move |writer| writer.delete_expired_keys(&query)).await
    }

    async fn delete_expired_counters(&self, query: &ExpiredCountersQuery) -> Result<ExpiredCountersPage, StoreError> {
        let query = query.clone();
        self.inner.writer.run(move |writer| writer.delete_expired_counters(&query)).await
    }

    async fn api_keys(&self) -> Result<ApiKeySet, StoreError> {
        self.read(|connection, _| api_keys::api_keys(connection)).await
    }

    async fn api_keys_revision(&self) -> Result<u64, StoreError> {
        self.read(|connection, _| api_keys::revision(connection)).await
    }

    async fn edit_api_keys(&self, edit: &Arc<ApiKeyEdit>) -> Result<ApiKeySaveResult, StoreError> {
        let edit = Arc::clone(edit);
        self.inner.writer.run(move |writer| writer.edit_api_keys(&edit)).await
    }

    async fn webhook_secrets(&self, owner: &str) -> Result<Option<WebhookSecrets>, StoreError> {
        let owner = owner.to_owned();
        self.read(move |connection, _| webhook_secrets::webhook_secrets(connection, &owner)).await
    }

    async fn save_webhook_secrets(
        &self,
        owner: &str,
        expected: Option<WebhookSecret>,
        secrets: &WebhookSecrets,
    ) -> Result<bool, StoreError> {
        let (owner, secrets) = (owner.to_owned(), secrets.clone());
        self.inner.writer.run(move |writer| writer.save_webhook_secrets(&owner, expected, &secrets)).await
    }

    fn instance(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.inner.instance))
    }

    async fn orphaned_leases(&self, limit: usize) -> Result<Vec<(RecordId, FencingToken)>, StoreError> {
        let instance = Arc::clone(&self.inner.instance);
        self.read(move |connection, _| read::orphaned_leases(connection, &instance, limit)).await
    }

    fn clock_status(&self) -> ClockStatus {
        self.read_clock_status()
    }

    async fn accept_clock(&self) -> Result<bool, StoreError> {
        self.save_clock_acceptance().await
    }

    async fn now(&self) -> Result<Time, StoreError> {
        Ok(self.inner.clock.now())
    }
}

/// Publishes a changed catalog.
fn update_catalog(writer: &SqliteWriter, snapshot: &CatalogSnapshot, new: Option<CatalogSnapshot>) -> Arc<Catalog> {
    let Some(new) = new else { return Arc::clone(&snapshot.catalog) };
    let catalog = Arc::clone(&new.catalog);
    *writer.shared.catalog_snapshot.write().unwrap_or_else(PoisonError::into_inner) = new;
    catalog
}
