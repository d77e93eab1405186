//! Worker sightings and lease counts in SQLite.

use std::collections::BTreeMap;

use onceward_core::time::Time;
use rusqlite::{Connection, params};

use super::save::SqliteWriter;
use crate::columns::{read_parts, write_parts};
use crate::error::StoreError;
use crate::workers::{LeaseCounts, WorkerName, WorkerSighting};

impl SqliteWriter {
    pub(super) fn upsert_workers(&mut self, sightings: &[WorkerSighting]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        let sql = "INSERT INTO workers (digest, holder, worker, lifecycles, seen_at) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (digest) DO UPDATE SET lifecycles = excluded.lifecycles, seen_at = excluded.seen_at \
                   WHERE seen_at <= excluded.seen_at";
        for worker in sightings {
            let WorkerName { holder, worker: name } = &worker.name;
            let lifecycles = write_parts(&worker.lifecycles)?;
            let values = params![worker.name.digest(), holder, name, lifecycles, worker.last_seen_at.micros()];
            transaction.prepare_cached(sql)?.execute(values)?;
        }
        Ok(transaction.commit()?)
    }

    pub(super) fn delete_stale_workers(&mut self, seen_before: Time, max_workers: usize) -> Result<u64, StoreError> {
        let sql = "DELETE FROM workers WHERE seen_at <= ?1 \
                   OR digest NOT IN (SELECT digest FROM workers ORDER BY seen_at DESC, digest LIMIT ?2)";
        let deleted = self.connection.prepare_cached(sql)?.execute(params![seen_before.micros(), max_workers])?;
        Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
    }
}

pub(super) fn list_workers(connection: &Connection, limit: usize) -> Result<Vec<WorkerSighting>, StoreError> {
    let sql = "SELECT holder, worker, lifecycles, seen_at FROM workers ORDER BY seen_at DESC, digest LIMIT ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([limit])?;
    let mut workers = Vec::new();
    while let Some(row) = found.next()? {
        workers.push(WorkerSighting {
            name: WorkerName { holder: row.get(0)?, worker: row.get(1)? },
            lifecycles: read_parts(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)?,
            last_seen_at: Time::from_micros(row.get(3)?),
        });
    }
    Ok(workers)
}

pub(super) fn lease_counts(connection: &Connection, max_timers: usize) -> Result<LeaseCounts, StoreError> {
    let sql = "SELECT CASE WHEN e.status < 3 THEN e.holder END, e.worker FROM timers t \
               LEFT JOIN records r ON r.row = t.record \
               LEFT JOIN executions e ON e.record = r.row AND e.token = r.attempt ORDER BY t.due_at, t.record LIMIT ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([max_timers.saturating_add(1)])?;
    let (mut workers, mut scanned) = (BTreeMap::<WorkerName, u64>::new(), 0);
    while let Some(row) = found.next()? {
        scanned += 1;
        if let (Some(holder), true) = (row.get(0)?, scanned <= max_timers) {
            *workers.entry(WorkerName { holder, worker: row.get(1)? }).or_default() += 1;
        }
    }
    Ok(LeaseCounts { workers: workers.into_iter().collect(), is_complete: scanned <= max_timers })
}
