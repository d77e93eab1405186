//! Records and executions as rows.

use std::sync::Arc;

use onceward_core::record::{Abort, Execution, Payload, Record, Token};
use onceward_core::time::Time;
use onceward_core::trace::Trace;
use onceward_core::value::RecordId;
use rusqlite::Row;
use uuid::Uuid;

use crate::base::Stored;
use crate::catalog::Catalog;
use crate::columns::{read_parts, read_status, read_timers};
use crate::error::StoreError;
use crate::plain::read_fields;

/// Where the execution's columns begin in the view `whole`.
const EXECUTION: usize = 22;

/// A row of the view `whole`.
pub(super) fn record(row: &Row, catalog: &Catalog) -> Result<(Stored, Arc<Record>), StoreError> {
    let number: u32 = row.get(2)?;
    let lifecycle = catalog
        .by_number(number)
        .ok_or_else(|| StoreError::corrupt(format!("no definition has the number {number}")))?;
    let fields = read_fields(row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?)
        .map_err(|error| StoreError::corrupt(format!("the fields of a record: {error}")))?;
    let state: u8 = row.get(3)?;
    if fields.len() != lifecycle.fields.len() || usize::from(state) >= lifecycle.states.len() {
        return Err(StoreError::corrupt(format!("a record does not fit its lifecycle `{}`", lifecycle.name)));
    }
    let execution = match row.get_ref(EXECUTION)? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(execution(row, EXECUTION)?),
    };
    let payload = match row.get::<_, Option<[u8; 32]>>(16)? {
        Some(sha256) => Some(Payload { sha256, bytes: row.get(17)? }),
        None => None,
    };
    let record = Record {
        id: id(row, 1)?,
        lifecycle: Arc::clone(lifecycle),
        state,
        version: row.get(4)?,
        owner: row.get(5)?,
        fields,
        attempt: row.get(7)?,
        created_at: Time::from_micros(row.get(8)?),
        updated_at: Time::from_micros(row.get(9)?),
        started_at: time(row, 10)?,
        finished_at: time(row, 11)?,
        entered_at: Time::from_micros(row.get(12)?),
        hold: row.get(13)?,
        timers: read_timers(row.get::<_, Option<String>>(14)?.as_deref())?,
        execution,
        committed: row.get::<_, Option<u64>>(15)?.map(Token),
        payload,
        stuck: row.get(18)?,
        trace: trace(row, 21)?,
    };
    let stored = Stored {
        row: row.get(0)?,
        version: record.version,
        expires_at: record.execution.as_ref().map(|execution| execution.expires_at),
        head: row.get(19)?,
        entry: row.get(20)?,
    };
    Ok((stored, Arc::new(record)))
}

/// The execution whose columns begin here.
pub(super) fn execution(row: &Row, at: usize) -> Result<Execution, StoreError> {
    let aborted = match row.get::<_, Option<Arc<str>>>(at + 8)? {
        Some(code) => Some(Abort { code, retryable: row.get(at + 9)? }),
        None => None,
    };
    let key = match row.get::<_, Option<String>>(at + 11)? {
        Some(text) => Some(read_parts(&text)?),
        None => None,
    };
    Ok(Execution {
        token: Token(row.get(at)?),
        worker: row.get(at + 1)?,
        holder: row.get(at + 2)?,
        status: read_status(row.get(at + 3)?)?,
        leased_at: Time::from_micros(row.get(at + 4)?),
        expires_at: Time::from_micros(row.get(at + 5)?),
        started_at: time(row, at + 6)?,
        finished_at: time(row, at + 7)?,
        aborted,
        finish_moves: row.get(at + 10)?,
        key,
    })
}

pub(super) fn id(row: &Row, at: usize) -> Result<RecordId, StoreError> {
    Ok(RecordId(Uuid::from_bytes(row.get(at)?)))
}

/// Damaged bytes are no reason to give up a record: nothing is decided by them, and `verify` names them.
fn trace(row: &Row, at: usize) -> Result<Option<Trace>, StoreError> {
    let bytes = row.get_ref(at)?.as_bytes_or_null().map_err(rusqlite::Error::from)?;
    Ok(bytes.and_then(Trace::from_bytes))
}

fn time(row: &Row, at: usize) -> Result<Option<Time>, StoreError> {
    Ok(row.get::<_, Option<i64>>(at)?.map(Time::from_micros))
}
