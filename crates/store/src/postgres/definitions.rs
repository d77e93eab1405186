//! Lifecycles: kept as the files that were given, compiled again by every process that opens the database. Another process
//! may bring new ones at any time.

use std::sync::Arc;

use onceward_core::diagnostic::Files;
use onceward_core::time::Time;

use super::client::Client;
use super::connect::{BEGIN, InTransaction};
use super::pipeline::{Pipeline, arg};
use super::prune::{NUMBER, lone_entry};
use super::read::{LIVES, version_counts};
use super::write::{END, HISTORY, PLACE};
use super::{Inner, rows};
use crate::catalog::{Catalog, Change, Turn};
use crate::error::StoreError;
use crate::names::{Known, Names, brought};
use crate::query::VersionCount;

pub(super) const NEWEST: &str = "SELECT coalesce(max(number), 0) FROM onceward.turns";

const TURNS: &str = "SELECT definition, at, actor FROM onceward.turns WHERE number > $1::bigint ORDER BY number";

/// All that the database knows; what is known already is not compiled again.
pub(super) async fn recall(client: &Client, known: &Known) -> Result<Known, StoreError> {
    let mut catalog = Catalog::clone(&known.catalog);
    // First, so that every version that became current is there by the time it is looked for.
    let turns = client.query(TURNS, &[&i64::from(catalog.number())]).await?;
    let sql = "SELECT s.files, array_agg(d.hash ORDER BY d.number) FROM onceward.definitions d \
               JOIN onceward.sources s ON s.id = d.source WHERE d.number > $1::bigint GROUP BY s.id, s.files ORDER BY s.id";
    for row in client.query(sql, &[&i64::from(catalog.newest())]).await? {
        let hashes: Vec<Arc<str>> = row.try_get::<_, Vec<&str>>(1)?.into_iter().map(Into::into).collect();
        catalog.recall(row.try_get(0)?, &hashes)?;
    }
    for row in turns {
        let (at, by) = (rows::time(&row, 1)?, row.try_get::<_, Option<&str>>(2)?.map(Into::into));
        catalog.turn(Turn { definition: rows::number(&row, 0)?, at, by });
    }
    let mut names = Names::default();
    for row in client.query("SELECT id::bigint, name FROM onceward.names", &[]).await? {
        names.add(row.try_get(0)?, row.try_get::<_, &str>(1)?.into());
    }
    Ok(Known { catalog: Arc::new(catalog), names: Arc::new(names) })
}

/// Whoever changes what is current does so alone.
async fn alone(inner: &Inner) -> Result<(InTransaction, Known), StoreError> {
    let transaction = InTransaction::new(inner.pool.get().await?);
    let client = transaction.client()?;
    client.batch_execute(BEGIN).await?;
    client.batch_execute("SELECT number FROM onceward.migrations WHERE number = 0 FOR UPDATE").await?;
    let known = recall(client, &inner.known()).await?;
    Ok((transaction, known))
}

async fn counts(client: &Client, known: &Known) -> Result<Vec<VersionCount>, StoreError> {
    version_counts(&client.query(LIVES, &[]).await?, &known.catalog, &known.names)
}

async fn write_turns(client: &Client, before: &Catalog, after: &Catalog) -> Result<(), StoreError> {
    for (number, turn) in after.turns_since(before.number()) {
        let sql = "INSERT INTO onceward.turns (number, definition, at, actor) VALUES ($1::bigint, $2::bigint, $3, $4)";
        let (number, definition) = (i64::from(number), i64::from(turn.definition));
        client.execute(sql, &[&number, &definition, &turn.at.micros(), &turn.by.as_deref()]).await?;
    }
    Ok(())
}

/// Take in files that are sound; one process at a time.
pub(super) async fn put(inner: &Inner, files: &Files, at: Time) -> Result<Known, StoreError> {
    // Proven before anybody is kept waiting; a start with files that are known, which is most of them, asks nothing of anybody.
    let known = inner.newest().await?;
    if known.catalog.brought(files, at)?.is_none() {
        return Ok(Known::clone(&known));
    }
    let (transaction, known) = alone(inner).await?;
    let done = bring(transaction.client()?, &known, files, at).await;
    end(inner, transaction, known, done).await
}

async fn bring(client: &Client, known: &Known, files: &Files, at: Time) -> Result<Option<Known>, StoreError> {
    let before = &known.catalog;
    let Some(change) = before.brought(files, at)? else { return Ok(None) };
    change.fits_the_living(before, &counts(client, known).await?)?;
    let Change { catalog, source } = change;
    let mut names = Names::clone(&known.names);
    let sql = "INSERT INTO onceward.sources (id, files) SELECT coalesce(max(id), 0) + 1, $1 FROM onceward.sources RETURNING id";
    let source: i32 = client.query_one(sql, &[&source]).await?.try_get(0)?;
    for (number, lifecycle) in (i64::from(before.newest()) + 1..).zip(catalog.since(before.newest())) {
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
    write_turns(client, before, &catalog).await?;
    Ok(Some(Known { catalog: Arc::new(catalog), names: Arc::new(names) }))
}

/// Make a known version current, and tell so in the log.
pub(super) async fn make_current(inner: &Inner, hash: &str, by: &str, now: Time) -> Result<Known, StoreError> {
    let (transaction, known) = alone(inner).await?;
    let done = turn(transaction.client()?, &known, hash, by, now).await;
    end(inner, transaction, known, done).await
}

async fn turn(client: &Client, known: &Known, hash: &str, by: &str, now: Time) -> Result<Option<Known>, StoreError> {
    let counts = counts(client, known).await?;
    let Some((catalog, entry)) = known.catalog.using(hash, by, now, &counts)? else { return Ok(None) };
    write_turns(client, &known.catalog, &catalog).await?;
    let batch: i64 = client.query_one(NUMBER, &[]).await?.try_get(0)?;
    let mut pipeline = Pipeline::default();
    pipeline.add(HISTORY, lone_entry(batch, &entry));
    pipeline.add(END, Vec::new());
    pipeline.add(PLACE, vec![arg(1_i64), arg(batch)]);
    pipeline.run(client).await?;
    Ok(Some(Known { catalog: Arc::new(catalog), names: Arc::clone(&known.names) }))
}

/// Commit where something is new. What was known before stands otherwise.
async fn end(
    inner: &Inner,
    transaction: InTransaction,
    known: Known,
    done: Result<Option<Known>, StoreError>,
) -> Result<Known, StoreError> {
    match done {
        Ok(Some(new)) => {
            transaction.client()?.batch_execute("COMMIT").await?;
            transaction.ended();
            inner.news.tell();
            Ok(new)
        }
        Ok(None) => {
            transaction.roll_back().await;
            Ok(known)
        }
        Err(error) => {
            transaction.roll_back().await;
            Err(error)
        }
    }
}
