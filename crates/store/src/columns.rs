//! How parts of records stand in the columns of a database, the same in each.

use std::sync::Arc;

use onceward_core::record::{ExecutionStatus, Record, Timer};
use onceward_core::time::Time;

use crate::error::StoreError;
use crate::plain;

/// A count that belongs to no window of time.
pub(crate) const NO_WINDOW: i64 = i64::MIN;

pub(crate) fn write_fields(record: &Record) -> Result<String, StoreError> {
    plain::write_fields(&record.fields).map_err(|error| StoreError::Rejected(error.to_string()))
}

/// Rows and times in pairs; nothing for none.
pub(crate) fn write_timers(timers: &[Timer]) -> Result<Option<String>, StoreError> {
    if timers.is_empty() {
        return Ok(None);
    }
    let pairs: Vec<(u16, i64)> = timers.iter().map(|timer| (timer.row, timer.due.micros())).collect();
    text(&pairs).map(Some)
}

pub(crate) fn read_timers(text: Option<&str>) -> Result<Vec<Timer>, StoreError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let pairs: Vec<(u16, i64)> =
        serde_json::from_str(text).map_err(|error| StoreError::corrupt(format!("the timers of a record: {error}")))?;
    Ok(pairs.into_iter().map(|(row, due)| Timer { row, due: Time::from_micros(due) }).collect())
}

/// The parts of a key as one text.
pub(crate) fn write_parts(parts: &[Arc<str>]) -> Result<String, StoreError> {
    text(&parts)
}

pub(crate) fn read_parts(text: &str) -> Result<Vec<Arc<str>>, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::corrupt(format!("the parts of a key: {error}")))
}

fn text(value: &impl serde::Serialize) -> Result<String, StoreError> {
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
        other => return Err(StoreError::corrupt(format!("no execution has the status {other}"))),
    })
}
