//! Scans SQLite tables page by page. Row ids of records become record ids, and blobs become hex.

use std::borrow::Cow;

use onceward_core::hex;
use onceward_core::value::RecordId;
use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{Connection, Row, Transaction, params_from_iter};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::symbols;
use crate::StoreError;
use crate::scan::{
    CellText, CursorValue, ProjectionTable, RowCells, ScanCursor, ScanPage, StoredLogPage, StoredLogRow, number_cell,
};

/// Omits idempotency records, which are not in the log, and the catalog tables, which are not paged.
pub(super) const SQLITE_TABLES: &[ProjectionTable] = &[
    ProjectionTable::LogSeq,
    ProjectionTable::PruneState,
    ProjectionTable::Records,
    ProjectionTable::Executions,
    ProjectionTable::Effects,
    ProjectionTable::Uniques,
    ProjectionTable::Counts,
    ProjectionTable::Accounts,
    ProjectionTable::AccountEntries,
    ProjectionTable::Links,
    ProjectionTable::Queues,
    ProjectionTable::Ready,
    ProjectionTable::Lanes,
    ProjectionTable::Timers,
    ProjectionTable::StateCounts,
    ProjectionTable::Contents,
    ProjectionTable::ApiKeys,
    ProjectionTable::ApiKeysRevision,
];

pub(super) fn scan_log(connection: &mut Connection, after_seq: i64, limit: usize) -> Result<StoredLogPage, StoreError> {
    let transaction = connection.transaction()?;
    let sql = "SELECT h.seq, h.record, r.id, h.version, h.at, h.previous, h.text, h.hash FROM history h \
               LEFT JOIN records r ON r.row = h.record WHERE h.seq > ?1 ORDER BY h.seq LIMIT ?2";
    let seq = last_seq(&transaction)?;
    let mut statement = transaction.prepare_cached(sql)?;
    let mut found = statement.query(rusqlite::params![after_seq, limit])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let (number, id): (Option<i64>, _) = (row.get(1)?, record_id(row, 2)?);
        rows.push(StoredLogRow {
            seq: row.get(0)?,
            record: id,
            missing_row_id: number.filter(|_| id.is_none()),
            version: row.get(3)?,
            at: row.get(4)?,
            batch_end: None,
            previous_seq: Some(row.get(5)?),
            text: row.get(6)?,
            hash: row.get(7)?,
        });
    }
    Ok(StoredLogPage { seq, rows })
}

/// Returns the seq of the last entry. Does not use the stored counter, which is itself compared.
fn last_seq(transaction: &Transaction) -> Result<u64, StoreError> {
    let mut statement = transaction.prepare_cached("SELECT max(seq) FROM history")?;
    let last: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0))
}

/// How to scan a table: its order, further columns and source.
struct TableScanPlan {
    order: &'static [&'static str],
    columns: &'static str,
    from: &'static str,
}

fn table_scan_plan(table: ProjectionTable) -> TableScanPlan {
    let (order, columns, from): (&'static [&'static str], _, _) = match table {
        ProjectionTable::LogSeq => (&["one"], "seq", "log_seq"),
        ProjectionTable::PruneState => (&["one"], "checkpoint, floor, head", "prune_state"),
        ProjectionTable::Records => (
            &["row"],
            "id, definition, state, version, owner, fields, attempt, created_at, updated_at, started_at, finished_at, \
             entered_at, hold, timers, committed, payload, payload_bytes, stuck, head, entry, link_version, \
             trace",
            "records",
        ),
        ProjectionTable::Executions => (
            &["e.record", "e.token"],
            "r.id, e.worker, e.holder, e.status, e.leased_at, e.expires_at, e.started_at, e.finished_at, e.abort_code, \
             e.abort_retryable, e.finish_pending, e.key, e.abort_message, e.retry_at, \
             e.lease_duration",
            "executions e LEFT JOIN records r ON r.row = e.record",
        ),
        ProjectionTable::Effects => {
            (&["f.record"], "r.id, f.token, f.result", "effects f LEFT JOIN records r ON r.row = f.record")
        }
        ProjectionTable::Uniques => (&["lifecycle", "name", "parts"], "parts, holder", "uniques"),
        ProjectionTable::Counts => (&["lifecycle", "name", "parts", "window_start"], "parts, count", "counts"),
        ProjectionTable::Accounts => (&["asset", "name"], "outside, balance", "accounts"),
        ProjectionTable::AccountEntries => (&["asset", "name", "seq"], "seq", "account_entries"),
        ProjectionTable::Links => (
            &["l.target", "l.lifecycle", "l.field", "l.source"],
            "t.id, s.id",
            "links l LEFT JOIN records t ON t.row = l.target LEFT JOIN records s ON s.row = l.source",
        ),
        ProjectionTable::Queues => (&["lifecycle", "parts", "created_at", "id"], "id", "queues"),
        ProjectionTable::Ready => (
            &["w.lifecycle", "w.rank", "w.record"],
            "r.id, w.ready_at, w.definition, w.key, EXISTS (SELECT 1 FROM lanes l WHERE l.lifecycle = w.lifecycle \
             AND l.key = w.key AND l.front = 1 AND l.rank = w.rank AND l.record = w.record)",
            "ready w LEFT JOIN records r ON r.row = w.record",
        ),
        ProjectionTable::Lanes => (
            &["l.lifecycle", "l.key", "l.front", "l.rank", "l.record"],
            "r.id, l.ready_at, l.definition, EXISTS (SELECT 1 FROM ready w WHERE w.lifecycle = l.lifecycle \
             AND w.rank = l.rank AND w.record = l.record), \
             CASE WHEN l.front = 1 THEN 0 ELSE (SELECT count(*) FROM (SELECT 1 FROM lanes b \
             WHERE b.lifecycle = l.lifecycle AND b.key = l.key AND b.front = 1 AND (b.rank, b.record) < (l.rank, l.record) \
             LIMIT 1000)) END",
            "lanes l LEFT JOIN records r ON r.row = l.record",
        ),
        ProjectionTable::Delayed => (
            &["w.ready_at", "w.record"],
            "r.id, w.lifecycle, w.rank, w.definition, w.key, EXISTS (SELECT 1 FROM ready b WHERE b.lifecycle = w.lifecycle \
             AND b.rank = w.rank AND b.record = w.record) OR EXISTS (SELECT 1 FROM lanes l WHERE l.lifecycle = w.lifecycle \
             AND l.key = w.key AND l.front IN (0, 1) AND l.rank = w.rank AND l.record = w.record)",
            "delayed w LEFT JOIN records r ON r.row = w.record",
        ),
        ProjectionTable::Timers => (
            &["t.due_at", "t.record"],
            "r.id, e.expires_at",
            "timers t LEFT JOIN records r ON r.row = t.record LEFT JOIN executions e ON e.record = r.row AND e.token = r.attempt",
        ),
        ProjectionTable::StateCounts => (
            &["definition", "owner", "state"],
            "count, (SELECT d.name FROM definitions d WHERE d.number = state_counts.definition)",
            "state_counts",
        ),
        ProjectionTable::Contents => (&["sha256"], "bytes, refs", "contents"),
        ProjectionTable::ApiKeys => {
            (&["id"], "hash, owner, roles, lifecycles, name, created_at, expires_at, revoked_at", "api_keys")
        }
        ProjectionTable::ApiKeysRevision => (&["one"], "revision", "api_keys_revision"),
    };
    TableScanPlan { order, columns, from }
}

pub(super) fn scan_page(
    connection: &mut Connection,
    table: ProjectionTable,
    after: Option<&ScanCursor>,
    limit: usize,
) -> Result<ScanPage, StoreError> {
    let transaction = connection.transaction()?;
    let seq = last_seq(&transaction)?;
    let names = symbols::load_symbols(&transaction)?;
    let TableScanPlan { order, columns, from } = table_scan_plan(table);
    let order_by = order.join(", ");
    let placeholders = vec!["?"; order.len()].join(", ");
    let condition = if after.is_some() { format!("WHERE ({order_by}) > ({placeholders})") } else { String::new() };
    let sql = format!("SELECT {order_by}, {columns} FROM {from} {condition} ORDER BY {order_by} LIMIT {limit}");
    let mut statement = transaction.prepare_cached(&sql)?;
    let width = statement.column_count();
    let values = after.iter().flat_map(|cursor| &cursor.0).map(|value| match value {
        CursorValue::Int(number) => Sql::Integer(*number),
        CursorValue::Text(text) => Sql::Text(text.clone()),
        CursorValue::Bytes(bytes) => Sql::Blob(bytes.clone()),
    });
    let mut found = statement.query(params_from_iter(values))?;
    let mut page = ScanPage { seq, rows: Vec::new(), next: None };
    while let Some(row) = found.next()? {
        let values = (0..width).map(|at| read_cell(table, row, at)).collect::<Result<_, _>>()?;
        page.rows.push(RowCells { values, symbols: &names, has_dense_row_ids: true }.to_stored_row(table)?);
        if page.rows.len() == limit {
            page.next = Some(read_cursor(row, order.len())?);
        }
    }
    Ok(page)
}

fn read_cursor(row: &Row, columns: usize) -> Result<ScanCursor, StoreError> {
    let mut values = Vec::with_capacity(columns);
    for at in 0..columns {
        values.push(match row.get::<_, Sql>(at)? {
            Sql::Integer(number) => CursorValue::Int(number),
            Sql::Text(text) => CursorValue::Text(text),
            Sql::Blob(bytes) => CursorValue::Bytes(bytes),
            other => return Err(StoreError::corrupt(format!("unexpected value {other:?} in a key"))),
        });
    }
    Ok(ScanCursor(values))
}

fn read_cell(table: ProjectionTable, row: &Row, index: usize) -> Result<CellText, StoreError> {
    Ok(match (table, index, row.get_ref(index)?) {
        // Long values are compared by their hash. So is the hash of a secret, to keep it confidential.
        (ProjectionTable::Effects, 3, ValueRef::Text(bytes))
        | (ProjectionTable::Contents | ProjectionTable::ApiKeys, 1, ValueRef::Blob(bytes)) => {
            Some(Cow::Owned(hex::encode(&Sha256::digest(bytes))))
        }
        (_, _, ValueRef::Null) => None,
        (_, _, ValueRef::Integer(value)) => number_cell(value),
        (_, _, ValueRef::Real(value)) => number_cell(value),
        (_, _, ValueRef::Text(text)) => Some(Cow::Owned(String::from_utf8_lossy(text).into_owned())),
        (_, _, ValueRef::Blob(bytes)) => Some(Cow::Owned(hex::encode(bytes))),
    })
}

fn record_id(row: &Row, index: usize) -> Result<Option<RecordId>, StoreError> {
    let bytes = match row.get_ref(index)? {
        ValueRef::Blob(bytes) => <[u8; 16]>::try_from(bytes).ok(),
        _ => None,
    };
    Ok(bytes.map(|bytes| RecordId(Uuid::from_bytes(bytes))))
}
