//! Jobs that wait for their time. When it has come they are put where they belong by whoever looks for work next: nobody has to
//! walk past them before.
//!
//! Many processes look. A job without a key is moved by whoever has locked its row in `later`; others leave it alone, and a save that
//! takes it away waits for the row before it looks in `ready`. A job with a key is moved by whoever holds the key's count of running
//! jobs, as in every save. So whoever moves jobs waits for counts only, holding nothing but counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::time::Time;
use tokio_postgres::Row;

use super::Inner;
use super::claim::{CLAIM_COUNTS, LOCK_COUNTS};
use super::connect::InTransaction;
use super::lanes::{self, Lane};
use super::marks::Ranks;
use super::pipeline::{Pipeline, arg};
use super::rows;
use crate::columns::NO_WINDOW;
use crate::error::StoreError;

/// Jobs at most that one transaction puts where they belong: savers wait for no longer than that takes.
const AT_ONCE: i64 = 500;

const DUE: &str = "SELECT ready_at, record, lifecycle, key FROM onceward.later \
     WHERE ready_at >= $1 AND ready_at <= $2 ORDER BY ready_at, record LIMIT $3";

/// Should it be lost, they are moved again: nobody was told of it.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = off";

/// Those that somebody else is moving or taking away are left alone.
const MOVE: &str = "WITH gone AS (DELETE FROM onceward.later WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS a, unnest($2::bigint[]) AS r) k CROSS JOIN LATERAL (SELECT ctid FROM onceward.later \
     WHERE ready_at = k.a AND record = k.r OFFSET 0 FOR UPDATE SKIP LOCKED) x)) RETURNING *), \
     made AS (INSERT INTO onceward.ready (lifecycle, rank, record, ready_at, definition) \
     SELECT lifecycle, rank, record, ready_at, definition FROM gone WHERE key IS NULL ON CONFLICT DO NOTHING), \
     joined AS (INSERT INTO onceward.lanes (lifecycle, key, front, rank, record, ready_at, definition) \
     SELECT lifecycle, key, false, rank, record, ready_at, definition FROM gone WHERE key IS NOT NULL) \
     SELECT lifecycle, min(rank), count(*) FROM gone GROUP BY lifecycle";

/// A work key, as its rows have it.
pub(super) type KeyText = (i64, String);

/// What does not stand where it belongs.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Jobs whose time has come, and their work keys.
    times: Vec<i64>,
    records: Vec<i64>,
    keys: BTreeSet<KeyText>,
    /// Work keys in front of which stands somebody whose time has not come.
    pub(super) early: BTreeSet<KeyText>,
}

impl Due {
    pub(super) fn add(&mut self, row: &Row) -> Result<(), StoreError> {
        self.times.push(row.try_get(0)?);
        self.records.push(row.try_get(1)?);
        if let Some(key) = rows::some::<&str>(row, 3)? {
            self.keys.insert((row.try_get::<_, i32>(2)?.into(), key.to_owned()));
        }
        Ok(())
    }

    pub(super) fn first(&self) -> Option<i64> {
        self.times.first().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.times.is_empty() && self.early.is_empty()
    }
}

/// Put these where they belong; whether anything could be moved. Where others were quicker that is no matter.
pub(super) async fn put_right(inner: Arc<Inner>, due: Due, now: Time) -> Result<bool, StoreError> {
    let transaction = InTransaction::new(inner.pool.get().await?);
    match carry(&inner, &transaction, due, now).await {
        Ok((ranks, moved)) => {
            transaction.ended();
            inner.marks.lower(&ranks);
            Ok(moved)
        }
        Err(error) => {
            transaction.roll_back().await;
            if matches!(error, StoreError::Busy) { Ok(false) } else { Err(error) }
        }
    }
}

async fn carry(inner: &Inner, transaction: &InTransaction, due: Due, now: Time) -> Result<(Ranks, bool), StoreError> {
    let known = inner.known();
    let client = transaction.client()?;
    let (mut pipeline, mut ranks) = (Pipeline::default(), Ranks::default());
    pipeline.plain(BEGIN);
    let (mut lanes, mut locked) = (Vec::new(), None);
    let (mut keys, mut early) = (due.keys, due.early);
    keys.append(&mut early);
    if !keys.is_empty() {
        for (lifecycle, key) in &keys {
            lanes.extend(Lane::by_number(&known, *lifecycle, key.clone())?);
        }
        let (lifecycles, keys): (Vec<i64>, Vec<String>) = keys.into_iter().unzip();
        if let Some(name) = known.names.number("work.key") {
            let count = keys.len();
            let (names, spans, wholes) = (vec![name; count], vec![NO_WINDOW; count], vec![None::<&str>; count]);
            // Where nothing runs the count may have been pruned.
            let claimed =
                vec![arg(lifecycles.clone()), arg(names.clone()), arg(keys.clone()), arg(spans.clone()), arg(wholes)];
            pipeline.add(CLAIM_COUNTS, claimed);
            let held = pipeline.add(LOCK_COUNTS, vec![arg(lifecycles), arg(names), arg(keys), arg(spans)]);
            locked = Some((held, count));
        }
    }
    let moved = pipeline.add(MOVE, vec![arg(due.times), arg(due.records)]);
    if lanes.is_empty() {
        pipeline.plain("COMMIT");
    }
    let answers = pipeline.run(client).await?;
    if !lanes.is_empty() && locked.is_some_and(|(held, count)| answers[held].len() < count) {
        return Err(StoreError::Busy);
    }
    let mut count = 0;
    for row in &answers[moved] {
        ranks.comes(row.try_get::<_, i32>(0)?.into(), row.try_get(1)?);
        count += row.try_get::<_, i64>(2)?;
    }
    if !lanes.is_empty() {
        let settled = lanes::settle((client, Pipeline::default()), &known, &lanes, now, &mut ranks).await;
        let mut pipeline = settled.map_err(|unwritten| unwritten.error)?;
        pipeline.plain("COMMIT");
        pipeline.run(client).await?;
    }
    let moved = count > 0 || ranks.soonest < Time::MAX;
    Ok((ranks, moved))
}

/// The statement that finds them, from a mark on.
pub(super) fn ask(pipeline: &mut Pipeline<'_>, from: i64, now: Time) -> usize {
    pipeline.add(DUE, vec![arg(from), arg(now.micros()), arg(AT_ONCE)])
}
