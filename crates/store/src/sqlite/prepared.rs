//! Prepared statements that a save executes for nearly every record, kept for the whole batch. Looking up each
//! statement by its text for every row took a tenth of the run time. Each is prepared on first use, because a batch of
//! one operation needs less than half of them.

use onceward_core::decide::Effect;
use onceward_core::record::{Execution, Record};
use onceward_core::time::{Duration, Time};
use onceward_core::trace::TraceContext;
use rusqlite::{CachedStatement, Connection, Params, params};

use super::lanes::ReadyRow;
use crate::columns::{abort_message, retry_at, write_fields, write_parts, write_status, write_timers};
use crate::error::StoreError;
use crate::log::{NewLogEntry, Sha256Hash};

const INSERT_ENTRY_SQL: &str =
    "INSERT INTO history (seq, record, version, at, previous, text, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const INSERT_RECORD_SQL: &str = "INSERT INTO records (row, id, definition, state, version, owner, fields, attempt, created_at, \
     updated_at, started_at, finished_at, entered_at, hold, timers, committed, payload, payload_bytes, stuck, head, entry, \
     trace) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)";

/// Updates the columns that can change. The condition on the old version is a second protection against lost updates.
const UPDATE_RECORD_SQL: &str = "UPDATE records SET state = ?3, version = ?4, fields = ?5, attempt = ?6, updated_at = ?7, started_at = ?8, \
     finished_at = ?9, entered_at = ?10, hold = ?11, timers = ?12, committed = ?13, stuck = ?14, head = ?15, \
     entry = ?16 WHERE row = ?1 AND version = ?2";

const UPSERT_EXECUTION_SQL: &str = "INSERT INTO executions (record, token, worker, holder, status, leased_at, expires_at, started_at, \
     finished_at, abort_code, abort_retryable, finish_pending, key, abort_message, retry_at, lease_duration) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) \
     ON CONFLICT (record, token) DO UPDATE SET status = excluded.status, expires_at = excluded.expires_at, \
     started_at = excluded.started_at, finished_at = excluded.finished_at, abort_code = excluded.abort_code, \
     abort_retryable = excluded.abort_retryable, finish_pending = excluded.finish_pending, key = excluded.key, \
     abort_message = excluded.abort_message, retry_at = excluded.retry_at";

const INSERT_EFFECT_SQL: &str = "INSERT INTO effects (record, token, result) VALUES (?1, ?2, ?3)";

const INSERT_TIMER_SQL: &str = "INSERT INTO timers (due_at, record) VALUES (?1, ?2)";

const DELETE_TIMER_SQL: &str = "DELETE FROM timers WHERE due_at = ?1 AND record = ?2";

const INSERT_READY_SQL: &str =
    "INSERT INTO ready (lifecycle, rank, record, ready_at, definition, key) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const DELETE_READY_SQL: &str = "DELETE FROM ready WHERE lifecycle = ?1 AND rank = ?2 AND record = ?3";

const INSERT_DELAYED_SQL: &str =
    "INSERT INTO delayed (ready_at, record, lifecycle, rank, definition, key) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const DELETE_DELAYED_SQL: &str = "DELETE FROM delayed WHERE ready_at = ?1 AND record = ?2";

/// One statement for each kind of row.
pub(super) struct PreparedWrites<'a> {
    insert_entry: LazyStatement<'a>,
    insert_record: LazyStatement<'a>,
    update_record: LazyStatement<'a>,
    upsert_execution: LazyStatement<'a>,
    insert_effect: LazyStatement<'a>,
    insert_timer: LazyStatement<'a>,
    delete_timer: LazyStatement<'a>,
    insert_ready: LazyStatement<'a>,
    delete_ready: LazyStatement<'a>,
    insert_delayed: LazyStatement<'a>,
    delete_delayed: LazyStatement<'a>,
    /// The earliest time at which a job delayed by this batch becomes ready.
    pub(super) earliest_ready_at: Time,
}

/// A statement that is prepared on first use.
struct LazyStatement<'a> {
    connection: &'a Connection,
    sql: &'static str,
    statement: Option<CachedStatement<'a>>,
}

impl LazyStatement<'_> {
    fn execute(&mut self, values: impl Params) -> Result<usize, StoreError> {
        let statement = match &mut self.statement {
            Some(found) => found,
            none => none.insert(self.connection.prepare_cached(self.sql)?),
        };
        Ok(statement.execute(values)?)
    }
}

/// Columns of a record's row that are not part of the record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordRowHead {
    pub(super) row_id: u64,
    pub(super) head_hash: Sha256Hash,
    pub(super) head_seq: u64,
}

impl<'a> PreparedWrites<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        let lazy = |sql| LazyStatement { connection, sql, statement: None };
        Self {
            insert_entry: lazy(INSERT_ENTRY_SQL),
            insert_record: lazy(INSERT_RECORD_SQL),
            update_record: lazy(UPDATE_RECORD_SQL),
            upsert_execution: lazy(UPSERT_EXECUTION_SQL),
            insert_effect: lazy(INSERT_EFFECT_SQL),
            insert_timer: lazy(INSERT_TIMER_SQL),
            delete_timer: lazy(DELETE_TIMER_SQL),
            insert_ready: lazy(INSERT_READY_SQL),
            delete_ready: lazy(DELETE_READY_SQL),
            insert_delayed: lazy(INSERT_DELAYED_SQL),
            delete_delayed: lazy(DELETE_DELAYED_SQL),
            earliest_ready_at: Time::MAX,
        }
    }

    pub(super) fn insert_entry(
        &mut self,
        entry: &NewLogEntry,
        seq: u64,
        row: Option<u64>,
        previous: Option<u64>,
    ) -> Result<(), StoreError> {
        let at = entry.at.micros();
        self.insert_entry.execute(params![seq, row, entry.version, at, previous, &*entry.text, entry.hash])?;
        Ok(())
    }

    pub(super) fn insert_record(
        &mut self,
        after: &Record,
        version_number: u32,
        head: RecordRowHead,
    ) -> Result<usize, StoreError> {
        self.insert_record.execute(params![
            head.row_id,
            after.id.0.as_bytes(),
            version_number,
            after.state,
            after.version,
            after.owner,
            write_fields(after)?,
            after.attempt,
            after.created_at.micros(),
            after.updated_at.micros(),
            after.started_at.map(Time::micros),
            after.finished_at.map(Time::micros),
            after.entered_at.micros(),
            after.hold,
            write_timers(&after.timers)?,
            after.committed_token.map(|token| token.0),
            after.payload.map(|payload| payload.sha256),
            after.payload.map(|payload| payload.bytes),
            after.stuck_reason,
            head.head_hash,
            head.head_seq,
            after.trace.map(TraceContext::to_bytes),
        ])
    }

    pub(super) fn update_record(
        &mut self,
        previous_version: u64,
        after: &Record,
        head: RecordRowHead,
    ) -> Result<usize, StoreError> {
        self.update_record.execute(params![
            head.row_id,
            previous_version,
            after.state,
            after.version,
            write_fields(after)?,
            after.attempt,
            after.updated_at.micros(),
            after.started_at.map(Time::micros),
            after.finished_at.map(Time::micros),
            after.entered_at.micros(),
            after.hold,
            write_timers(&after.timers)?,
            after.committed_token.map(|token| token.0),
            after.stuck_reason,
            head.head_hash,
            head.head_seq,
        ])
    }

    pub(super) fn upsert_execution(&mut self, row: u64, execution: &Execution) -> Result<(), StoreError> {
        let key = execution.concurrency_key.as_deref().map(write_parts).transpose()?;
        self.upsert_execution.execute(params![
            row,
            execution.token.0,
            execution.worker,
            execution.holder,
            write_status(execution.status),
            execution.leased_at.micros(),
            execution.expires_at.micros(),
            execution.started_at.map(Time::micros),
            execution.finished_at.map(Time::micros),
            execution.aborted.as_ref().map(|abort| &abort.code),
            execution.aborted.as_ref().map(|abort| abort.retryable),
            execution.finish_pending,
            key,
            abort_message(execution),
            retry_at(execution).map(Time::micros),
            execution.lease_duration.map(Duration::micros),
        ])?;
        Ok(())
    }

    pub(super) fn insert_effect(&mut self, row: u64, effect: &Effect) -> Result<(), StoreError> {
        let result = effect.result.to_string();
        self.insert_effect.execute(params![row, effect.token.0, result])?;
        Ok(())
    }

    pub(super) fn update_timer(&mut self, row: u64, old: Option<Time>, new: Option<Time>) -> Result<(), StoreError> {
        if old == new {
            return Ok(());
        }
        if let Some(due) = old {
            self.delete_timer.execute(params![due.micros(), row])?;
        }
        if let Some(due) = new {
            self.insert_timer.execute(params![due.micros(), row])?;
        }
        Ok(())
    }

    pub(super) fn insert_ready(
        &mut self,
        lifecycle: i64,
        ready_row: &ReadyRow,
        key: Option<&str>,
    ) -> Result<(), StoreError> {
        let ReadyRow { rank, record_row: row, ready_at: from, version_number: definition } = *ready_row;
        self.insert_ready.execute(params![lifecycle, rank, row, from.micros(), definition, key])?;
        Ok(())
    }

    /// Returns whether the row existed.
    pub(super) fn delete_ready(&mut self, lifecycle: i64, rank: i64, row: u64) -> Result<bool, StoreError> {
        Ok(self.delete_ready.execute(params![lifecycle, rank, row])? > 0)
    }

    pub(super) fn insert_delayed(
        &mut self,
        lifecycle: i64,
        ready_row: &ReadyRow,
        key: Option<&str>,
    ) -> Result<(), StoreError> {
        let ReadyRow { rank, record_row: row, ready_at: from, version_number: definition } = *ready_row;
        self.insert_delayed.execute(params![from.micros(), row, lifecycle, rank, definition, key])?;
        self.earliest_ready_at = self.earliest_ready_at.min(from);
        Ok(())
    }

    /// Returns whether the row existed.
    pub(super) fn delete_delayed(&mut self, ready_at: Time, row: u64) -> Result<bool, StoreError> {
        Ok(self.delete_delayed.execute(params![ready_at.micros(), row])? > 0)
    }
}
