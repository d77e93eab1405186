//! Loads read keys from SQLite, each with a cached prepared statement.

use onceward_core::decide::{Account, ConcurrencyKey, CounterKey, LinkKey, ReadKey, UniqueKey};
use onceward_core::record::{Execution, FencingToken};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, OptionalExtension as _, params};
use uuid::Uuid;

use super::rows;
use crate::columns::{NO_WINDOW, write_parts};
use crate::error::StoreError;
use crate::read_set::{QueuePosition, ReadSet, RecordMeta};
use crate::symbols::CatalogSnapshot;

/// Selects a range of a record's executions, with the columns in the order that `rows::read_execution` expects.
pub(super) const SELECT_EXECUTIONS_SQL: &str = "SELECT token, worker, holder, status, leased_at, expires_at, started_at, finished_at, \
     abort_code, abort_retryable, finish_pending, key, abort_message, retry_at, lease_duration FROM executions WHERE record = ?1 AND token BETWEEN ?2 AND ?3 \
     ORDER BY token";

pub(super) fn load(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    read_set: &mut ReadSet,
    keys: &[ReadKey],
) -> Result<(), StoreError> {
    for key in keys {
        if !read_set.needs_load(key) {
            continue;
        }
        match key {
            ReadKey::Record(id) => read_set.put_record(*id, load_record(connection, snapshot, *id)?),
            ReadKey::Unique(key) => read_set.put_unique(key.clone(), load_unique_holder(connection, snapshot, key)?),
            ReadKey::Counter(key) => read_set.put_count(key.clone(), load_counter(connection, snapshot, key)?),
            ReadKey::Account(account) => read_set.put_account(account.clone(), load_balance(connection, account)?),
            ReadKey::Links(key) => {
                let (linked, version) = load_links(connection, snapshot, key)?;
                read_set.put_links(key.clone(), linked, version);
            }
            ReadKey::Execution(id, token) => {
                read_set.put_execution(*id, *token, load_execution(connection, *id, *token)?);
            }
            ReadKey::ConcurrencyQueue(key) => {
                let first = load_queue(connection, snapshot, key, read_set.queue_depth(key))?;
                read_set.put_queue(key.clone(), first);
            }
        }
    }
    Ok(())
}

pub(super) fn load_record(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    id: RecordId,
) -> Result<Option<(RecordMeta, std::sync::Arc<onceward_core::record::Record>)>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT * FROM records_with_execution WHERE id = ?1")?;
    let mut found = statement.query([id.0.as_bytes()])?;
    found.next()?.map(|row| rows::read_record(row, &snapshot.catalog)).transpose()
}

/// Returns `None` if no record has this id.
pub(super) fn find_row_id(connection: &Connection, id: RecordId) -> Result<Option<u64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT row FROM records WHERE id = ?1")?;
    Ok(statement.query_row([id.0.as_bytes()], |row| row.get(0)).optional()?)
}

fn load_unique_holder(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    key: &UniqueKey,
) -> Result<Option<RecordId>, StoreError> {
    let names = (snapshot.symbols.id(&key.lifecycle), snapshot.symbols.id(&key.unique));
    let (Some(lifecycle), Some(name)) = names else { return Ok(None) };
    let sql = "SELECT holder FROM uniques WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row(params![lifecycle, name, write_parts(&key.parts)?], |row| row.get(0)).optional()?;
    Ok(found.map(|bytes| RecordId(Uuid::from_bytes(bytes))))
}

pub(super) fn load_counter(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    key: &CounterKey,
) -> Result<u64, StoreError> {
    let names = (snapshot.symbols.id(&key.lifecycle), snapshot.symbols.id(&key.limit));
    let (Some(lifecycle), Some(name)) = names else { return Ok(0) };
    let sql = "SELECT count FROM counts WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND window_start = ?4";
    let mut statement = connection.prepare_cached(sql)?;
    let at = params![lifecycle, name, write_parts(&key.parts)?, key.window_start.unwrap_or(NO_WINDOW)];
    Ok(statement.query_row(at, |row| row.get(0)).optional()?.unwrap_or(0))
}

fn load_balance(connection: &Connection, account: &Account) -> Result<i64, StoreError> {
    // A hold is part of its record and is loaded with it.
    let Account::Named { asset, name } = account else { return Ok(0) };
    let mut statement = connection.prepare_cached("SELECT balance FROM accounts WHERE asset = ?1 AND name = ?2")?;
    Ok(statement.query_row([asset, name], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn load_links(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    key: &LinkKey,
) -> Result<(Vec<RecordId>, u64), StoreError> {
    let mut statement = connection.prepare_cached("SELECT row, link_version FROM records WHERE id = ?1")?;
    let target = statement.query_row([key.target.0.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((target, version)): Option<(u64, u64)> = target else { return Ok((Vec::new(), 0)) };
    let names = (snapshot.symbols.id(&key.lifecycle), snapshot.symbols.id(&key.field));
    let (Some(lifecycle), Some(field)) = names else { return Ok((Vec::new(), version)) };
    let sql = "SELECT r.id FROM links l JOIN records r ON r.row = l.source \
               WHERE l.target = ?1 AND l.lifecycle = ?2 AND l.field = ?3 ORDER BY l.source";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![target, lifecycle, field])?;
    let mut linked = Vec::new();
    while let Some(row) = found.next()? {
        linked.push(rows::record_id_column(row, 0)?);
    }
    Ok((linked, version))
}

fn load_execution(
    connection: &Connection,
    record: RecordId,
    token: FencingToken,
) -> Result<Option<Execution>, StoreError> {
    let Some(row) = find_row_id(connection, record)? else { return Ok(None) };
    let mut statement = connection.prepare_cached(SELECT_EXECUTIONS_SQL)?;
    let mut found = statement.query(params![row, token.0, token.0])?;
    found.next()?.map(|row| rows::read_execution(row, 0)).transpose()
}

pub(super) fn load_queue(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    key: &ConcurrencyKey,
    depth: usize,
) -> Result<Vec<QueuePosition>, StoreError> {
    let Some(lifecycle) = snapshot.symbols.id(&key.lifecycle) else { return Ok(Vec::new()) };
    let sql = "SELECT created_at, id FROM queues WHERE lifecycle = ?1 AND parts = ?2 ORDER BY created_at, id LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![lifecycle, write_parts(&key.parts)?, depth])?;
    let mut positions = Vec::new();
    while let Some(row) = found.next()? {
        positions.push((Time::from_micros(row.get(0)?), rows::record_id_column(row, 1)?));
    }
    Ok(positions)
}
