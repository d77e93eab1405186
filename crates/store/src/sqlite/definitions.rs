//! Lifecycle versions in SQLite. The source files are stored, and compiled again when the database is opened.

use std::sync::Arc;

use onceward_core::diagnostic::InputFiles;
use onceward_core::time::Time;
use rusqlite::{Connection, TransactionBehavior, params};

use super::{read, symbols};
use crate::catalog::{Activation, Catalog, CatalogChange};
use crate::error::StoreError;
use crate::scan::{StoredActivation, StoredCatalogRows, StoredDefinition};
use crate::symbols::{CatalogSnapshot, SymbolTable};

/// Loads the catalog and the symbol table.
pub(super) fn load_catalog(connection: &Connection) -> Result<CatalogSnapshot, StoreError> {
    let mut catalog = Catalog::default();
    let mut sources = connection.prepare("SELECT id, files FROM sources ORDER BY id")?;
    let mut hashes = connection.prepare("SELECT hash FROM definitions WHERE source = ?1 ORDER BY number")?;
    let mut found = sources.query([])?;
    while let Some(row) = found.next()? {
        let own = hashes.query_map([row.get::<_, i64>(0)?], |row| row.get::<_, Arc<str>>(0))?;
        catalog.restore_source(&row.get::<_, String>(1)?, &own.collect::<Result<Vec<_>, _>>()?)?;
    }
    for turn in load_activations(connection)? {
        let definition = u32::try_from(turn.definition).unwrap_or(0);
        catalog.activate(Activation {
            version_number: definition,
            activated_at: Time::from_micros(turn.at),
            activated_by: turn.actor.map(Into::into),
        });
    }
    Ok(CatalogSnapshot { catalog: Arc::new(catalog), symbols: Arc::new(symbols::load_symbols(connection)?) })
}

/// Loads the rows as stored, without validation.
pub(super) fn load_catalog_rows(connection: &Connection) -> Result<StoredCatalogRows, StoreError> {
    let mut sources = connection.prepare("SELECT id, files FROM sources ORDER BY id")?;
    let sources = sources.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let mut definitions = connection.prepare("SELECT number, name, hash, source FROM definitions ORDER BY number")?;
    let definitions = definitions.query_map([], |row| {
        Ok(StoredDefinition { number: row.get(0)?, name: row.get(1)?, hash: row.get(2)?, source: row.get(3)? })
    })?;
    let definitions = definitions.collect::<Result<_, _>>()?;
    Ok(StoredCatalogRows { sources, definitions, activations: load_activations(connection)? })
}

fn load_activations(connection: &Connection) -> Result<Vec<StoredActivation>, StoreError> {
    let mut activations =
        connection.prepare("SELECT number, definition, at, actor FROM activations ORDER BY number")?;
    let activations = activations.query_map([], |row| {
        Ok(StoredActivation { number: row.get(0)?, definition: row.get(1)?, at: row.get(2)?, actor: row.get(3)? })
    })?;
    Ok(activations.collect::<Result<_, _>>()?)
}

/// Analyzes files and adds their new versions. Returns `None` if there are none.
pub(super) fn put_lifecycles(
    connection: &mut Connection,
    snapshot: &CatalogSnapshot,
    files: &InputFiles,
    at: Time,
) -> Result<Option<CatalogSnapshot>, StoreError> {
    let (before, old_symbols) = (&snapshot.catalog, &snapshot.symbols);
    let counts = || read::counts_by_version(connection, before, old_symbols);
    let Some(change) = before.with_files(files, at, counts)? else { return Ok(None) };
    let mut symbols = SymbolTable::clone(old_symbols);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if change.replaces_texts() {
        replace_sources(&transaction, &change)?;
    }
    let CatalogChange { catalog, source, .. } = change;
    if let Some(source) = source {
        transaction.execute("INSERT INTO sources (files) VALUES (?1)", [source])?;
    }
    let source = transaction.last_insert_rowid();
    for (number, lifecycle) in
        (before.newest_version_number() + 1..).zip(catalog.versions_since(before.newest_version_number()))
    {
        let sql = "INSERT INTO definitions (number, name, hash, source) VALUES (?1, ?2, ?3, ?4)";
        transaction.execute(sql, params![number, lifecycle.name, lifecycle.hash, source])?;
        symbols::insert_symbols(&mut symbols, &transaction, lifecycle)?;
        for account in &lifecycle.outside_accounts {
            // If the account exists, it becomes an outside account.
            transaction.execute(
                "INSERT INTO accounts (asset, name, outside, balance) VALUES (?1, ?2, 1, 0) \
                 ON CONFLICT (asset, name) DO UPDATE SET outside = 1",
                params![lifecycle.asset, account],
            )?;
        }
    }
    write_activations(&transaction, before, &catalog)?;
    transaction.commit()?;
    Ok(Some(CatalogSnapshot { catalog: Arc::new(catalog), symbols: Arc::new(symbols) }))
}

fn replace_sources(transaction: &Connection, change: &CatalogChange) -> Result<(), StoreError> {
    let mut sources = transaction.prepare("SELECT id, files FROM sources")?;
    let stored = sources.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
    for (id, files) in change.replaced_sources(stored.collect::<Result<Vec<_>, _>>()?)? {
        transaction.execute("UPDATE sources SET files = ?2 WHERE id = ?1", params![id, files])?;
    }
    Ok(())
}

fn write_activations(transaction: &Connection, before: &Catalog, after: &Catalog) -> Result<(), StoreError> {
    for (number, turn) in after.activations_since(before.revision()) {
        let sql = "INSERT INTO activations (number, definition, at, actor) VALUES (?1, ?2, ?3, ?4)";
        transaction
            .execute(sql, params![number, turn.version_number, turn.activated_at.micros(), turn.activated_by])?;
    }
    Ok(())
}

/// Activates a known version and logs that. Returns `None` if it is already current.
pub(super) fn activate_version(
    connection: &mut Connection,
    snapshot: &CatalogSnapshot,
    hash: &str,
    by: &str,
    now: Time,
) -> Result<Option<CatalogSnapshot>, StoreError> {
    let counts = read::counts_by_version(connection, &snapshot.catalog, &snapshot.symbols)?;
    let Some((catalog, entry)) = snapshot.catalog.with_activated_version(hash, by, now, &counts)? else {
        return Ok(None);
    };
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    write_activations(&transaction, &snapshot.catalog, &catalog)?;
    let seq: u64 = transaction.query_row("SELECT seq + 1 FROM log_seq", [], |row| row.get(0))?;
    let sql =
        "INSERT INTO history (seq, record, version, at, previous, text, hash) VALUES (?1, NULL, ?2, ?3, NULL, ?4, ?5)";
    transaction.execute(sql, params![seq, entry.version, entry.at.micros(), &*entry.text, entry.hash])?;
    transaction.execute("UPDATE log_seq SET seq = ?1", [seq])?;
    transaction.commit()?;
    Ok(Some(CatalogSnapshot { catalog: Arc::new(catalog), symbols: Arc::clone(&snapshot.symbols) }))
}
