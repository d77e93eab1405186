//! Lanes of concurrency keys in PostgreSQL. Due jobs of a key are in its lane; as many as can run are also in the ready
//! table. So a candidate scan never passes the jobs that must wait. Rebalancing a lane requires the lock on the key's
//! counter.

use std::collections::BTreeSet;

use onceward_core::decide::{ConcurrencyKey, readiness};
use onceward_core::time::Time;
use tokio_postgres::Row;

use super::client::PooledClient;
use super::pipeline::{Pipeline, param};
use super::queue_writes::{ReadyRow, ReadyWrites};
use super::rows::{self, indexed_key_text, ordinal_index};
use super::save::SaveWriteError;
use super::scan_cursors::LowestWritten;
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::query::priority_rank;
use crate::symbols::CatalogSnapshot;

/// Bounds how many jobs one batch moves from the front of a lane to the back.
const MAX_DEMOTED_JOBS: i64 = 200;

/// Larger than any number of jobs, and small enough for sums not to overflow.
const UNLIMITED_JOBS: i64 = i64::MAX / 4;

/// Selects the first jobs at the front or at the back of each lane, and how many can be at the front.
const SELECT_LANES_SQL: &str = "SELECT k.i, l.rank, l.record, l.ready_at, l.definition, greatest(0, k.most - coalesce(c.count, 0)) \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[]) WITH ORDINALITY k(l, p, most, i) \
     LEFT JOIN onceward.counts c ON c.lifecycle = k.l AND c.name = $4::bigint AND c.parts = k.p AND c.window_start = $5::bigint \
     CROSS JOIN LATERAL (SELECT rank, record, ready_at, definition FROM onceward.lanes \
     WHERE lifecycle = k.l AND key = k.p AND front = $6::bool \
     ORDER BY rank, record LIMIT greatest(0, k.most - coalesce(c.count, 0)) + $7::bigint) l ORDER BY k.i, l.rank, l.record";

/// Selects the first job of each ordered key.
const SELECT_FIRST_JOBS_SQL: &str = "SELECT w.*, k.i FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY k(l, p, i) CROSS JOIN LATERAL \
     (SELECT id FROM onceward.queues WHERE lifecycle = k.l AND parts = k.p ORDER BY created_at, id LIMIT 1) q \
     JOIN onceward.records_with_execution w ON w.id = q.id";

/// Column of the key's ordinal, after the columns of the view `records_with_execution`.
const FIRST_JOB_KEY_COLUMN: usize = rows::VIEW_COLUMNS;

/// Has no effect on delayed jobs, which are in no lane.
const SET_FRONT_SQL: &str = "WITH turned AS (UPDATE onceward.lanes l SET front = k.f \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bool[]) k(l, p, k, r, f) \
     WHERE l.lifecycle = k.l AND l.key = k.p AND l.front = NOT k.f AND l.rank = k.k AND l.record = k.r RETURNING l.*) \
     INSERT INTO onceward.ready (lifecycle, rank, record, ready_at, definition, key) \
     SELECT lifecycle, rank, record, ready_at, definition, key FROM turned WHERE front";

const DELAY_LANE_JOBS_SQL: &str = "WITH gone AS (DELETE FROM onceward.lanes WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) k(l, p, k, r) CROSS JOIN LATERAL (SELECT ctid \
     FROM onceward.lanes WHERE lifecycle = k.l AND key = k.p AND front IN (false, true) AND rank = k.k AND record = k.r \
     OFFSET 0) x)) RETURNING *) INSERT INTO onceward.delayed (ready_at, record, lifecycle, rank, definition, key) \
     SELECT ready_at, record, lifecycle, rank, definition, key FROM gone";

/// A concurrency key whose lane is rebalanced.
#[derive(Clone, Debug)]
pub(super) struct ConcurrencyLane {
    lifecycle: i64,
    key: String,
    is_ordered: bool,
    /// How many jobs can run at the same time.
    max_running: i64,
}

impl ConcurrencyLane {
    /// Returns `None` if the lifecycle no longer exists.
    pub(super) fn for_key(snapshot: &CatalogSnapshot, key: &ConcurrencyKey) -> Result<Option<Self>, StoreError> {
        Self::for_lifecycle(snapshot, snapshot.symbols.require_id(&key.lifecycle)?, indexed_key_text(&key.parts)?.0)
    }

    /// Uses the policy of the current version. If older versions have another policy, `decide` still enforces it.
    pub(super) fn for_lifecycle(
        snapshot: &CatalogSnapshot,
        lifecycle: i64,
        key: String,
    ) -> Result<Option<Self>, StoreError> {
        let Ok(name) = snapshot.symbols.name(lifecycle) else { return Ok(None) };
        let Some(current) = snapshot.catalog.definitions.get(&name) else { return Ok(None) };
        let policy = snapshot.concurrency_policy(snapshot.catalog.version_number(current)?);
        let is_ordered = policy.is_some_and(|key| key.ordered);
        // For an ordered key only the first job matters, and another query selects it.
        let max_running =
            if is_ordered { 0 } else { policy.and_then(|key| key.limit).map_or(UNLIMITED_JOBS, i64::from) };
        Ok(Some(Self { lifecycle, key, is_ordered, max_running }))
    }
}

/// Moves the right jobs of these keys to the front of their lanes. Must run after everything else of the batch is in
/// the pipeline. Returns the statements that remain to be sent.
pub(super) async fn rebalance_lanes<'a>(
    (client, mut pipeline): (&PooledClient, Pipeline<'a>),
    snapshot: &CatalogSnapshot,
    lanes: &[ConcurrencyLane],
    now: Time,
    lowest_written: &mut LowestWritten,
) -> Result<Pipeline<'a>, SaveWriteError> {
    loop {
        let lane_query = LaneQuery::add_queries(&mut pipeline, snapshot, lanes);
        let answers = pipeline.try_run(client).await?;
        let states = lane_query.read_states(lanes, snapshot, &answers)?;
        let mut updates = LaneUpdates::default();
        for (lane, state) in lanes.iter().zip(&states) {
            state.delay_early_jobs(&mut updates, lane, now);
        }
        let has_delayed = !updates.delayed.is_empty();
        if !has_delayed {
            for (lane, state) in lanes.iter().zip(&states) {
                state.rebalance(&mut updates, lane, now);
            }
        }
        pipeline = Pipeline::default();
        updates.write(&mut pipeline, lowest_written);
        if !has_delayed {
            return Ok(pipeline);
        }
    }
}

/// Positions of the results in the pipeline.
struct LaneQuery {
    front_index: usize,
    back_index: usize,
    first_job_index: usize,
}

impl LaneQuery {
    fn add_queries(pipeline: &mut Pipeline<'_>, snapshot: &CatalogSnapshot, lanes: &[ConcurrencyLane]) -> Self {
        let work_key = snapshot.symbols.id("work.key").unwrap_or(-1);
        let lifecycles = |ordered: bool| -> Vec<i64> {
            lanes.iter().map(|lane| if ordered && !lane.is_ordered { -1 } else { lane.lifecycle }).collect()
        };
        let keys = || lanes.iter().map(|lane| lane.key.clone()).collect::<Vec<_>>();
        let max_running: Vec<i64> = lanes.iter().map(|lane| lane.max_running).collect();
        let mut ask = |front: bool, beyond: i64| {
            let of = [param(lifecycles(false)), param(keys()), param(max_running.clone())];
            let how = [param(work_key), param(NO_WINDOW), param(front), param(beyond)];
            pipeline.add(SELECT_LANES_SQL, of.into_iter().chain(how).collect())
        };
        let front = ask(true, MAX_DEMOTED_JOBS);
        let back = ask(false, 0);
        let first = pipeline.add(SELECT_FIRST_JOBS_SQL, vec![param(lifecycles(true)), param(keys())]);
        Self { front_index: front, back_index: back, first_job_index: first }
    }

    fn read_states(
        &self,
        lanes: &[ConcurrencyLane],
        snapshot: &CatalogSnapshot,
        answers: &[Vec<Row>],
    ) -> Result<Vec<LaneState>, StoreError> {
        let mut states: Vec<LaneState> = lanes.iter().map(|_| LaneState::default()).collect();
        for (at, front) in [(self.front_index, true), (self.back_index, false)] {
            for row in &answers[at] {
                let number = ordinal_index(row, 0)?;
                let state_and_lane = states.get_mut(number).zip(lanes.get(number));
                let (state, lane) = state_and_lane
                    .ok_or_else(|| StoreError::corrupt("the database returned a lane that was not requested"))?;
                state.free_slots = usize::try_from(row.try_get::<_, i64>(5)?).unwrap_or(usize::MAX);
                let ready_row = ReadyRow {
                    lifecycle: lane.lifecycle,
                    rank: row.try_get(1)?,
                    record_row: row.try_get(2)?,
                    ready_at: rows::time_column(row, 3)?,
                    version_number: i64::from(rows::u32_column(row, 4)?),
                };
                if front { &mut state.front } else { &mut state.back }.push(ready_row);
            }
        }
        for row in &answers[self.first_job_index] {
            let number = ordinal_index(row, FIRST_JOB_KEY_COLUMN)?;
            if let Some((state, lane)) = states.get_mut(number).zip(lanes.get(number)) {
                state.first_job = read_first_job(row, snapshot, lane.lifecycle)?;
            }
        }
        Ok(states)
    }
}

/// Changes of lane rows.
#[derive(Default)]
struct LaneUpdates {
    /// With the key, and whether the job moves to the front.
    front_changes: Vec<(ReadyRow, String, bool)>,
    /// With the key: jobs that are not due any more.
    delayed: Vec<(ReadyRow, String)>,
}

impl LaneUpdates {
    fn set_front(&mut self, lane: &ConcurrencyLane, row: &ReadyRow, to_front: bool) {
        self.front_changes.push((*row, lane.key.clone(), to_front));
    }

    fn write(self, pipeline: &mut Pipeline<'_>, lowest_written: &mut LowestWritten) {
        let mut ready = ReadyWrites::default();
        for (ready_row, _, to_front) in &self.front_changes {
            if *to_front {
                lowest_written.add_ready(ready_row.lifecycle, ready_row.rank);
            } else {
                ready.remove(ready_row.lifecycle, ready_row.rank, ready_row.record_row);
            }
        }
        for (ready_row, _) in &self.delayed {
            ready.remove(ready_row.lifecycle, ready_row.rank, ready_row.record_row);
            lowest_written.earliest_ready_at = ready_row.ready_at.min(lowest_written.earliest_ready_at);
        }
        ready.write(pipeline);
        if !self.delayed.is_empty() {
            let lane_rows: Vec<_> = self.delayed.iter().map(|(ready_row, key)| (ready_row, key)).collect();
            pipeline.add(DELAY_LANE_JOBS_SQL, lane_columns(&lane_rows));
        }
        if !self.front_changes.is_empty() {
            let lane_rows: Vec<_> = self.front_changes.iter().map(|(ready_row, key, _)| (ready_row, key)).collect();
            let mut parameters = lane_columns(&lane_rows);
            parameters.push(param(self.front_changes.iter().map(|(.., front)| *front).collect::<Vec<_>>()));
            pipeline.add(SET_FRONT_SQL, parameters);
        }
    }
}

/// Returns the columns lifecycle, key, rank and record of lane rows.
fn lane_columns<'a>(rows: &[(&ReadyRow, &String)]) -> Vec<super::pipeline::SqlParameter<'a>> {
    let column = |of: fn(&ReadyRow) -> i64| rows.iter().map(|(ready_row, _)| of(ready_row)).collect::<Vec<_>>();
    let keys: Vec<String> = rows.iter().map(|(_, key)| (*key).clone()).collect();
    vec![
        param(column(|ready_row| ready_row.lifecycle)),
        param(keys),
        param(column(|ready_row| ready_row.rank)),
        param(column(|ready_row| ready_row.record_row)),
    ]
}

/// Returns the first job of an ordered key, if it is waiting for a worker.
fn read_first_job(row: &Row, snapshot: &CatalogSnapshot, lifecycle: i64) -> Result<Option<ReadyRow>, StoreError> {
    let number = rows::version_number(row)?;
    if number > snapshot.catalog.newest_version_number() {
        // Another process has just added this version. The next attempt loads it.
        return Err(StoreError::Busy);
    }
    let (stored, record) = rows::read_record(row, &snapshot.catalog)?;
    Ok(readiness(&record).map(|waiting| ReadyRow {
        lifecycle,
        rank: priority_rank(waiting.priority, waiting.ready_at),
        record_row: rows::to_signed(stored.row_id),
        ready_at: waiting.ready_at,
        version_number: i64::from(number),
    }))
}

/// The jobs of one lane.
#[derive(Default)]
struct LaneState {
    front: Vec<ReadyRow>,
    back: Vec<ReadyRow>,
    first_job: Option<ReadyRow>,
    free_slots: usize,
}

impl LaneState {
    /// Delays jobs again that are not due any more, because the clock was set back.
    fn delay_early_jobs(&self, updates: &mut LaneUpdates, lane: &ConcurrencyLane, now: Time) {
        if !lane.is_ordered {
            let early = self.front.iter().chain(&self.back).filter(|ready_row| ready_row.ready_at > now);
            updates.delayed.extend(early.map(|ready_row| (*ready_row, lane.key.clone())));
        }
    }

    fn rebalance(&self, updates: &mut LaneUpdates, lane: &ConcurrencyLane, now: Time) {
        if lane.is_ordered {
            return self.rebalance_ordered(updates, lane, now);
        }
        let mut best: Vec<&ReadyRow> = self.front.iter().chain(&self.back).collect();
        best.sort_unstable_by_key(|ready_row| (ready_row.rank, ready_row.record_row));
        best.truncate(self.free_slots);
        let front_rows: BTreeSet<i64> = best.iter().map(|ready_row| ready_row.record_row).collect();
        for ready_row in self.front.iter().filter(|ready_row| !front_rows.contains(&ready_row.record_row)) {
            updates.set_front(lane, ready_row, false);
        }
        for ready_row in self.back.iter().filter(|ready_row| front_rows.contains(&ready_row.record_row)) {
            updates.set_front(lane, ready_row, true);
        }
    }

    fn rebalance_ordered(&self, updates: &mut LaneUpdates, lane: &ConcurrencyLane, now: Time) {
        let is_first =
            |ready_row: &ReadyRow| self.first_job.is_some_and(|first| first.record_row == ready_row.record_row);
        for ready_row in self.front.iter().filter(|ready_row| !is_first(ready_row)) {
            updates.set_front(lane, ready_row, false);
        }
        match self.first_job {
            Some(first) if first.ready_at > now => updates.delayed.push((first, lane.key.clone())),
            Some(first) if !self.front.iter().any(is_first) => updates.set_front(lane, &first, true),
            _ => {}
        }
    }
}
