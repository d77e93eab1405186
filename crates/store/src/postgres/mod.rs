//! The PostgreSQL store: several processes share one database without a leader.
//!
//! A save is one transaction at READ COMMITTED. It claims missing rows, locks existing rows in one fixed order,
//! validates the read set, writes arrays of rows and appends to the log last, so that the log has commit order. The
//! schema enforces constraints, such as one effect per job, no negative balance and unique keys, but no lifecycle
//! rules. The store keeps no session state: no advisory locks, no temporary tables, and no settings that affect more
//! than speed.

mod api_keys;
mod client;
mod clock;
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
mod password;
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
mod webhook_secrets;
mod workers;
mod write;

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use tokio_postgres::Row;

use crate::clock::Clock;
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

/// Bounds the reloads of the catalog if other processes keep changing it.
const MAX_CATALOG_REFRESHES: usize = 5;

const SELECT_NOW_SQL: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// A store in a PostgreSQL database. Clones share the same store.
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
    clock: Clock,
    /// False if tests give the time: then `clock` is not fed with samples of the database's clock.
    uses_database_time: bool,
    /// Latencies of batch commits, including the round trip.
    commit_latency: Histogram,
    /// Set if the server has a name.
    instance: OnceLock<Instance>,
}

impl PostgresStore {
    /// Opens a database by its URL, `postgres://user:password@host:port/name`. Creates the schema if there is none, but
    /// does not migrate an older one; use `onceward migrate`. Several processes can open the same database. Requires a
    /// tokio runtime with I/O and time enabled.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_inner(url, None).await
    }

    /// Like [`open`](Self::open), but with a given clock, for tests and simulations.
    pub async fn open_with_clock(url: &str, clock: Clock) -> Result<Self, StoreError> {
        Self::open_inner(url, Some(clock)).await
    }

    /// Registers this process under a server name: letters, digits, `.`, `_` and `-`, at most 64. Leases of in-process
    /// workers of earlier instances with this name end at once. Two running processes should not have the same name:
    /// the workers of the older one would lose their leases, although no effect would commit twice.
    pub async fn with_server_name(self, name: &str) -> Result<Self, StoreError> {
        let instance = instance::start_instance(&self.inner, name).await?;
        // A second call has no effect.
        let _ = self.inner.instance.set(instance);
        Ok(self)
    }

    /// Reads the schema version of a database. Writes nothing.
    pub async fn schema(url: &str) -> Result<SchemaStatus, StoreError> {
        migrate::schema_status(&pool::build_pool(url)?.get().await?, MIGRATIONS).await
    }

    /// Migrates a database and returns the status before. No process with a program for the older schema should be
    /// running.
    pub async fn migrate(url: &str) -> Result<SchemaStatus, StoreError> {
        migrate::migrate(&pool::build_pool(url)?, MIGRATIONS).await
    }

    async fn open_inner(url: &str, clock: Option<Clock>) -> Result<Self, StoreError> {
        let pool = pool::build_pool(url)?;
        migrate::create_if_missing(&pool, MIGRATIONS).await?;
        let sender_id: String = pool.get().await?.query_one("SELECT gen_random_uuid()::text", &[]).await?.try_get(0)?;
        let notify_channel = NotifyChannel::start(pool::parse_url(url)?, pool.clone(), sender_id);
        let empty = CatalogSnapshot { catalog: Arc::default(), symbols: Arc::new(SymbolTable::default()) };
        let snapshot = RwLock::new(Arc::new(empty));
        let vacuum = Vacuum::start(pool.clone());
        let inner = PostgresInner {
            pool,
            catalog_snapshot: snapshot,
            scan_cursors: ScanCursors::default(),
            history_index: HistorySkipIndex::default(),
            record_cache: SoleWriterCache::default(),
            notify_channel,
            vacuum,
            uses_database_time: clock.is_none(),
            clock: clock.unwrap_or_else(Clock::machine),
            commit_latency: Histogram::new(LATENCY_BUCKETS_MICROS),
            instance: OnceLock::new(),
        };
        inner.reload_catalog().await?;
        clock::start(&inner).await?;
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl PostgresInner {
    fn current_catalog(&self) -> Arc<CatalogSnapshot> {
        Arc::clone(&self.catalog_snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Loads the current catalog from the database.
    async fn reload_catalog(&self) -> Result<Arc<CatalogSnapshot>, StoreError> {
        let snapshot = definitions::load_catalog(&self.pool.get().await?, &self.current_catalog()).await?;
        Ok(self.update_catalog(snapshot))
    }

    /// Publishes a catalog, unless another task has published a newer one. Catalogs only grow.
    fn update_catalog(&self, snapshot: CatalogSnapshot) -> Arc<CatalogSnapshot> {
        let mut current = self.catalog_snapshot.write().unwrap_or_else(PoisonError::into_inner);
        if current.catalog.revision() <= snapshot.catalog.revision() {
            *current = Arc::new(snapshot);
        }
        Arc::clone(&current)
    }

    /// Returns a catalog that contains this version, if it exists.
    async fn catalog_with_version(&self, version_number: u32) -> Result<Arc<CatalogSnapshot>, StoreError> {
        let snapshot = self.current_catalog();
        if version_number <= snapshot.catalog.newest_version_number() {
            Ok(snapshot)
        } else {
            self.reload_catalog().await
        }
    }

    /// Returns a catalog that contains this lifecycle, if it exists.
    async fn catalog_with_lifecycle(&self, lifecycle: &str) -> Result<Arc<CatalogSnapshot>, StoreError> {
        let snapshot = self.current_catalog();
        if snapshot.catalog.definitions.get(lifecycle).is_some() { Ok(snapshot) } else { self.newest_catalog().await }
    }

    /// Returns the catalog as of now, including changes by other processes.
    async fn newest_catalog(&self) -> Result<Arc<CatalogSnapshot>, StoreError> {
        let mut pipeline = Pipeline::default();
        pipeline.add(definitions::SELECT_NEWEST_REVISION_SQL, Vec::new());
        let answers = self.run_pipeline(&pipeline).await?;
        let newest = answers[0].first().map_or(Ok(0), |row| rows::u32_column(row, 0))?;
        let snapshot = self.current_catalog();
        if newest <= snapshot.catalog.revision() { Ok(snapshot) } else { self.reload_catalog().await }
    }

    /// Runs read-only statements outside a transaction. If an idle connection turns out to be closed, retries once.
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

    /// Like [`run_pipeline`](Self::run_pipeline), but all statements see the same snapshot.
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
