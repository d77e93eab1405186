//! Every table page by page, as it stands; all values as text. An entry is known by its number in the log, which its batch
//! tells, not by its place.

use onceward_core::value::RecordId;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::client::Client;
use super::read::BEYOND;
use super::rows;
use crate::StoreError;
use crate::names::Names;
use crate::scan::{Cell, Cells, Cursor, LogPage, LogRow, ScanPage, Spot, Table};

/// There is no counter here: what is in the log is what its batches say.
pub(super) const TABLES: &[Table] = &[
    Table::Pruned,
    Table::Records,
    Table::Executions,
    Table::Effects,
    Table::Uniques,
    Table::Counts,
    Table::Accounts,
    Table::Entries,
    Table::Links,
    Table::Queues,
    Table::Ready,
    Table::Lanes,
    Table::Timers,
    Table::Tallies,
    Table::Contents,
    Table::ApiKeys,
    Table::KeyChanges,
];

const LAST: &str = "SELECT coalesce(max(last), 0) FROM onceward.batches";

/// An entry's number in the log is that of its batch's first and its own in the batch; the same of the entry before.
const LOG: &str = "SELECT b.first + (h.place & 1048575), h.record, r.id, h.version, h.at, \
     (SELECT p.first + (h.previous & 1048575) FROM onceward.batches p WHERE p.batch = h.previous >> 20), \
     h.text, h.hash, h.previous, b.last \
     FROM (SELECT first, last, batch FROM onceward.batches WHERE last > $1 \
     AND last <= coalesce((SELECT min(last) FROM onceward.batches WHERE last >= $3), $3) ORDER BY last LIMIT $2) b \
     JOIN onceward.history h ON h.place >= b.batch << 20 AND h.place < (b.batch + 1) << 20 \
     LEFT JOIN onceward.records r ON r.row = h.record \
     WHERE b.first + (h.place & 1048575) > $1 AND b.first + (h.place & 1048575) <= b.last \
     ORDER BY b.first, h.place LIMIT $2";

/// In a transaction that sees one moment.
pub(super) async fn log(client: &Client, after: i64, limit: usize) -> Result<LogPage, StoreError> {
    let seq = last(client).await?;
    let mut page = LogPage { seq, rows: Vec::new() };
    let (mut from, limit) = (after.max(0), rows::size(limit));
    let found = loop {
        let to = from.saturating_add(limit);
        let found = client.query(LOG, &[&from, &limit, &to]).await?;
        let beyond: Option<i64> = client.query_one(BEYOND, &[&to]).await?.try_get(0)?;
        match beyond {
            // All that stood there was pruned, and there is more behind it.
            Some(place) if found.is_empty() && place > from && limit > 0 => from = place,
            _ => break found,
        }
    };
    for row in found {
        let id = row.try_get::<_, Option<Uuid>>(2)?.map(RecordId);
        let number: Option<i64> = row.try_get(1)?;
        // A place that no batch has is shown as it is, and is wrong in any case.
        let previous = row.try_get::<_, Option<i64>>(5)?.or(row.try_get(8)?);
        page.rows.push(LogRow {
            seq: row.try_get(0)?,
            record: id,
            nobody: number.filter(|_| id.is_none()),
            version: row.try_get(3)?,
            at: row.try_get(4)?,
            batch_end: Some(row.try_get(9)?),
            previous: Some(previous),
            text: rows::text(&row, 6)?,
            hash: rows::hash(row.try_get(7)?)?,
        });
    }
    Ok(page)
}

async fn last(client: &Client) -> Result<u64, StoreError> {
    rows::unsigned(&client.query_one(LAST, &[]).await?, 0)
}

/// How a table is read: in which order (the column, as text, and back from text), which columns besides, and from where.
struct Plan {
    order: &'static [Order],
    columns: &'static str,
    from: &'static str,
}

/// With its table before it: `ORDER BY` takes a bare name for that of a column as it is shown, and text has another order than numbers.
struct Order(&'static str, Kind);

#[derive(Clone, Copy)]
enum Kind {
    Integer,
    Long,
    Text,
    Truth,
    Id,
    Bytes,
}

impl Order {
    fn shown(&self) -> String {
        match self.1 {
            Kind::Truth => format!("{}::int::text", self.0),
            Kind::Bytes => format!("encode({}, 'hex')", self.0),
            _ => format!("{}::text", self.0),
        }
    }

    fn bound(&self, number: usize) -> String {
        match self.1 {
            Kind::Integer => format!("${number}::text::integer"),
            Kind::Long => format!("${number}::text::bigint"),
            Kind::Text => format!("${number}::text"),
            Kind::Truth => format!("${number}::text::int::boolean"),
            Kind::Id => format!("${number}::text::uuid"),
            Kind::Bytes => format!("decode(${number}::text, 'hex')"),
        }
    }
}

/// A long key stands as its hash, and whole beside it.
const PARTS: &str = "CASE WHEN whole IS NULL THEN parts WHEN parts = '#' || encode(sha256(convert_to(whole, 'UTF8')), 'hex') \
     THEN whole ELSE parts || ' ' || whole END";

const STANDING: &str = "checkpoint::text, floor::text, encode(head, 'hex')";

const CONTENT: &str = "encode(sha256(bytes), 'hex'), refs::text";

const EXECUTIONS: &str = "r.id::text, e.worker, e.holder, e.status::text, e.leased_at::text, e.expires_at::text, \
     e.started_at::text, e.finished_at::text, e.abort_code, e.abort_retryable::int::text, e.finish_moves::int::text, e.key";

const LANES: &str = "r.id::text, l.ready_at::text, l.definition::text, (EXISTS (SELECT FROM onceward.ready w \
     WHERE w.lifecycle = l.lifecycle AND w.rank = l.rank AND w.record = l.record))::int::text, \
     (CASE WHEN l.front THEN 0 ELSE (SELECT count(*) FROM (SELECT FROM onceward.lanes b \
     WHERE b.lifecycle = l.lifecycle AND b.key = l.key AND b.front AND (b.rank, b.record) < (l.rank, l.record) \
     LIMIT 1000) few) END)::text";

const LATER: &str = "r.id::text, w.lifecycle::text, w.rank::text, w.definition::text, w.key, (EXISTS (SELECT FROM onceward.ready b \
     WHERE b.lifecycle = w.lifecycle AND b.rank = w.rank AND b.record = w.record) OR EXISTS (SELECT FROM onceward.lanes l \
     WHERE l.lifecycle = w.lifecycle AND l.key = w.key AND l.front IN (false, true) AND l.rank = w.rank \
     AND l.record = w.record))::int::text";

const RECORDS: &str = "r.id::text, r.definition::text, r.state::text, r.version::text, r.owner, r.fields, r.attempt::text, \
     r.created_at::text, r.updated_at::text, r.started_at::text, r.finished_at::text, r.entered_at::text, \
     r.hold::text, r.timers, r.committed::text, encode(r.payload, 'hex'), r.payload_bytes::text, r.stuck, \
     encode(r.head, 'hex'), coalesce((SELECT (b.first + (r.entry & 1048575))::text FROM onceward.batches b \
     WHERE b.batch = r.entry >> 20), 'place ' || r.entry), r.links::text, encode(r.trace, 'hex')";

const COUNTS_ORDER: &[Order] = &[
    Order("counts.lifecycle", Kind::Integer),
    Order("counts.name", Kind::Integer),
    Order("counts.parts", Kind::Text),
    Order("counts.span", Kind::Long),
];

const LANES_ORDER: &[Order] = &[
    Order("l.lifecycle", Kind::Integer),
    Order("l.key", Kind::Text),
    Order("l.front", Kind::Truth),
    Order("l.rank", Kind::Long),
    Order("l.record", Kind::Long),
];

fn plan(table: Table) -> Plan {
    use Kind::{Bytes, Id, Integer, Long, Text};
    let (order, columns, from): (&'static [Order], _, _) = match table {
        Table::Counter => (&[Order("log_end.one", Integer)], "one::text", "onceward.log_end"),
        Table::Pruned => (&[Order("pruned.one", Integer)], STANDING, "onceward.pruned"),
        Table::Records => (&[Order("r.row", Long)], RECORDS, "onceward.records r"),
        Table::Executions => (
            &[Order("e.record", Long), Order("e.token", Long)],
            EXECUTIONS,
            "onceward.executions e LEFT JOIN onceward.records r ON r.row = e.record",
        ),
        Table::Effects => (
            &[Order("f.record", Long)],
            "r.id::text, f.token::text, encode(sha256(convert_to(f.result, 'UTF8')), 'hex')",
            "onceward.effects f LEFT JOIN onceward.records r ON r.row = f.record",
        ),
        Table::Uniques => (
            &[Order("uniques.lifecycle", Integer), Order("uniques.name", Integer), Order("uniques.parts", Text)],
            "PARTS, holder::text",
            "onceward.uniques",
        ),
        Table::Counts => (COUNTS_ORDER, "PARTS, count::text", "onceward.counts"),
        Table::Accounts => (
            &[Order("accounts.asset", Text), Order("accounts.name", Text)],
            "outside::int::text, balance::text",
            "onceward.accounts",
        ),
        Table::Entries => (
            &[Order("entries.asset", Text), Order("entries.name", Text), Order("entries.seq", Long)],
            "entries.seq::text",
            "onceward.entries",
        ),
        Table::Links => (
            &[
                Order("l.target", Long),
                Order("l.lifecycle", Integer),
                Order("l.field", Integer),
                Order("l.source", Long),
            ],
            "t.id::text, s.id::text",
            "onceward.links l LEFT JOIN onceward.records t ON t.row = l.target LEFT JOIN onceward.records s ON s.row = l.source",
        ),
        Table::Queues => (
            &[
                Order("queues.lifecycle", Integer),
                Order("queues.parts", Text),
                Order("queues.created_at", Long),
                Order("queues.id", Id),
            ],
            "id::text",
            "onceward.queues",
        ),
        Table::Ready => (
            &[Order("w.lifecycle", Integer), Order("w.rank", Long), Order("w.record", Long)],
            "r.id::text, w.ready_at::text, w.definition::text, w.key, (EXISTS (SELECT FROM onceward.lanes l \
             WHERE l.lifecycle = w.lifecycle AND l.key = w.key AND l.front AND l.rank = w.rank AND l.record = w.record))::int::text",
            "onceward.ready w LEFT JOIN onceward.records r ON r.row = w.record",
        ),
        Table::Lanes => (LANES_ORDER, LANES, "onceward.lanes l LEFT JOIN onceward.records r ON r.row = l.record"),
        Table::Later => (
            &[Order("w.ready_at", Long), Order("w.record", Long)],
            LATER,
            "onceward.later w LEFT JOIN onceward.records r ON r.row = w.record",
        ),
        Table::Timers => (
            &[Order("t.due", Long), Order("t.record", Long)],
            "r.id::text, e.expires_at::text",
            "onceward.timers t LEFT JOIN onceward.records r ON r.row = t.record \
             LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt",
        ),
        Table::Tallies => (
            &[Order("tallies.definition", Integer), Order("tallies.owner", Text), Order("tallies.state", Integer)],
            "count::text, (SELECT d.name FROM onceward.definitions d WHERE d.number = tallies.definition)",
            "onceward.tallies",
        ),
        Table::Contents => (&[Order("contents.sha256", Bytes)], CONTENT, "onceward.contents"),
        Table::ApiKeys => (
            &[Order("api_keys.id", Text)],
            "encode(sha256(hash), 'hex'), owner, roles, lifecycles, name, created_at::text, expires_at::text, revoked_at::text",
            "onceward.api_keys",
        ),
        Table::KeyChanges => (&[Order("key_changes.one", Integer)], "changes::text", "onceward.key_changes"),
    };
    Plan { order, columns, from }
}

/// In a transaction that sees one moment.
pub(super) async fn page(
    client: &Client,
    names: &Names,
    table: Table,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<ScanPage, StoreError> {
    let seq = last(client).await?;
    let Plan { order, columns, from } = plan(table);
    let joined = |texts: Vec<String>| texts.join(", ");
    let shown = joined(order.iter().map(Order::shown).collect());
    let by = joined(order.iter().map(|order| order.0.to_owned()).collect());
    let places = joined((1..).zip(order).map(|(number, order)| order.bound(number)).collect());
    let condition = if after.is_some() { format!("WHERE ({by}) > ({places})") } else { String::new() };
    let columns = columns.replace("PARTS", PARTS);
    let sql = format!("SELECT {shown}, {columns} FROM {from} {condition} ORDER BY {by} LIMIT {limit}");
    let spots: Vec<&str> = after.iter().flat_map(|cursor| &cursor.0).map(text_of).collect();
    let parameters: Vec<&(dyn ToSql + Sync)> = spots.iter().map(|spot| spot as &(dyn ToSql + Sync)).collect();
    let statement = client.prepare_cached(&sql).await?;
    let found = client.query(&statement, &parameters).await?;
    let next = found.get(limit.saturating_sub(1)).map(|row| cursor(row, order.len())).transpose()?;
    let rows = found.iter().map(|row| Cells { values: values(row)?, names, dense: false }.kept(table));
    Ok(ScanPage { seq, rows: rows.collect::<Result<_, _>>()?, next })
}

fn values(row: &Row) -> Result<Vec<Cell>, StoreError> {
    (0..row.len()).map(|at| Ok(row.try_get::<_, Option<String>>(at)?.map(Into::into))).collect()
}

fn cursor(row: &Row, columns: usize) -> Result<Cursor, StoreError> {
    let spots = (0..columns).map(|at| Ok(Spot::Text(row.try_get(at)?))).collect::<Result<_, StoreError>>()?;
    Ok(Cursor(spots))
}

/// A cursor of ours is all text.
fn text_of(spot: &Spot) -> &str {
    match spot {
        Spot::Text(text) => text,
        Spot::Int(_) | Spot::Bytes(_) => "",
    }
}
