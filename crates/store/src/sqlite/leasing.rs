//! Queries for lease candidates and due records in SQLite.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::ConcurrencyKey;
use onceward_core::model::ConcurrencyPolicy;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, params};

use super::load;
use super::rows;
use crate::columns::read_parts;
use crate::error::StoreError;
use crate::query::{LeaseCandidate, LeaseQuery, running_counter_key};
use crate::symbols::CatalogSnapshot;

pub(super) fn due_records(
    connection: &Connection,
    due_by: Time,
    limit: usize,
) -> Result<Vec<(Time, RecordId)>, StoreError> {
    let sql = "SELECT t.due_at, r.id FROM timers t JOIN records r ON r.row = t.record WHERE t.due_at <= ?1 \
               ORDER BY t.due_at, t.record LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![due_by.micros(), limit])?;
    let mut due = Vec::new();
    while let Some(row) = found.next()? {
        due.push((Time::from_micros(row.get(0)?), rows::record_id_column(row, 1)?));
    }
    Ok(due)
}

/// Result of a scan for lease candidates.
#[derive(Debug)]
pub(super) struct LeaseScan {
    pub(super) candidates: Vec<LeaseCandidate>,
    /// Concurrency keys whose front contains a job that is not due, because the clock was set back.
    pub(super) early_keys: Vec<ConcurrencyKey>,
}

pub(super) fn scan_ready(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    query: &LeaseQuery,
) -> Result<LeaseScan, StoreError> {
    let (mut ranked, mut early_keys) = (Vec::new(), Vec::new());
    let mut lifecycles = query.lifecycles.clone();
    lifecycles.sort_unstable();
    lifecycles.dedup();
    for lifecycle in &lifecycles {
        scan_lifecycle(connection, snapshot, query, lifecycle, (&mut ranked, &mut early_keys))?;
    }
    ranked.sort_by_key(|(rank, row, _)| (*rank, *row));
    Ok(LeaseScan {
        candidates: ranked.into_iter().take(query.limit).map(|(_, _, candidate)| candidate).collect(),
        early_keys,
    })
}

fn scan_lifecycle(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    query: &LeaseQuery,
    lifecycle: &Arc<str>,
    (ranked, early_keys): (&mut Vec<(i64, u64, LeaseCandidate)>, &mut Vec<ConcurrencyKey>),
) -> Result<(), StoreError> {
    let Some(lifecycle_id) = snapshot.symbols.id(lifecycle) else { return Ok(()) };
    let sql = "SELECT w.rank, w.record, w.definition, w.key, r.id, w.ready_at <= ?2 \
               FROM ready w JOIN records r ON r.row = w.record \
               WHERE w.lifecycle = ?1 AND (w.ready_at <= ?2 OR w.key IS NOT NULL) ORDER BY w.rank, w.record";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![lifecycle_id, query.now.micros()])?;
    let mut slots_by_key: HashMap<String, usize> = HashMap::new();
    let mut taken_jobs = 0;
    while let Some(row) = found.next()? {
        if taken_jobs == query.limit {
            break;
        }
        if let Some(text) = row.get::<_, Option<String>>(3)? {
            if !row.get::<_, bool>(5)? {
                early_keys.push(ConcurrencyKey { lifecycle: Arc::clone(lifecycle), parts: read_parts(&text)? });
                continue;
            }
            let slots = if let Some(room) = slots_by_key.get(&text) {
                *room
            } else {
                let key = ConcurrencyKey { lifecycle: Arc::clone(lifecycle), parts: read_parts(&text)? };
                free_slots(connection, snapshot, row.get(2)?, &key)?
            };
            slots_by_key.insert(text, slots.saturating_sub(1));
            if slots == 0 {
                continue;
            }
        }
        taken_jobs += 1;
        let candidate = LeaseCandidate { record: rows::record_id_column(row, 4)?, lifecycle: Arc::clone(lifecycle) };
        ranked.push((row.get(0)?, row.get(1)?, candidate));
    }
    Ok(())
}

/// Returns how the jobs of this version share a concurrency key.
pub(super) fn concurrency_policy(snapshot: &CatalogSnapshot, version_number: u32) -> Option<&ConcurrencyPolicy> {
    snapshot.catalog.by_number(version_number)?.work.as_ref()?.concurrency.as_ref()
}

/// Returns how many more jobs of a key can run. For an ordered key the front contains only the first job anyway.
pub(super) fn free_slots(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    version_number: u32,
    key: &ConcurrencyKey,
) -> Result<usize, StoreError> {
    let Some(limit) = concurrency_policy(snapshot, version_number).and_then(|key| key.limit) else {
        return Ok(usize::MAX);
    };
    let running = load::load_counter(connection, snapshot, &running_counter_key(key))?;
    Ok(usize::try_from(u64::from(limit).saturating_sub(running)).unwrap_or(usize::MAX))
}
