//! What waits for workers, and what is due.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use tokio_postgres::Row;

use super::Inner;
use super::later::{self, Due};
use super::marks::{self, Line};
use super::pipeline::{Pipeline, arg};
use super::rows::{self, size};
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::names::Known;
use crate::query::{Candidate, LeaseQuery};

const DUE: &str = "SELECT t.due, r.id FROM onceward.timers t JOIN onceward.records r ON r.row = t.record \
     WHERE t.due >= $1 AND t.due <= $2 ORDER BY t.due, t.record LIMIT $3";

/// After a rank and a row, with how many of its key run. Of work keys also who stands in front too early: the clock was set back.
const READY: &str = "SELECT w.rank, w.record, w.definition, w.key, r.id, c.count, w.ready_at <= $4 \
     FROM onceward.ready w JOIN onceward.records r ON r.row = w.record \
     LEFT JOIN onceward.counts c ON c.lifecycle = w.lifecycle AND c.name = $6::bigint AND c.parts = w.key AND c.span = $7 \
     WHERE w.lifecycle = $1::bigint AND (w.rank, w.record) > ($2::bigint, $3::bigint) AND (w.ready_at <= $4 OR w.key IS NOT NULL) \
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
        look.raise(first.micros());
    }
    Ok(found)
}

pub(super) async fn leasable(inner: &Arc<Inner>, query: &LeaseQuery) -> Result<Vec<Candidate>, StoreError> {
    let mut before = None;
    loop {
        let Looked { found, due } = look(inner, query).await?;
        // What is due goes before the first answer: it may come before others. The rest, if there is so much, a part with each look.
        let is_early = !due.early.is_empty() && before.as_ref() != Some(&due.early);
        if due.is_empty() || before.is_some() && !is_early && (due.first().is_none() || found.len() >= query.limit) {
            return Ok(found);
        }
        before = Some(due.early.clone());
        // In a task of its own: a caller that goes away must not leave a transaction half done.
        let work = later::put_right(Arc::clone(inner), due, query.now);
        let ended = |error: tokio::task::JoinError| StoreError::Unavailable(format!("the move did not end: {error}"));
        if !tokio::spawn(work).await.map_err(ended)?? {
            return Ok(found);
        }
    }
}

/// What one look found.
struct Looked {
    found: Vec<Candidate>,
    /// What must be put right before it can be found.
    due: Due,
}

/// The ready jobs of one lifecycle, as far as they were looked through.
struct Going<'a> {
    lifecycle: Arc<str>,
    number: i64,
    known: Arc<Known>,
    look: marks::Look<'a>,
    after: (i64, i64),
    free: HashMap<String, u64>,
    taken: usize,
}

async fn look(inner: &Inner, query: &LeaseQuery) -> Result<Looked, StoreError> {
    let mut lifecycles = query.lifecycles.clone();
    lifecycles.sort_unstable();
    lifecycles.dedup();
    let heard = inner.news.count();
    let mut going = Vec::new();
    for lifecycle in lifecycles {
        let known = inner.known_with(&lifecycle).await?;
        let Some(number) = known.names.number(&lifecycle) else { continue };
        let look = inner.marks.begin(Line::Ready(number), heard);
        let after = (look.from, i64::MIN);
        going.push(Going { lifecycle, number, known, look, after, free: HashMap::new(), taken: 0 });
    }
    let (mut ranked, mut due) = (Vec::new(), Due::default());
    let later = inner.marks.begin(Line::Later, heard);
    let mut asks_later = true;
    // A page more only where keys were full: the front of a lane holds few that may not run.
    let page = query.limit.saturating_add(20);
    while !going.is_empty() {
        let mut pipeline = Pipeline::default();
        let waiting = asks_later.then(|| later::ask(&mut pipeline, later.from, query.now));
        asks_later = false;
        let asked: Vec<_> = going.iter().map(|going| going.ask(&mut pipeline, query, page)).collect();
        let answers = inner.run(&pipeline).await?;
        for row in waiting.into_iter().flat_map(|at| &answers[at]) {
            due.add(row)?;
        }
        let mut left = Vec::new();
        for (mut going, (ready, lowest)) in going.into_iter().zip(asked) {
            if let Some(row) = answers[lowest].first() {
                going.look.raise(row.try_get(0)?);
            }
            going.take(&answers[ready], query.limit, &mut ranked, &mut due)?;
            if answers[ready].len() >= page && going.taken < query.limit {
                left.push(going);
            }
        }
        going = left;
    }
    if let Some(first) = due.first() {
        later.raise(first);
    }
    ranked.sort_by_key(|(rank, row, _)| (*rank, *row));
    Ok(Looked { found: ranked.into_iter().take(query.limit).map(|(_, _, candidate)| candidate).collect(), due })
}

impl Going<'_> {
    /// Where the answers will stand: the next page, and the first of all.
    fn ask(&self, pipeline: &mut Pipeline<'_>, query: &LeaseQuery, page: usize) -> (usize, usize) {
        let work_key = self.known.names.number("work.key").unwrap_or(-1);
        let place = [arg(self.number), arg(self.after.0), arg(self.after.1), arg(query.now.micros())];
        let how = [arg(size(page)), arg(work_key), arg(NO_WINDOW)];
        let ready = pipeline.add(READY, place.into_iter().chain(how).collect());
        (ready, pipeline.add(LOWEST, vec![arg(self.number), arg(self.look.from)]))
    }

    fn take(
        &mut self,
        rows: &[Row],
        limit: usize,
        ranked: &mut Vec<(i64, i64, Candidate)>,
        due: &mut Due,
    ) -> Result<(), StoreError> {
        for row in rows {
            if self.taken == limit {
                return Ok(());
            }
            self.after = (row.try_get(0)?, row.try_get(1)?);
            let id = rows::id(row, 4)?;
            if let Some(text) = rows::some::<&str>(row, 3)? {
                if !row.try_get::<_, bool>(6)? {
                    due.early.insert((self.number, text.to_owned()));
                    continue;
                }
                let running = rows::some_unsigned(row, 5)?.unwrap_or(0);
                let known = &self.known;
                let room =
                    self.free.entry(text.to_owned()).or_insert_with(|| room(known, row.try_get(2).ok(), running));
                if *room == 0 {
                    continue;
                }
                *room -= 1;
            }
            self.taken += 1;
            let candidate = Candidate { record: id, lifecycle: Arc::clone(&self.lifecycle) };
            ranked.push((self.after.0, self.after.1, candidate));
        }
        Ok(())
    }
}

/// How many more jobs of a key may run. In an ordered key's front stands its first job only.
fn room(known: &Known, definition: Option<i32>, running: u64) -> u64 {
    let definition = definition.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    let limit = known.work_key(definition).and_then(|key| key.limit);
    limit.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(running))
}
