//! A database looked through beside the processes that write it.

use onceward_core::value::RecordId;
use serde_json::Value as Json;

use super::client::Client;
use super::connect::{self, InTransaction, Pool};
use super::scan::{self, TABLES};
use super::{look, migrate};
use crate::StoreError;
use crate::look::Look;
use crate::names::Names;
use crate::scan::{
    Cursor, KeptDefinition, KeptDefinitions, KeptTurn, Learned, LogPage, Scan, ScanPage, Table, held_against_files,
};

/// A database, read only: every question is a short transaction that sees one moment and locks nothing.
#[derive(Debug)]
pub struct PostgresView {
    pool: Pool,
}

impl PostgresView {
    /// Open a database by its URL. Its schema must be one that this program knows; nothing is brought up to date.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let pool = connect::pool(url)?;
        migrate::check(&pool.get().await?).await?;
        Ok(Self { pool })
    }

    /// All of it at a glance.
    pub async fn look(&self) -> Result<Look, StoreError> {
        let transaction = self.begin().await?;
        let client = transaction.client()?;
        let schema = migrate::schema(client, migrate::MIGRATIONS).await?;
        let look = look::look(client, &names(client).await?, schema.found).await;
        transaction.roll_back().await;
        look
    }

    async fn begin(&self) -> Result<InTransaction, StoreError> {
        let transaction = InTransaction::new(self.pool.get().await?.patient());
        transaction.client()?.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        Ok(transaction)
    }
}

async fn names(client: &Client) -> Result<Names, StoreError> {
    let mut names = Names::default();
    for row in client.query("SELECT id::bigint, name FROM onceward.names", &[]).await? {
        names.add(row.try_get(0)?, row.try_get::<_, &str>(1)?.into());
    }
    Ok(names)
}

async fn kept(client: &Client) -> Result<KeptDefinitions, StoreError> {
    let mut kept = KeptDefinitions::default();
    for row in client.query("SELECT id::bigint, files FROM onceward.sources ORDER BY id", &[]).await? {
        kept.sources.push((row.try_get(0)?, row.try_get(1)?));
    }
    let sql = "SELECT number::bigint, name, hash, source::bigint FROM onceward.definitions ORDER BY number";
    for row in client.query(sql, &[]).await? {
        let (number, name, hash, source) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        kept.definitions.push(KeptDefinition { number, name, hash, source });
    }
    let sql = "SELECT number::bigint, definition::bigint, at, actor FROM onceward.turns ORDER BY number";
    for row in client.query(sql, &[]).await? {
        let (number, definition, at, actor) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        kept.turns.push(KeptTurn { number, definition, at, actor });
    }
    Ok(kept)
}

impl Scan for PostgresView {
    fn tables(&self) -> &'static [Table] {
        TABLES
    }

    async fn learn(&self) -> Result<Learned, StoreError> {
        let transaction = self.begin().await?;
        let client = transaction.client()?;
        let (kept, names) = (kept(client).await?, names(client).await?);
        transaction.roll_back().await;
        let mut learned = held_against_files(&kept);
        if learned.is_whole {
            learned.differences.extend(Names::of(learned.catalog.since(0)).differences(&names));
        }
        Ok(learned)
    }

    async fn scan_log(&self, after: i64, limit: usize) -> Result<LogPage, StoreError> {
        let transaction = self.begin().await?;
        let page = scan::log(transaction.client()?, after, limit).await;
        transaction.roll_back().await;
        page
    }

    async fn scan(&self, table: Table, after: Option<Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        let transaction = self.begin().await?;
        let client = transaction.client()?;
        let page = scan::page(client, &names(client).await?, table, after.as_ref(), limit).await;
        transaction.roll_back().await;
        page
    }

    async fn result(&self, record: RecordId) -> Result<Option<Json>, StoreError> {
        let sql = "SELECT f.result FROM onceward.effects f JOIN onceward.records r ON r.row = f.record WHERE r.id = $1";
        let client = self.pool.get().await?.patient();
        let statement = client.prepare_cached(sql).await?;
        let found = client.query_opt(&statement, &[&record.0]).await?;
        let text: Option<String> = found.map(|row| row.try_get(0)).transpose()?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}
