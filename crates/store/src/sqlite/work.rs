//! What waits for workers, and what is due.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::QueueKey;
use onceward_core::model::WorkKey;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, params};

use super::load;
use super::rows;
use crate::columns::read_parts;
use crate::error::StoreError;
use crate::names::Known;
use crate::query::{Candidate, LeaseQuery, running};

pub(super) fn due(connection: &Connection, until: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
    let sql = "SELECT t.due, r.id FROM timers t JOIN records r ON r.row = t.record WHERE t.due <= ?1 \
               ORDER BY t.due, t.record LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![until.micros(), limit])?;
    let mut due = Vec::new();
    while let Some(row) = found.next()? {
        due.push((Time::from_micros(row.get(0)?), rows::id(row, 1)?));
    }
    Ok(due)
}

/// What a look found.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) found: Vec<Candidate>,
    /// Work keys in front of which stands somebody whose time has not come: the clock was set back.
    pub(super) early: Vec<QueueKey>,
}

pub(super) fn leasable(connection: &Connection, known: &Known, query: &LeaseQuery) -> Result<Looked, StoreError> {
    let (mut ranked, mut early) = (Vec::new(), Vec::new());
    let mut lifecycles = query.lifecycles.clone();
    lifecycles.sort_unstable();
    lifecycles.dedup();
    for lifecycle in &lifecycles {
        of_lifecycle(connection, known, query, lifecycle, (&mut ranked, &mut early))?;
    }
    ranked.sort_by_key(|(rank, row, _)| (*rank, *row));
    Ok(Looked { found: ranked.into_iter().take(query.limit).map(|(_, _, candidate)| candidate).collect(), early })
}

fn of_lifecycle(
    connection: &Connection,
    known: &Known,
    query: &LeaseQuery,
    lifecycle: &Arc<str>,
    (ranked, early): (&mut Vec<(i64, u64, Candidate)>, &mut Vec<QueueKey>),
) -> Result<(), StoreError> {
    let Some(number) = known.names.number(lifecycle) else { return Ok(()) };
    let sql = "SELECT w.rank, w.record, w.definition, w.key, r.id, w.ready_at <= ?2 \
               FROM ready w JOIN records r ON r.row = w.record \
               WHERE w.lifecycle = ?1 AND (w.ready_at <= ?2 OR w.key IS NOT NULL) ORDER BY w.rank, w.record";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![number, query.now.micros()])?;
    let mut free: HashMap<String, usize> = HashMap::new();
    let mut taken = 0;
    while let Some(row) = found.next()? {
        if taken == query.limit {
            break;
        }
        if let Some(text) = row.get::<_, Option<String>>(3)? {
            if !row.get::<_, bool>(5)? {
                early.push(QueueKey { lifecycle: Arc::clone(lifecycle), parts: read_parts(&text)? });
                continue;
            }
            let room = if let Some(room) = free.get(&text) {
                *room
            } else {
                let key = QueueKey { lifecycle: Arc::clone(lifecycle), parts: read_parts(&text)? };
                room(connection, known, row.get(2)?, &key)?
            };
            free.insert(text, room.saturating_sub(1));
            if room == 0 {
                continue;
            }
        }
        taken += 1;
        let candidate = Candidate { record: rows::id(row, 4)?, lifecycle: Arc::clone(lifecycle) };
        ranked.push((row.get(0)?, row.get(1)?, candidate));
    }
    Ok(())
}

/// How the jobs of a version's work key share it.
pub(super) fn work_key(known: &Known, definition: u32) -> Option<&WorkKey> {
    known.catalog.by_number(definition)?.work.as_ref()?.key.as_ref()
}

/// How many more jobs of a key may run. In an ordered key's front stands its first job only.
pub(super) fn room(
    connection: &Connection,
    known: &Known,
    definition: u32,
    key: &QueueKey,
) -> Result<usize, StoreError> {
    let Some(limit) = work_key(known, definition).and_then(|key| key.limit) else { return Ok(usize::MAX) };
    let running = load::count(connection, known, &running(key))?;
    Ok(usize::try_from(u64::from(limit).saturating_sub(running)).unwrap_or(usize::MAX))
}
