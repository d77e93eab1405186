//! Delayed jobs in PostgreSQL. The next query for lease candidates promotes the jobs that have become due, so candidate
//! scans never pass delayed jobs.
//!
//! Several processes promote at the same time. A job without a concurrency key is moved by the process that locked its
//! delayed row; others skip the row, and a save that removes the job waits for that row before it accesses the ready
//! table. A job with a concurrency key is moved by the process that holds the lock on the key's counter of running
//! jobs, as in every save. So a promotion waits only for counter locks while it holds only counter locks, which
//! prevents deadlocks.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::time::Time;
use tokio_postgres::Row;

use super::PostgresInner;
use super::lanes::{self, ConcurrencyLane};
use super::lock_plan::{CLAIM_COUNTERS_SQL, LOCK_COUNTERS_SQL};
use super::pipeline::{Pipeline, param};
use super::pool::OpenTransaction;
use super::rows;
use super::scan_cursors::LowestWritten;
use crate::columns::NO_WINDOW;
use crate::error::StoreError;

/// Bounds the time that saves wait for one promotion.
const MAX_PROMOTED_JOBS: i64 = 500;

const SELECT_DUE_SQL: &str = "SELECT ready_at, record, lifecycle, key FROM onceward.delayed \
     WHERE ready_at >= $1 AND ready_at <= $2 ORDER BY ready_at, record LIMIT $3";

/// A lost promotion is harmless, because the next query repeats it. So its commit need not wait for the disk.
const BEGIN_ASYNC_COMMIT_SQL: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = off";

/// Skips rows that another transaction is moving or deleting.
const PROMOTE_JOBS_SQL: &str = "WITH gone AS (DELETE FROM onceward.delayed WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS a, unnest($2::bigint[]) AS r) k CROSS JOIN LATERAL (SELECT ctid FROM onceward.delayed \
     WHERE ready_at = k.a AND record = k.r OFFSET 0 FOR UPDATE SKIP LOCKED) x)) RETURNING *), \
     made AS (INSERT INTO onceward.ready (lifecycle, rank, record, ready_at, definition) \
     SELECT lifecycle, rank, record, ready_at, definition FROM gone WHERE key IS NULL ON CONFLICT DO NOTHING), \
     joined AS (INSERT INTO onceward.lanes (lifecycle, key, front, rank, record, ready_at, definition) \
     SELECT lifecycle, key, false, rank, record, ready_at, definition FROM gone WHERE key IS NOT NULL) \
     SELECT lifecycle, min(rank), count(*) FROM gone GROUP BY lifecycle";

/// A concurrency key as stored: lifecycle and text.
pub(super) type ConcurrencyKeyText = (i64, String);

/// Jobs that must be moved before a scan can find them.
#[derive(Debug, Default)]
pub(super) struct DueJobs {
    /// Delayed jobs that are due, and their concurrency keys.
    ready_times: Vec<i64>,
    record_rows: Vec<i64>,
    concurrency_keys: BTreeSet<ConcurrencyKeyText>,
    /// Concurrency keys whose front contains a job that is not due.
    pub(super) early_keys: BTreeSet<ConcurrencyKeyText>,
}

impl DueJobs {
    pub(super) fn add(&mut self, row: &Row) -> Result<(), StoreError> {
        self.ready_times.push(row.try_get(0)?);
        self.record_rows.push(row.try_get(1)?);
        if let Some(key) = rows::optional_column::<&str>(row, 3)? {
            self.concurrency_keys.insert((row.try_get::<_, i32>(2)?.into(), key.to_owned()));
        }
        Ok(())
    }

    pub(super) fn first_ready_time(&self) -> Option<i64> {
        self.ready_times.first().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready_times.is_empty() && self.early_keys.is_empty()
    }
}

/// Moves these jobs to the ready table or to their lanes. Returns whether any job could be moved; another process may
/// have moved them first.
pub(super) async fn promote_due(inner: Arc<PostgresInner>, due: DueJobs, now: Time) -> Result<bool, StoreError> {
    let transaction = OpenTransaction::new(inner.pool.get().await?);
    match run_promotion(&inner, &transaction, due, now).await {
        Ok((lowest_written, has_promoted)) => {
            transaction.release();
            inner.scan_cursors.lower_to(&lowest_written);
            Ok(has_promoted)
        }
        Err(error) => {
            transaction.rollback().await;
            if matches!(error, StoreError::Busy) { Ok(false) } else { Err(error) }
        }
    }
}

async fn run_promotion(
    inner: &PostgresInner,
    transaction: &OpenTransaction,
    due: DueJobs,
    now: Time,
) -> Result<(LowestWritten, bool), StoreError> {
    let snapshot = inner.current_catalog();
    let client = transaction.client()?;
    let (mut pipeline, mut lowest_written) = (Pipeline::default(), LowestWritten::default());
    pipeline.add_plain(BEGIN_ASYNC_COMMIT_SQL);
    let (mut lanes, mut locked) = (Vec::new(), None);
    let (mut keys, mut early) = (due.concurrency_keys, due.early_keys);
    keys.append(&mut early);
    if !keys.is_empty() {
        for (lifecycle, key) in &keys {
            lanes.extend(ConcurrencyLane::for_lifecycle(&snapshot, *lifecycle, key.clone())?);
        }
        let (lifecycles, keys): (Vec<i64>, Vec<String>) = keys.into_iter().unzip();
        if let Some(name) = snapshot.symbols.id("work.key") {
            let count = keys.len();
            let (names, spans, wholes) = (vec![name; count], vec![NO_WINDOW; count], vec![None::<&str>; count]);
            // If no job runs, the counter may have been pruned.
            let claimed = vec![
                param(lifecycles.clone()),
                param(names.clone()),
                param(keys.clone()),
                param(spans.clone()),
                param(wholes),
            ];
            pipeline.add(CLAIM_COUNTERS_SQL, claimed);
            let lock_index =
                pipeline.add(LOCK_COUNTERS_SQL, vec![param(lifecycles), param(names), param(keys), param(spans)]);
            locked = Some((lock_index, count));
        }
    }
    let promoted = pipeline.add(PROMOTE_JOBS_SQL, vec![param(due.ready_times), param(due.record_rows)]);
    if lanes.is_empty() {
        pipeline.add_plain("COMMIT");
    }
    let answers = pipeline.run(client).await?;
    if !lanes.is_empty() && locked.is_some_and(|(held, count)| answers[held].len() < count) {
        return Err(StoreError::Busy);
    }
    let mut count = 0;
    for row in &answers[promoted] {
        lowest_written.add_ready(row.try_get::<_, i32>(0)?.into(), row.try_get(1)?);
        count += row.try_get::<_, i64>(2)?;
    }
    if !lanes.is_empty() {
        let settled =
            lanes::rebalance_lanes((client, Pipeline::default()), &snapshot, &lanes, now, &mut lowest_written).await;
        let mut pipeline = settled.map_err(|unwritten| unwritten.error)?;
        pipeline.add_plain("COMMIT");
        pipeline.run(client).await?;
    }
    let has_promoted = count > 0 || lowest_written.earliest_ready_at < Time::MAX;
    Ok((lowest_written, has_promoted))
}

/// Adds the query for delayed jobs that are due at `now`, starting at `from_time`.
pub(super) fn add_due_query(pipeline: &mut Pipeline<'_>, from_time: i64, now: Time) -> usize {
    pipeline.add(SELECT_DUE_SQL, vec![param(from_time), param(now.micros()), param(MAX_PROMOTED_JOBS)])
}
