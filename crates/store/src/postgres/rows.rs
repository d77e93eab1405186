//! Reads records and executions from PostgreSQL rows.

use std::sync::Arc;

use onceward_core::record::{AbortReason, Execution, FencingToken, PayloadRef, Record};
use onceward_core::time::{Duration, Time};
use onceward_core::trace::TraceContext;
use onceward_core::value::RecordId;
use sha2::{Digest, Sha256};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::columns::{read_parts, read_status, read_timers, write_parts};
use crate::error::StoreError;
use crate::read_set::RecordMeta;
use crate::value_json::read_fields;

/// Index of the first execution column in the view `records_with_execution`.
const EXECUTION_COLUMN: usize = 22;

/// Number of columns of the view `records_with_execution`. Queries append their own.
pub(super) const VIEW_COLUMNS: usize = EXECUTION_COLUMN + 15;

/// Longer keys are stored as a hash, because index rows are limited in size.
const MAX_KEY_TEXT_BYTES: usize = 500;

/// Returns a row's version number, which must be in the catalog before the row can be read.
pub(super) fn version_number(row: &Row) -> Result<u32, StoreError> {
    u32_column(row, 2)
}

/// Reads a row of the view `records_with_execution`.
pub(super) fn read_record(row: &Row, catalog: &Catalog) -> Result<(RecordMeta, Arc<Record>), StoreError> {
    let number = version_number(row)?;
    let lifecycle = catalog
        .by_number(number)
        .ok_or_else(|| StoreError::corrupt(format!("no lifecycle version has the number {number}")))?;
    let fields = read_fields(row.try_get(6)?)
        .map_err(|error| StoreError::corrupt(format!("the fields of a record are unreadable: {error}")))?;
    let state = u8::try_from(row.try_get::<_, i16>(3)?).unwrap_or(u8::MAX);
    if fields.len() != lifecycle.fields.len() || usize::from(state) >= lifecycle.states.len() {
        return Err(StoreError::corrupt(format!("a record does not match its lifecycle `{}`", lifecycle.name)));
    }
    let execution = match row.try_get::<_, Option<i64>>(EXECUTION_COLUMN)? {
        Some(_) => Some(read_execution(row, EXECUTION_COLUMN)?),
        None => None,
    };
    let payload = match row.try_get::<_, Option<&[u8]>>(16)? {
        Some(sha256) => Some(PayloadRef { sha256: to_hash(sha256)?, bytes: unsigned_column(row, 17)? }),
        None => None,
    };
    let record = Record {
        id: RecordId(row.try_get(1)?),
        lifecycle: Arc::clone(lifecycle),
        state,
        version: unsigned_column(row, 4)?,
        owner: text_column(row, 5)?,
        fields,
        attempt: unsigned_column(row, 7)?,
        created_at: time_column(row, 8)?,
        updated_at: time_column(row, 9)?,
        started_at: optional_time_column(row, 10)?,
        finished_at: optional_time_column(row, 11)?,
        entered_at: time_column(row, 12)?,
        hold: row.try_get(13)?,
        timers: read_timers(row.try_get(14)?)?,
        execution,
        committed_token: optional_unsigned_column(row, 15)?.map(FencingToken),
        payload,
        stuck_reason: row.try_get::<_, Option<&str>>(18)?.map(Into::into),
        // Ignores a damaged trace context, so that the record stays readable. No decision uses it, and `verify` reports
        // it.
        trace: row.try_get::<_, Option<&[u8]>>(21)?.and_then(TraceContext::from_bytes),
    };
    let stored = RecordMeta {
        row_id: unsigned_column(row, 0)?,
        version: record.version,
        expires_at: record.execution.as_ref().map(|execution| execution.expires_at),
        head_hash: to_hash(row.try_get(19)?)?,
        head_entry_id: unsigned_column(row, 20)?,
    };
    Ok((stored, Arc::new(record)))
}

/// Reads the execution whose columns start at `index`.
pub(super) fn read_execution(row: &Row, index: usize) -> Result<Execution, StoreError> {
    let aborted = match row.try_get::<_, Option<&str>>(index + 8)? {
        Some(code) => Some(AbortReason {
            code: code.into(),
            message: row.try_get::<_, Option<&str>>(index + 12)?.unwrap_or_default().into(),
            retryable: row.try_get(index + 9)?,
            retry_at: optional_time_column(row, index + 13)?,
        }),
        None => None,
    };
    let key = match row.try_get::<_, Option<&str>>(index + 11)? {
        Some(text) => Some(read_parts(text)?),
        None => None,
    };
    Ok(Execution {
        token: FencingToken(unsigned_column(row, index)?),
        worker: text_column(row, index + 1)?,
        holder: text_column(row, index + 2)?,
        status: read_status(u8::try_from(row.try_get::<_, i16>(index + 3)?).unwrap_or(u8::MAX))?,
        leased_at: time_column(row, index + 4)?,
        expires_at: time_column(row, index + 5)?,
        lease_duration: row.try_get::<_, Option<i64>>(index + 14)?.map(Duration::from_micros),
        started_at: optional_time_column(row, index + 6)?,
        finished_at: optional_time_column(row, index + 7)?,
        aborted,
        finish_pending: row.try_get(index + 10)?,
        concurrency_key: key,
    })
}

pub(super) fn record_id_column(row: &Row, index: usize) -> Result<RecordId, StoreError> {
    Ok(RecordId(row.try_get::<_, Uuid>(index)?))
}

pub(super) fn time_column(row: &Row, index: usize) -> Result<Time, StoreError> {
    Ok(Time::from_micros(row.try_get(index)?))
}

pub(super) fn optional_time_column(row: &Row, index: usize) -> Result<Option<Time>, StoreError> {
    Ok(row.try_get::<_, Option<i64>>(index)?.map(Time::from_micros))
}

pub(super) fn text_column(row: &Row, index: usize) -> Result<Arc<str>, StoreError> {
    Ok(row.try_get::<_, &str>(index)?.into())
}

pub(super) fn unsigned_column(row: &Row, index: usize) -> Result<u64, StoreError> {
    u64::try_from(row.try_get::<_, i64>(index)?)
        .map_err(|_| StoreError::corrupt("a column has a negative value where none is possible"))
}

pub(super) fn optional_unsigned_column(row: &Row, index: usize) -> Result<Option<u64>, StoreError> {
    let found = row.try_get::<_, Option<i64>>(index)?.map(u64::try_from).transpose();
    found.map_err(|_| StoreError::corrupt("a column has a negative value where none is possible"))
}

/// Reads a version number or a name id from an `INTEGER` column.
pub(super) fn u32_column(row: &Row, index: usize) -> Result<u32, StoreError> {
    u32::try_from(row.try_get::<_, i32>(index)?)
        .map_err(|_| StoreError::corrupt("a column has a negative value where none is possible"))
}

pub(super) fn to_hash(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes.try_into().map_err(|_| StoreError::corrupt("a hash does not have 32 bytes"))
}

/// Converts a number of `WITH ORDINALITY`, which starts at 1, to an index.
pub(super) fn ordinal_index(row: &Row, index: usize) -> Result<usize, StoreError> {
    let number = unsigned_column(row, index)?.saturating_sub(1);
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// Saturates at the largest value, which no stored number reaches.
pub(super) fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn to_limit(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a key's text for an index, and the full text if the former is a hash.
pub(super) fn indexed_key_text(parts: &[Arc<str>]) -> Result<(String, Option<String>), StoreError> {
    let whole = write_parts(parts)?;
    if whole.len() <= MAX_KEY_TEXT_BYTES {
        return Ok((whole, None));
    }
    let digest = Sha256::digest(whole.as_bytes());
    Ok((format!("#{}", onceward_core::hex::encode(&digest)), Some(whole)))
}

/// Reads a nullable column.
pub(super) fn optional_column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<Option<T>, StoreError> {
    Ok(row.try_get(index)?)
}
