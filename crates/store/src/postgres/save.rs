//! Saves a batch: lock and validate, write, append to the log, commit. Takes two round trips, or three if lanes are
//! rebalanced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::error::DbError;

use super::errors::StatementError;
use super::lanes::{self, ConcurrencyLane};
use super::lock_plan::LockPlan;
use super::pipeline::Pipeline;
use super::pool::OpenTransaction;
use super::rows;
use super::write::BatchWriter;
use super::{CatalogSnapshot, PostgresInner};
use crate::batch::{Batch, SaveConflict, SaveResult};
use crate::error::StoreError;
use crate::histogram::Histogram;
use crate::read_set::ReadSet;
use crate::write_set::WriteSet;

/// For saves that failed on a lock conflict, or whose connection was closed before anything was written.
const MAX_SAVE_ATTEMPTS: usize = 5;

/// Sets `commit_sent` before the first commit.
pub(super) async fn save(
    inner: Arc<PostgresInner>,
    read_set: Arc<ReadSet>,
    batch: Arc<Batch>,
    commit_sent: Arc<AtomicBool>,
) -> Result<SaveResult, StoreError> {
    let write_set = WriteSet::build(&read_set, &batch)?;
    let mut last = StoreError::Busy;
    for attempt in 0..MAX_SAVE_ATTEMPTS {
        if attempt > 0 {
            inner.reload_catalog().await?;
        }
        match try_save(&inner, &inner.current_catalog(), &read_set, (&batch, &write_set), &commit_sent).await {
            Err(SaveAttemptError { error, is_retryable: true }) => last = error,
            Err(SaveAttemptError { error, is_retryable: false }) => return Err(error),
            Ok(save) => return Ok(save),
        }
    }
    Err(last)
}

/// A failed attempt. It is never retryable after a commit was sent.
struct SaveAttemptError {
    error: StoreError,
    is_retryable: bool,
}

impl From<StoreError> for SaveAttemptError {
    fn from(error: StoreError) -> Self {
        let is_retryable = matches!(error, StoreError::Busy | StoreError::UnknownVersion { .. });
        Self { error, is_retryable }
    }
}

async fn try_save(
    inner: &PostgresInner,
    snapshot: &CatalogSnapshot,
    read_set: &ReadSet,
    (batch, write_set): (&Batch, &WriteSet<'_>),
    commit_sent: &AtomicBool,
) -> Result<SaveResult, SaveAttemptError> {
    for record in &write_set.records {
        snapshot.catalog.version_number(&record.after.lifecycle)?;
    }
    let lock_plan = LockPlan::build(read_set, write_set, snapshot)?;
    let transaction = OpenTransaction::new(inner.pool.get().await?);
    let locks = lock_plan.build_pipeline(snapshot, batch.decided_at.micros())?;
    let answers = match locks.pipeline.run(transaction.client()?).await {
        Ok(answers) => answers,
        Err(error) => {
            // The connection was closed while idle, so nothing was executed.
            let dead = transaction.client()?.is_closed();
            transaction.rollback().await;
            let failure = SaveAttemptError::from(error);
            return Err(SaveAttemptError { is_retryable: failure.is_retryable || dead, ..failure });
        }
    };
    if locks.is_catalog_outdated(&answers, batch.catalog_revision)? {
        transaction.rollback().await;
        inner.reload_catalog().await?;
        return Ok(SaveResult::Conflict(SaveConflict::default()));
    }
    if lock_plan.lost_counter(&locks, &answers) {
        transaction.rollback().await;
        return Err(StoreError::Busy.into());
    }
    let lock_result = lock_plan.read_result(locks, &answers, snapshot)?;
    if !lock_result.conflict.is_empty() {
        transaction.rollback().await;
        inner.record_cache.invalidate(&lock_result.conflict.changed_keys);
        return Ok(SaveResult::Conflict(lock_result.conflict));
    }
    let mut writer = BatchWriter::new(snapshot, read_set, write_set, &lock_result)?;
    match write_batch(&transaction, &mut writer, &lock_plan, write_set, (&inner.commit_latency, commit_sent)).await {
        Ok(save) => {
            transaction.release();
            inner.scan_cursors.lower_to(&writer.lowest_written);
            inner.record_cache.insert_saved(write_set.records.iter().filter_map(|record| writer.saved_record(record)));
            inner.notify_channel.notify();
            inner.vacuum.add_operations(batch.operations.len());
            Ok(save)
        }
        Err(error) => {
            // The commit may have succeeded nevertheless.
            inner.scan_cursors.lower_to(&writer.lowest_written);
            inner.record_cache.clear();
            transaction.rollback().await;
            let ids = lock_plan.expected_absent.clone();
            // Another process created a record with this id after it was loaded as free.
            if error.is_id_taken && !ids.is_empty() {
                return Ok(SaveResult::Conflict(SaveConflict { changed_keys: ids, answered_ids: Vec::new() }));
            }
            Err(error.error.into())
        }
    }
}

/// A failed write; the transaction is rolled back.
pub(super) struct SaveWriteError {
    pub(super) error: StoreError,
    /// Whether a new record's id already exists.
    is_id_taken: bool,
}

impl From<StoreError> for SaveWriteError {
    fn from(error: StoreError) -> Self {
        Self { error, is_id_taken: false }
    }
}

impl From<StatementError> for SaveWriteError {
    fn from(error: StatementError) -> Self {
        let database_error = if let StatementError::Database(error) = &error { error.as_db_error() } else { None };
        let is_id_taken = database_error.and_then(DbError::constraint) == Some("records_id");
        Self { error: error.into(), is_id_taken }
    }
}

async fn write_batch(
    transaction: &OpenTransaction,
    writer: &mut BatchWriter<'_>,
    lock_plan: &LockPlan<'_>,
    write_set: &WriteSet<'_>,
    (commit_latency, commit_sent): (&Histogram, &AtomicBool),
) -> Result<SaveResult, SaveWriteError> {
    let client = transaction.client()?;
    let mut pipeline = Pipeline::default();
    writer.write_records(&mut pipeline, lock_plan)?;
    if !lock_plan.touched_keys.is_empty() {
        let snapshot = writer.snapshot;
        let touched = lock_plan
            .touched_keys
            .iter()
            .map(|key| ConcurrencyLane::for_key(snapshot, key))
            .collect::<Result<Vec<_>, _>>()?;
        let touched: Vec<ConcurrencyLane> = touched.into_iter().flatten().collect();
        pipeline = lanes::rebalance_lanes(
            (client, pipeline),
            snapshot,
            &touched,
            write_set.latest_at,
            &mut writer.lowest_written,
        )
        .await?;
    }
    let end = writer.write_shared(&mut pipeline)?;
    pipeline.add_plain("COMMIT");
    commit_sent.store(true, Ordering::SeqCst);
    let (answers, commit) = pipeline.try_run_timed(client).await?;
    commit_latency.record_duration(commit);
    let row = answers.get(end).and_then(|rows| rows.first());
    let row = row.ok_or_else(|| StoreError::corrupt("`log_seq` has no row"))?;
    Ok(SaveResult::Saved { first_seq: rows::unsigned_column(row, 0)?, last_seq: rows::unsigned_column(row, 1)? })
}
