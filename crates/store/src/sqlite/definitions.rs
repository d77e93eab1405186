//! Lifecycles: kept as the files that were given, compiled again when the database is opened.

use std::sync::Arc;

use onceward_core::diagnostic::Files;
use rusqlite::{Connection, TransactionBehavior, params};

use super::names;
use crate::catalog::{Catalog, source_of};
use crate::error::StoreError;
use crate::names::{Known, Names};
use crate::scan::{KeptDefinition, KeptDefinitions};

/// All that the database knows.
pub(super) fn recall(connection: &Connection) -> Result<Known, StoreError> {
    let mut catalog = Catalog::default();
    let mut sources = connection.prepare("SELECT id, files FROM sources ORDER BY id")?;
    let mut hashes = connection.prepare("SELECT hash FROM definitions WHERE source = ?1 ORDER BY number")?;
    let mut found = sources.query([])?;
    while let Some(row) = found.next()? {
        let own = hashes.query_map([row.get::<_, i64>(0)?], |row| row.get::<_, Arc<str>>(0))?;
        catalog.recall(&row.get::<_, String>(1)?, &own.collect::<Result<Vec<_>, _>>()?)?;
    }
    Ok(Known { catalog: Arc::new(catalog), names: Arc::new(names::load(connection)?) })
}

/// The rows as they stand, right or wrong.
pub(super) fn kept(connection: &Connection) -> Result<KeptDefinitions, StoreError> {
    let mut sources = connection.prepare("SELECT id, files FROM sources ORDER BY id")?;
    let sources = sources.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let mut definitions = connection.prepare("SELECT number, name, hash, source FROM definitions ORDER BY number")?;
    let definitions = definitions.query_map([], |row| {
        Ok(KeptDefinition { number: row.get(0)?, name: row.get(1)?, hash: row.get(2)?, source: row.get(3)? })
    })?;
    Ok(KeptDefinitions { sources, definitions: definitions.collect::<Result<_, _>>()? })
}

/// Take in files that are sound; `None` where they bring nothing new.
pub(super) fn put(connection: &mut Connection, known: &Known, files: &Files) -> Result<Option<Known>, StoreError> {
    let loaded = onceward_core::load(files).map_err(StoreError::Unsound)?;
    let mut catalog = Catalog::clone(&known.catalog);
    let before = catalog.number();
    if catalog.learn(&loaded.definitions) == 0 {
        return Ok(None);
    }
    let mut brought = Names::clone(&known.names);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("INSERT INTO sources (files) VALUES (?1)", [source_of(files)?])?;
    let source = transaction.last_insert_rowid();
    for (number, lifecycle) in (before + 1..).zip(catalog.since(before)) {
        let sql = "INSERT INTO definitions (number, name, hash, source) VALUES (?1, ?2, ?3, ?4)";
        transaction.execute(sql, params![number, lifecycle.name, lifecycle.hash, source])?;
        names::learn(&mut brought, &transaction, lifecycle)?;
        for account in &lifecycle.outside {
            // Should the account be known already, it stands for the world from now on.
            transaction.execute(
                "INSERT INTO accounts (asset, name, outside, balance) VALUES (?1, ?2, 1, 0) \
                 ON CONFLICT (asset, name) DO UPDATE SET outside = 1",
                params![lifecycle.asset, account],
            )?;
        }
    }
    transaction.commit()?;
    Ok(Some(Known { catalog: Arc::new(catalog), names: Arc::new(brought) }))
}
