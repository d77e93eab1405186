//! What waits for workers, and what is due.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::time::Time;
use onceward_core::value::RecordId;

use super::Inner;
use super::marks::Line;
use super::pipeline::{Pipeline, arg};
use super::rows::{self, size};
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::names::Known;
use crate::query::{Candidate, LeaseQuery};

const DUE: &str = "SELECT t.due, r.id FROM onceward.timers t JOIN onceward.records r ON r.row = t.record \
     WHERE t.due >= $1 AND t.due <= $2 ORDER BY t.due, t.record LIMIT $3";

/// After a rank and a row, with how many of its key run.
const READY: &str = "SELECT w.rank, w.record, w.definition, w.key, r.id, c.count \
     FROM onceward.ready w JOIN onceward.records r ON r.row = w.record \
     LEFT JOIN onceward.counts c ON c.lifecycle = w.lifecycle AND c.name = $6::bigint AND c.parts = w.key AND c.span = $7 \
     WHERE w.lifecycle = $1::bigint AND (w.rank, w.record) > ($2::bigint, $3::bigint) AND w.ready_at <= $4 \
     ORDER BY w.rank, w.record LIMIT $5";

/// The first of all, also of those whose time has not come.
const LOWEST: &str =
    "SELECT rank FROM onceward.ready WHERE lifecycle = $1::bigint AND rank >= $2 ORDER BY rank LIMIT 1";

pub(super) async fn due(inner: &Inner, until: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
    let look = inner.marks.begin(Line::Timers, inner.news.count());
    let mut pipeline = Pipeline::default();
    pipeline.add(DUE, vec![arg(look.from), arg(until.micros()), arg(size(limit))]);
    let answers = inner.run(&pipeline).await?;
    let found = answers.iter().flatten().map(|row| Ok((rows::time(row, 0)?, rows::id(row, 1)?)));
    let found = found.collect::<Result<Vec<_>, StoreError>>()?;
    if let Some((first, _)) = found.first() {
        inner.marks.raise(look, first.micros());
    }
    Ok(found)
}

pub(super) async fn leasable(inner: &Inner, query: &LeaseQuery) -> Result<Vec<Candidate>, StoreError> {
    let mut lifecycles = query.lifecycles.clone();
    lifecycles.sort_unstable();
    lifecycles.dedup();
    let mut ranked = Vec::new();
    for lifecycle in &lifecycles {
        of_lifecycle(inner, query, lifecycle, &mut ranked).await?;
    }
    ranked.sort_by_key(|(rank, row, _)| (*rank, *row));
    Ok(ranked.into_iter().take(query.limit).map(|(_, _, candidate)| candidate).collect())
}

async fn of_lifecycle(
    inner: &Inner,
    query: &LeaseQuery,
    lifecycle: &Arc<str>,
    ranked: &mut Vec<(i64, i64, Candidate)>,
) -> Result<(), StoreError> {
    let known = inner.known_with(lifecycle).await?;
    let Some(number) = known.names.number(lifecycle) else { return Ok(()) };
    let work_key = known.names.number("work.key").unwrap_or(-1);
    let look = inner.marks.begin(Line::Ready(number), inner.news.count());
    let mut after = (look.from, i64::MIN);
    let mut free: HashMap<String, u64> = HashMap::new();
    let mut taken = 0;
    // A page more only where keys were full: the front of a lane holds few that may not run.
    let page = query.limit.saturating_add(20);
    loop {
        let mut pipeline = Pipeline::default();
        let place = [arg(number), arg(after.0), arg(after.1), arg(query.now.micros())];
        let how = [arg(size(page)), arg(work_key), arg(NO_WINDOW)];
        let ready = pipeline.add(READY, place.into_iter().chain(how).collect());
        let lowest = pipeline.add(LOWEST, vec![arg(number), arg(look.from)]);
        let answers = inner.run(&pipeline).await?;
        if let Some(row) = answers[lowest].first() {
            inner.marks.raise(look, row.try_get(0)?);
        }
        for row in &answers[ready] {
            if taken == query.limit {
                return Ok(());
            }
            after = (row.try_get(0)?, row.try_get(1)?);
            let id = rows::id(row, 4)?;
            if let Some(text) = rows::some::<&str>(row, 3)? {
                let running = rows::some_unsigned(row, 5)?.unwrap_or(0);
                let room = free.entry(text.to_owned()).or_insert_with(|| room(&known, row.try_get(2).ok(), running));
                if *room == 0 {
                    continue;
                }
                *room -= 1;
            }
            taken += 1;
            ranked.push((after.0, after.1, Candidate { record: id, lifecycle: Arc::clone(lifecycle) }));
        }
        if answers[ready].len() < page {
            return Ok(());
        }
    }
}

/// How many more jobs of a key may run. In an ordered key's front stands its first job only.
fn room(known: &Known, definition: Option<i32>, running: u64) -> u64 {
    let definition = definition.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    let limit = known.work_key(definition).and_then(|key| key.limit);
    limit.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(running))
}
