//! Loading what `decide` needs, key by key, each by a statement that stays prepared.

use onceward_core::decide::{Account, CountKey, Key, LinkKey, QueueKey, UniqueKey};
use onceward_core::record::{Execution, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, OptionalExtension as _, params};
use uuid::Uuid;

use super::rows;
use crate::base::{Base, Place, Stored};
use crate::columns::{NO_WINDOW, write_parts};
use crate::error::StoreError;
use crate::names::Known;

/// An execution's columns, in the order in which `rows::execution` reads them. All of a record's from one token to another.
pub(super) const EXECUTION: &str = "SELECT token, worker, holder, status, leased_at, expires_at, started_at, finished_at, \
     abort_code, abort_retryable, finish_moves, key FROM executions WHERE record = ?1 AND token BETWEEN ?2 AND ?3 \
     ORDER BY token";

pub(super) fn load(connection: &Connection, known: &Known, base: &mut Base, keys: &[Key]) -> Result<(), StoreError> {
    for key in keys {
        if !base.lacks(key) {
            continue;
        }
        match key {
            Key::Record(id) => base.put_record(*id, record(connection, known, *id)?),
            Key::Unique(key) => base.put_unique(key.clone(), holder(connection, known, key)?),
            Key::Count(key) => base.put_count(key.clone(), count(connection, known, key)?),
            Key::Account(account) => base.put_account(account.clone(), balance(connection, account)?),
            Key::Links(key) => {
                let (linked, version) = links(connection, known, key)?;
                base.put_links(key.clone(), linked, version);
            }
            Key::Execution(id, token) => base.put_execution(*id, *token, execution(connection, *id, *token)?),
            Key::Queue(key) => {
                let first = queue(connection, known, key, base.queue_depth(key))?;
                base.put_queue(key.clone(), first);
            }
        }
    }
    Ok(())
}

pub(super) fn record(
    connection: &Connection,
    known: &Known,
    id: RecordId,
) -> Result<Option<(Stored, std::sync::Arc<onceward_core::record::Record>)>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT * FROM whole WHERE id = ?1")?;
    let mut found = statement.query([id.0.as_bytes()])?;
    found.next()?.map(|row| rows::record(row, &known.catalog)).transpose()
}

/// The number of a record; `None` where there is none with this id.
pub(super) fn row_of(connection: &Connection, id: RecordId) -> Result<Option<u64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT row FROM records WHERE id = ?1")?;
    Ok(statement.query_row([id.0.as_bytes()], |row| row.get(0)).optional()?)
}

fn holder(connection: &Connection, known: &Known, key: &UniqueKey) -> Result<Option<RecordId>, StoreError> {
    let names = (known.names.number(&key.lifecycle), known.names.number(&key.unique));
    let (Some(lifecycle), Some(name)) = names else { return Ok(None) };
    let sql = "SELECT holder FROM uniques WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row(params![lifecycle, name, write_parts(&key.parts)?], |row| row.get(0)).optional()?;
    Ok(found.map(|bytes| RecordId(Uuid::from_bytes(bytes))))
}

pub(super) fn count(connection: &Connection, known: &Known, key: &CountKey) -> Result<u64, StoreError> {
    let names = (known.names.number(&key.lifecycle), known.names.number(&key.limit));
    let (Some(lifecycle), Some(name)) = names else { return Ok(0) };
    let sql = "SELECT count FROM counts WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND window = ?4";
    let mut statement = connection.prepare_cached(sql)?;
    let at = params![lifecycle, name, write_parts(&key.parts)?, key.window.unwrap_or(NO_WINDOW)];
    Ok(statement.query_row(at, |row| row.get(0)).optional()?.unwrap_or(0))
}

fn balance(connection: &Connection, account: &Account) -> Result<i64, StoreError> {
    // A hold is its record's own and never asked for: it comes with the record.
    let Account::Named { asset, name } = account else { return Ok(0) };
    let mut statement = connection.prepare_cached("SELECT balance FROM accounts WHERE asset = ?1 AND name = ?2")?;
    Ok(statement.query_row([asset, name], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn links(connection: &Connection, known: &Known, key: &LinkKey) -> Result<(Vec<RecordId>, u64), StoreError> {
    let mut statement = connection.prepare_cached("SELECT row, links FROM records WHERE id = ?1")?;
    let target = statement.query_row([key.target.0.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((target, version)): Option<(u64, u64)> = target else { return Ok((Vec::new(), 0)) };
    let names = (known.names.number(&key.lifecycle), known.names.number(&key.field));
    let (Some(lifecycle), Some(field)) = names else { return Ok((Vec::new(), version)) };
    let sql = "SELECT r.id FROM links l JOIN records r ON r.row = l.source \
               WHERE l.target = ?1 AND l.lifecycle = ?2 AND l.field = ?3 ORDER BY l.source";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![target, lifecycle, field])?;
    let mut linked = Vec::new();
    while let Some(row) = found.next()? {
        linked.push(rows::id(row, 0)?);
    }
    Ok((linked, version))
}

fn execution(connection: &Connection, record: RecordId, token: Token) -> Result<Option<Execution>, StoreError> {
    let Some(row) = row_of(connection, record)? else { return Ok(None) };
    let mut statement = connection.prepare_cached(EXECUTION)?;
    let mut found = statement.query(params![row, token.0, token.0])?;
    found.next()?.map(|row| rows::execution(row, 0)).transpose()
}

pub(super) fn queue(
    connection: &Connection,
    known: &Known,
    key: &QueueKey,
    depth: usize,
) -> Result<Vec<Place>, StoreError> {
    let Some(lifecycle) = known.names.number(&key.lifecycle) else { return Ok(Vec::new()) };
    let sql = "SELECT created_at, id FROM queues WHERE lifecycle = ?1 AND parts = ?2 ORDER BY created_at, id LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![lifecycle, write_parts(&key.parts)?, depth])?;
    let mut first = Vec::new();
    while let Some(row) = found.next()? {
        first.push((Time::from_micros(row.get(0)?), rows::id(row, 1)?));
    }
    Ok(first)
}
