//! Every table page by page, as it stands: numbers of records become ids and numbers of names become names; where there is no
//! such record or name, the number itself is shown.

use std::borrow::Cow;

use onceward_core::hex;
use onceward_core::value::RecordId;
use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{Connection, Row, Transaction, params_from_iter};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::names;
use crate::StoreError;
use crate::columns::NO_WINDOW;
use crate::names::Names;
use crate::scan::{At, Beside, Cell, Columns, Cursor, Kept, LogPage, LogRow, ScanPage, Spot, Table, joined, number};

/// `requests` and the tables of definitions are not among them: the log does not tell of the one, and the others have no pages.
pub(super) const TABLES: &[Table] = &[
    Table::Counter,
    Table::Records,
    Table::Executions,
    Table::Effects,
    Table::Uniques,
    Table::Counts,
    Table::Accounts,
    Table::Links,
    Table::Queues,
    Table::Ready,
    Table::Lanes,
    Table::Timers,
    Table::Tallies,
    Table::Contents,
];

pub(super) fn log(connection: &mut Connection, after: i64, limit: usize) -> Result<LogPage, StoreError> {
    let transaction = connection.transaction()?;
    let sql = "SELECT h.seq, h.record, r.id, h.version, h.at, h.previous, h.text, h.hash FROM history h \
               LEFT JOIN records r ON r.row = h.record WHERE h.seq > ?1 ORDER BY h.seq LIMIT ?2";
    let seq = last(&transaction)?;
    let mut statement = transaction.prepare_cached(sql)?;
    let mut found = statement.query(rusqlite::params![after, limit])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let (number, id): (Option<i64>, _) = (row.get(1)?, record_id(row, 2)?);
        rows.push(LogRow {
            seq: row.get(0)?,
            record: id,
            nobody: number.filter(|_| id.is_none()),
            version: row.get(3)?,
            at: row.get(4)?,
            previous: Some(row.get(5)?),
            text: row.get(6)?,
            hash: row.get(7)?,
        });
    }
    Ok(LogPage { seq, rows })
}

/// The last entry's place. Not the counter, which is itself looked at.
fn last(transaction: &Transaction) -> Result<u64, StoreError> {
    let mut statement = transaction.prepare_cached("SELECT max(seq) FROM history")?;
    let last: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0))
}

/// How a table is read: columns, from where, and in which order. The order's columns come first.
struct Plan {
    order: &'static [&'static str],
    columns: &'static str,
    from: &'static str,
}

fn plan(table: Table) -> Plan {
    let (order, columns, from): (&'static [&'static str], _, _) = match table {
        Table::Counter => (&["one"][..], "seq", "counter"),
        Table::Records => (
            &["row"][..],
            "id, definition, state, version, owner, fields, attempt, created_at, updated_at, started_at, finished_at, \
             entered_at, hold, timers, committed, payload, payload_bytes, stuck, head, entry, links",
            "records",
        ),
        Table::Executions => (
            &["e.record", "e.token"][..],
            "r.id, e.id, e.worker, e.holder, e.status, e.leased_at, e.expires_at, e.started_at, e.finished_at, e.abort_code, \
             e.abort_retryable, e.finish_moves, e.key",
            "executions e LEFT JOIN records r ON r.row = e.record",
        ),
        Table::Effects => (
            &["f.record"][..],
            "r.id, f.execution, f.token, f.result",
            "effects f LEFT JOIN records r ON r.row = f.record",
        ),
        Table::Uniques => (&["lifecycle", "name", "parts"][..], "holder", "uniques"),
        Table::Counts => (&["lifecycle", "name", "parts", "window"][..], "count", "counts"),
        Table::Accounts => (&["asset", "name"][..], "outside, balance", "accounts"),
        Table::Links => (
            &["l.target", "l.lifecycle", "l.field", "l.source"][..],
            "t.id, s.id",
            "links l LEFT JOIN records t ON t.row = l.target LEFT JOIN records s ON s.row = l.source",
        ),
        Table::Queues => (&["lifecycle", "parts", "created_at", "id"][..], "id", "queues"),
        Table::Ready => (
            &["w.lifecycle", "w.rank", "w.record"][..],
            "r.id, w.ready_at, w.definition, w.key, EXISTS (SELECT 1 FROM lanes l WHERE l.lifecycle = w.lifecycle \
             AND l.key = w.key AND l.front = 1 AND l.rank = w.rank AND l.record = w.record)",
            "ready w LEFT JOIN records r ON r.row = w.record",
        ),
        Table::Lanes => (
            &["l.lifecycle", "l.key", "l.front", "l.rank", "l.record"][..],
            "r.id, l.ready_at, l.definition, EXISTS (SELECT 1 FROM ready w WHERE w.lifecycle = l.lifecycle \
             AND w.rank = l.rank AND w.record = l.record), CASE WHEN l.front = 1 THEN 0 ELSE (SELECT count(*) FROM (SELECT 1 FROM lanes b \
             WHERE b.lifecycle = l.lifecycle AND b.key = l.key AND b.front = 1 AND (b.rank, b.record) < (l.rank, l.record) \
             LIMIT 1000)) END",
            "lanes l LEFT JOIN records r ON r.row = l.record",
        ),
        Table::Timers => (
            &["t.due", "t.record"][..],
            "r.id, e.expires_at",
            "timers t LEFT JOIN records r ON r.row = t.record LEFT JOIN executions e ON e.record = r.row AND e.token = r.attempt",
        ),
        Table::Tallies => (&["lifecycle", "owner", "state"][..], "count", "tallies"),
        Table::Contents => (&["sha256"][..], "bytes", "contents"),
    };
    Plan { order, columns, from }
}

pub(super) fn page(
    connection: &mut Connection,
    table: Table,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<ScanPage, StoreError> {
    let transaction = connection.transaction()?;
    let seq = last(&transaction)?;
    let names = names::load(&transaction)?;
    let Plan { order, columns, from } = plan(table);
    let order_by = order.join(", ");
    let places = vec!["?"; order.len()].join(", ");
    let condition = if after.is_some() { format!("WHERE ({order_by}) > ({places})") } else { String::new() };
    let sql = format!("SELECT {order_by}, {columns} FROM {from} {condition} ORDER BY {order_by} LIMIT {limit}");
    let mut statement = transaction.prepare_cached(&sql)?;
    let values = after.iter().flat_map(|cursor| &cursor.0).map(|spot| match spot {
        Spot::Int(number) => Sql::Integer(*number),
        Spot::Text(text) => Sql::Text(text.clone()),
        Spot::Bytes(bytes) => Sql::Blob(bytes.clone()),
    });
    let mut found = statement.query(params_from_iter(values))?;
    let mut page = ScanPage { seq, rows: Vec::new(), next: None };
    while let Some(row) = found.next()? {
        page.rows.push(kept(table, row, &names)?);
        if page.rows.len() == limit {
            page.next = Some(cursor(row, order.len())?);
        }
    }
    Ok(page)
}

fn cursor(row: &Row, columns: usize) -> Result<Cursor, StoreError> {
    let mut spots = Vec::with_capacity(columns);
    for at in 0..columns {
        spots.push(match row.get::<_, Sql>(at)? {
            Sql::Integer(number) => Spot::Int(number),
            Sql::Text(text) => Spot::Text(text),
            Sql::Blob(bytes) => Spot::Bytes(bytes),
            other => return Err(StoreError::corrupt(format!("{other:?} stands in a key"))),
        });
    }
    Ok(Cursor(spots))
}

fn kept(table: Table, row: &Row, names: &Names) -> Result<Kept, StoreError> {
    let name = |at: usize| named(row, at, names);
    Ok(match table {
        Table::Counter => Kept::new(At::Key(shown(row, 0)?), columns(row, &["one", "seq"], 0)?),
        Table::Records => {
            let mut all = columns(row, &["row"], 0)?;
            all.extend(columns(row, RECORD, 2)?);
            Kept::new(about(row, 1, 0)?, all)
        }
        Table::Executions => {
            let at = match about(row, 2, 0)? {
                At::Record(id) => At::Execution(id, row.get(1)?),
                other => other,
            };
            let mut all = vec![("id", uuid_cell(row, 3)?)];
            all.extend(columns(row, EXECUTION, 4)?);
            Kept::new(at, all)
        }
        Table::Effects => {
            let mut all = vec![("execution", uuid_cell(row, 2)?)];
            all.extend(columns(row, &["token"], 3)?);
            let result: String = row.get(4)?;
            all.push(("result", Some(hex::encode(&Sha256::digest(result.as_bytes())).into())));
            Kept::new(about(row, 1, 0)?, all)
        }
        Table::Uniques => {
            let key = joined(&[&name(0)?, &name(1)?, &shown(row, 2)?]);
            Kept::new(At::Key(key), vec![("holder", uuid_cell(row, 3)?)])
        }
        Table::Counts => {
            let window = match row.get(3)? {
                NO_WINDOW => String::new(),
                window => window.to_string(),
            };
            let key = joined(&[&name(0)?, &name(1)?, &shown(row, 2)?, &window]);
            Kept::new(At::Key(key), columns(row, &["count"], 4)?)
        }
        Table::Accounts => {
            let key = joined(&[&shown(row, 0)?, &shown(row, 1)?]);
            Kept::new(At::Key(key), columns(row, &["outside", "balance"], 2)?)
        }
        Table::Links => {
            let at = match (about(row, 4, 0)?, about(row, 5, 3)?) {
                (At::Record(target), At::Record(source)) => {
                    At::Link { target, name: joined(&[&name(1)?, &name(2)?]), source }
                }
                (target, source) => At::Nobody(format!("{target} {}.{} {source}", name(1)?, name(2)?)),
            };
            Kept::new(at, Vec::new())
        }
        Table::Queues => {
            let at = about(row, 4, 3)?;
            let mut all = vec![("lifecycle", Some(Cow::Owned(name(0)?)))];
            all.extend(columns(row, &["parts", "created_at"], 1)?);
            Kept::new(at, all)
        }
        Table::Ready => {
            let mut all = vec![("lifecycle", Some(Cow::Owned(name(0)?)))];
            all.extend(columns(row, &["rank"], 1)?);
            all.extend(columns(row, &["ready_at", "definition", "key"], 4)?);
            let has_key = !matches!(row.get_ref(6)?, ValueRef::Null);
            let beside = if has_key { Beside::Front(row.get(7)?) } else { Beside::Nothing };
            Kept { at: about(row, 3, 2)?, columns: all, beside }
        }
        Table::Lanes => {
            let mut all = vec![("lifecycle", Some(Cow::Owned(name(0)?)))];
            all.extend(columns(row, &["key"], 1)?);
            all.extend(columns(row, &["rank"], 3)?);
            all.extend(columns(row, &["ready_at", "definition"], 6)?);
            let front: i64 = row.get(2)?;
            let beside = Beside::Lane { front, ready: row.get(8)?, better: row.get(9)? };
            Kept { at: about(row, 5, 4)?, columns: all, beside }
        }
        Table::Timers => {
            Kept { at: about(row, 2, 1)?, columns: columns(row, &["due"], 0)?, beside: Beside::Lease(row.get(3)?) }
        }
        Table::Tallies => {
            let key = joined(&[&name(0)?, &shown(row, 1)?, &name(2)?]);
            Kept::new(At::Key(key), columns(row, &["count"], 3)?)
        }
        Table::Contents => {
            let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            let digest = hex::encode(&Sha256::digest(bytes));
            Kept::new(At::Key(shown(row, 0)?), vec![("bytes", Some(digest.into()))])
        }
    })
}

const RECORD: &[&str] = &[
    "definition",
    "state",
    "version",
    "owner",
    "fields",
    "attempt",
    "created_at",
    "updated_at",
    "started_at",
    "finished_at",
    "entered_at",
    "hold",
    "timers",
    "committed",
    "payload",
    "payload_bytes",
    "stuck",
    "head",
    "entry",
    "links",
];

const EXECUTION: &[&str] = &[
    "worker",
    "holder",
    "status",
    "leased_at",
    "expires_at",
    "started_at",
    "finished_at",
    "abort_code",
    "abort_retryable",
    "finish_moves",
    "key",
];

/// Columns from one place on, under these names.
fn columns(row: &Row, names: &[&'static str], from: usize) -> Result<Columns, StoreError> {
    (from..).zip(names).map(|(at, name)| Ok((*name, cell(row, at)?))).collect()
}

fn cell(row: &Row, at: usize) -> Result<Cell, StoreError> {
    Ok(match row.get_ref(at)? {
        ValueRef::Null => None,
        ValueRef::Integer(value) => number(value),
        ValueRef::Real(value) => number(value),
        ValueRef::Text(text) => Some(Cow::Owned(String::from_utf8_lossy(text).into_owned())),
        ValueRef::Blob(bytes) => Some(Cow::Owned(hex::encode(bytes))),
    })
}

fn shown(row: &Row, at: usize) -> Result<String, StoreError> {
    Ok(cell(row, at)?.unwrap_or_default().into_owned())
}

fn named(row: &Row, at: usize, names: &Names) -> Result<String, StoreError> {
    let number: i64 = row.get(at)?;
    Ok(names.name(number).map_or_else(|_| format!("#{number}"), |name| name.to_string()))
}

fn record_id(row: &Row, at: usize) -> Result<Option<RecordId>, StoreError> {
    let bytes = match row.get_ref(at)? {
        ValueRef::Blob(bytes) => <[u8; 16]>::try_from(bytes).ok(),
        _ => None,
    };
    Ok(bytes.map(|bytes| RecordId(Uuid::from_bytes(bytes))))
}

/// The record whose id stands at `id`; else what stands at `number`.
fn about(row: &Row, id: usize, number: usize) -> Result<At, StoreError> {
    match record_id(row, id)? {
        Some(id) => Ok(At::Record(id)),
        None => Ok(At::Nobody(format!("row {}", shown(row, number)?))),
    }
}

fn uuid_cell(row: &Row, at: usize) -> Result<Cell, StoreError> {
    Ok(match record_id(row, at)? {
        Some(id) => Some(Cow::Owned(id.to_string())),
        None => cell(row, at)?,
    })
}
