//! Delayed jobs in SQLite. The next query for lease candidates promotes the jobs that have become due. So candidate
//! scans never pass delayed jobs, and no timer is needed.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use onceward_core::decide::ConcurrencyKey;
use onceward_core::time::Time;
use rusqlite::{Connection, TransactionBehavior, params};

use super::lanes::{self, ConcurrencyLane, ReadyRow};
use super::prepared::PreparedWrites;
use super::save::SqliteWriter;
use crate::columns::read_parts;
use crate::error::StoreError;
use crate::symbols::CatalogSnapshot;

/// Bounds the time that saves wait for one promotion.
const MAX_PROMOTED_JOBS: usize = 500;

/// Approximate rows per database page, to estimate the growth of the WAL.
const ROWS_PER_PAGE: usize = 20;

/// Returns when the first delayed job becomes ready; [`Time::MAX`] if there is none.
pub(super) fn earliest_ready_at(connection: &Connection) -> Result<Time, StoreError> {
    let sql = "SELECT coalesce(min(ready_at), ?1) FROM delayed";
    let micros = connection.query_row(sql, [Time::MAX.micros()], |row| row.get(0))?;
    Ok(Time::from_micros(micros))
}

/// A delayed job, and the concurrency key whose lane it will enter.
struct DelayedJob {
    lifecycle: i64,
    ready_row: ReadyRow,
    key: Option<String>,
}

impl SqliteWriter {
    /// Promotes a bounded number of delayed jobs that are due. Also rebalances the lanes of `early_keys`, whose front
    /// contains a job that is not due.
    pub(super) fn promote_due(&mut self, now: Time, early_keys: &[ConcurrencyKey]) -> Result<(), StoreError> {
        let snapshot = self.shared.current_catalog();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let promoted = promote_due_jobs(&transaction, &snapshot, now, early_keys)?;
        let earliest = earliest_ready_at(&transaction)?;
        transaction.commit()?;
        self.shared.earliest_delayed_micros.store(earliest.micros(), Ordering::Release);
        self.add_written_pages(promoted / ROWS_PER_PAGE + 4);
        Ok(())
    }
}

fn promote_due_jobs(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    now: Time,
    early_keys: &[ConcurrencyKey],
) -> Result<usize, StoreError> {
    let writes = &mut PreparedWrites::new(connection);
    let due_jobs = select_due(connection, now)?;
    let mut touched_keys: BTreeSet<ConcurrencyKey> = early_keys.iter().cloned().collect();
    for DelayedJob { lifecycle, ready_row: entry, key } in &due_jobs {
        writes.delete_delayed(entry.ready_at, entry.record_row)?;
        match key {
            None => writes.insert_ready(*lifecycle, entry, None)?,
            Some(parts) => {
                ConcurrencyLane { connection, lifecycle: *lifecycle, parts }.insert_at_back(entry)?;
                // Skip damaged rows, which `verify` reports. They must not block other jobs.
                if let (Ok(name), Ok(parts)) = (snapshot.symbols.name(*lifecycle), read_parts(parts)) {
                    touched_keys.insert(ConcurrencyKey { lifecycle: name, parts });
                }
            }
        }
    }
    rebalance_lanes((connection, writes), snapshot, touched_keys, now)?;
    Ok(due_jobs.len())
}

/// Moves the right jobs of these keys to the front of their lanes.
pub(super) fn rebalance_lanes(
    (connection, writes): (&Connection, &mut PreparedWrites),
    snapshot: &CatalogSnapshot,
    touched_keys: BTreeSet<ConcurrencyKey>,
    now: Time,
) -> Result<(), StoreError> {
    for key in touched_keys {
        // Uses the policy of the current version. If older versions have another policy, `decide` still enforces it.
        if let Some(current) = snapshot.catalog.definitions.get(&key.lifecycle) {
            let definition = snapshot.catalog.version_number(current)?;
            lanes::rebalance_lane((connection, writes), snapshot, &key, definition, now)?;
        }
    }
    Ok(())
}

fn select_due(connection: &Connection, now: Time) -> Result<Vec<DelayedJob>, StoreError> {
    let sql = "SELECT ready_at, record, lifecycle, rank, definition, key FROM delayed WHERE ready_at <= ?1 \
               ORDER BY ready_at, record LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![now.micros(), MAX_PROMOTED_JOBS])?;
    let mut due_jobs = Vec::new();
    while let Some(row) = found.next()? {
        let ready_at = Time::from_micros(row.get(0)?);
        let entry = ReadyRow { ready_at, record_row: row.get(1)?, rank: row.get(3)?, version_number: row.get(4)? };
        due_jobs.push(DelayedJob { lifecycle: row.get(2)?, ready_row: entry, key: row.get(5)? });
    }
    Ok(due_jobs)
}
