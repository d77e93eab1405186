//! Statistics of an SQLite store for monitoring.

use std::sync::Arc;

use onceward_core::time::Time;
use rusqlite::{Connection, Rows, params};

use super::read;
use crate::error::StoreError;
use crate::stats::{MAX_COUNTED_READY, MAX_SCANNED_READY_PER_END, MAX_SCANNED_TIMERS, ReadyCount, StoreStats};
use crate::symbols::CatalogSnapshot;

const SELECT_OLDEST_READY_SQL: &str = "SELECT r.definition, r.state, min(w.ready_at) FROM \
     (SELECT * FROM (SELECT record, ready_at FROM ready WHERE lifecycle = ?1 ORDER BY rank, record LIMIT ?2) UNION \
     SELECT * FROM (SELECT record, ready_at FROM ready WHERE lifecycle = ?1 ORDER BY rank DESC, record DESC LIMIT ?2)) w \
     JOIN records r ON r.row = w.record WHERE w.ready_at <= ?3 GROUP BY r.definition, r.state";

const COUNT_READY_SQL: &str =
    "SELECT count(*) FROM (SELECT 1 FROM ready WHERE lifecycle = ?1 AND ready_at <= ?2 LIMIT ?3)";

/// Delayed jobs that are due but not promoted yet.
const SELECT_OLDEST_DELAYED_SQL: &str = "SELECT r.definition, r.state, min(l.ready_at) FROM \
     (SELECT record, ready_at FROM delayed WHERE ready_at <= ?1 ORDER BY ready_at, record LIMIT ?2) l \
     JOIN records r ON r.row = l.record GROUP BY r.definition, r.state";

/// Each live lease has a timer for its expiry, and few other timers are due as early.
const COUNT_LEASES_SQL: &str = "SELECT count(*) FROM (SELECT record FROM timers ORDER BY due_at, record LIMIT ?1) t \
     JOIN records r ON r.row = t.record JOIN executions e ON e.record = r.row AND e.token = r.attempt WHERE e.status < 3";

const COUNT_OVERDUE_SQL: &str =
    "SELECT count(*), min(due_at) FROM (SELECT due_at FROM timers WHERE due_at <= ?1 ORDER BY due_at, record LIMIT ?2)";

pub(super) fn read_stats(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    now: Time,
) -> Result<StoreStats, StoreError> {
    let mut stats = StoreStats {
        state_counts: read::counts_by_state(connection, snapshot, None)?,
        oldest_ready: Vec::new(),
        ..StoreStats::default()
    };
    let mut statement = connection.prepare_cached(SELECT_OLDEST_READY_SQL)?;
    let mut count_statement = connection.prepare_cached(COUNT_READY_SQL)?;
    for lifecycle in snapshot.catalog.definitions.lifecycles.keys() {
        let name = snapshot.symbols.require_id(lifecycle)?;
        note_oldest_ready(
            &mut stats,
            statement.query(params![name, MAX_SCANNED_READY_PER_END, now.micros()])?,
            snapshot,
        )?;
        let jobs: u64 = count_statement.query_row(params![name, now.micros(), MAX_COUNTED_READY], |row| row.get(0))?;
        if jobs > 0 {
            stats.ready_counts.push(ReadyCount { lifecycle: Arc::clone(lifecycle), jobs });
        }
    }
    let mut statement = connection.prepare_cached(SELECT_OLDEST_DELAYED_SQL)?;
    note_oldest_ready(&mut stats, statement.query(params![now.micros(), MAX_SCANNED_READY_PER_END])?, snapshot)?;
    stats.live_leases =
        connection.prepare_cached(COUNT_LEASES_SQL)?.query_row([MAX_SCANNED_TIMERS], |row| row.get(0))?;
    let mut statement = connection.prepare_cached(COUNT_OVERDUE_SQL)?;
    let overdue =
        statement.query_row(params![now.micros(), MAX_SCANNED_TIMERS], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (count, since): (u64, Option<i64>) = overdue;
    (stats.overdue_records, stats.overdue_since) = (count, since.map(Time::from_micros));
    stats.oldest_ready.sort_unstable();
    Ok(stats)
}

fn note_oldest_ready(stats: &mut StoreStats, mut found: Rows, snapshot: &CatalogSnapshot) -> Result<(), StoreError> {
    while let Some(row) = found.next()? {
        let version = snapshot.catalog.by_number(row.get(0)?);
        let state: usize = row.get(1)?;
        let fitting = version.and_then(|version| Some((&version.name, &version.states.get(state)?.name)));
        let (lifecycle, state) =
            fitting.ok_or_else(|| StoreError::corrupt("a ready job does not match its lifecycle"))?;
        stats.note_oldest_ready(lifecycle, state, Time::from_micros(row.get(2)?));
    }
    Ok(())
}
