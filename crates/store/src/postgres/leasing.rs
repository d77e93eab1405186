//! Queries for lease candidates and due records in PostgreSQL.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use tokio_postgres::Row;

use super::PostgresInner;
use super::delayed::{self, DueJobs};
use super::pipeline::{Pipeline, param};
use super::rows::{self, to_limit};
use super::scan_cursors::{self, ScannedIndex};
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::query::{LeaseCandidate, LeaseQuery};
use crate::symbols::CatalogSnapshot;

const SELECT_DUE_SQL: &str = "SELECT t.due_at, r.id FROM onceward.timers t JOIN onceward.records r ON r.row = t.record \
     WHERE t.due_at >= $1 AND t.due_at <= $2 ORDER BY t.due_at, t.record LIMIT $3";

/// Selects ready jobs after a rank and row, with the number of running jobs of their keys. For concurrency keys, also
/// selects jobs at the front that are not due, because the clock was set back.
const SELECT_READY_SQL: &str = "SELECT w.rank, w.record, w.definition, w.key, r.id, c.count, w.ready_at <= $4 \
     FROM onceward.ready w JOIN onceward.records r ON r.row = w.record \
     LEFT JOIN onceward.counts c ON c.lifecycle = w.lifecycle AND c.name = $6::bigint AND c.parts = w.key AND c.window_start = $7 \
     WHERE w.lifecycle = $1::bigint AND (w.rank, w.record) > ($2::bigint, $3::bigint) AND (w.ready_at <= $4 OR w.key IS NOT NULL) \
     ORDER BY w.rank, w.record LIMIT $5";

/// Selects the lowest rank, including jobs that are not due.
const SELECT_LOWEST_RANK_SQL: &str =
    "SELECT rank FROM onceward.ready WHERE lifecycle = $1::bigint AND rank >= $2 ORDER BY rank LIMIT 1";

pub(super) async fn due_records(
    inner: &PostgresInner,
    due_by: Time,
    limit: usize,
) -> Result<Vec<(Time, RecordId)>, StoreError> {
    let scan = inner.scan_cursors.begin_scan(ScannedIndex::Timers, inner.notify_channel.change_count());
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_DUE_SQL, vec![param(scan.start), param(due_by.micros()), param(to_limit(limit))]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let found = answers.iter().flatten().map(|row| Ok((rows::time_column(row, 0)?, rows::record_id_column(row, 1)?)));
    let found = found.collect::<Result<Vec<_>, StoreError>>()?;
    if let Some((first, _)) = found.first() {
        scan.raise_to(first.micros());
    }
    Ok(found)
}

pub(super) async fn lease_candidates(
    inner: &Arc<PostgresInner>,
    query: &LeaseQuery,
) -> Result<Vec<LeaseCandidate>, StoreError> {
    let mut previous_early_keys = None;
    loop {
        let LeaseScan { candidates: found, due_jobs: due } = scan_ready(inner, query).await?;
        // Promote due jobs before the first result, because they may rank higher. If there are many, each further query
        // promotes a part.
        let is_early = !due.early_keys.is_empty() && previous_early_keys.as_ref() != Some(&due.early_keys);
        if due.is_empty()
            || previous_early_keys.is_some()
                && !is_early
                && (due.first_ready_time().is_none() || found.len() >= query.limit)
        {
            return Ok(found);
        }
        previous_early_keys = Some(due.early_keys.clone());
        // In a separate task, so that a cancelled caller does not leave an unfinished transaction.
        let work = delayed::promote_due(Arc::clone(inner), due, query.now);
        let join_error = |error: tokio::task::JoinError| {
            StoreError::Unavailable(format!("the task that makes delayed jobs ready ended early: {error}"))
        };
        if !tokio::spawn(work).await.map_err(join_error)?? {
            return Ok(found);
        }
    }
}

/// Result of one scan.
struct LeaseScan {
    candidates: Vec<LeaseCandidate>,
    /// Jobs that must be moved before a scan can find them.
    due_jobs: DueJobs,
}

/// Progress of the scan of one lifecycle's ready jobs.
struct LifecycleScan<'a> {
    lifecycle: Arc<str>,
    lifecycle_id: i64,
    snapshot: Arc<CatalogSnapshot>,
    scan_guard: scan_cursors::ScanGuard<'a>,
    last_row: (i64, i64),
    free_slots: HashMap<String, u64>,
    taken_jobs: usize,
}

async fn scan_ready(inner: &PostgresInner, query: &LeaseQuery) -> Result<LeaseScan, StoreError> {
    let mut lifecycles = query.lifecycles.clone();
    lifecycles.sort_unstable();
    lifecycles.dedup();
    let seen_changes = inner.notify_channel.change_count();
    let mut open_scans = Vec::new();
    for lifecycle in lifecycles {
        let snapshot = inner.catalog_with_lifecycle(&lifecycle).await?;
        let Some(number) = snapshot.symbols.id(&lifecycle) else { continue };
        let scan_guard = inner.scan_cursors.begin_scan(ScannedIndex::Ready(number), seen_changes);
        let after = (scan_guard.start, i64::MIN);
        open_scans.push(LifecycleScan {
            lifecycle,
            lifecycle_id: number,
            snapshot,
            scan_guard,
            last_row: after,
            free_slots: HashMap::new(),
            taken_jobs: 0,
        });
    }
    let (mut ranked, mut due) = (Vec::new(), DueJobs::default());
    let delayed_scan = inner.scan_cursors.begin_scan(ScannedIndex::Delayed, seen_changes);
    let mut needs_delayed = true;
    // Another page is needed only if concurrency keys were full, and few jobs at the front of a lane cannot run.
    let page = query.limit.saturating_add(20);
    while !open_scans.is_empty() {
        let mut pipeline = Pipeline::default();
        let delayed_index = needs_delayed.then(|| delayed::add_due_query(&mut pipeline, delayed_scan.start, query.now));
        needs_delayed = false;
        let query_indexes: Vec<_> =
            open_scans.iter().map(|scan| scan.add_queries(&mut pipeline, query, page)).collect();
        let answers = inner.run_pipeline(&pipeline).await?;
        for row in delayed_index.into_iter().flat_map(|at| &answers[at]) {
            due.add(row)?;
        }
        let mut unfinished = Vec::new();
        for (mut scan, (ready, lowest)) in open_scans.into_iter().zip(query_indexes) {
            if let Some(row) = answers[lowest].first() {
                scan.scan_guard.raise_to(row.try_get(0)?);
            }
            scan.take_candidates(&answers[ready], query.limit, &mut ranked, &mut due)?;
            if answers[ready].len() >= page && scan.taken_jobs < query.limit {
                unfinished.push(scan);
            }
        }
        open_scans = unfinished;
    }
    if let Some(first) = due.first_ready_time() {
        delayed_scan.raise_to(first);
    }
    ranked.sort_by_key(|(rank, row, _)| (*rank, *row));
    Ok(LeaseScan {
        candidates: ranked.into_iter().take(query.limit).map(|(_, _, candidate)| candidate).collect(),
        due_jobs: due,
    })
}

impl LifecycleScan<'_> {
    /// Adds the queries for the next page and for the lowest rank. Returns the positions of their results.
    fn add_queries(&self, pipeline: &mut Pipeline<'_>, query: &LeaseQuery, page: usize) -> (usize, usize) {
        let work_key = self.snapshot.symbols.id("work.key").unwrap_or(-1);
        let position_parameters =
            [param(self.lifecycle_id), param(self.last_row.0), param(self.last_row.1), param(query.now.micros())];
        let page_parameters = [param(to_limit(page)), param(work_key), param(NO_WINDOW)];
        let ready = pipeline.add(SELECT_READY_SQL, position_parameters.into_iter().chain(page_parameters).collect());
        (ready, pipeline.add(SELECT_LOWEST_RANK_SQL, vec![param(self.lifecycle_id), param(self.scan_guard.start)]))
    }

    fn take_candidates(
        &mut self,
        rows: &[Row],
        limit: usize,
        ranked: &mut Vec<(i64, i64, LeaseCandidate)>,
        due_jobs: &mut DueJobs,
    ) -> Result<(), StoreError> {
        for row in rows {
            if self.taken_jobs == limit {
                return Ok(());
            }
            self.last_row = (row.try_get(0)?, row.try_get(1)?);
            let id = rows::record_id_column(row, 4)?;
            if let Some(text) = rows::optional_column::<&str>(row, 3)? {
                if !row.try_get::<_, bool>(6)? {
                    due_jobs.early_keys.insert((self.lifecycle_id, text.to_owned()));
                    continue;
                }
                let running = rows::optional_unsigned_column(row, 5)?.unwrap_or(0);
                let snapshot = &self.snapshot;
                let slots = self
                    .free_slots
                    .entry(text.to_owned())
                    .or_insert_with(|| free_slots(snapshot, row.try_get(2).ok(), running));
                if *slots == 0 {
                    continue;
                }
                *slots -= 1;
            }
            self.taken_jobs += 1;
            let candidate = LeaseCandidate { record: id, lifecycle: Arc::clone(&self.lifecycle) };
            ranked.push((self.last_row.0, self.last_row.1, candidate));
        }
        Ok(())
    }
}

/// Returns how many more jobs of a key can run. For an ordered key the front contains only the first job anyway.
fn free_slots(snapshot: &CatalogSnapshot, version_number: Option<i32>, running: u64) -> u64 {
    let definition = version_number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    let limit = snapshot.concurrency_policy(definition).and_then(|key| key.limit);
    limit.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(running))
}
