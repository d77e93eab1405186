//! Scans PostgreSQL tables page by page, with all values as text. Entries are identified by their seq, which is
//! computed from the batch, not by their stored id.

use onceward_core::value::RecordId;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::client::PooledClient;
use super::read::NEXT_BATCH_END_SQL;
use super::rows;
use crate::StoreError;
use crate::scan::{
    CellText, CursorValue, ProjectionTable, RowCells, ScanCursor, ScanPage, StoredLogPage, StoredLogRow,
};
use crate::symbols::SymbolTable;

/// Omits the stored log seq, which PostgreSQL does not have: the seqs follow from the batches.
pub(super) const POSTGRES_TABLES: &[ProjectionTable] = &[
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

const SELECT_LAST_SEQ_SQL: &str = "SELECT coalesce(max(last), 0) FROM onceward.batches";

/// An entry's seq is the first seq of its batch plus its index in the batch. The same holds for the previous entry.
const SCAN_LOG_SQL: &str = "SELECT b.first + (h.entry_id & 1048575), h.record, r.id, h.version, h.at, \
     (SELECT p.first + (h.previous & 1048575) FROM onceward.batches p WHERE p.batch = h.previous >> 20), \
     h.text, h.hash, h.previous, b.last \
     FROM (SELECT first, last, batch FROM onceward.batches WHERE last > $1 \
     AND last <= coalesce((SELECT min(last) FROM onceward.batches WHERE last >= $3), $3) ORDER BY last LIMIT $2) b \
     JOIN onceward.history h ON h.entry_id >= b.batch << 20 AND h.entry_id < (b.batch + 1) << 20 \
     LEFT JOIN onceward.records r ON r.row = h.record \
     WHERE b.first + (h.entry_id & 1048575) > $1 AND b.first + (h.entry_id & 1048575) <= b.last \
     ORDER BY b.first, h.entry_id LIMIT $2";

/// Must run in a snapshot transaction.
pub(super) async fn scan_log(client: &PooledClient, after_seq: i64, limit: usize) -> Result<StoredLogPage, StoreError> {
    let seq = last_seq(client).await?;
    let mut page = StoredLogPage { seq, rows: Vec::new() };
    let (mut from, limit) = (after_seq.max(0), rows::to_limit(limit));
    let found = loop {
        let to = from.saturating_add(limit);
        let found = client.query(SCAN_LOG_SQL, &[&from, &limit, &to]).await?;
        let beyond: Option<i64> = client.query_one(NEXT_BATCH_END_SQL, &[&to]).await?.try_get(0)?;
        match beyond {
            // All entries of this range were pruned, but more follow.
            Some(batch_end) if found.is_empty() && batch_end > from && limit > 0 => from = batch_end,
            _ => break found,
        }
    };
    for row in found {
        let id = row.try_get::<_, Option<Uuid>>(2)?.map(RecordId);
        let number: Option<i64> = row.try_get(1)?;
        // If no batch contains the previous entry, show its stored id. The comparison reports it in any case.
        let previous = row.try_get::<_, Option<i64>>(5)?.or(row.try_get(8)?);
        page.rows.push(StoredLogRow {
            seq: row.try_get(0)?,
            record: id,
            missing_row_id: number.filter(|_| id.is_none()),
            version: row.try_get(3)?,
            at: row.try_get(4)?,
            batch_end: Some(row.try_get(9)?),
            previous_seq: Some(previous),
            text: rows::text_column(&row, 6)?,
            hash: rows::to_hash(row.try_get(7)?)?,
        });
    }
    Ok(page)
}

async fn last_seq(client: &PooledClient) -> Result<u64, StoreError> {
    rows::unsigned_column(&client.query_one(SELECT_LAST_SEQ_SQL, &[]).await?, 0)
}

/// How to scan a table: its order, further columns and source.
struct TableScanPlan {
    order: &'static [OrderColumn],
    columns: &'static str,
    from: &'static str,
}

/// A column with its table name and its type. `ORDER BY` would resolve a bare name to the output column, which is text
/// and sorts differently.
struct OrderColumn(&'static str, OrderColumnType);

#[derive(Clone, Copy)]
enum OrderColumnType {
    Integer,
    Long,
    Text,
    Bool,
    Id,
    Bytes,
}

impl OrderColumn {
    fn select_expression(&self) -> String {
        match self.1 {
            OrderColumnType::Bool => format!("{}::int::text", self.0),
            OrderColumnType::Bytes => format!("encode({}, 'hex')", self.0),
            _ => format!("{}::text", self.0),
        }
    }

    fn bound_expression(&self, number: usize) -> String {
        match self.1 {
            OrderColumnType::Integer => format!("${number}::text::integer"),
            OrderColumnType::Long => format!("${number}::text::bigint"),
            OrderColumnType::Text => format!("${number}::text"),
            OrderColumnType::Bool => format!("${number}::text::int::boolean"),
            OrderColumnType::Id => format!("${number}::text::uuid"),
            OrderColumnType::Bytes => format!("decode(${number}::text, 'hex')"),
        }
    }
}

/// A long key is stored as a hash, with the full text in another column.
const KEY_PARTS_SQL: &str = "CASE WHEN full_parts IS NULL THEN parts WHEN parts = '#' || encode(sha256(convert_to(full_parts, 'UTF8')), 'hex') \
     THEN full_parts ELSE parts || ' ' || full_parts END";

const PRUNE_STATE_COLUMNS_SQL: &str = "checkpoint::text, floor::text, encode(head, 'hex')";

const CONTENT_COLUMNS_SQL: &str = "encode(sha256(bytes), 'hex'), refs::text";

const EXECUTION_COLUMNS_SQL: &str = "r.id::text, e.worker, e.holder, e.status::text, e.leased_at::text, e.expires_at::text, \
     e.started_at::text, e.finished_at::text, e.abort_code, e.abort_retryable::int::text, e.finish_pending::int::text, e.key, \
     e.abort_message, e.retry_at::text, e.lease_duration::text";

const LANE_COLUMNS_SQL: &str = "r.id::text, l.ready_at::text, l.definition::text, (EXISTS (SELECT FROM onceward.ready w \
     WHERE w.lifecycle = l.lifecycle AND w.rank = l.rank AND w.record = l.record))::int::text, \
     (CASE WHEN l.front THEN 0 ELSE (SELECT count(*) FROM (SELECT FROM onceward.lanes b \
     WHERE b.lifecycle = l.lifecycle AND b.key = l.key AND b.front AND (b.rank, b.record) < (l.rank, l.record) \
     LIMIT 1000) few) END)::text";

const DELAYED_COLUMNS_SQL: &str = "r.id::text, w.lifecycle::text, w.rank::text, w.definition::text, w.key, (EXISTS (SELECT FROM onceward.ready b \
     WHERE b.lifecycle = w.lifecycle AND b.rank = w.rank AND b.record = w.record) OR EXISTS (SELECT FROM onceward.lanes l \
     WHERE l.lifecycle = w.lifecycle AND l.key = w.key AND l.front IN (false, true) AND l.rank = w.rank \
     AND l.record = w.record))::int::text";

const RECORD_COLUMNS_SQL: &str = "r.id::text, r.definition::text, r.state::text, r.version::text, r.owner, r.fields, r.attempt::text, \
     r.created_at::text, r.updated_at::text, r.started_at::text, r.finished_at::text, r.entered_at::text, \
     r.hold::text, r.timers, r.committed::text, encode(r.payload, 'hex'), r.payload_bytes::text, r.stuck, \
     encode(r.head, 'hex'), coalesce((SELECT (b.first + (r.entry & 1048575))::text FROM onceward.batches b \
     WHERE b.batch = r.entry >> 20), 'entry id ' || r.entry), r.link_version::text, encode(r.trace, 'hex')";

const COUNTS_ORDER: &[OrderColumn] = &[
    OrderColumn("counts.lifecycle", OrderColumnType::Integer),
    OrderColumn("counts.name", OrderColumnType::Integer),
    OrderColumn("counts.parts", OrderColumnType::Text),
    OrderColumn("counts.window_start", OrderColumnType::Long),
];

const LANES_ORDER: &[OrderColumn] = &[
    OrderColumn("l.lifecycle", OrderColumnType::Integer),
    OrderColumn("l.key", OrderColumnType::Text),
    OrderColumn("l.front", OrderColumnType::Bool),
    OrderColumn("l.rank", OrderColumnType::Long),
    OrderColumn("l.record", OrderColumnType::Long),
];

const STATE_COUNTS_ORDER: &[OrderColumn] = &[
    OrderColumn("state_counts.definition", OrderColumnType::Integer),
    OrderColumn("state_counts.owner", OrderColumnType::Text),
    OrderColumn("state_counts.state", OrderColumnType::Integer),
];

fn table_scan_plan(table: ProjectionTable) -> TableScanPlan {
    use OrderColumnType::{Bytes, Id, Integer, Long, Text};
    let (order, columns, from): (&'static [OrderColumn], _, _) = match table {
        ProjectionTable::LogSeq => (&[OrderColumn("log_end.one", Integer)], "one::text", "onceward.log_end"),
        ProjectionTable::PruneState => {
            (&[OrderColumn("prune_state.one", Integer)], PRUNE_STATE_COLUMNS_SQL, "onceward.prune_state")
        }
        ProjectionTable::Records => (&[OrderColumn("r.row", Long)], RECORD_COLUMNS_SQL, "onceward.records r"),
        ProjectionTable::Executions => (
            &[OrderColumn("e.record", Long), OrderColumn("e.token", Long)],
            EXECUTION_COLUMNS_SQL,
            "onceward.executions e LEFT JOIN onceward.records r ON r.row = e.record",
        ),
        ProjectionTable::Effects => (
            &[OrderColumn("f.record", Long)],
            "r.id::text, f.token::text, encode(sha256(convert_to(f.result, 'UTF8')), 'hex')",
            "onceward.effects f LEFT JOIN onceward.records r ON r.row = f.record",
        ),
        ProjectionTable::Uniques => (
            &[
                OrderColumn("uniques.lifecycle", Integer),
                OrderColumn("uniques.name", Integer),
                OrderColumn("uniques.parts", Text),
            ],
            "PARTS, holder::text",
            "onceward.uniques",
        ),
        ProjectionTable::Counts => (COUNTS_ORDER, "PARTS, count::text", "onceward.counts"),
        ProjectionTable::Accounts => (
            &[OrderColumn("accounts.asset", Text), OrderColumn("accounts.name", Text)],
            "outside::int::text, balance::text",
            "onceward.accounts",
        ),
        ProjectionTable::AccountEntries => (
            &[
                OrderColumn("account_entries.asset", Text),
                OrderColumn("account_entries.name", Text),
                OrderColumn("account_entries.seq", Long),
            ],
            "account_entries.seq::text",
            "onceward.account_entries",
        ),
        ProjectionTable::Links => (
            &[
                OrderColumn("l.target", Long),
                OrderColumn("l.lifecycle", Integer),
                OrderColumn("l.field", Integer),
                OrderColumn("l.source", Long),
            ],
            "t.id::text, s.id::text",
            "onceward.links l LEFT JOIN onceward.records t ON t.row = l.target LEFT JOIN onceward.records s ON s.row = l.source",
        ),
        ProjectionTable::Queues => (
            &[
                OrderColumn("queues.lifecycle", Integer),
                OrderColumn("queues.parts", Text),
                OrderColumn("queues.created_at", Long),
                OrderColumn("queues.id", Id),
            ],
            "id::text",
            "onceward.queues",
        ),
        ProjectionTable::Ready => (
            &[OrderColumn("w.lifecycle", Integer), OrderColumn("w.rank", Long), OrderColumn("w.record", Long)],
            "r.id::text, w.ready_at::text, w.definition::text, w.key, (EXISTS (SELECT FROM onceward.lanes l \
             WHERE l.lifecycle = w.lifecycle AND l.key = w.key AND l.front AND l.rank = w.rank AND l.record = w.record))::int::text",
            "onceward.ready w LEFT JOIN onceward.records r ON r.row = w.record",
        ),
        ProjectionTable::Lanes => {
            (LANES_ORDER, LANE_COLUMNS_SQL, "onceward.lanes l LEFT JOIN onceward.records r ON r.row = l.record")
        }
        ProjectionTable::Delayed => (
            &[OrderColumn("w.ready_at", Long), OrderColumn("w.record", Long)],
            DELAYED_COLUMNS_SQL,
            "onceward.delayed w LEFT JOIN onceward.records r ON r.row = w.record",
        ),
        ProjectionTable::Timers => (
            &[OrderColumn("t.due_at", Long), OrderColumn("t.record", Long)],
            "r.id::text, e.expires_at::text",
            "onceward.timers t LEFT JOIN onceward.records r ON r.row = t.record \
             LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt",
        ),
        ProjectionTable::StateCounts => (
            STATE_COUNTS_ORDER,
            "count::text, (SELECT d.name FROM onceward.definitions d WHERE d.number = state_counts.definition)",
            "onceward.state_counts",
        ),
        ProjectionTable::Contents => {
            (&[OrderColumn("contents.sha256", Bytes)], CONTENT_COLUMNS_SQL, "onceward.contents")
        }
        ProjectionTable::ApiKeys => (
            &[OrderColumn("api_keys.id", Text)],
            "encode(sha256(hash), 'hex'), owner, roles, lifecycles, name, created_at::text, expires_at::text, revoked_at::text",
            "onceward.api_keys",
        ),
        ProjectionTable::ApiKeysRevision => {
            (&[OrderColumn("api_keys_revision.one", Integer)], "revision::text", "onceward.api_keys_revision")
        }
    };
    TableScanPlan { order, columns, from }
}

/// Must run in a snapshot transaction.
pub(super) async fn scan_page(
    client: &PooledClient,
    symbols: &SymbolTable,
    table: ProjectionTable,
    after: Option<&ScanCursor>,
    limit: usize,
) -> Result<ScanPage, StoreError> {
    let seq = last_seq(client).await?;
    let TableScanPlan { order, columns, from } = table_scan_plan(table);
    let joined = |texts: Vec<String>| texts.join(", ");
    let shown = joined(order.iter().map(OrderColumn::select_expression).collect());
    let by = joined(order.iter().map(|order| order.0.to_owned()).collect());
    let bound_values = joined((1..).zip(order).map(|(number, order)| order.bound_expression(number)).collect());
    let condition = if after.is_some() { format!("WHERE ({by}) > ({bound_values})") } else { String::new() };
    let columns = columns.replace("PARTS", KEY_PARTS_SQL);
    let sql = format!("SELECT {shown}, {columns} FROM {from} {condition} ORDER BY {by} LIMIT {limit}");
    let cursor_texts: Vec<&str> = after.iter().flat_map(|cursor| &cursor.0).map(cursor_text).collect();
    let parameters: Vec<&(dyn ToSql + Sync)> = cursor_texts.iter().map(|text| text as &(dyn ToSql + Sync)).collect();
    let statement = client.prepare_cached(&sql).await?;
    let found = client.query(&statement, &parameters).await?;
    let next = found.get(limit.saturating_sub(1)).map(|row| read_cursor(row, order.len())).transpose()?;
    let rows = found
        .iter()
        .map(|row| RowCells { values: read_cells(row)?, symbols, has_dense_row_ids: false }.to_stored_row(table));
    Ok(ScanPage { seq, rows: rows.collect::<Result<_, _>>()?, next })
}

fn read_cells(row: &Row) -> Result<Vec<CellText>, StoreError> {
    (0..row.len()).map(|at| Ok(row.try_get::<_, Option<String>>(at)?.map(Into::into))).collect()
}

fn read_cursor(row: &Row, columns: usize) -> Result<ScanCursor, StoreError> {
    let cursor_texts =
        (0..columns).map(|at| Ok(CursorValue::Text(row.try_get(at)?))).collect::<Result<_, StoreError>>()?;
    Ok(ScanCursor(cursor_texts))
}

/// Cursors of this store contain only text.
fn cursor_text(value: &CursorValue) -> &str {
    match value {
        CursorValue::Text(text) => text,
        CursorValue::Int(_) | CursorValue::Bytes(_) => "",
    }
}
