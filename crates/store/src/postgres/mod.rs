//! PostgreSQL: many processes on one database, none of them in charge.
//!
//! A save is one transaction at READ COMMITTED. It claims what is free, locks what is there in one order that every save
//! keeps, compares, writes arrays of rows, and takes its place in the log last of all, so that the order of the log is the
//! order of commit. What SQL holds are constraints (one effect for a job, no balance below zero, keys that are unique), never
//! rules. Nothing lives in a session: no advisory lock, no temporary table, no setting that anything but speed depends on.

mod api_keys;
mod client;
mod definitions;
mod delayed;
mod errors;
mod executions;
mod housekeeping;
mod inbox;
mod instance;
mod lanes;
mod leasing;
mod ledger;
mod load;
mod lock_plan;
mod migrate;
mod notify;
mod pipeline;
mod pool;
mod prune;
mod queue_writes;
mod read;
mod rows;
mod save;
mod scan;
mod scan_cursors;
mod scanner;
mod sole_writer_cache;
mod stats;
mod status;
mod store;
mod tls;
mod vacuum;
mod workers;
mod write;

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use tokio_postgres::Row;

use crate::clock::{Clock, SampledClock};
use crate::error::StoreError;
use crate::histogram::{Histogram, LATENCY_BUCKETS_MICROS};
use crate::history_skip_index::HistorySkipIndex;
use crate::schema::SchemaStatus;
use crate::symbols::{CatalogSnapshot, SymbolTable};
use instance::Instance;
use migrate::MIGRATIONS;
use notify::NotifyChannel;
use pipeline::Pipeline;
use pool::{ConnectionPool, OpenTransaction};
use scan_cursors::ScanCursors;
pub use scanner::PostgresScanner;
use sole_writer_cache::SoleWriterCache;
use vacuum::Vacuum;

/// Rounds of learning what another process has brought meanwhile.
const MAX_CATALOG_REFRESHES: usize = 5;

const SELECT_NOW_SQL: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// A store in a PostgreSQL database. Clones are the same store.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    inner: Arc<PostgresInner>,
}

#[derive(Debug)]
struct PostgresInner {
    pool: ConnectionPool,
    catalog_snapshot: RwLock<Arc<CatalogSnapshot>>,
    scan_cursors: ScanCursors,
    history_index: HistorySkipIndex,
    record_cache: SoleWriterCache,
    notify_channel: NotifyChannel,
    vacuum: Vacuum,
    /// A manual one in tests; else the database's, remembered for a moment.
    clock: Option<Clock>,
    sampled_clock: SampledClock,
    /// How long the commits of batches took, there and back.
    commit_latency: Histogram,
    /// Of a server with a name.
    instance: OnceLock<Instance>,
}

impl PostgresStore {
    /// Open a database by its URL, `postgres://user:password@host:port/name`. Makes its tables where there are none; older
    /// ones are left to `onceward migrate`. Many processes may. Needs a tokio runtime with I/O and time.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_inner(url, None).await
    }

    /// The same under a clock of one's own: for tests and simulations.
    pub async fn open_with_clock(url: &str, clock: Clock) -> Result<Self, StoreError> {
        Self::open_inner(url, Some(clock)).await
    }

    /// The same store, opened by a server of this name: letters, digits, `.`, `_` and `-`, at most 64. What workers inside an earlier
    /// process of the name had leased is free again at once. No two processes should have one name at the same time: the older one's
    /// workers would lose their jobs, though nothing is done twice.
    pub async fn with_server_name(self, name: &str) -> Result<Self, StoreError> {
        let opening = instance::start_instance(&self.inner, name).await?;
        // A second name changes nothing.
        let _ = self.inner.instance.set(opening);
        Ok(self)
    }

    /// Which schema a database has. Nothing is written.
    pub async fn schema(url: &str) -> Result<SchemaStatus, StoreError> {
        migrate::schema_status(&pool::build_pool(url)?.get().await?, MIGRATIONS).await
    }

    /// Bring a database up to date. What it had before. No process should be working on it with a program that knows only the older
    /// schema.
    pub async fn migrate(url: &str) -> Result<SchemaStatus, StoreError> {
        migrate::migrate(&pool::build_pool(url)?, MIGRATIONS).await
    }

    async fn open_inner(url: &str, clock: Option<Clock>) -> Result<Self, StoreError> {
        let pool = pool::build_pool(url)?;
        migrate::create_if_missing(&pool, MIGRATIONS).await?;
        let sender_id: String = pool.get().await?.query_one("SELECT gen_random_uuid()::text", &[]).await?.try_get(0)?;
        let news = NotifyChannel::start(pool::parse_url(url)?, pool.clone(), sender_id);
        let empty = CatalogSnapshot { catalog: Arc::default(), symbols: Arc::new(SymbolTable::default()) };
        let known = RwLock::new(Arc::new(empty));
        let sweeps = Vacuum::start(pool.clone());
        let inner = PostgresInner {
            pool,
            catalog_snapshot: known,
            scan_cursors: ScanCursors::default(),
            history_index: HistorySkipIndex::default(),
            record_cache: SoleWriterCache::default(),
            notify_channel: news,
            vacuum: sweeps,
            clock,
            sampled_clock: SampledClock::default(),
            commit_latency: Histogram::new(LATENCY_BUCKETS_MICROS),
            instance: OnceLock::new(),
        };
        inner.reload_catalog().await?;
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl PostgresInner {
    fn current_catalog(&self) -> Arc<CatalogSnapshot> {
        Arc::clone(&self.catalog_snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Learn what the database knows by now.
    async fn reload_catalog(&self) -> Result<Arc<CatalogSnapshot>, StoreError> {
        let snapshot = definitions::load_catalog(&self.pool.get().await?, &self.current_catalog()).await?;
        Ok(self.update_catalog(snapshot))
    }

    /// Definitions only come: should another task have learnt more meanwhile, that stays.
    fn update_catalog(&self, snapshot: CatalogSnapshot) -> Arc<CatalogSnapshot> {
        let mut current = self.catalog_snapshot.write().unwrap_or_else(PoisonError::into_inner);
        if current.catalog.revision() <= snapshot.catalog.revision() {
            *current = Arc::new(snapshot);
        }
        Arc::clone(&current)
    }

    /// What is known, with this definition in it if there is one.
    async fn catalog_with_version(&self, version_number: u32) -> Result<Arc<CatalogSnapshot>, StoreError> {
        let snapshot = self.current_catalog();
        if version_number <= snapshot.catalog.newest_version_number() {
            Ok(snapshot)
        } else {
            self.reload_catalog().await
        }
    }

    /// What is known, with this lifecycle in it if there is one.
    async fn catalog_with_lifecycle(&self, lifecycle: &str) -> Result<Arc<CatalogSnapshot>, StoreError> {
        let snapshot = self.current_catalog();
        if snapshot.catalog.definitions.get(lifecycle).is_some() { Ok(snapshot) } else { self.newest_catalog().await }
    }

    /// What the database knows now.
    async fn newest_catalog(&self) -> Result<Arc<CatalogSnapshot>, StoreError> {
        let mut pipeline = Pipeline::default();
        pipeline.add(definitions::SELECT_NEWEST_REVISION_SQL, Vec::new());
        let answers = self.run_pipeline(&pipeline).await?;
        let newest = answers[0].first().map_or(Ok(0), |row| rows::u32_column(row, 0))?;
        let snapshot = self.current_catalog();
        if newest <= snapshot.catalog.revision() { Ok(snapshot) } else { self.reload_catalog().await }
    }

    /// Statements outside of a transaction, which only read. A connection that died while it lay idle is tried once more.
    async fn run_pipeline(&self, pipeline: &Pipeline<'_>) -> Result<Vec<Vec<Row>>, StoreError> {
        let client = self.pool.get().await?;
        match pipeline.run(&client).await {
            Err(StoreError::Unavailable(_)) if client.is_closed() => {
                drop(client);
                pipeline.run(&self.pool.get().await?).await
            }
            done => done,
        }
    }

    /// The same, all of them at one moment.
    async fn run_in_snapshot(&self, pipeline: &Pipeline<'_>) -> Result<Vec<Vec<Row>>, StoreError> {
        for is_last in [false, true] {
            let transaction = OpenTransaction::new(self.pool.get().await?);
            match pipeline.run_in_snapshot(transaction.client()?).await {
                Ok(answers) => {
                    transaction.release();
                    return Ok(answers);
                }
                Err(StoreError::Unavailable(_)) if !is_last && transaction.client()?.is_closed() => {}
                Err(error) => {
                    transaction.rollback().await;
                    return Err(error);
                }
            }
        }
        Err(StoreError::Busy)
    }
}
