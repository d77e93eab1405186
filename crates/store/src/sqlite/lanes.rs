//! Who stands in front of a work key. Jobs of a key wait in a lane; only as many as may run stand in `ready` as well, so that
//! leasing never walks past the many that may not.

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

/// Jobs that stand in front and should not: so many at most are sent back by one batch. More than a few come only from jobs
/// that waited for a time and have reached it together.
const SENT_BACK: usize = 200;

/// Where a waiting job's row belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) lifecycle: i64,
    pub(super) row: u64,
    pub(super) definition: u32,
}

/// A job no longer waits as it did.
pub(super) fn leave(connection: &Connection, hot: &mut Hot, spot: Spot, waiting: &Waiting) -> Result<(), StoreError> {
    let rank = rank(waiting.priority, waiting.from);
    hot.not_ready(spot.lifecycle, rank, spot.row)?;
    let Some(key) = &waiting.key else { return Ok(()) };
    let sql = "DELETE FROM lanes WHERE lifecycle = ?1 AND key = ?2 AND front IN (0, 1) AND rank = ?3 AND record = ?4";
    connection.prepare_cached(sql)?.execute(params![spot.lifecycle, write_parts(&key.parts)?, rank, spot.row])?;
    Ok(())
}

/// A job waits. Without a key it may be leased. With one it stands at the back until [`settle`] looks; but one whose time
/// has not come stands in front at once, so that nobody has to come by when it does.
pub(super) fn join(
    (connection, hot): (&Connection, &mut Hot),
    known: &Known,
    spot: Spot,
    waiting: &Waiting,
    now: Time,
) -> Result<(), StoreError> {
    let entry = Entry {
        rank: rank(waiting.priority, waiting.from),
        row: spot.row,
        from: waiting.from,
        definition: spot.definition,
    };
    let Some(key) = &waiting.key else { return make_ready(hot, spot.lifecycle, &entry, None) };
    let parts = write_parts(&key.parts)?;
    let ordered = work_key(known, spot.definition).is_some_and(|key| key.ordered);
    let front = !ordered && waiting.from > now;
    let sql = "INSERT INTO lanes (lifecycle, key, front, rank, record, ready_at, definition) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let row = params![spot.lifecycle, parts, front, entry.rank, entry.row, entry.from.micros(), entry.definition];
    connection.prepare_cached(sql)?.execute(row)?;
    if front {
        make_ready(hot, spot.lifecycle, &entry, Some(&parts))?;
    }
    Ok(())
}

/// Bring the right jobs of a key to the front, after its records, counts and queue were written.
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
        let first = first_in_order(connection, known, key)?;
        let front = lane.some(true, Time::MAX, SENT_BACK)?;
        let stands = |entry: &Entry| first.as_ref().is_some_and(|first| first.row == entry.row);
        front.iter().filter(|entry| !stands(entry)).try_for_each(|entry| lane.turn(hot, entry, false))?;
        return match first {
            Some(first) if !front.iter().any(stands) => lane.turn(hot, &first, true),
            _ => Ok(()),
        };
    }
    let free = room(connection, known, definition, key)?;
    let front = lane.some(true, now, free.saturating_add(SENT_BACK))?;
    let back = lane.some(false, now, free)?;
    let mut best: Vec<Entry> = front.iter().chain(&back).copied().collect();
    best.sort_unstable_by_key(|entry| (entry.rank, entry.row));
    best.truncate(free);
    let wanted: BTreeSet<u64> = best.iter().map(|entry| entry.row).collect();
    front.iter().filter(|entry| !wanted.contains(&entry.row)).try_for_each(|entry| lane.turn(hot, entry, false))?;
    back.iter().filter(|entry| wanted.contains(&entry.row)).try_for_each(|entry| lane.turn(hot, entry, true))
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

/// A job in a lane.
#[derive(Clone, Copy, Debug)]
struct Entry {
    rank: i64,
    row: u64,
    from: Time,
    definition: u32,
}

struct Lane<'a> {
    connection: &'a Connection,
    lifecycle: i64,
    parts: &'a str,
}

impl Lane<'_> {
    /// The first that wait at `now`, in front or at the back.
    fn some(&self, front: bool, now: Time, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let sql = "SELECT rank, record, ready_at, definition FROM lanes \
                   WHERE lifecycle = ?1 AND key = ?2 AND front = ?3 AND ready_at <= ?4 ORDER BY rank, record LIMIT ?5";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![self.lifecycle, self.parts, front, now.micros(), limit])?;
        let mut entries = Vec::new();
        while let Some(row) = found.next()? {
            let from = Time::from_micros(row.get(2)?);
            entries.push(Entry { rank: row.get(0)?, row: row.get(1)?, from, definition: row.get(3)? });
        }
        Ok(entries)
    }

    /// From the back to the front, or the other way.
    fn turn(&self, hot: &mut Hot, entry: &Entry, to_front: bool) -> Result<(), StoreError> {
        let sql = "UPDATE lanes SET front = ?5 WHERE lifecycle = ?1 AND key = ?2 AND front = 1 - ?5 AND rank = ?3 AND record = ?4";
        let at = params![self.lifecycle, self.parts, entry.rank, entry.row, to_front];
        self.connection.prepare_cached(sql)?.execute(at)?;
        if to_front {
            make_ready(hot, self.lifecycle, entry, Some(self.parts))
        } else {
            hot.not_ready(self.lifecycle, entry.rank, entry.row)
        }
    }
}

fn make_ready(hot: &mut Hot, lifecycle: i64, entry: &Entry, key: Option<&str>) -> Result<(), StoreError> {
    hot.ready(lifecycle, (entry.rank, entry.row), entry.from, entry.definition, key)
}
