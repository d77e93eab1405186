//! Queries of the SQLite store.

use std::collections::HashSet;
use std::sync::Arc;

use onceward_core::decide::Effect;
use onceward_core::record::{Execution, FencingToken};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::load::{SELECT_EXECUTIONS_SQL, find_row_id};
use super::{prune, rows};
use crate::batch::{IdempotencyId, IdempotencyRecord};
use crate::catalog::Catalog;
use crate::columns::{execution_text_bytes, is_payload_present};
use crate::error::StoreError;
use crate::history_skip_index::HistorySkipIndex;
use crate::links::{LinkPage, LinkQuery};
use crate::log::LogEntry;
use crate::query::{
    ListQuery, PageBudget, PageLimit, RecordPage, StateCount, VersionCount, in_process_worker_name, max_scanned_records,
};
use crate::symbols::{CatalogSnapshot, SymbolTable};

pub(super) fn log(connection: &Connection, after_seq: u64, page_limit: PageLimit) -> Result<Vec<LogEntry>, StoreError> {
    let floor = prune::prune_state(connection)?.last_pruned_seq;
    if after_seq < floor {
        return Err(StoreError::LogPruned { oldest: floor });
    }
    let sql = "SELECT h.seq, r.id, h.version, h.at, h.text, h.hash FROM history h LEFT JOIN records r ON r.row = h.record \
               WHERE h.seq > ?1 ORDER BY h.seq LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![to_signed(after_seq), page_limit.max_items])?;
    let (mut entries, mut budget) = (Vec::new(), PageBudget::new(page_limit));
    while let Some(row) = found.next()?
        && budget.try_take(text_bytes(row, 4))
    {
        entries.push(read_entry(row)?);
    }
    Ok(entries)
}

pub(super) fn read_entry(row: &Row) -> Result<LogEntry, StoreError> {
    let record = row.get::<_, Option<[u8; 16]>>(1)?.map(|bytes| RecordId(uuid::Uuid::from_bytes(bytes)));
    Ok(LogEntry {
        seq: row.get(0)?,
        record,
        version: row.get(2)?,
        at: Time::from_micros(row.get(3)?),
        text: row.get(4)?,
        hash: row.get(5)?,
    })
}

/// Walks from the last entry, or from a position of the skip index, back to `after_version`, then reads forward.
pub(super) fn history(
    connection: &Connection,
    history_index: &HistorySkipIndex,
    id: RecordId,
    after_version: u64,
    page_limit: PageLimit,
) -> Result<Vec<LogEntry>, StoreError> {
    let positions = walk_back(connection, history_index, id, after_version, page_limit)?;
    let sql = "SELECT h.seq, r.id, h.version, h.at, h.text, h.hash FROM history h LEFT JOIN records r ON r.row = h.record \
               WHERE h.seq = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let (mut entries, mut budget) = (Vec::new(), PageBudget::new(page_limit));
    for (_, seq) in positions.into_iter().rev() {
        let mut found = statement.query([seq])?;
        if let Some(row) = found.next()? {
            if !budget.try_take(text_bytes(row, 4)) {
                break;
            }
            entries.push(read_entry(row)?);
        }
    }
    Ok(entries)
}

/// Follows a record's entries back from the newest one, or from a nearer one that the index knows, to `after_version`.
/// Returns version and seq of the entries of the page, newest first.
fn walk_back(
    connection: &Connection,
    history_index: &HistorySkipIndex,
    id: RecordId,
    after_version: u64,
    page_limit: PageLimit,
) -> Result<Vec<(u64, u64)>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT entry FROM records WHERE id = ?1")?;
    let mut next: Option<u64> = statement.query_row([id.0.as_bytes()], |row| row.get(0)).optional()?;
    let last = after_version.saturating_add(u64::try_from(page_limit.max_items).unwrap_or(u64::MAX));
    if let Some((version, seq)) = history_index.nearest_position(id, last) {
        let exists_sql = "SELECT 1 FROM history h JOIN records r ON r.row = h.record WHERE h.seq = ?1 AND h.version = ?2 AND r.id = ?3";
        if connection.prepare_cached(exists_sql)?.exists(params![seq, version, id.0.as_bytes()])? {
            next = Some(seq);
        } else {
            history_index.remove(id);
        }
    }
    let mut step_statement = connection.prepare_cached("SELECT version, previous FROM history WHERE seq = ?1")?;
    let mut positions = Vec::new();
    while let Some(seq) = next {
        let found: Option<(u64, Option<u64>)> =
            step_statement.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (version, previous) = found.ok_or_else(|| StoreError::corrupt(format!("log entry {seq} is missing")))?;
        if version <= after_version {
            break;
        }
        // Only accept backward links, so that a damaged one cannot cause an endless loop.
        if previous.is_some_and(|previous| previous >= seq) {
            return Err(StoreError::corrupt(format!("log entry {seq} points forward")));
        }
        positions.push((version, seq));
        next = previous;
    }
    history_index.insert(id, positions.iter().copied());
    Ok(positions.split_off(positions.len() - page_limit.max_items.min(positions.len())))
}

/// Returns the length of a text without copying it; 0 if it is not a text. The code that reads the value reports that
/// error.
fn text_bytes(row: &Row, index: usize) -> usize {
    row.get_ref(index).ok().and_then(|text| text.as_bytes_or_null().ok().flatten()).map_or(0, <[u8]>::len)
}

/// Converts a caller's seq. Saturates at the largest value, which no stored seq reaches.
fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Index of the fields in the view `records_with_execution`.
const FIELDS_COLUMN: usize = 6;

/// Scans a bounded number of records in the order of creation.
pub(super) fn list(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    query: &ListQuery,
) -> Result<RecordPage, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT * FROM records_with_execution WHERE row > ?1 ORDER BY row")?;
    let mut found = statement.query([to_signed(query.after.unwrap_or(0))])?;
    let mut page = RecordPage::default();
    let (mut last, mut scanned, mut budget) = (None, 0, PageBudget::new(query.page_limit()));
    while let Some(row) = found.next()? {
        if scanned == max_scanned_records(query.limit) {
            page.next = last;
            break;
        }
        scanned += 1;
        let found = match matches_query(row, snapshot, query) {
            Ok(false) => Ok(None),
            Ok(true) => rows::read_record(row, &snapshot.catalog).map(|(_, record)| Some(record)),
            Err(error) => Err(error),
        };
        match found {
            Ok(Some(_)) if !budget.try_take(text_bytes(row, FIELDS_COLUMN)) => {
                page.next = last;
                break;
            }
            Ok(Some(found)) => {
                page.records.push(found);
                page.row_ids.push(row.get(0)?);
            }
            Ok(None) => {}
            // Skip a damaged record, so that the others remain visible.
            Err(StoreError::Corrupt(_)) => page.unreadable += 1,
            Err(error) => return Err(error),
        }
        last = Some(row.get(0)?);
    }
    Ok(page)
}

fn matches_query(row: &Row, snapshot: &CatalogSnapshot, query: &ListQuery) -> Result<bool, StoreError> {
    let number: u32 = row.get(2)?;
    let lifecycle = snapshot.catalog.by_number(number);
    let lifecycle =
        lifecycle.ok_or_else(|| StoreError::corrupt(format!("no lifecycle version has the number {number}")))?;
    let state: usize = row.get(3)?;
    let owner = row.get_ref(5)?.as_str().map_err(rusqlite::Error::from)?;
    Ok(query.owner.as_ref().is_none_or(|own| **own == *owner)
        && query.lifecycle.as_ref().is_none_or(|name| *name == lifecycle.name)
        && query.state.as_ref().is_none_or(|name| lifecycle.states.get(state).is_some_and(|own| own.name == *name)))
}

pub(super) fn counts_by_state(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    owner: Option<&str>,
) -> Result<Vec<StateCount>, StoreError> {
    let sql = "SELECT d.name, t.state, sum(t.count) FROM state_counts t JOIN definitions d ON d.number = t.definition \
               WHERE ?1 IS NULL OR t.owner = ?1 GROUP BY d.name, t.state";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([owner])?;
    let mut counts = Vec::new();
    while let Some(row) = found.next()? {
        let count =
            StateCount { lifecycle: row.get(0)?, state: snapshot.symbols.name(row.get(1)?)?, count: row.get(2)? };
        if count.count > 0 {
            counts.push(count);
        }
    }
    counts.sort_unstable();
    Ok(counts)
}

pub(super) fn last_seq(connection: &Connection) -> Result<u64, StoreError> {
    Ok(connection.prepare_cached("SELECT seq FROM log_seq")?.query_row([], |row| row.get(0))?)
}

/// Returns the number of records of each version by state.
pub(super) fn counts_by_version(
    connection: &Connection,
    catalog: &Catalog,
    symbols: &SymbolTable,
) -> Result<Vec<VersionCount>, StoreError> {
    let sql = "SELECT definition, state, sum(count) FROM state_counts GROUP BY definition, state";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([])?;
    let mut counts = Vec::new();
    while let Some(row) = found.next()? {
        let state = symbols.name(row.get(1)?)?;
        let count = VersionCount::resolve(catalog, row.get(0)?, &state, row.get(2)?);
        counts.extend(count.filter(|count| count.count > 0));
    }
    counts.sort_unstable();
    Ok(counts)
}

pub(super) fn payload(connection: &Connection, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT bytes FROM contents WHERE sha256 = ?1")?;
    let found = statement.query_row([sha256], |row| row.get::<_, Vec<u8>>(0)).optional()?;
    Ok(found.filter(|bytes| is_payload_present(sha256, bytes)).map(Into::into))
}

pub(super) fn referenced_payloads(
    connection: &Connection,
    hashes: &[[u8; 32]],
) -> Result<HashSet<[u8; 32]>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM contents WHERE sha256 = ?1 AND refs > 0")?;
    let mut found = HashSet::new();
    for sha256 in hashes {
        if statement.exists([sha256])? {
            found.insert(*sha256);
        }
    }
    Ok(found)
}

pub(super) fn effect(connection: &Connection, record: RecordId) -> Result<Option<Effect>, StoreError> {
    let Some(row) = find_row_id(connection, record)? else { return Ok(None) };
    let mut statement = connection.prepare_cached("SELECT token, result FROM effects WHERE record = ?1")?;
    let mut found = statement.query([row])?;
    let Some(row) = found.next()? else { return Ok(None) };
    let result = serde_json::from_str(&row.get::<_, String>(1)?)
        .map_err(|error| StoreError::corrupt(format!("the result of {record} is unreadable: {error}")))?;
    Ok(Some(Effect { record, token: FencingToken(row.get(0)?), result }))
}

pub(super) fn executions_page(
    connection: &Connection,
    record: RecordId,
    after_token: FencingToken,
    page_limit: PageLimit,
) -> Result<Vec<Execution>, StoreError> {
    let Some(row) = find_row_id(connection, record)? else { return Ok(Vec::new()) };
    let mut statement = connection.prepare_cached(SELECT_EXECUTIONS_SQL)?;
    let mut found = statement.query(params![row, to_signed(after_token.0).saturating_add(1), i64::MAX])?;
    let (mut executions, mut budget) = (Vec::new(), PageBudget::new(page_limit));
    while let Some(row) = found.next()? {
        let execution = rows::read_execution(row, 0)?;
        if !budget.try_take(execution_text_bytes(&execution)) {
            break;
        }
        executions.push(execution);
    }
    Ok(executions)
}

/// Queries each field separately, in the order of the primary key.
pub(super) fn linked_records(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    query: &LinkQuery,
) -> Result<LinkPage, StoreError> {
    let Some(target) = find_row_id(connection, query.target)? else { return Ok(LinkPage::default()) };
    let sql = "SELECT l.source, r.id FROM links l JOIN records r ON r.row = l.source \
               WHERE l.target = ?1 AND l.lifecycle = ?2 AND l.field = ?3 AND l.source > ?4 ORDER BY l.source LIMIT ?5";
    let mut statement = connection.prepare_cached(sql)?;
    let mut sources = Vec::new();
    for from in &query.from {
        let names = (snapshot.symbols.id(&from.lifecycle), snapshot.symbols.id(&from.field));
        let (Some(lifecycle), Some(field)) = names else { continue };
        let (after, limit) = (to_signed(query.after.unwrap_or(0)), query.limit.saturating_add(1));
        let mut found = statement.query(params![target, lifecycle, field, after, limit])?;
        while let Some(row) = found.next()? {
            sources.push((row.get(0)?, rows::record_id_column(row, 1)?));
        }
    }
    Ok(LinkPage::from_found(sources, query.limit))
}

pub(super) fn idempotency_record(
    connection: &Connection,
    id: &IdempotencyId,
) -> Result<Option<IdempotencyRecord>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT digest, reply FROM idempotency_keys WHERE owner = ?1 AND key = ?2")?;
    let mut found = statement.query([&id.owner, &id.idempotency_key])?;
    let Some(row) = found.next()? else { return Ok(None) };
    Ok(Some(IdempotencyRecord { id: id.clone(), request_digest: row.get(0)?, reply: row.get(1)? }))
}

/// Scans only timers, because each live lease has one for its expiry.
pub(super) fn orphaned_leases(
    connection: &Connection,
    instance: &str,
    limit: usize,
) -> Result<Vec<(RecordId, FencingToken)>, StoreError> {
    let sql = "SELECT r.id, e.token FROM timers t JOIN records r ON r.row = t.record \
               JOIN executions e ON e.record = r.row AND e.token = r.attempt \
               WHERE e.status < 3 AND e.worker GLOB ?1 AND NOT e.worker GLOB ?2 LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let any_worker = in_process_worker_name("*", "*");
    let mut found = statement.query(params![any_worker, in_process_worker_name(instance, "*"), limit])?;
    let mut leases = Vec::new();
    while let Some(row) = found.next()? {
        leases.push((rows::record_id_column(row, 0)?, FencingToken(row.get(1)?)));
    }
    Ok(leases)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn history_page_does_not_read_entries_beyond_skip_position() {
        let connection = Connection::open_in_memory().expect("memory");
        let tables = "CREATE TABLE records (row INTEGER PRIMARY KEY, id BLOB, entry INTEGER); \
            CREATE TABLE history (seq INTEGER PRIMARY KEY, record INTEGER, version INTEGER, at INTEGER, previous INTEGER, text TEXT, hash BLOB); \
            INSERT INTO records VALUES (1, zeroblob(16), 2000); \
            WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 1000) \
            INSERT INTO history SELECT 2 * v, 1, v, 0, nullif(2 * v - 2, 0), 'text ' || v, zeroblob(32) FROM n";
        connection.execute_batch(tables).expect("tables");
        let (history_index, id) = (HistorySkipIndex::default(), RecordId(Uuid::nil()));
        let page = |after| {
            let entries = history(&connection, &history_index, id, after, PageLimit::from(100))?;
            Ok::<_, StoreError>(entries.into_iter().map(|entry| entry.version).collect::<Vec<_>>())
        };
        assert_eq!(page(0).expect("a page"), (1..=100).collect::<Vec<_>>());
        connection.execute("DELETE FROM history WHERE version = 900", []).expect("damage");
        assert_eq!(page(100).expect("the page does not reach the damage"), (101..=200).collect::<Vec<_>>());
        assert_eq!(page(600).expect("the page does not reach the damage"), (601..=700).collect::<Vec<_>>());
        assert!(page(800).is_err(), "the page reaches the damage");
        // A new record with the same id must not use remembered positions.
        connection
            .execute_batch(
                "UPDATE history SET record = 2; INSERT INTO history VALUES (5000, 1, 1, 0, NULL, 'new', zeroblob(32)); \
            UPDATE records SET entry = 5000",
            )
            .expect("the row is repaired");
        assert_eq!(page(0).expect("a page"), [1]);
    }
}
