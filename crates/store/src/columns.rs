//! Column encodings that SQLite and PostgreSQL share.

use std::sync::Arc;

use onceward_core::record::{Execution, ExecutionStatus, Record, Timer};
use onceward_core::time::Time;

use crate::error::StoreError;
use crate::value_json;

/// SHA-256 of the empty string.
pub(crate) const EMPTY_SHA256: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41,
    0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// Returns whether a stored payload has its bytes. An empty column means missing bytes, unless the hash is that of
/// empty input.
pub(crate) fn is_payload_present(sha256: &[u8; 32], bytes: &[u8]) -> bool {
    !bytes.is_empty() || *sha256 == EMPTY_SHA256
}

/// Window start of a counter without a time window.
pub(crate) const NO_WINDOW: i64 = i64::MIN;

/// Returns the bytes of an execution's texts. Workers choose these texts, so they can be long.
pub(crate) fn execution_text_bytes(execution: &Execution) -> usize {
    let code = execution.aborted.as_ref().map_or(0, |abort| abort.code.len() + abort.message.len());
    let key: usize = execution.concurrency_key.iter().flatten().map(|part| part.len()).sum();
    execution.worker.len() + execution.holder.len() + code + key
}

/// Returns the message of an aborted execution; `None` if it has none.
pub(crate) fn abort_message(execution: &Execution) -> Option<&str> {
    execution.aborted.as_ref().map(|abort| &*abort.message).filter(|message| !message.is_empty())
}

/// Returns when the job of an aborted execution may be leased again, if the worker asked for a delay.
pub(crate) fn retry_at(execution: &Execution) -> Option<Time> {
    execution.aborted.as_ref().and_then(|abort| abort.retry_at)
}

pub(crate) fn write_fields(record: &Record) -> Result<String, StoreError> {
    value_json::write_fields(&record.fields).map_err(|error| StoreError::Rejected(error.to_string()))
}

/// Encodes timers as pairs of transition and time; `None` for no timers.
pub(crate) fn write_timers(timers: &[Timer]) -> Result<Option<String>, StoreError> {
    if timers.is_empty() {
        return Ok(None);
    }
    let pairs: Vec<(u16, i64)> = timers.iter().map(|timer| (timer.transition, timer.due_at.micros())).collect();
    to_json_text(&pairs).map(Some)
}

pub(crate) fn read_timers(text: Option<&str>) -> Result<Vec<Timer>, StoreError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let pairs: Vec<(u16, i64)> = serde_json::from_str(text)
        .map_err(|error| StoreError::corrupt(format!("the timers of a record are unreadable: {error}")))?;
    Ok(pairs.into_iter().map(|(row, due)| Timer { transition: row, due_at: Time::from_micros(due) }).collect())
}

/// Encodes the parts of a key as one text.
pub(crate) fn write_parts(parts: &[Arc<str>]) -> Result<String, StoreError> {
    to_json_text(&parts)
}

/// Decodes the parts of a key from the text that [`write_parts`] made.
pub(crate) fn read_parts(text: &str) -> Result<Vec<Arc<str>>, StoreError> {
    serde_json::from_str(text)
        .map_err(|error| StoreError::corrupt(format!("the parts of a key are unreadable: {error}")))
}

fn to_json_text(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Rejected(error.to_string()))
}

pub(crate) const fn write_status(status: ExecutionStatus) -> u8 {
    match status {
        ExecutionStatus::Leased => 0,
        ExecutionStatus::InProgress => 1,
        ExecutionStatus::Committed => 2,
        ExecutionStatus::Done => 3,
        ExecutionStatus::Aborted => 4,
    }
}

pub(crate) fn read_status(status: u8) -> Result<ExecutionStatus, StoreError> {
    Ok(match status {
        0 => ExecutionStatus::Leased,
        1 => ExecutionStatus::InProgress,
        2 => ExecutionStatus::Committed,
        3 => ExecutionStatus::Done,
        4 => ExecutionStatus::Aborted,
        other => return Err(StoreError::corrupt(format!("unknown execution status {other}"))),
    })
}
