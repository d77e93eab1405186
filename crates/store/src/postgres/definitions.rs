//! Lifecycles: kept as the files that were given, compiled again by every process that opens the database. Another process
//! may bring new ones at any time.

use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use onceward_core::diagnostic::Files;

use super::Inner;
use super::connect::{BEGIN, InTransaction};
use crate::catalog::{Catalog, source_of};
use crate::error::StoreError;
use crate::names::{Known, Names, brought};

pub(super) const NEWEST: &str = "SELECT coalesce(max(number), 0) FROM onceward.definitions";

/// All that the database knows; what is known already is not compiled again.
pub(super) async fn recall(client: &ClientWrapper, known: &Known) -> Result<Known, StoreError> {
    let mut catalog = Catalog::clone(&known.catalog);
    let sql = "SELECT s.files, array_agg(d.hash ORDER BY d.number) FROM onceward.definitions d \
               JOIN onceward.sources s ON s.id = d.source WHERE d.number > $1::bigint GROUP BY s.id, s.files ORDER BY s.id";
    for row in client.query(sql, &[&i64::from(catalog.number())]).await? {
        let hashes: Vec<Arc<str>> = row.try_get::<_, Vec<&str>>(1)?.into_iter().map(Into::into).collect();
        catalog.recall(row.try_get(0)?, &hashes)?;
    }
    let mut names = Names::default();
    for row in client.query("SELECT id::bigint, name FROM onceward.names", &[]).await? {
        names.add(row.try_get(0)?, row.try_get::<_, &str>(1)?.into());
    }
    Ok(Known { catalog: Arc::new(catalog), names: Arc::new(names) })
}

/// Take in files that are sound; one process at a time.
pub(super) async fn put(inner: &Inner, files: &Files) -> Result<Known, StoreError> {
    let loaded = onceward_core::load(files).map_err(StoreError::Unsound)?;
    let source = source_of(files)?;
    let transaction = InTransaction::new(inner.pool.get().await?);
    let client = transaction.client()?;
    client.batch_execute(BEGIN).await?;
    client.batch_execute("SELECT number FROM onceward.migrations WHERE number = 0 FOR UPDATE").await?;
    let known = recall(client, &inner.known()).await?;
    let mut catalog = Catalog::clone(&known.catalog);
    let before = catalog.number();
    if catalog.learn(&loaded.definitions) == 0 {
        transaction.roll_back().await;
        return Ok(known);
    }
    let mut names = Names::clone(&known.names);
    let sql = "INSERT INTO onceward.sources (id, files) SELECT coalesce(max(id), 0) + 1, $1 FROM onceward.sources RETURNING id";
    let source: i32 = client.query_one(sql, &[&source]).await?.try_get(0)?;
    for (number, lifecycle) in (i64::from(before) + 1..).zip(catalog.since(before)) {
        let sql = "INSERT INTO onceward.definitions (number, name, hash, source) VALUES ($1::bigint, $2, $3, $4)";
        client.execute(sql, &[&number, &&*lifecycle.name, &&*lifecycle.hash, &source]).await?;
        for name in brought(lifecycle) {
            if names.number(name).is_none() {
                names.add(names.last() + 1, name.into());
                client
                    .execute("INSERT INTO onceward.names (id, name) VALUES ($1::bigint, $2)", &[&names.last(), &name])
                    .await?;
            }
        }
        for account in &lifecycle.outside {
            // Should the account be known already, it stands for the world from now on.
            let sql = "INSERT INTO onceward.accounts (asset, name, outside, balance) VALUES ($1, $2, true, 0) \
                       ON CONFLICT (asset, name) DO UPDATE SET outside = true";
            client.execute(sql, &[&lifecycle.asset.as_deref(), &&**account]).await?;
        }
    }
    client.batch_execute("COMMIT").await?;
    transaction.ended();
    Ok(Known { catalog: Arc::new(catalog), names: Arc::new(names) })
}
