//! Scans a database while other processes write to it.

use onceward_core::value::RecordId;
use serde_json::Value as Json;

use super::client::PooledClient;
use super::pool::{self, ConnectionPool, OpenTransaction};
use super::scan::{self, POSTGRES_TABLES};
use super::{migrate, status};
use crate::StoreError;
use crate::database_status::DatabaseStatus;
use crate::scan::{
    CatalogScan, ProjectionTable, Scan, ScanCursor, ScanPage, StoredActivation, StoredCatalogRows, StoredDefinition,
    StoredLogPage, compare_with_files,
};
use crate::symbols::SymbolTable;

/// A read-only view of a database. Each call is a short snapshot transaction without locks.
#[derive(Debug)]
pub struct PostgresScanner {
    pool: ConnectionPool,
}

impl PostgresScanner {
    /// Opens a database by its URL. Its schema version must be the one that this program supports; it is not migrated.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let pool = pool::build_pool(url)?;
        migrate::require_current(&pool.get().await?).await?;
        Ok(Self { pool })
    }

    /// Reads the status summary.
    pub async fn status(&self) -> Result<DatabaseStatus, StoreError> {
        let transaction = self.begin().await?;
        let client = transaction.client()?;
        let schema = migrate::schema_status(client, migrate::MIGRATIONS).await?;
        let look = status::read_status(client, &load_symbols(client).await?, schema.current).await;
        transaction.rollback().await;
        look
    }

    async fn begin(&self) -> Result<OpenTransaction, StoreError> {
        let transaction = OpenTransaction::new(self.pool.get().await?.with_background_timeout());
        transaction.client()?.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        Ok(transaction)
    }
}

async fn load_symbols(client: &PooledClient) -> Result<SymbolTable, StoreError> {
    let mut symbols = SymbolTable::default();
    for row in client.query("SELECT id::bigint, name FROM onceward.names", &[]).await? {
        symbols.insert(row.try_get(0)?, row.try_get::<_, &str>(1)?.into());
    }
    Ok(symbols)
}

async fn load_catalog_rows(client: &PooledClient) -> Result<StoredCatalogRows, StoreError> {
    let mut catalog_rows = StoredCatalogRows::default();
    for row in client.query("SELECT id::bigint, files FROM onceward.sources ORDER BY id", &[]).await? {
        catalog_rows.sources.push((row.try_get(0)?, row.try_get(1)?));
    }
    let sql = "SELECT number::bigint, name, hash, source::bigint FROM onceward.definitions ORDER BY number";
    for row in client.query(sql, &[]).await? {
        let (number, name, hash, source) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        catalog_rows.definitions.push(StoredDefinition { number, name, hash, source });
    }
    let sql = "SELECT number::bigint, definition::bigint, at, actor FROM onceward.activations ORDER BY number";
    for row in client.query(sql, &[]).await? {
        let (number, definition, at, actor) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        catalog_rows.activations.push(StoredActivation { number, definition, at, actor });
    }
    Ok(catalog_rows)
}

impl Scan for PostgresScanner {
    fn tables(&self) -> &'static [ProjectionTable] {
        POSTGRES_TABLES
    }

    async fn scan_catalog(&self) -> Result<CatalogScan, StoreError> {
        let transaction = self.begin().await?;
        let client = transaction.client()?;
        let (catalog_rows, names) = (load_catalog_rows(client).await?, load_symbols(client).await?);
        transaction.rollback().await;
        let mut catalog_scan = compare_with_files(&catalog_rows);
        if catalog_scan.is_complete {
            catalog_scan
                .differences
                .extend(SymbolTable::from_versions(catalog_scan.catalog.versions_since(0)).differences(&names));
        }
        Ok(catalog_scan)
    }

    async fn scan_log(&self, after_seq: i64, limit: usize) -> Result<StoredLogPage, StoreError> {
        let transaction = self.begin().await?;
        let page = scan::scan_log(transaction.client()?, after_seq, limit).await;
        transaction.rollback().await;
        page
    }

    async fn scan(
        &self,
        table: ProjectionTable,
        after: Option<ScanCursor>,
        limit: usize,
    ) -> Result<ScanPage, StoreError> {
        let transaction = self.begin().await?;
        let client = transaction.client()?;
        let page = scan::scan_page(client, &load_symbols(client).await?, table, after.as_ref(), limit).await;
        transaction.rollback().await;
        page
    }

    async fn effect_result(&self, record: RecordId) -> Result<Option<Json>, StoreError> {
        let sql = "SELECT f.result FROM onceward.effects f JOIN onceward.records r ON r.row = f.record WHERE r.id = $1";
        let client = self.pool.get().await?.with_background_timeout();
        let statement = client.prepare_cached(sql).await?;
        let found = client.query_opt(&statement, &[&record.0]).await?;
        let text: Option<String> = found.map(|row| row.try_get(0)).transpose()?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}
