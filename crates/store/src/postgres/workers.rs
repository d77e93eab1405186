//! Worker sightings and lease counts in PostgreSQL.

use std::collections::BTreeMap;

use onceward_core::time::Time;

use super::PostgresInner;
use super::pipeline::{Pipeline, param};
use super::rows::{self, to_limit};
use crate::columns::{read_parts, write_parts};
use crate::error::StoreError;
use crate::workers::{LeaseCounts, WorkerName, WorkerSighting};

/// Sorted, so that two processes that write the same rows cannot deadlock.
const UPSERT_WORKERS_SQL: &str = "INSERT INTO onceward.workers AS w (digest, holder, worker, lifecycles, seen_at) \
     SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::bigint[]) k(d, h, w, l, s) ORDER BY k.d \
     ON CONFLICT (digest) DO UPDATE SET lifecycles = excluded.lifecycles, seen_at = excluded.seen_at WHERE w.seen_at <= excluded.seen_at";

const SELECT_WORKERS_SQL: &str =
    "SELECT holder, worker, lifecycles, seen_at FROM onceward.workers ORDER BY seen_at DESC, digest LIMIT $1";

const COUNT_LEASES_SQL: &str = "SELECT CASE WHEN e.status < 3 THEN e.holder END, e.worker, count(*) FROM \
     (SELECT record FROM onceward.timers ORDER BY due_at, record LIMIT $1) t \
     LEFT JOIN onceward.records r ON r.row = t.record \
     LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt GROUP BY 1, 2";

const COUNT_TIMERS_SQL: &str = "SELECT count(*) FROM (SELECT FROM onceward.timers LIMIT $1) t";

const DELETE_STALE_WORKERS_SQL: &str = "WITH gone AS (DELETE FROM onceward.workers WHERE seen_at <= $1 OR digest NOT IN \
     (SELECT digest FROM onceward.workers ORDER BY seen_at DESC, digest LIMIT $2) RETURNING 1) SELECT count(*) FROM gone";

pub(super) async fn upsert_workers(inner: &PostgresInner, sightings: &[WorkerSighting]) -> Result<(), StoreError> {
    // A statement can update each row only once.
    let seen: BTreeMap<&WorkerName, &WorkerSighting> = sightings.iter().map(|worker| (&worker.name, worker)).collect();
    let all = || seen.values();
    let lifecycles = all().map(|worker| write_parts(&worker.lifecycles)).collect::<Result<Vec<_>, _>>()?;
    let mut pipeline = Pipeline::default();
    let parameters = vec![
        param(all().map(|worker| worker.name.digest().to_vec()).collect::<Vec<_>>()),
        param(all().map(|worker| &*worker.name.holder).collect::<Vec<&str>>()),
        param(all().map(|worker| &*worker.name.worker).collect::<Vec<&str>>()),
        param(lifecycles),
        param(all().map(|worker| worker.last_seen_at.micros()).collect::<Vec<_>>()),
    ];
    pipeline.add(UPSERT_WORKERS_SQL, parameters);
    inner.run_pipeline(&pipeline).await?;
    Ok(())
}

pub(super) async fn list_workers(inner: &PostgresInner, limit: usize) -> Result<Vec<WorkerSighting>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_WORKERS_SQL, vec![param(to_limit(limit))]);
    let read = |row| {
        Ok(WorkerSighting {
            name: WorkerName { holder: rows::text_column(row, 0)?, worker: rows::text_column(row, 1)? },
            lifecycles: read_parts(row.try_get(2)?)?,
            last_seen_at: rows::time_column(row, 3)?,
        })
    };
    inner.run_pipeline(&pipeline).await?.iter().flatten().map(read).collect()
}

pub(super) async fn lease_counts(inner: &PostgresInner, max_timers: usize) -> Result<LeaseCounts, StoreError> {
    let mut pipeline = Pipeline::default();
    let held = pipeline.add(COUNT_LEASES_SQL, vec![param(to_limit(max_timers))]);
    let timers = pipeline.add(COUNT_TIMERS_SQL, vec![param(to_limit(max_timers).saturating_add(1))]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let mut workers = BTreeMap::new();
    for row in &answers[held] {
        if let Some(holder) = rows::optional_column::<&str>(row, 0)? {
            let name = WorkerName { holder: holder.into(), worker: rows::text_column(row, 1)? };
            workers.insert(name, rows::unsigned_column(row, 2)?);
        }
    }
    let timer_count = answers[timers].first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))?;
    Ok(LeaseCounts { workers: workers.into_iter().collect(), is_complete: timer_count <= to_limit(max_timers) })
}

pub(super) async fn delete_stale_workers(
    inner: &PostgresInner,
    seen_before: Time,
    max_workers: usize,
) -> Result<u64, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(DELETE_STALE_WORKERS_SQL, vec![param(seen_before.micros()), param(to_limit(max_workers))]);
    let answers = inner.run_pipeline(&pipeline).await?;
    answers[0].first().map_or(Ok(0), |row| rows::unsigned_column(row, 0))
}
