//! Computes the rows that a store should have for a record.

use std::borrow::Cow;
use std::sync::Arc;

use onceward_core::decide::{CounterKey, UniqueKey, next_due, ordered_queue_key, readiness};
use onceward_core::hex;
use onceward_core::record::{Execution, ExecutionStatus, Record, Timer};
use onceward_core::time::Time;
use onceward_core::value::Value;

use super::{CellText, ColumnCells, KEY_SEPARATOR, ProjectionTable, RowContext};
use crate::api_keys::ReplayedApiKey;
use crate::catalog::Catalog;
use crate::columns::{abort_message, retry_at};
use crate::log::{EffectRef, Sha256Hash};
use crate::query::priority_rank;
use crate::value_json::write_fields;

/// A record as rebuilt from the log, with its metadata.
#[derive(Clone, Debug)]
pub struct ReplayedRecord {
    /// Row id, counted from 1 in the order of creation.
    pub row_id: u64,
    pub record: Arc<Record>,
    /// Hash of its last log entry.
    pub head_hash: Sha256Hash,
    pub head_seq: u64,
    pub effect: Option<EffectRef>,
    /// Number of links to the record.
    pub incoming_links: u64,
    /// How often a link to the record was added or removed. A store may count fewer changes, because it folds a batch
    /// before writing.
    pub link_version: u64,
    /// Sum of all transfers to and from its hold.
    pub ledger_balance: i64,
    /// Whether its log is damaged. In that case its expected state is unknown.
    pub is_log_damaged: bool,
    /// Whether at least one of its entries has the correct hash.
    pub has_verified_entry: bool,
}

/// Returns the columns that a table should have for a record, or `None` if it should have no row. `context` comes with
/// the compared row: a heartbeat extends a lease, and with it the timer, without a log entry.
pub fn expected_columns(
    table: ProjectionTable,
    replayed: &ReplayedRecord,
    catalog: &Catalog,
    context: RowContext,
) -> Option<ColumnCells> {
    let record = &*replayed.record;
    match table {
        ProjectionTable::Records => Some(record_columns(replayed, catalog)),
        ProjectionTable::Effects => replayed.effect.as_ref().map(effect_columns),
        ProjectionTable::Timers => expected_due(record, context).map(|due| vec![("due_at", number_cell(due.micros()))]),
        ProjectionTable::Queues => ordered_queue_key(record).map(|queue| {
            vec![
                ("lifecycle", text_cell(&queue.lifecycle)),
                ("parts", parts_text(&queue.parts)),
                ("created_at", number_cell(record.created_at.micros())),
            ]
        }),
        ProjectionTable::Ready | ProjectionTable::Delayed => readiness(record).map(|waiting| {
            let key = waiting.concurrency_key.as_ref().and_then(|key| parts_text(&key.parts));
            readiness_columns(record, catalog, waiting.priority, waiting.ready_at, key)
        }),
        ProjectionTable::Lanes => readiness(record).and_then(|waiting| {
            let key = parts_text(&waiting.concurrency_key.as_ref()?.parts);
            Some(readiness_columns(record, catalog, waiting.priority, waiting.ready_at, key))
        }),
        _ => None,
    }
}

/// Like [`expected_columns`], but only returns whether there should be a row.
pub fn expects_row(table: ProjectionTable, replayed: &ReplayedRecord) -> bool {
    let record = &*replayed.record;
    match table {
        ProjectionTable::Records => true,
        ProjectionTable::Effects => replayed.effect.is_some(),
        ProjectionTable::Timers => next_due(record).is_some(),
        ProjectionTable::Queues => ordered_queue_key(record).is_some(),
        ProjectionTable::Ready | ProjectionTable::Delayed => readiness(record).is_some(),
        ProjectionTable::Lanes => readiness(record).is_some_and(|waiting| waiting.concurrency_key.is_some()),
        _ => false,
    }
}

/// Returns when the engine must next process the record, using the lease expiry from the store.
fn expected_due(record: &Record, context: RowContext) -> Option<Time> {
    let RowContext::LeaseEnd(Some(ends)) = context else { return next_due(record) };
    let mut extended = record.clone();
    if let Some(execution) = &mut extended.execution {
        execution.expires_at = Time::from_micros(ends);
    }
    next_due(&extended)
}

fn readiness_columns(record: &Record, catalog: &Catalog, priority: i64, ready_at: Time, key: CellText) -> ColumnCells {
    vec![
        ("lifecycle", text_cell(&record.lifecycle.name)),
        ("rank", number_cell(priority_rank(priority, ready_at))),
        ("ready_at", number_cell(ready_at.micros())),
        ("definition", version_cell(record, catalog)),
        ("key", key),
    ]
}

fn record_columns(replayed: &ReplayedRecord, catalog: &Catalog) -> ColumnCells {
    let record = &*replayed.record;
    let time = |time: Option<Time>| time.and_then(|time| number_cell(time.micros()));
    vec![
        ("row", number_cell(replayed.row_id)),
        ("definition", version_cell(record, catalog)),
        ("state", number_cell(record.state)),
        ("version", number_cell(record.version)),
        ("owner", text_cell(&record.owner)),
        ("fields", fields_text(&record.fields)),
        ("attempt", number_cell(record.attempt)),
        ("created_at", number_cell(record.created_at.micros())),
        ("updated_at", number_cell(record.updated_at.micros())),
        ("started_at", time(record.started_at)),
        ("finished_at", time(record.finished_at)),
        ("entered_at", number_cell(record.entered_at.micros())),
        ("hold", number_cell(record.hold)),
        ("timers", timers_text(&record.timers)),
        ("committed", record.committed_token.and_then(|token| number_cell(token.0))),
        ("payload", record.payload.map(|payload| hex::encode(&payload.sha256).into())),
        ("payload_bytes", record.payload.and_then(|payload| number_cell(payload.bytes))),
        ("stuck", record.stuck_reason.as_ref().and_then(text_cell)),
        ("head", Some(hex::encode(&replayed.head_hash).into())),
        ("entry", number_cell(replayed.head_seq)),
        ("trace", record.trace.map(|trace| hex::encode(&trace.to_bytes()).into())),
    ]
}

pub fn effect_columns(effect: &EffectRef) -> ColumnCells {
    vec![("token", number_cell(effect.token.0)), ("result", Some(hex::encode(&effect.result).into()))]
}

/// Returns the columns that an execution should have. The expiry of a live lease may be later.
pub fn execution_columns(execution: &Execution) -> ColumnCells {
    let time = |time: Option<Time>| time.and_then(|time| number_cell(time.micros()));
    let aborted = execution.aborted.as_ref();
    vec![
        ("worker", text_cell(&execution.worker)),
        ("holder", text_cell(&execution.holder)),
        ("status", number_cell(status_number(execution.status))),
        ("leased_at", number_cell(execution.leased_at.micros())),
        ("expires_at", number_cell(execution.expires_at.micros())),
        ("started_at", time(execution.started_at)),
        ("finished_at", time(execution.finished_at)),
        ("abort_code", aborted.and_then(|abort| text_cell(&abort.code))),
        ("abort_retryable", aborted.and_then(|abort| number_cell(u8::from(abort.retryable)))),
        ("finish_pending", number_cell(u8::from(execution.finish_pending))),
        ("key", execution.concurrency_key.as_deref().and_then(parts_text)),
        ("abort_message", abort_message(execution).and_then(text_cell)),
        ("retry_at", time(retry_at(execution))),
        ("lease_duration", execution.lease_duration.and_then(|length| number_cell(length.micros()))),
    ]
}

/// Returns the columns that an API key should have, with the hash replaced by its digest.
pub fn api_key_columns(replayed: &ReplayedApiKey) -> ColumnCells {
    let time = |time: Option<Time>| time.and_then(|time| number_cell(time.micros()));
    let key = &replayed.key;
    vec![
        ("hash", Some(hex::encode(&key.hash_digest).into())),
        ("owner", text_cell(&key.owner)),
        ("roles", parts_text(&key.roles)),
        ("lifecycles", key.lifecycles.as_deref().and_then(parts_text)),
        ("name", text_cell(&key.name)),
        ("created_at", number_cell(replayed.created_at.micros())),
        ("expires_at", time(key.expires_at)),
        ("revoked_at", time(replayed.revoked_at)),
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

fn version_cell(record: &Record, catalog: &Catalog) -> CellText {
    catalog.version_number(&record.lifecycle).ok().and_then(number_cell)
}

#[expect(clippy::unnecessary_wraps, clippy::needless_pass_by_value, reason = "a cell may be null; numbers are copied")]
pub(crate) fn number_cell(number: impl ToString) -> CellText {
    Some(Cow::Owned(number.to_string()))
}

#[expect(clippy::unnecessary_wraps, reason = "a cell may be null")]
fn text_cell(text: impl AsRef<str>) -> CellText {
    Some(Cow::Owned(text.as_ref().to_owned()))
}

/// Encodes the parts of a key like the stores. Parts that cannot be encoded were never stored.
fn parts_text(parts: &[Arc<str>]) -> CellText {
    serde_json::to_string(parts).ok().map(Cow::Owned)
}

fn fields_text(fields: &[Value]) -> CellText {
    write_fields(fields).ok().map(Cow::Owned)
}

fn timers_text(timers: &[Timer]) -> CellText {
    let pairs: Vec<(u16, i64)> = timers.iter().map(|timer| (timer.transition, timer.due_at.micros())).collect();
    if pairs.is_empty() { None } else { serde_json::to_string(&pairs).ok().map(Cow::Owned) }
}

pub(crate) fn unique_key_text(key: &UniqueKey) -> String {
    join_key_parts(&[&key.lifecycle, &key.unique, &parts_text(&key.parts).unwrap_or_default()])
}

pub(crate) fn counter_key_text(key: &CounterKey) -> String {
    let window = key.window_start.map_or_else(String::new, |window| window.to_string());
    join_key_parts(&[&key.lifecycle, &key.limit, &parts_text(&key.parts).unwrap_or_default(), &window])
}

pub(crate) fn join_key_parts(parts: &[&str]) -> String {
    parts.join(&KEY_SEPARATOR.to_string())
}
