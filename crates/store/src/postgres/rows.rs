//! Records and executions as rows.

use std::sync::Arc;

use onceward_core::record::{Abort, Execution, Payload, Record, Token};
use onceward_core::time::Time;
use onceward_core::trace::Trace;
use onceward_core::value::RecordId;
use sha2::{Digest, Sha256};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::base::Stored;
use crate::catalog::Catalog;
use crate::columns::{read_parts, read_status, read_timers, write_parts};
use crate::error::StoreError;
use crate::plain::read_fields;

/// Where the execution's columns begin in the view `whole`.
const EXECUTION: usize = 22;

/// Keys longer than this stand as a hash: an index takes no long text.
const LONGEST_KEY: usize = 500;

/// The number of a row's definition, to be known before the row is read.
pub(super) fn definition(row: &Row) -> Result<u32, StoreError> {
    number(row, 2)
}

/// A row of the view `whole`.
pub(super) fn record(row: &Row, catalog: &Catalog) -> Result<(Stored, Arc<Record>), StoreError> {
    let number = definition(row)?;
    let lifecycle = catalog
        .by_number(number)
        .ok_or_else(|| StoreError::corrupt(format!("no definition has the number {number}")))?;
    let fields = read_fields(row.try_get(6)?)
        .map_err(|error| StoreError::corrupt(format!("the fields of a record: {error}")))?;
    let state = u8::try_from(row.try_get::<_, i16>(3)?).unwrap_or(u8::MAX);
    if fields.len() != lifecycle.fields.len() || usize::from(state) >= lifecycle.states.len() {
        return Err(StoreError::corrupt(format!("a record does not fit its lifecycle `{}`", lifecycle.name)));
    }
    let execution = match row.try_get::<_, Option<i64>>(EXECUTION)? {
        Some(_) => Some(execution(row, EXECUTION)?),
        None => None,
    };
    let payload = match row.try_get::<_, Option<&[u8]>>(16)? {
        Some(sha256) => Some(Payload { sha256: hash(sha256)?, bytes: unsigned(row, 17)? }),
        None => None,
    };
    let record = Record {
        id: RecordId(row.try_get(1)?),
        lifecycle: Arc::clone(lifecycle),
        state,
        version: unsigned(row, 4)?,
        owner: text(row, 5)?,
        fields,
        attempt: unsigned(row, 7)?,
        created_at: time(row, 8)?,
        updated_at: time(row, 9)?,
        started_at: some_time(row, 10)?,
        finished_at: some_time(row, 11)?,
        entered_at: time(row, 12)?,
        hold: row.try_get(13)?,
        timers: read_timers(row.try_get(14)?)?,
        execution,
        committed: some_unsigned(row, 15)?.map(Token),
        payload,
        stuck: row.try_get::<_, Option<&str>>(18)?.map(Into::into),
        // Damaged bytes are no reason to give up a record: nothing is decided by them, and `verify` names them.
        trace: row.try_get::<_, Option<&[u8]>>(21)?.and_then(Trace::from_bytes),
    };
    let stored = Stored {
        row: unsigned(row, 0)?,
        version: record.version,
        expires_at: record.execution.as_ref().map(|execution| execution.expires_at),
        head: hash(row.try_get(19)?)?,
        entry: unsigned(row, 20)?,
    };
    Ok((stored, Arc::new(record)))
}

/// The execution whose columns begin here.
pub(super) fn execution(row: &Row, at: usize) -> Result<Execution, StoreError> {
    let aborted = match row.try_get::<_, Option<&str>>(at + 8)? {
        Some(code) => Some(Abort { code: code.into(), retryable: row.try_get(at + 9)? }),
        None => None,
    };
    let key = match row.try_get::<_, Option<&str>>(at + 11)? {
        Some(text) => Some(read_parts(text)?),
        None => None,
    };
    Ok(Execution {
        token: Token(unsigned(row, at)?),
        worker: text(row, at + 1)?,
        holder: text(row, at + 2)?,
        status: read_status(u8::try_from(row.try_get::<_, i16>(at + 3)?).unwrap_or(u8::MAX))?,
        leased_at: time(row, at + 4)?,
        expires_at: time(row, at + 5)?,
        started_at: some_time(row, at + 6)?,
        finished_at: some_time(row, at + 7)?,
        aborted,
        finish_moves: row.try_get(at + 10)?,
        key,
    })
}

pub(super) fn id(row: &Row, at: usize) -> Result<RecordId, StoreError> {
    Ok(RecordId(row.try_get::<_, Uuid>(at)?))
}

pub(super) fn time(row: &Row, at: usize) -> Result<Time, StoreError> {
    Ok(Time::from_micros(row.try_get(at)?))
}

pub(super) fn some_time(row: &Row, at: usize) -> Result<Option<Time>, StoreError> {
    Ok(row.try_get::<_, Option<i64>>(at)?.map(Time::from_micros))
}

pub(super) fn text(row: &Row, at: usize) -> Result<Arc<str>, StoreError> {
    Ok(row.try_get::<_, &str>(at)?.into())
}

pub(super) fn unsigned(row: &Row, at: usize) -> Result<u64, StoreError> {
    u64::try_from(row.try_get::<_, i64>(at)?).map_err(|_| StoreError::corrupt("a number below nothing"))
}

pub(super) fn some_unsigned(row: &Row, at: usize) -> Result<Option<u64>, StoreError> {
    let found = row.try_get::<_, Option<i64>>(at)?.map(u64::try_from).transpose();
    found.map_err(|_| StoreError::corrupt("a number below nothing"))
}

/// A number of a definition or a name, in an `INTEGER`.
pub(super) fn number(row: &Row, at: usize) -> Result<u32, StoreError> {
    u32::try_from(row.try_get::<_, i32>(at)?).map_err(|_| StoreError::corrupt("a number below nothing"))
}

pub(super) fn hash(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes.try_into().map_err(|_| StoreError::corrupt("a hash that is not 32 bytes long"))
}

/// Which of the keys that were asked for, from `WITH ORDINALITY`, which counts from one.
pub(super) fn asked(row: &Row, at: usize) -> Result<usize, StoreError> {
    let number = unsigned(row, at)?.saturating_sub(1);
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// The largest that fits: no number of ours ever comes near it.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn size(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A key's parts as an index takes them, and the whole text where that is not it.
pub(super) fn key_text(parts: &[Arc<str>]) -> Result<(String, Option<String>), StoreError> {
    let whole = write_parts(parts)?;
    if whole.len() <= LONGEST_KEY {
        return Ok((whole, None));
    }
    let digest = Sha256::digest(whole.as_bytes());
    Ok((format!("#{}", onceward_core::hex::encode(&digest)), Some(whole)))
}

/// A column that may hold nothing.
pub(super) fn some<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<Option<T>, StoreError> {
    Ok(row.try_get(at)?)
}
