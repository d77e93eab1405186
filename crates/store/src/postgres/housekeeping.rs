//! Deletes rows that are no longer needed and are not in the log: zero counters, expired windows and answered inbox
//! calls.

use onceward_core::time::Time;

use super::PostgresInner;
use super::pipeline::{Pipeline, param};
use super::rows::{self, to_limit};
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::prune::{AnsweredCallsPage, AnsweredCallsQuery, CounterCursor, ExpiredCountersPage, ExpiredCountersQuery};

/// Skips locked counters. A save that has claimed such a counter but not locked it yet finds it missing and starts
/// again. A concurrency key's counter stored under a hash is kept: a promotion knows only the hash and could not create
/// the counter again.
const DELETE_COUNTERS_SQL: &str = "WITH looked AS (SELECT lifecycle, name, parts, window_start FROM onceward.counts \
     WHERE (lifecycle, name, parts, window_start) > ($1::integer, $2::integer, $3::text, $4::bigint) \
     ORDER BY lifecycle, name, parts, window_start LIMIT $5), \
     gone AS (DELETE FROM onceward.counts WHERE ctid = ANY (ARRAY(SELECT c.ctid FROM looked l JOIN onceward.counts c \
     ON c.lifecycle = l.lifecycle AND c.name = l.name AND c.parts = l.parts AND c.window_start = l.window_start \
     WHERE c.count = 0 AND c.full_parts IS NULL OR c.window_start <> $6 AND c.window_start < $7 FOR UPDATE OF c SKIP LOCKED)) RETURNING 1) \
     SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM looked), lifecycle, name, parts, window_start FROM looked \
     ORDER BY lifecycle DESC, name DESC, parts DESC, window_start DESC LIMIT 1";

/// By number, which is roughly insertion order: after the first call that is too recent, all are.
const DELETE_CALLS_SQL: &str = "WITH looked AS (SELECT number, sent_at, answered_at FROM onceward.inbox WHERE number > $1 \
     ORDER BY number LIMIT $2), \
     gone AS (DELETE FROM onceward.inbox i USING looked l WHERE i.number = l.number \
     AND l.answered_at <= to_timestamp($3::double precision / 1000000) RETURNING 1) \
     SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM looked), number, \
     sent_at > to_timestamp($3::double precision / 1000000) FROM looked ORDER BY number DESC LIMIT 1";

pub(super) async fn delete_expired_counters(
    inner: &PostgresInner,
    query: &ExpiredCountersQuery,
) -> Result<ExpiredCountersPage, StoreError> {
    let after = query.after.clone().unwrap_or_default();
    let number = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    let window_cutoff = query.window_cutoff.map_or(NO_WINDOW, Time::micros);
    let mut pipeline = Pipeline::default();
    let from =
        vec![param(number(after.lifecycle)), param(number(after.name)), param(after.parts), param(after.window_start)];
    let rest = vec![param(to_limit(query.limit)), param(NO_WINDOW), param(window_cutoff)];
    pipeline.add(DELETE_COUNTERS_SQL, from.into_iter().chain(rest).collect());
    let answers = inner.run_pipeline(&pipeline).await?;
    let Some(row) = answers[0].first() else { return Ok(ExpiredCountersPage::default()) };
    let (lifecycle, name): (i32, i32) = (row.try_get(2)?, row.try_get(3)?);
    let last = CounterCursor {
        lifecycle: lifecycle.into(),
        name: name.into(),
        parts: row.try_get(4)?,
        window_start: row.try_get(5)?,
    };
    let next = (row.try_get::<_, i64>(1)? >= to_limit(query.limit)).then_some(last);
    Ok(ExpiredCountersPage { deleted: rows::unsigned_column(row, 0)?, next })
}

pub(super) async fn delete_answered_calls(
    inner: &PostgresInner,
    query: &AnsweredCallsQuery,
) -> Result<AnsweredCallsPage, StoreError> {
    let mut pipeline = Pipeline::default();
    #[expect(clippy::cast_precision_loss, reason = "a fraction of a second does not matter")]
    let cutoff = query.cutoff.micros() as f64;
    pipeline.add(DELETE_CALLS_SQL, vec![param(query.after_id), param(to_limit(query.limit)), param(cutoff)]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let Some(row) = answers[0].first() else { return Ok(AnsweredCallsPage::default()) };
    let has_more = row.try_get::<_, i64>(1)? >= to_limit(query.limit) && !row.try_get::<_, bool>(3)?;
    let next = if has_more { Some(row.try_get(2)?) } else { None };
    Ok(AnsweredCallsPage { deleted: rows::unsigned_column(row, 0)?, next })
}
