//! Who came for jobs lately, and who holds leases.

use std::collections::BTreeMap;

use onceward_core::time::Time;

use super::Inner;
use super::pipeline::{Pipeline, arg};
use super::rows::{self, size};
use crate::columns::{read_parts, write_parts};
use crate::error::StoreError;
use crate::workers::{Holding, WorkerName, WorkerSeen};

/// In order, as every process brings them: two that bring the same wait for each other one way only.
const NOTE: &str = "INSERT INTO onceward.workers AS w (digest, holder, worker, lifecycles, seen) \
     SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::bigint[]) k(d, h, w, l, s) ORDER BY k.d \
     ON CONFLICT (digest) DO UPDATE SET lifecycles = excluded.lifecycles, seen = excluded.seen WHERE w.seen <= excluded.seen";

const WORKERS: &str =
    "SELECT holder, worker, lifecycles, seen FROM onceward.workers ORDER BY seen DESC, digest LIMIT $1";

const HOLDING: &str = "SELECT CASE WHEN e.status < 3 THEN e.holder END, e.worker, count(*) FROM \
     (SELECT record FROM onceward.timers ORDER BY due, record LIMIT $1) t \
     LEFT JOIN onceward.records r ON r.row = t.record \
     LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt GROUP BY 1, 2";

const TIMERS: &str = "SELECT count(*) FROM (SELECT FROM onceward.timers LIMIT $1) t";

const FORGET: &str = "WITH gone AS (DELETE FROM onceward.workers WHERE seen <= $1 OR digest NOT IN \
     (SELECT digest FROM onceward.workers ORDER BY seen DESC, digest LIMIT $2) RETURNING 1) SELECT count(*) FROM gone";

pub(super) async fn note_workers(inner: &Inner, seen: &[WorkerSeen]) -> Result<(), StoreError> {
    // One row can be written once in one statement.
    let seen: BTreeMap<&WorkerName, &WorkerSeen> = seen.iter().map(|worker| (&worker.name, worker)).collect();
    let all = || seen.values();
    let lifecycles = all().map(|worker| write_parts(&worker.lifecycles)).collect::<Result<Vec<_>, _>>()?;
    let mut pipeline = Pipeline::default();
    let parameters = vec![
        arg(all().map(|worker| worker.name.digest().to_vec()).collect::<Vec<_>>()),
        arg(all().map(|worker| &*worker.name.holder).collect::<Vec<&str>>()),
        arg(all().map(|worker| &*worker.name.worker).collect::<Vec<&str>>()),
        arg(lifecycles),
        arg(all().map(|worker| worker.seen.micros()).collect::<Vec<_>>()),
    ];
    pipeline.add(NOTE, parameters);
    inner.run(&pipeline).await?;
    Ok(())
}

pub(super) async fn workers(inner: &Inner, limit: usize) -> Result<Vec<WorkerSeen>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(WORKERS, vec![arg(size(limit))]);
    let read = |row| {
        Ok(WorkerSeen {
            name: WorkerName { holder: rows::text(row, 0)?, worker: rows::text(row, 1)? },
            lifecycles: read_parts(row.try_get(2)?)?,
            seen: rows::time(row, 3)?,
        })
    };
    inner.run(&pipeline).await?.iter().flatten().map(read).collect()
}

pub(super) async fn holding(inner: &Inner, limit: usize) -> Result<Holding, StoreError> {
    let mut pipeline = Pipeline::default();
    let held = pipeline.add(HOLDING, vec![arg(size(limit))]);
    let timers = pipeline.add(TIMERS, vec![arg(size(limit).saturating_add(1))]);
    let answers = inner.run(&pipeline).await?;
    let mut workers = BTreeMap::new();
    for row in &answers[held] {
        if let Some(holder) = rows::some::<&str>(row, 0)? {
            let name = WorkerName { holder: holder.into(), worker: rows::text(row, 1)? };
            workers.insert(name, rows::unsigned(row, 2)?);
        }
    }
    let looked = answers[timers].first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))?;
    Ok(Holding { workers: workers.into_iter().collect(), is_whole: looked <= size(limit) })
}

pub(super) async fn forget_workers(inner: &Inner, before: Time, most: usize) -> Result<u64, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(FORGET, vec![arg(before.micros()), arg(size(most))]);
    let answers = inner.run(&pipeline).await?;
    answers[0].first().map_or(Ok(0), |row| rows::unsigned(row, 0))
}
