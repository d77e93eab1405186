//! The clock of a SQLite store: the machine's, guarded against jumps.

use onceward_core::time::Time;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::SqliteStore;
use crate::clock::{Clock, GuardedClock};
use crate::clock_guard::{ClockAcceptance, ClockStatus};
use crate::error::StoreError;

/// Compares the clock with the last log entry.
pub(super) fn start(connection: &Connection, clock: &Clock) -> Result<(), StoreError> {
    let Some(clock) = clock.guarded() else { return Ok(()) };
    let last_sql = "SELECT at FROM history WHERE seq = (SELECT seq FROM log_seq)";
    let last_entry_at: Option<i64> = connection.query_row(last_sql, [], |row| row.get(0)).optional()?;
    let accepted_sql = "SELECT held_time, clock_time FROM clock_acceptance";
    let (held, clock_time): (Option<i64>, Option<i64>) =
        connection.query_row(accepted_sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    clock.start(None, last_entry_at.map(Time::from_micros), ClockAcceptance::from_micros(held, clock_time));
    Ok(())
}

impl SqliteStore {
    pub(super) fn read_clock_status(&self) -> ClockStatus {
        self.inner.clock.guarded().map(GuardedClock::status).unwrap_or_default()
    }

    pub(super) async fn save_clock_acceptance(&self) -> Result<bool, StoreError> {
        let Some(clock) = self.inner.clock.guarded() else { return Ok(false) };
        let Some(acceptance) = clock.pending_acceptance() else { return Ok(false) };
        let (held_time, clock_time) = (acceptance.held_time.micros(), acceptance.clock_time.micros());
        self.inner
            .writer
            .run(move |writer| {
                let sql = "UPDATE clock_acceptance SET held_time = ?1, clock_time = ?2";
                writer.connection.execute(sql, params![held_time, clock_time])?;
                Ok(())
            })
            .await?;
        clock.apply_acceptance(acceptance);
        Ok(true)
    }
}
