//! The rows that a store must keep for a record, worked out from the record alone.

use std::borrow::Cow;
use std::sync::Arc;

use onceward_core::decide::{CountKey, UniqueKey, in_order, next_due, readiness};
use onceward_core::hex;
use onceward_core::record::{Execution, ExecutionStatus, Record, Timer};
use onceward_core::time::Time;
use onceward_core::value::Value;

use super::{Beside, Cell, Columns, SEPARATOR, Table};
use crate::api_keys::KnownKey;
use crate::catalog::Catalog;
use crate::log::{EffectMark, Hash};
use crate::plain::write_fields;
use crate::query::rank;

/// A record as the log tells it, with what is kept beside it.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its number: records count from 1 in the order of their creation.
    pub row: u64,
    pub record: Arc<Record>,
    /// Hash and place of its last entry.
    pub head: Hash,
    pub entry: u64,
    pub effect: Option<EffectMark>,
    /// How many links point to it.
    pub linked: u64,
    /// How often one came or went. A store may raise its own count less often, since it writes what a batch comes to.
    pub raised: u64,
    /// What the ledger's moves come to on its hold.
    pub ledger: i64,
    /// Its log is damaged: what it should be is not known.
    pub lost: bool,
    /// At least one of its entries carries the hash that it must.
    pub vouched: bool,
}

/// What a table should have of a record; `None` where it should have nothing. `beside` comes with the row that is compared:
/// a heartbeat moves the end of a lease, and with it the row of `timers`, without leaving an entry.
pub fn expected(table: Table, known: &Known, catalog: &Catalog, beside: Beside) -> Option<Columns> {
    let record = &*known.record;
    match table {
        Table::Records => Some(record_columns(known, catalog)),
        Table::Effects => known.effect.as_ref().map(effect_columns),
        Table::Timers => due(record, beside).map(|due| vec![("due", number(due.micros()))]),
        Table::Queues => in_order(record).map(|queue| {
            vec![
                ("lifecycle", text(&queue.lifecycle)),
                ("parts", parts_text(&queue.parts)),
                ("created_at", number(record.created_at.micros())),
            ]
        }),
        Table::Ready | Table::Later => readiness(record).map(|waiting| {
            let key = waiting.key.as_ref().and_then(|key| parts_text(&key.parts));
            waiting_columns(record, catalog, waiting.priority, waiting.from, key)
        }),
        Table::Lanes => readiness(record).and_then(|waiting| {
            let key = parts_text(&waiting.key.as_ref()?.parts);
            Some(waiting_columns(record, catalog, waiting.priority, waiting.from, key))
        }),
        _ => None,
    }
}

/// Whether a table should have a row of a record. The same, without saying which.
pub fn stands(table: Table, known: &Known) -> bool {
    let record = &*known.record;
    match table {
        Table::Records => true,
        Table::Effects => known.effect.is_some(),
        Table::Timers => next_due(record).is_some(),
        Table::Queues => in_order(record).is_some(),
        Table::Ready | Table::Later => readiness(record).is_some(),
        Table::Lanes => readiness(record).is_some_and(|waiting| waiting.key.is_some()),
        _ => false,
    }
}

/// When the record next needs the engine, if its lease ends when the store says.
fn due(record: &Record, beside: Beside) -> Option<Time> {
    let Beside::Lease(Some(ends)) = beside else { return next_due(record) };
    let mut moved = record.clone();
    if let Some(execution) = &mut moved.execution {
        execution.expires_at = Time::from_micros(ends);
    }
    next_due(&moved)
}

fn waiting_columns(record: &Record, catalog: &Catalog, priority: i64, from: Time, key: Cell) -> Columns {
    vec![
        ("lifecycle", text(&record.lifecycle.name)),
        ("rank", number(rank(priority, from))),
        ("ready_at", number(from.micros())),
        ("definition", definition(record, catalog)),
        ("key", key),
    ]
}

fn record_columns(known: &Known, catalog: &Catalog) -> Columns {
    let record = &*known.record;
    let time = |time: Option<Time>| time.and_then(|time| number(time.micros()));
    vec![
        ("row", number(known.row)),
        ("definition", definition(record, catalog)),
        ("state", number(record.state)),
        ("version", number(record.version)),
        ("owner", text(&record.owner)),
        ("fields", fields_text(&record.fields)),
        ("attempt", number(record.attempt)),
        ("created_at", number(record.created_at.micros())),
        ("updated_at", number(record.updated_at.micros())),
        ("started_at", time(record.started_at)),
        ("finished_at", time(record.finished_at)),
        ("entered_at", number(record.entered_at.micros())),
        ("hold", number(record.hold)),
        ("timers", timers_text(&record.timers)),
        ("committed", record.committed.and_then(|token| number(token.0))),
        ("payload", record.payload.map(|payload| hex::encode(&payload.sha256).into())),
        ("payload_bytes", record.payload.and_then(|payload| number(payload.bytes))),
        ("stuck", record.stuck.as_ref().and_then(text)),
        ("head", Some(hex::encode(&known.head).into())),
        ("entry", number(known.entry)),
        ("trace", record.trace.map(|trace| hex::encode(&trace.to_bytes()).into())),
    ]
}

pub fn effect_columns(effect: &EffectMark) -> Columns {
    vec![("token", number(effect.token.0)), ("result", Some(hex::encode(&effect.result).into()))]
}

/// What `executions` should have; the end of a live lease may be later.
pub fn execution_columns(execution: &Execution) -> Columns {
    let time = |time: Option<Time>| time.and_then(|time| number(time.micros()));
    let aborted = execution.aborted.as_ref();
    vec![
        ("worker", text(&execution.worker)),
        ("holder", text(&execution.holder)),
        ("status", number(status_number(execution.status))),
        ("leased_at", number(execution.leased_at.micros())),
        ("expires_at", number(execution.expires_at.micros())),
        ("started_at", time(execution.started_at)),
        ("finished_at", time(execution.finished_at)),
        ("abort_code", aborted.and_then(|abort| text(&abort.code))),
        ("abort_retryable", aborted.and_then(|abort| number(u8::from(abort.retryable)))),
        ("finish_moves", number(u8::from(execution.finish_moves))),
        ("key", execution.key.as_deref().and_then(parts_text)),
    ]
}

/// What `api_keys` should have; the hash by its own hash.
pub fn key_columns(known: &KnownKey) -> Columns {
    let time = |time: Option<Time>| time.and_then(|time| number(time.micros()));
    let key = &known.key;
    vec![
        ("hash", Some(hex::encode(&key.mark).into())),
        ("owner", text(&key.owner)),
        ("roles", parts_text(&key.roles)),
        ("lifecycles", key.lifecycles.as_deref().and_then(parts_text)),
        ("name", text(&key.name)),
        ("created_at", number(known.created_at.micros())),
        ("expires_at", time(key.expires_at)),
        ("revoked_at", time(known.revoked_at)),
    ]
}

const fn status_number(status: ExecutionStatus) -> u8 {
    match status {
        ExecutionStatus::Leased => 0,
        ExecutionStatus::InProgress => 1,
        ExecutionStatus::Committed => 2,
        ExecutionStatus::Done => 3,
        ExecutionStatus::Aborted => 4,
    }
}

fn definition(record: &Record, catalog: &Catalog) -> Cell {
    catalog.number_of(&record.lifecycle).ok().and_then(number)
}

#[expect(
    clippy::unnecessary_wraps,
    clippy::needless_pass_by_value,
    reason = "a column may be nothing; numbers are copied"
)]
pub(crate) fn number(number: impl ToString) -> Cell {
    Some(Cow::Owned(number.to_string()))
}

#[expect(clippy::unnecessary_wraps, reason = "a column may be nothing")]
fn text(text: impl AsRef<str>) -> Cell {
    Some(Cow::Owned(text.as_ref().to_owned()))
}

/// The parts of a key as the stores keep them; what cannot be written was never kept.
fn parts_text(parts: &[Arc<str>]) -> Cell {
    serde_json::to_string(parts).ok().map(Cow::Owned)
}

fn fields_text(fields: &[Value]) -> Cell {
    write_fields(fields).ok().map(Cow::Owned)
}

fn timers_text(timers: &[Timer]) -> Cell {
    let pairs: Vec<(u16, i64)> = timers.iter().map(|timer| (timer.row, timer.due.micros())).collect();
    if pairs.is_empty() { None } else { serde_json::to_string(&pairs).ok().map(Cow::Owned) }
}

pub(crate) fn key_of_unique(key: &UniqueKey) -> String {
    joined(&[&key.lifecycle, &key.unique, &parts_text(&key.parts).unwrap_or_default()])
}

pub(crate) fn key_of_count(key: &CountKey) -> String {
    let window = key.window.map_or_else(String::new, |window| window.to_string());
    joined(&[&key.lifecycle, &key.limit, &parts_text(&key.parts).unwrap_or_default(), &window])
}

pub(crate) fn joined(parts: &[&str]) -> String {
    parts.join(&SEPARATOR.to_string())
}
