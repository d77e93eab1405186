//! Lifecycle versions in PostgreSQL. The source files are stored, and each process compiles them when it opens the
//! database. Other processes can add versions at any time.

use std::sync::Arc;

use onceward_core::diagnostic::InputFiles;
use onceward_core::time::Time;

use super::client::PooledClient;
use super::pipeline::{Pipeline, param};
use super::pool::{BEGIN_WRITE_SQL, OpenTransaction};
use super::prune::{NEXT_BATCH_NUMBER_SQL, lone_entry_parameters};
use super::read::{SELECT_VERSION_COUNTS_SQL, version_counts};
use super::write::{APPEND_BATCH_SQL, INSERT_HISTORY_SQL, LOCK_LOG_END_SQL};
use super::{PostgresInner, rows};
use crate::catalog::{Activation, Catalog, CatalogChange};
use crate::error::StoreError;
use crate::query::VersionCount;
use crate::symbols::{CatalogSnapshot, SymbolTable, symbol_names};

pub(super) const SELECT_NEWEST_REVISION_SQL: &str = "SELECT coalesce(max(number), 0) FROM onceward.activations";

const SELECT_ACTIVATIONS_SQL: &str =
    "SELECT definition, at, actor FROM onceward.activations WHERE number > $1::bigint ORDER BY number";

/// Loads the catalog. Compiles only versions that are not in `snapshot`.
pub(super) async fn load_catalog(
    client: &PooledClient,
    snapshot: &CatalogSnapshot,
) -> Result<CatalogSnapshot, StoreError> {
    let mut catalog = Catalog::clone(&snapshot.catalog);
    // Activations first, so that the version of each activation is found by the next query.
    let activations = client.query(SELECT_ACTIVATIONS_SQL, &[&i64::from(catalog.revision())]).await?;
    let sql = "SELECT s.files, array_agg(d.hash ORDER BY d.number) FROM onceward.definitions d \
               JOIN onceward.sources s ON s.id = d.source WHERE d.number > $1::bigint GROUP BY s.id, s.files ORDER BY s.id";
    for row in client.query(sql, &[&i64::from(catalog.newest_version_number())]).await? {
        let hashes: Vec<Arc<str>> = row.try_get::<_, Vec<&str>>(1)?.into_iter().map(Into::into).collect();
        catalog.restore_source(row.try_get(0)?, &hashes)?;
    }
    for row in activations {
        let (at, by) = (rows::time_column(&row, 1)?, row.try_get::<_, Option<&str>>(2)?.map(Into::into));
        catalog.activate(Activation { version_number: rows::u32_column(&row, 0)?, activated_at: at, activated_by: by });
    }
    let mut symbols = SymbolTable::default();
    for row in client.query("SELECT id::bigint, name FROM onceward.names", &[]).await? {
        symbols.insert(row.try_get(0)?, row.try_get::<_, &str>(1)?.into());
    }
    Ok(CatalogSnapshot { catalog: Arc::new(catalog), symbols: Arc::new(symbols) })
}

/// Locks the catalog, so that only one process changes it at a time.
async fn lock_catalog(inner: &PostgresInner) -> Result<(OpenTransaction, CatalogSnapshot), StoreError> {
    let transaction = OpenTransaction::new(inner.pool.get().await?);
    let client = transaction.client()?;
    client.batch_execute(BEGIN_WRITE_SQL).await?;
    client.batch_execute("SELECT number FROM onceward.migrations WHERE number = 0 FOR UPDATE").await?;
    let snapshot = load_catalog(client, &inner.current_catalog()).await?;
    Ok((transaction, snapshot))
}

async fn load_version_counts(
    client: &PooledClient,
    snapshot: &CatalogSnapshot,
) -> Result<Vec<VersionCount>, StoreError> {
    version_counts(&client.query(SELECT_VERSION_COUNTS_SQL, &[]).await?, &snapshot.catalog, &snapshot.symbols)
}

async fn write_activations(client: &PooledClient, before: &Catalog, after: &Catalog) -> Result<(), StoreError> {
    for (number, turn) in after.activations_since(before.revision()) {
        let sql =
            "INSERT INTO onceward.activations (number, definition, at, actor) VALUES ($1::bigint, $2::bigint, $3, $4)";
        let (number, definition) = (i64::from(number), i64::from(turn.version_number));
        client
            .execute(sql, &[&number, &definition, &turn.activated_at.micros(), &turn.activated_by.as_deref()])
            .await?;
    }
    Ok(())
}

/// Analyzes files and adds their new versions.
pub(super) async fn put_lifecycles(
    inner: &PostgresInner,
    files: &InputFiles,
    at: Time,
) -> Result<CatalogSnapshot, StoreError> {
    // Analyze before taking the lock, so that other processes do not wait. Most starts add files that are already
    // known; these need no lock.
    let snapshot = inner.newest_catalog().await?;
    if snapshot.catalog.prepare_files(files, at)?.is_none() {
        return Ok(CatalogSnapshot::clone(&snapshot));
    }
    let (transaction, snapshot) = lock_catalog(inner).await?;
    let result = write_lifecycles(transaction.client()?, &snapshot, files, at).await;
    finish_transaction(inner, transaction, snapshot, result).await
}

async fn write_lifecycles(
    client: &PooledClient,
    snapshot: &CatalogSnapshot,
    files: &InputFiles,
    at: Time,
) -> Result<Option<CatalogSnapshot>, StoreError> {
    let before = &snapshot.catalog;
    let Some(change) = before.prepare_files(files, at)? else { return Ok(None) };
    change.ensure_live_compatible(before, &load_version_counts(client, snapshot).await?)?;
    if change.replaces_texts() {
        replace_sources(client, &change).await?;
    }
    let CatalogChange { catalog, source, .. } = change;
    let mut symbols = SymbolTable::clone(&snapshot.symbols);
    let sql = "INSERT INTO onceward.sources (id, files) SELECT coalesce(max(id), 0) + 1, $1 FROM onceward.sources RETURNING id";
    let source: i32 = match source {
        Some(source) => client.query_one(sql, &[&source]).await?.try_get(0)?,
        // There are no new versions.
        None => 0,
    };
    for (number, lifecycle) in
        (i64::from(before.newest_version_number()) + 1..).zip(catalog.versions_since(before.newest_version_number()))
    {
        let sql = "INSERT INTO onceward.definitions (number, name, hash, source) VALUES ($1::bigint, $2, $3, $4)";
        client.execute(sql, &[&number, &&*lifecycle.name, &&*lifecycle.hash, &source]).await?;
        for name in symbol_names(lifecycle) {
            if symbols.id(name).is_none() {
                symbols.insert(symbols.last_id() + 1, name.into());
                client
                    .execute(
                        "INSERT INTO onceward.names (id, name) VALUES ($1::bigint, $2)",
                        &[&symbols.last_id(), &name],
                    )
                    .await?;
            }
        }
        for account in &lifecycle.outside_accounts {
            // If the account exists, it becomes an outside account.
            let sql = "INSERT INTO onceward.accounts (asset, name, outside, balance) VALUES ($1, $2, true, 0) \
                       ON CONFLICT (asset, name) DO UPDATE SET outside = true";
            client.execute(sql, &[&lifecycle.asset.as_deref(), &&**account]).await?;
        }
    }
    write_activations(client, before, &catalog).await?;
    Ok(Some(CatalogSnapshot { catalog: Arc::new(catalog), symbols: Arc::new(symbols) }))
}

async fn replace_sources(client: &PooledClient, change: &CatalogChange) -> Result<(), StoreError> {
    let mut stored = Vec::new();
    for row in client.query("SELECT id, files FROM onceward.sources", &[]).await? {
        stored.push((row.try_get::<_, i32>(0)?, row.try_get(1)?));
    }
    for (id, files) in change.replaced_sources(stored)? {
        client.execute("UPDATE onceward.sources SET files = $2 WHERE id = $1", &[&id, &files]).await?;
    }
    Ok(())
}

/// Activates a known version and logs that.
pub(super) async fn activate_version(
    inner: &PostgresInner,
    hash: &str,
    by: &str,
    now: Time,
) -> Result<CatalogSnapshot, StoreError> {
    let (transaction, snapshot) = lock_catalog(inner).await?;
    let result = write_activation(transaction.client()?, &snapshot, hash, by, now).await;
    finish_transaction(inner, transaction, snapshot, result).await
}

async fn write_activation(
    client: &PooledClient,
    snapshot: &CatalogSnapshot,
    hash: &str,
    by: &str,
    now: Time,
) -> Result<Option<CatalogSnapshot>, StoreError> {
    let counts = load_version_counts(client, snapshot).await?;
    let Some((catalog, entry)) = snapshot.catalog.with_activated_version(hash, by, now, &counts)? else {
        return Ok(None);
    };
    write_activations(client, &snapshot.catalog, &catalog).await?;
    let batch: i64 = client.query_one(NEXT_BATCH_NUMBER_SQL, &[]).await?.try_get(0)?;
    let mut pipeline = Pipeline::default();
    pipeline.add(INSERT_HISTORY_SQL, lone_entry_parameters(batch, &entry));
    pipeline.add(LOCK_LOG_END_SQL, Vec::new());
    pipeline.add(APPEND_BATCH_SQL, vec![param(1_i64), param(batch)]);
    pipeline.run(client).await?;
    Ok(Some(CatalogSnapshot { catalog: Arc::new(catalog), symbols: Arc::clone(&snapshot.symbols) }))
}

/// Commits if there is a new catalog. Otherwise rolls back and keeps the current one.
async fn finish_transaction(
    inner: &PostgresInner,
    transaction: OpenTransaction,
    snapshot: CatalogSnapshot,
    result: Result<Option<CatalogSnapshot>, StoreError>,
) -> Result<CatalogSnapshot, StoreError> {
    match result {
        Ok(Some(new)) => {
            transaction.client()?.batch_execute("COMMIT").await?;
            transaction.release();
            inner.notify_channel.notify();
            Ok(new)
        }
        Ok(None) => {
            transaction.rollback().await;
            Ok(snapshot)
        }
        Err(error) => {
            transaction.rollback().await;
            Err(error)
        }
    }
}
