//! Reads records and executions from SQLite rows.

use std::sync::Arc;

use onceward_core::record::{AbortReason, Execution, FencingToken, PayloadRef, Record};
use onceward_core::time::{Duration, Time};
use onceward_core::trace::TraceContext;
use onceward_core::value::RecordId;
use rusqlite::Row;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::columns::{read_parts, read_status, read_timers};
use crate::error::StoreError;
use crate::read_set::RecordMeta;
use crate::value_json::read_fields;

/// Index of the first execution column in the view `records_with_execution`.
const EXECUTION_COLUMN: usize = 22;

/// Reads a row of the view `records_with_execution`.
pub(super) fn read_record(row: &Row, catalog: &Catalog) -> Result<(RecordMeta, Arc<Record>), StoreError> {
    let number: u32 = row.get(2)?;
    let lifecycle = catalog
        .by_number(number)
        .ok_or_else(|| StoreError::corrupt(format!("no lifecycle version has the number {number}")))?;
    let fields = read_fields(row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?)
        .map_err(|error| StoreError::corrupt(format!("the fields of a record are unreadable: {error}")))?;
    let state: u8 = row.get(3)?;
    if fields.len() != lifecycle.fields.len() || usize::from(state) >= lifecycle.states.len() {
        return Err(StoreError::corrupt(format!("a record does not match its lifecycle `{}`", lifecycle.name)));
    }
    let execution = match row.get_ref(EXECUTION_COLUMN)? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(read_execution(row, EXECUTION_COLUMN)?),
    };
    let payload = match row.get::<_, Option<[u8; 32]>>(16)? {
        Some(sha256) => Some(PayloadRef { sha256, bytes: row.get(17)? }),
        None => None,
    };
    let record = Record {
        id: record_id_column(row, 1)?,
        lifecycle: Arc::clone(lifecycle),
        state,
        version: row.get(4)?,
        owner: row.get(5)?,
        fields,
        attempt: row.get(7)?,
        created_at: Time::from_micros(row.get(8)?),
        updated_at: Time::from_micros(row.get(9)?),
        started_at: optional_time_column(row, 10)?,
        finished_at: optional_time_column(row, 11)?,
        entered_at: Time::from_micros(row.get(12)?),
        hold: row.get(13)?,
        timers: read_timers(row.get::<_, Option<String>>(14)?.as_deref())?,
        execution,
        committed_token: row.get::<_, Option<u64>>(15)?.map(FencingToken),
        payload,
        stuck_reason: row.get(18)?,
        trace: trace_column(row, 21)?,
    };
    let stored = RecordMeta {
        row_id: row.get(0)?,
        version: record.version,
        expires_at: record.execution.as_ref().map(|execution| execution.expires_at),
        head_hash: row.get(19)?,
        head_entry_id: row.get(20)?,
    };
    Ok((stored, Arc::new(record)))
}

/// Reads the execution whose columns start at `index`.
pub(super) fn read_execution(row: &Row, index: usize) -> Result<Execution, StoreError> {
    let aborted = match row.get::<_, Option<Arc<str>>>(index + 8)? {
        Some(code) => Some(AbortReason {
            code,
            message: row.get::<_, Option<Arc<str>>>(index + 12)?.unwrap_or_default(),
            retryable: row.get(index + 9)?,
            retry_at: optional_time_column(row, index + 13)?,
        }),
        None => None,
    };
    let key = match row.get::<_, Option<String>>(index + 11)? {
        Some(text) => Some(read_parts(&text)?),
        None => None,
    };
    Ok(Execution {
        token: FencingToken(row.get(index)?),
        worker: row.get(index + 1)?,
        holder: row.get(index + 2)?,
        status: read_status(row.get(index + 3)?)?,
        leased_at: Time::from_micros(row.get(index + 4)?),
        expires_at: Time::from_micros(row.get(index + 5)?),
        lease_duration: row.get::<_, Option<i64>>(index + 14)?.map(Duration::from_micros),
        started_at: optional_time_column(row, index + 6)?,
        finished_at: optional_time_column(row, index + 7)?,
        aborted,
        finish_pending: row.get(index + 10)?,
        concurrency_key: key,
    })
}

pub(super) fn record_id_column(row: &Row, index: usize) -> Result<RecordId, StoreError> {
    Ok(RecordId(Uuid::from_bytes(row.get(index)?)))
}

/// Ignores a damaged trace context, so that the record stays readable. No decision uses it, and `verify` reports it.
fn trace_column(row: &Row, index: usize) -> Result<Option<TraceContext>, StoreError> {
    let bytes = row.get_ref(index)?.as_bytes_or_null().map_err(rusqlite::Error::from)?;
    Ok(bytes.and_then(TraceContext::from_bytes))
}

fn optional_time_column(row: &Row, index: usize) -> Result<Option<Time>, StoreError> {
    Ok(row.get::<_, Option<i64>>(index)?.map(Time::from_micros))
}
