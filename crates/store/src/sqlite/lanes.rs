//! Where waiting jobs stand. One whose time has not come waits in `later`. Else one without a work key is in `ready`. Jobs of a
//! key wait in its lane; only as many as may run stand in `ready` as well, so that leasing never walks past the many that may not.

use std::collections::BTreeSet;

use onceward_core::decide::{QueueKey, Waiting, readiness};
use onceward_core::time::Time;
use rusqlite::{Connection, params};

use super::hot::Hot;
use super::load;
use super::work::{room, work_key};
use crate::columns::write_parts;
use crate::error::StoreError;
use crate::names::Known;
use crate::query::rank;

/// Jobs that stand in front and should not: so many at most are sent back by one batch.
const SENT_BACK: usize = 200;

/// Where a waiting job's row belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) lifecycle: i64,
    pub(super) row: u64,
    pub(super) definition: u32,
}

/// A waiting job's row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) rank: i64,
    pub(super) row: u64,
    pub(super) from: Time,
    pub(super) definition: u32,
}

/// A job no longer waits as it did.
pub(super) fn leave(connection: &Connection, hot: &mut Hot, spot: Spot, waiting: &Waiting) -> Result<(), StoreError> {
    let rank = rank(waiting.priority, waiting.from);
    let stood = match &waiting.key {
        None => hot.not_ready(spot.lifecycle, rank, spot.row)?,
        Some(key) => {
            let lane = Lane { connection, lifecycle: spot.lifecycle, parts: &write_parts(&key.parts)? };
            lane.leave(hot, rank, spot.row)?
        }
    };
    if !stood {
        hot.not_later(waiting.from, spot.row)?;
    }
    Ok(())
}

/// A job waits: for its time, or for a worker. With a key it stands at the back until [`settle`] looks.
pub(super) fn join(
    (connection, hot): (&Connection, &mut Hot),
    spot: Spot,
    waiting: &Waiting,
    now: Time,
) -> Result<(), StoreError> {
    let (rank, from) = (rank(waiting.priority, waiting.from), waiting.from);
    let entry = Entry { rank, row: spot.row, from, definition: spot.definition };
    let parts = waiting.key.as_ref().map(|key| write_parts(&key.parts)).transpose()?;
    match &parts {
        _ if from > now => hot.later(spot.lifecycle, &entry, parts.as_deref()),
        None => hot.ready(spot.lifecycle, &entry, None),
        Some(parts) => Lane { connection, lifecycle: spot.lifecycle, parts }.join(&entry),
    }
}

/// Bring the right jobs of a key to the front, after its records, counts and queue were written. Who stands in the lane and whose
/// time has not come again, because the clock was set back, is put off.
pub(super) fn settle(
    (connection, hot): (&Connection, &mut Hot),
    known: &Known,
    key: &QueueKey,
    definition: u32,
    now: Time,
) -> Result<(), StoreError> {
    let Some(lifecycle) = known.names.number(&key.lifecycle) else { return Ok(()) };
    let parts = write_parts(&key.parts)?;
    let lane = Lane { connection, lifecycle, parts: &parts };
    if work_key(known, definition).is_some_and(|key| key.ordered) {
        return lane.settle_ordered(hot, first_in_order(connection, known, key)?, now);
    }
    let free = room(connection, known, definition, key)?;
    loop {
        let front = lane.some(true, free.saturating_add(SENT_BACK))?;
        let back = lane.some(false, free)?;
        let (mut best, early): (Vec<Entry>, Vec<Entry>) =
            front.iter().chain(&back).partition(|entry: &&Entry| entry.from <= now);
        if !early.is_empty() {
            early.iter().try_for_each(|entry| lane.put_off(hot, entry))?;
            continue;
        }
        best.sort_unstable_by_key(|entry| (entry.rank, entry.row));
        best.truncate(free);
        let wanted: BTreeSet<u64> = best.iter().map(|entry| entry.row).collect();
        front.iter().filter(|entry| !wanted.contains(&entry.row)).try_for_each(|entry| lane.turn(hot, entry, false))?;
        return back
            .iter()
            .filter(|entry| wanted.contains(&entry.row))
            .try_for_each(|entry| lane.turn(hot, entry, true));
    }
}

/// The first job of an ordered key, where it waits for a worker.
fn first_in_order(connection: &Connection, known: &Known, key: &QueueKey) -> Result<Option<Entry>, StoreError> {
    let Some((_, first)) = load::queue(connection, known, key, 1)?.into_iter().next() else { return Ok(None) };
    let Some((stored, record)) = load::record(connection, known, first)? else {
        return Err(StoreError::corrupt(format!("{first} stands in a queue and nowhere else")));
    };
    let definition = known.catalog.number_of(&record.lifecycle)?;
    Ok(readiness(&record).map(|waiting| Entry {
        rank: rank(waiting.priority, waiting.from),
        row: stored.row,
        from: waiting.from,
        definition,
    }))
}

/// The waiting jobs of a work key whose time has come.
pub(super) struct Lane<'a> {
    pub(super) connection: &'a Connection,
    pub(super) lifecycle: i64,
    pub(super) parts: &'a str,
}

impl Lane<'_> {
    fn settle_ordered(&self, hot: &mut Hot, first: Option<Entry>, now: Time) -> Result<(), StoreError> {
        let front = self.some(true, SENT_BACK)?;
        let stands = |entry: &Entry| first.is_some_and(|first| first.row == entry.row);
        front.iter().filter(|entry| !stands(entry)).try_for_each(|entry| self.turn(hot, entry, false))?;
        match first {
            Some(first) if first.from > now => self.put_off(hot, &first),
            Some(first) if !front.iter().any(stands) => self.turn(hot, &first, true),
            _ => Ok(()),
        }
    }

    /// At the back.
    pub(super) fn join(&self, entry: &Entry) -> Result<(), StoreError> {
        let sql = "INSERT INTO lanes (lifecycle, key, front, rank, record, ready_at, definition) VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6)";
        let row = params![self.lifecycle, self.parts, entry.rank, entry.row, entry.from.micros(), entry.definition];
        self.connection.prepare_cached(sql)?.execute(row)?;
        Ok(())
    }

    /// Whether it was there.
    fn leave(&self, hot: &mut Hot, rank: i64, row: u64) -> Result<bool, StoreError> {
        let sql =
            "DELETE FROM lanes WHERE lifecycle = ?1 AND key = ?2 AND front IN (0, 1) AND rank = ?3 AND record = ?4";
        let at = params![self.lifecycle, self.parts, rank, row];
        let stood = self.connection.prepare_cached(sql)?.execute(at)? > 0;
        hot.not_ready(self.lifecycle, rank, row)?;
        Ok(stood)
    }

    /// FM-7: its time has not come again. Whoever looks when it has finds it among those that wait for theirs.
    fn put_off(&self, hot: &mut Hot, entry: &Entry) -> Result<(), StoreError> {
        if self.leave(hot, entry.rank, entry.row)? {
            hot.later(self.lifecycle, entry, Some(self.parts))?;
        }
        Ok(())
    }

    /// The first, in front or at the back.
    fn some(&self, front: bool, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let sql = "SELECT rank, record, ready_at, definition FROM lanes \
                   WHERE lifecycle = ?1 AND key = ?2 AND front = ?3 ORDER BY rank, record LIMIT ?4";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![self.lifecycle, self.parts, front, limit])?;
        let mut entries = Vec::new();
        while let Some(row) = found.next()? {
            let from = Time::from_micros(row.get(2)?);
            entries.push(Entry { rank: row.get(0)?, row: row.get(1)?, from, definition: row.get(3)? });
        }
        Ok(entries)
    }

    /// From the back to the front, or the other way. One that still waits for its time stands on neither side.
    fn turn(&self, hot: &mut Hot, entry: &Entry, to_front: bool) -> Result<(), StoreError> {
        let sql = "UPDATE lanes SET front = ?5 WHERE lifecycle = ?1 AND key = ?2 AND front = 1 - ?5 AND rank = ?3 AND record = ?4";
        let at = params![self.lifecycle, self.parts, entry.rank, entry.row, to_front];
        let turned = self.connection.prepare_cached(sql)?.execute(at)? > 0;
        match (turned, to_front) {
            (true, true) => hot.ready(self.lifecycle, entry, Some(self.parts)),
            (true, false) => hot.not_ready(self.lifecycle, entry.rank, entry.row).map(|_| ()),
            (false, _) => Ok(()),
        }
    }
}
