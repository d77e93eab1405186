//! Lifecycles: kept as the files that were given, compiled again when the database is opened.

use std::sync::Arc;

use onceward_core::diagnostic::Files;
use onceward_core::time::Time;
use rusqlite::{Connection, TransactionBehavior, params};

use super::{names, read};
use crate::catalog::{Catalog, Change, Turn};
use crate::error::StoreError;
use crate::names::{Known, Names};
use crate::scan::{KeptDefinition, KeptDefinitions, KeptTurn};

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
    for turn in turns(connection)? {
        let definition = u32::try_from(turn.definition).unwrap_or(0);
        catalog.turn(Turn { definition, at: Time::from_micros(turn.at), by: turn.actor.map(Into::into) });
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
    let definitions = definitions.collect::<Result<_, _>>()?;
    Ok(KeptDefinitions { sources, definitions, turns: turns(connection)? })
}

fn turns(connection: &Connection) -> Result<Vec<KeptTurn>, StoreError> {
    let mut turns = connection.prepare("SELECT number, definition, at, actor FROM turns ORDER BY number")?;
    let turns = turns.query_map([], |row| {
        Ok(KeptTurn { number: row.get(0)?, definition: row.get(1)?, at: row.get(2)?, actor: row.get(3)? })
    })?;
    Ok(turns.collect::<Result<_, _>>()?)
}

/// Take in files that are sound; `None` where they bring nothing new.
pub(super) fn put(
    connection: &mut Connection,
    known: &Known,
    files: &Files,
    at: Time,
) -> Result<Option<Known>, StoreError> {
    let (before, old) = (&known.catalog, &known.names);
    let counts = || read::counts_by_version(connection, before, old);
    let Some(Change { catalog, source }) = before.with(files, at, counts)? else { return Ok(None) };
    let mut brought = Names::clone(old);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("INSERT INTO sources (files) VALUES (?1)", [source])?;
    let source = transaction.last_insert_rowid();
    for (number, lifecycle) in (before.newest() + 1..).zip(catalog.since(before.newest())) {
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
    write_turns(&transaction, before, &catalog)?;
    transaction.commit()?;
    Ok(Some(Known { catalog: Arc::new(catalog), names: Arc::new(brought) }))
}

fn write_turns(transaction: &Connection, before: &Catalog, after: &Catalog) -> Result<(), StoreError> {
    for (number, turn) in after.turns_since(before.number()) {
        let sql = "INSERT INTO turns (number, definition, at, actor) VALUES (?1, ?2, ?3, ?4)";
        transaction.execute(sql, params![number, turn.definition, turn.at.micros(), turn.by])?;
    }
    Ok(())
}

/// Make a known version current, and tell so in the log; `None` where it is so already.
pub(super) fn make_current(
    connection: &mut Connection,
    known: &Known,
    hash: &str,
    by: &str,
    now: Time,
) -> Result<Option<Known>, StoreError> {
    let counts = read::counts_by_version(connection, &known.catalog, &known.names)?;
    let Some((catalog, entry)) = known.catalog.using(hash, by, now, &counts)? else { return Ok(None) };
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    write_turns(&transaction, &known.catalog, &catalog)?;
    let seq: u64 = transaction.query_row("SELECT seq + 1 FROM counter", [], |row| row.get(0))?;
    let sql =
        "INSERT INTO history (seq, record, version, at, previous, text, hash) VALUES (?1, NULL, ?2, ?3, NULL, ?4, ?5)";
    transaction.execute(sql, params![seq, entry.version, entry.at.micros(), &*entry.text, entry.hash])?;
    transaction.execute("UPDATE counter SET seq = ?1", [seq])?;
    transaction.commit()?;
    Ok(Some(Known { catalog: Arc::new(catalog), names: Arc::clone(&known.names) }))
}
