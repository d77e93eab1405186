//! Statements that a save runs for nearly every record, at hand for the whole batch: finding each by its text for every
//! row took a tenth of all time. Each is found when it is first needed: a batch of one needs less than half of them.

use onceward_core::decide::Effect;
use onceward_core::record::{Execution, Record};
use onceward_core::time::Time;
use onceward_core::trace::Trace;
use rusqlite::{CachedStatement, Connection, Params, params};

use super::lanes::Entry;
use crate::columns::{write_fields, write_parts, write_status, write_timers};
use crate::error::StoreError;
use crate::log::{Hash, NewEntry};

const ENTRY: &str =
    "INSERT INTO history (seq, record, version, at, previous, text, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const NEW_RECORD: &str = "INSERT INTO records (row, id, definition, state, version, owner, fields, attempt, created_at, \
     updated_at, started_at, finished_at, entered_at, hold, timers, committed, payload, payload_bytes, stuck, head, entry, \
     trace) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)";

/// What may change. The version that it had is named once more: the last line of defence against a lost update.
const RECORD: &str = "UPDATE records SET state = ?3, version = ?4, fields = ?5, attempt = ?6, updated_at = ?7, started_at = ?8, \
     finished_at = ?9, entered_at = ?10, hold = ?11, timers = ?12, committed = ?13, stuck = ?14, head = ?15, \
     entry = ?16 WHERE row = ?1 AND version = ?2";

const EXECUTION: &str = "INSERT INTO executions (record, token, worker, holder, status, leased_at, expires_at, started_at, \
     finished_at, abort_code, abort_retryable, finish_moves, key) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
     ON CONFLICT (record, token) DO UPDATE SET status = excluded.status, expires_at = excluded.expires_at, \
     started_at = excluded.started_at, finished_at = excluded.finished_at, abort_code = excluded.abort_code, \
     abort_retryable = excluded.abort_retryable, finish_moves = excluded.finish_moves, key = excluded.key";

const EFFECT: &str = "INSERT INTO effects (record, token, result) VALUES (?1, ?2, ?3)";

const TIMER: &str = "INSERT INTO timers (due, record) VALUES (?1, ?2)";

const NO_TIMER: &str = "DELETE FROM timers WHERE due = ?1 AND record = ?2";

const READY: &str =
    "INSERT INTO ready (lifecycle, rank, record, ready_at, definition, key) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const NOT_READY: &str = "DELETE FROM ready WHERE lifecycle = ?1 AND rank = ?2 AND record = ?3";

const LATER: &str =
    "INSERT INTO later (ready_at, record, lifecycle, rank, definition, key) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const NOT_LATER: &str = "DELETE FROM later WHERE ready_at = ?1 AND record = ?2";

/// One statement for each kind of row.
pub(super) struct Hot<'a> {
    entry: Wanted<'a>,
    new_record: Wanted<'a>,
    record: Wanted<'a>,
    execution: Wanted<'a>,
    effect: Wanted<'a>,
    timer: Wanted<'a>,
    no_timer: Wanted<'a>,
    ready: Wanted<'a>,
    not_ready: Wanted<'a>,
    later: Wanted<'a>,
    not_later: Wanted<'a>,
    /// The earliest time that somebody was put off to.
    pub(super) soonest: Time,
}

/// A statement, found when it is first asked for.
struct Wanted<'a> {
    connection: &'a Connection,
    sql: &'static str,
    found: Option<CachedStatement<'a>>,
}

impl Wanted<'_> {
    fn execute(&mut self, values: impl Params) -> Result<usize, StoreError> {
        let statement = match &mut self.found {
            Some(found) => found,
            none => none.insert(self.connection.prepare_cached(self.sql)?),
        };
        Ok(statement.execute(values)?)
    }
}

/// What stands in a record's row besides the record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) row: u64,
    pub(super) head: Hash,
    pub(super) entry: u64,
}

impl<'a> Hot<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        let wanted = |sql| Wanted { connection, sql, found: None };
        Self {
            entry: wanted(ENTRY),
            new_record: wanted(NEW_RECORD),
            record: wanted(RECORD),
            execution: wanted(EXECUTION),
            effect: wanted(EFFECT),
            timer: wanted(TIMER),
            no_timer: wanted(NO_TIMER),
            ready: wanted(READY),
            not_ready: wanted(NOT_READY),
            later: wanted(LATER),
            not_later: wanted(NOT_LATER),
            soonest: Time::MAX,
        }
    }

    pub(super) fn entry(
        &mut self,
        entry: &NewEntry,
        seq: u64,
        row: Option<u64>,
        previous: Option<u64>,
    ) -> Result<(), StoreError> {
        let at = entry.at.micros();
        self.entry.execute(params![seq, row, entry.version, at, previous, &*entry.text, entry.hash])?;
        Ok(())
    }

    pub(super) fn new_record(&mut self, after: &Record, definition: u32, place: Place) -> Result<usize, StoreError> {
        self.new_record.execute(params![
            place.row,
            after.id.0.as_bytes(),
            definition,
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
            after.committed.map(|token| token.0),
            after.payload.map(|payload| payload.sha256),
            after.payload.map(|payload| payload.bytes),
            after.stuck,
            place.head,
            place.entry,
            after.trace.map(Trace::to_bytes),
        ])
    }

    pub(super) fn record(&mut self, before: u64, after: &Record, place: Place) -> Result<usize, StoreError> {
        self.record.execute(params![
            place.row,
            before,
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
            after.committed.map(|token| token.0),
            after.stuck,
            place.head,
            place.entry,
        ])
    }

    pub(super) fn execution(&mut self, row: u64, execution: &Execution) -> Result<(), StoreError> {
        let key = execution.key.as_deref().map(write_parts).transpose()?;
        self.execution.execute(params![
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
            execution.finish_moves,
            key,
        ])?;
        Ok(())
    }

    pub(super) fn effect(&mut self, row: u64, effect: &Effect) -> Result<(), StoreError> {
        let result = effect.result.to_string();
        self.effect.execute(params![row, effect.token.0, result])?;
        Ok(())
    }

    pub(super) fn timer(&mut self, row: u64, old: Option<Time>, new: Option<Time>) -> Result<(), StoreError> {
        if old == new {
            return Ok(());
        }
        if let Some(due) = old {
            self.no_timer.execute(params![due.micros(), row])?;
        }
        if let Some(due) = new {
            self.timer.execute(params![due.micros(), row])?;
        }
        Ok(())
    }

    pub(super) fn ready(&mut self, lifecycle: i64, entry: &Entry, key: Option<&str>) -> Result<(), StoreError> {
        let Entry { rank, row, from, definition } = *entry;
        self.ready.execute(params![lifecycle, rank, row, from.micros(), definition, key])?;
        Ok(())
    }

    /// Whether it was there.
    pub(super) fn not_ready(&mut self, lifecycle: i64, rank: i64, row: u64) -> Result<bool, StoreError> {
        Ok(self.not_ready.execute(params![lifecycle, rank, row])? > 0)
    }

    pub(super) fn later(&mut self, lifecycle: i64, entry: &Entry, key: Option<&str>) -> Result<(), StoreError> {
        let Entry { rank, row, from, definition } = *entry;
        self.later.execute(params![from.micros(), row, lifecycle, rank, definition, key])?;
        self.soonest = self.soonest.min(from);
        Ok(())
    }

    /// Whether it was there.
    pub(super) fn not_later(&mut self, from: Time, row: u64) -> Result<bool, StoreError> {
        Ok(self.not_later.execute(params![from.micros(), row])? > 0)
    }
}
