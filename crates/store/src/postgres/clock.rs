//! The clock of a PostgreSQL store: the database server's, sampled at intervals and guarded against jumps.

use onceward_core::time::Time;
use tokio_postgres::Row;

use super::PostgresInner;
use super::pipeline::{Pipeline, param};
use super::rows;
use crate::clock_guard::ClockAcceptance;
use crate::error::StoreError;

const SAMPLE_SQL: &str = "SELECT n.now, a.held_time, a.clock_time \
     FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) n \
     CROSS JOIN onceward.clock_acceptance a";

const SELECT_LAST_ENTRY_SQL: &str = "SELECT at FROM onceward.history ORDER BY entry_id DESC LIMIT 1";

const SAVE_ACCEPTANCE_SQL: &str = "UPDATE onceward.clock_acceptance SET held_time = $1, clock_time = $2";

/// Compares the clock with the last log entry.
pub(super) async fn start(inner: &PostgresInner) -> Result<(), StoreError> {
    let Some(clock) = inner.clock.guarded() else { return Ok(()) };
    let mut pipeline = Pipeline::default();
    pipeline.add(SAMPLE_SQL, Vec::new());
    pipeline.add(SELECT_LAST_ENTRY_SQL, Vec::new());
    let answers = inner.run_pipeline(&pipeline).await?;
    let (sample, acceptance) = read_sample(&answers[0])?;
    let last_entry_at = answers[1].first().map(|row| rows::time_column(row, 0)).transpose()?;
    clock.start(inner.uses_database_time.then_some(sample), last_entry_at, acceptance);
    Ok(())
}

pub(super) async fn now(inner: &PostgresInner) -> Result<Time, StoreError> {
    let Some(clock) = inner.clock.guarded() else { return Ok(inner.clock.now()) };
    if inner.uses_database_time {
        if let Some(now) = clock.now_by_sample() {
            return Ok(now);
        }
    } else {
        let now = inner.clock.now();
        if clock.status().hold.is_none() {
            return Ok(now);
        }
    }
    let before = clock.elapsed();
    let mut pipeline = Pipeline::default();
    pipeline.add(SAMPLE_SQL, Vec::new());
    let answers = inner.run_pipeline(&pipeline).await?;
    let (sample, acceptance) = read_sample(&answers[0])?;
    let mut now = if inner.uses_database_time { clock.add_sample(before, sample) } else { inner.clock.now() };
    if let Some(acceptance) = acceptance
        && let Some(accepted) = clock.apply_acceptance(acceptance)
    {
        now = accepted;
    }
    Ok(now)
}

pub(super) async fn accept(inner: &PostgresInner) -> Result<bool, StoreError> {
    let Some(clock) = inner.clock.guarded() else { return Ok(false) };
    let Some(acceptance) = clock.pending_acceptance() else { return Ok(false) };
    let mut pipeline = Pipeline::default();
    let times = vec![param(acceptance.held_time.micros()), param(acceptance.clock_time.micros())];
    pipeline.add(SAVE_ACCEPTANCE_SQL, times);
    inner.run_pipeline(&pipeline).await?;
    clock.apply_acceptance(acceptance);
    Ok(true)
}

fn read_sample(answer: &[Row]) -> Result<(Time, Option<ClockAcceptance>), StoreError> {
    let row = answer.first().ok_or_else(|| StoreError::corrupt("the database returned no time"))?;
    let acceptance = ClockAcceptance::from_micros(row.try_get(1)?, row.try_get(2)?);
    Ok((rows::time_column(row, 0)?, acceptance))
}
