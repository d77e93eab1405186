//! Queues of waiting jobs in SQLite. A job that is not due is delayed. A due job without a concurrency key is in the
//! ready table. Due jobs with a concurrency key are in that key's lane; as many as can run are also in the ready table.
//! So a candidate scan never passes the jobs that must wait.

use std::collections::BTreeSet;

use onceward_core::decide::{ConcurrencyKey, Readiness, readiness};
use onceward_core::time::Time;
use rusqlite::{Connection, params};

use super::leasing::{concurrency_policy, free_slots};
use super::load;
use super::prepared::PreparedWrites;
use crate::columns::write_parts;
use crate::error::StoreError;
use crate::query::priority_rank;
use crate::symbols::CatalogSnapshot;

/// Bounds how many jobs one batch moves from the front of a lane to the back.
const MAX_DEMOTED_JOBS: usize = 200;

/// Key of a waiting job's row.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyRowKey {
    pub(super) lifecycle: i64,
    pub(super) record_row: u64,
    pub(super) version_number: u32,
}

/// A row of a waiting job.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyRow {
    pub(super) rank: i64,
    pub(super) record_row: u64,
    pub(super) ready_at: Time,
    pub(super) version_number: u32,
}

/// Removes a job from the table in which it waits.
pub(super) fn remove_ready(
    connection: &Connection,
    writes: &mut PreparedWrites,
    row_key: ReadyRowKey,
    waiting: &Readiness,
) -> Result<(), StoreError> {
    let rank = priority_rank(waiting.priority, waiting.ready_at);
    let was_ready = match &waiting.concurrency_key {
        None => writes.delete_ready(row_key.lifecycle, rank, row_key.record_row)?,
        Some(key) => {
            let lane = ConcurrencyLane { connection, lifecycle: row_key.lifecycle, parts: &write_parts(&key.parts)? };
            lane.remove(writes, rank, row_key.record_row)?
        }
    };
    if !was_ready {
        writes.delete_delayed(waiting.ready_at, row_key.record_row)?;
    }
    Ok(())
}

/// Adds a waiting job: as delayed, ready, or at the back of its lane until [`rebalance_lane`] runs.
pub(super) fn add_ready(
    (connection, writes): (&Connection, &mut PreparedWrites),
    row_key: ReadyRowKey,
    waiting: &Readiness,
    now: Time,
) -> Result<(), StoreError> {
    let (rank, ready_at) = (priority_rank(waiting.priority, waiting.ready_at), waiting.ready_at);
    let ready_row = ReadyRow { rank, record_row: row_key.record_row, ready_at, version_number: row_key.version_number };
    let parts = waiting.concurrency_key.as_ref().map(|key| write_parts(&key.parts)).transpose()?;
    match &parts {
        _ if ready_at > now => writes.insert_delayed(row_key.lifecycle, &ready_row, parts.as_deref()),
        None => writes.insert_ready(row_key.lifecycle, &ready_row, None),
        Some(parts) => ConcurrencyLane { connection, lifecycle: row_key.lifecycle, parts }.insert_at_back(&ready_row),
    }
}

/// Moves the right jobs of a key to the front of its lane. Must run after the batch's records, counters and queues are
/// written. A job in the lane that is not due, because the clock was set back, becomes delayed again.
pub(super) fn rebalance_lane(
    (connection, writes): (&Connection, &mut PreparedWrites),
    snapshot: &CatalogSnapshot,
    key: &ConcurrencyKey,
    version_number: u32,
    now: Time,
) -> Result<(), StoreError> {
    let Some(lifecycle) = snapshot.symbols.id(&key.lifecycle) else { return Ok(()) };
    let parts = write_parts(&key.parts)?;
    let lane = ConcurrencyLane { connection, lifecycle, parts: &parts };
    if concurrency_policy(snapshot, version_number).is_some_and(|key| key.ordered) {
        return lane.rebalance_ordered(writes, first_ordered_job(connection, snapshot, key)?, now);
    }
    let free_slots = free_slots(connection, snapshot, version_number, key)?;
    loop {
        let front = lane.first_rows(true, free_slots.saturating_add(MAX_DEMOTED_JOBS))?;
        let back = lane.first_rows(false, free_slots)?;
        let (mut best, early): (Vec<ReadyRow>, Vec<ReadyRow>) =
            front.iter().chain(&back).partition(|entry: &&ReadyRow| entry.ready_at <= now);
        if !early.is_empty() {
            early.iter().try_for_each(|entry| lane.delay(writes, entry))?;
            continue;
        }
        best.sort_unstable_by_key(|entry| (entry.rank, entry.record_row));
        best.truncate(free_slots);
        let front_rows: BTreeSet<u64> = best.iter().map(|entry| entry.record_row).collect();
        front
            .iter()
            .filter(|entry| !front_rows.contains(&entry.record_row))
            .try_for_each(|entry| lane.set_front(writes, entry, false))?;
        return back
            .iter()
            .filter(|entry| front_rows.contains(&entry.record_row))
            .try_for_each(|entry| lane.set_front(writes, entry, true));
    }
}

/// Returns the first job of an ordered key, if it is waiting for a worker.
fn first_ordered_job(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    key: &ConcurrencyKey,
) -> Result<Option<ReadyRow>, StoreError> {
    let Some((_, first)) = load::load_queue(connection, snapshot, key, 1)?.into_iter().next() else { return Ok(None) };
    let Some((stored, record)) = load::load_record(connection, snapshot, first)? else {
        return Err(StoreError::corrupt(format!(
            "job {first} is in the queue of a concurrency key, but its record is missing"
        )));
    };
    let definition = snapshot.catalog.version_number(&record.lifecycle)?;
    Ok(readiness(&record).map(|waiting| ReadyRow {
        rank: priority_rank(waiting.priority, waiting.ready_at),
        record_row: stored.row_id,
        ready_at: waiting.ready_at,
        version_number: definition,
    }))
}

/// The due jobs of a concurrency key.
pub(super) struct ConcurrencyLane<'a> {
    pub(super) connection: &'a Connection,
    pub(super) lifecycle: i64,
    pub(super) parts: &'a str,
}

impl ConcurrencyLane<'_> {
    fn rebalance_ordered(
        &self,
        writes: &mut PreparedWrites,
        first_job: Option<ReadyRow>,
        now: Time,
    ) -> Result<(), StoreError> {
        let front = self.first_rows(true, MAX_DEMOTED_JOBS)?;
        let is_first = |entry: &ReadyRow| first_job.is_some_and(|first| first.record_row == entry.record_row);
        front.iter().filter(|entry| !is_first(entry)).try_for_each(|entry| self.set_front(writes, entry, false))?;
        match first_job {
            Some(first) if first.ready_at > now => self.delay(writes, &first),
            Some(first) if !front.iter().any(is_first) => self.set_front(writes, &first, true),
            _ => Ok(()),
        }
    }

    pub(super) fn insert_at_back(&self, ready_row: &ReadyRow) -> Result<(), StoreError> {
        let sql = "INSERT INTO lanes (lifecycle, key, front, rank, record, ready_at, definition) VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6)";
        let row = params![
            self.lifecycle,
            self.parts,
            ready_row.rank,
            ready_row.record_row,
            ready_row.ready_at.micros(),
            ready_row.version_number
        ];
        self.connection.prepare_cached(sql)?.execute(row)?;
        Ok(())
    }

    /// Returns whether the job was in the lane.
    fn remove(&self, writes: &mut PreparedWrites, rank: i64, row: u64) -> Result<bool, StoreError> {
        let sql =
            "DELETE FROM lanes WHERE lifecycle = ?1 AND key = ?2 AND front IN (0, 1) AND rank = ?3 AND record = ?4";
        let at = params![self.lifecycle, self.parts, rank, row];
        let was_present = self.connection.prepare_cached(sql)?.execute(at)? > 0;
        writes.delete_ready(self.lifecycle, rank, row)?;
        Ok(was_present)
    }

    /// FM-7: delays a job again that is not due any more, because the clock was set back.
    fn delay(&self, writes: &mut PreparedWrites, ready_row: &ReadyRow) -> Result<(), StoreError> {
        if self.remove(writes, ready_row.rank, ready_row.record_row)? {
            writes.insert_delayed(self.lifecycle, ready_row, Some(self.parts))?;
        }
        Ok(())
    }

    /// Returns the first jobs at the front or at the back.
    fn first_rows(&self, front: bool, limit: usize) -> Result<Vec<ReadyRow>, StoreError> {
        let sql = "SELECT rank, record, ready_at, definition FROM lanes \
                   WHERE lifecycle = ?1 AND key = ?2 AND front = ?3 ORDER BY rank, record LIMIT ?4";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![self.lifecycle, self.parts, front, limit])?;
        let mut ready_rows = Vec::new();
        while let Some(row) = found.next()? {
            let from = Time::from_micros(row.get(2)?);
            ready_rows.push(ReadyRow {
                rank: row.get(0)?,
                record_row: row.get(1)?,
                ready_at: from,
                version_number: row.get(3)?,
            });
        }
        Ok(ready_rows)
    }

    /// Moves a job to the front or to the back. Has no effect on a delayed job.
    fn set_front(&self, writes: &mut PreparedWrites, ready_row: &ReadyRow, to_front: bool) -> Result<(), StoreError> {
        let sql = "UPDATE lanes SET front = ?5 WHERE lifecycle = ?1 AND key = ?2 AND front = 1 - ?5 AND rank = ?3 AND record = ?4";
        let at = params![self.lifecycle, self.parts, ready_row.rank, ready_row.record_row, to_front];
        let has_changed = self.connection.prepare_cached(sql)?.execute(at)? > 0;
        match (has_changed, to_front) {
            (true, true) => writes.insert_ready(self.lifecycle, ready_row, Some(self.parts)),
            (true, false) => writes.delete_ready(self.lifecycle, ready_row.rank, ready_row.record_row).map(|_| ()),
            (false, _) => Ok(()),
        }
    }
}
