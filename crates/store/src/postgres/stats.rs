//! Statistics of a PostgreSQL store for monitoring.

use std::sync::Arc;

use onceward_core::time::Time;

use super::pipeline::{Pipeline, param};
use super::rows::{time_column, to_limit, u32_column, unsigned_column};
use super::{PostgresInner, read};
use crate::error::StoreError;
use crate::stats::{MAX_COUNTED_READY, MAX_SCANNED_READY_PER_END, MAX_SCANNED_TIMERS, ReadyCount, StoreStats};

const SELECT_OLDEST_READY_SQL: &str = "SELECT r.definition, r.state, min(w.ready_at) FROM unnest($1::bigint[]) l(id) \
     CROSS JOIN LATERAL ((SELECT record, ready_at FROM onceward.ready WHERE lifecycle = l.id ORDER BY rank, record LIMIT $2) UNION \
     (SELECT record, ready_at FROM onceward.ready WHERE lifecycle = l.id ORDER BY rank DESC, record DESC LIMIT $2)) w \
     JOIN onceward.records r ON r.row = w.record WHERE w.ready_at <= $3 GROUP BY r.definition, r.state";

const COUNT_READY_SQL: &str = "SELECT l.at, (SELECT count(*) FROM \
     (SELECT 1 FROM onceward.ready WHERE lifecycle = l.id AND ready_at <= $2 LIMIT $3) w) \
     FROM unnest($1::bigint[]) WITH ORDINALITY l(id, at)";

/// Delayed jobs that are due but not promoted yet.
const SELECT_OLDEST_DELAYED_SQL: &str = "SELECT r.definition, r.state, min(l.ready_at) FROM \
     (SELECT record, ready_at FROM onceward.delayed WHERE ready_at <= $1 ORDER BY ready_at, record LIMIT $2) l \
     JOIN onceward.records r ON r.row = l.record GROUP BY r.definition, r.state";

/// Each live lease has a timer for its expiry, and few other timers are due as early.
const COUNT_LEASES_SQL: &str = "SELECT count(*) FROM (SELECT record FROM onceward.timers ORDER BY due_at, record LIMIT $1) t \
     JOIN onceward.records r ON r.row = t.record JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt \
     WHERE e.status < 3";

const COUNT_OVERDUE_SQL: &str = "SELECT count(*), min(due_at) FROM \
     (SELECT due_at FROM onceward.timers WHERE due_at <= $1 ORDER BY due_at, record LIMIT $2) t";

pub(super) async fn read_stats(inner: &PostgresInner, now: Time) -> Result<StoreStats, StoreError> {
    let mut stats = StoreStats { state_counts: read::counts_by_state(inner, None).await?, ..StoreStats::default() };
    let snapshot = inner.newest_catalog().await?;
    let lifecycles = snapshot.catalog.definitions.lifecycles.keys().map(|name| snapshot.symbols.require_id(name));
    let lifecycles = lifecycles.collect::<Result<Vec<i64>, _>>()?;
    let mut pipeline = Pipeline::default();
    let ready = pipeline
        .add(COUNT_READY_SQL, vec![param(lifecycles.clone()), param(now.micros()), param(to_limit(MAX_COUNTED_READY))]);
    let oldest = pipeline.add(
        SELECT_OLDEST_READY_SQL,
        vec![param(lifecycles), param(to_limit(MAX_SCANNED_READY_PER_END)), param(now.micros())],
    );
    let delayed =
        pipeline.add(SELECT_OLDEST_DELAYED_SQL, vec![param(now.micros()), param(to_limit(MAX_SCANNED_READY_PER_END))]);
    let leases = pipeline.add(COUNT_LEASES_SQL, vec![param(to_limit(MAX_SCANNED_TIMERS))]);
    let overdue = pipeline.add(COUNT_OVERDUE_SQL, vec![param(now.micros()), param(to_limit(MAX_SCANNED_TIMERS))]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let names: Vec<&Arc<str>> = snapshot.catalog.definitions.lifecycles.keys().collect();
    for row in &answers[ready] {
        // Ordinals start at 1.
        let at = usize::try_from(unsigned_column(row, 0)?).unwrap_or(usize::MAX).wrapping_sub(1);
        let (lifecycle, jobs) = (names.get(at), unsigned_column(row, 1)?);
        if let (Some(lifecycle), 1..) = (lifecycle, jobs) {
            stats.ready_counts.push(ReadyCount { lifecycle: Arc::clone(lifecycle), jobs });
        }
    }
    let newest = answers[oldest]
        .iter()
        .chain(&answers[delayed])
        .try_fold(0, |newest, row| u32_column(row, 0).map(|number| number.max(newest)))?;
    let snapshot = inner.catalog_with_version(newest).await?;
    for row in answers[oldest].iter().chain(&answers[delayed]) {
        let version = snapshot.catalog.by_number(u32_column(row, 0)?);
        let state = usize::try_from(row.try_get::<_, i16>(1)?).ok();
        let found = version.and_then(|version| Some((&version.name, &version.states.get(state?)?.name)));
        let (lifecycle, state) =
            found.ok_or_else(|| StoreError::corrupt("a ready job does not match its lifecycle"))?;
        stats.note_oldest_ready(lifecycle, state, time_column(row, 2)?);
    }
    if let Some(row) = answers[leases].first() {
        stats.live_leases = unsigned_column(row, 0)?;
    }
    if let Some(row) = answers[overdue].first() {
        stats.overdue_records = unsigned_column(row, 0)?;
        stats.overdue_since = row.try_get::<_, Option<i64>>(1)?.map(Time::from_micros);
    }
    stats.oldest_ready.sort_unstable();
    stats.ready_counts.sort_unstable();
    Ok(stats)
}
