//! Who stands in front of a work key. Jobs of a key wait in a lane; only as many as may run stand in `ready` as well, so that
//! leasing never walks past the many that may not. The batch holds the locks of its keys.
//!
//! Unlike in the embedded store nothing is remembered of when lanes were settled: whoever stands at the back had reached its
//! time when it was put there, so all of them count as ready, whatever this process's clock says.

use std::collections::BTreeSet;

use onceward_core::decide::{QueueKey, readiness};
use onceward_core::time::Time;
use tokio_postgres::Row;

use super::lines::{Ready, Spot};
use super::pipeline::{Pipeline, arg};
use super::rows::{self, asked, key_text};
use super::write::Writing;
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::names::Known;
use crate::query::{rank, running};

/// Jobs that stand in front and should not: so many at most are sent back by one batch. More than a few come only from jobs
/// that waited for a time and have reached it together.
const SENT_BACK: i64 = 200;

/// As many as nobody has.
const NO_LIMIT: i64 = i64::MAX / 4;

/// The first in each lane that are ready, in front or at the back, with how many may stand in front.
const LANES: &str = "SELECT k.i, l.rank, l.record, l.ready_at, l.definition, greatest(0, k.most - coalesce(c.count, 0)) \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY k(l, p, most, until, i) \
     LEFT JOIN onceward.counts c ON c.lifecycle = k.l AND c.name = $5::bigint AND c.parts = k.p AND c.span = $6::bigint \
     CROSS JOIN LATERAL (SELECT rank, record, ready_at, definition FROM onceward.lanes \
     WHERE lifecycle = k.l AND key = k.p AND front = $7::bool AND ready_at <= k.until \
     ORDER BY rank, record LIMIT greatest(0, k.most - coalesce(c.count, 0)) + $8::bigint) l ORDER BY k.i, l.rank, l.record";

/// The first job of each ordered key.
const FIRST: &str = "SELECT w.*, k.i FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY k(l, p, i) CROSS JOIN LATERAL \
     (SELECT id FROM onceward.queues WHERE lifecycle = k.l AND parts = k.p ORDER BY created_at, id LIMIT 1) q \
     JOIN onceward.whole w ON w.id = q.id";

/// Where the key's number stands beside the columns of `whole`.
const FIRST_KEY: usize = 33;

const TURN: &str = "UPDATE onceward.lanes l SET front = k.f \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bool[]) k(l, p, k, r, f) \
     WHERE l.lifecycle = k.l AND l.key = k.p AND l.front = NOT k.f AND l.rank = k.k AND l.record = k.r";

/// A work key that is looked at.
struct Lane {
    lifecycle: i64,
    key: String,
    ordered: bool,
    /// How many may run.
    most: i64,
}

/// Lanes on their way to be settled.
pub(super) struct Looking {
    lanes: Vec<Lane>,
    front: usize,
    back: usize,
    first: usize,
}

/// Ask who stands where, after everything else is written.
pub(super) fn look(
    pipeline: &mut Pipeline<'_>,
    known: &Known,
    touched: &BTreeSet<QueueKey>,
    now: Time,
) -> Result<Looking, StoreError> {
    let mut lanes = Vec::new();
    let mut work_key = None;
    for key in touched {
        // By the current version: should an older one share its keys otherwise, `decide` has the last word.
        let Some(current) = known.catalog.definitions.get(&key.lifecycle) else { continue };
        let shared = known.work_key(known.catalog.number_of(current)?);
        work_key = Some(known.names.known(&running(key).limit)?);
        lanes.push(Lane {
            lifecycle: known.names.known(&key.lifecycle)?,
            key: key_text(&key.parts)?.0,
            ordered: shared.is_some_and(|key| key.ordered),
            most: shared.and_then(|key| key.limit).map_or(NO_LIMIT, i64::from),
        });
    }
    let work_key = work_key.unwrap_or(-1);
    let lifecycles = |ordered: bool| -> Vec<i64> {
        lanes.iter().map(|lane| if ordered && !lane.ordered { -1 } else { lane.lifecycle }).collect()
    };
    let keys = || lanes.iter().map(|lane| lane.key.clone()).collect::<Vec<_>>();
    let most: Vec<i64> = lanes.iter().map(|lane| lane.most).collect();
    let mut ask = |front: bool, beyond: i64| {
        // Those at the back have reached their time; in front of an ordered key may stand one that has not.
        let until = |lane: &Lane| if front && !lane.ordered { now } else { Time::MAX };
        let until: Vec<i64> = lanes.iter().map(|lane| until(lane).micros()).collect();
        let of = [arg(lifecycles(false)), arg(keys()), arg(most.clone()), arg(until)];
        let how = [arg(work_key), arg(NO_WINDOW), arg(front), arg(beyond)];
        pipeline.add(LANES, of.into_iter().chain(how).collect())
    };
    let front = ask(true, SENT_BACK);
    let back = ask(false, 0);
    let first = pipeline.add(FIRST, vec![arg(lifecycles(true)), arg(keys())]);
    Ok(Looking { lanes, front, back, first })
}

/// Rows that change sides, in columns.
#[derive(Default)]
struct Turns {
    /// With the key, and whether it comes to the front.
    lanes: Vec<(Spot, String, bool)>,
    ready: Ready,
}

impl Turns {
    fn turn(&mut self, writing: &mut Writing<'_>, lane: &Lane, spot: &Spot, to_front: bool) {
        self.lanes.push((*spot, lane.key.clone(), to_front));
        if to_front {
            self.ready.come(writing, spot, Some(lane.key.clone()));
        } else {
            self.ready.go(lane.lifecycle, spot.rank, spot.row);
        }
    }
}

impl Looking {
    /// Bring the right jobs of each key to the front.
    pub(super) fn settle(
        self,
        pipeline: &mut Pipeline<'_>,
        writing: &mut Writing<'_>,
        answers: &[Vec<Row>],
    ) -> Result<(), StoreError> {
        let mut standing: Vec<Standing> = self.lanes.iter().map(|_| Standing::default()).collect();
        for (at, front) in [(self.front, true), (self.back, false)] {
            for row in &answers[at] {
                let number = asked(row, 0)?;
                let place = standing.get_mut(number).zip(self.lanes.get(number));
                let (standing, lane) = place.ok_or_else(|| StoreError::corrupt("a lane that was not asked for"))?;
                standing.free = usize::try_from(row.try_get::<_, i64>(5)?).unwrap_or(usize::MAX);
                let spot = Spot {
                    lifecycle: lane.lifecycle,
                    rank: row.try_get(1)?,
                    row: row.try_get(2)?,
                    from: rows::time(row, 3)?,
                    definition: i64::from(rows::number(row, 4)?),
                };
                if front { &mut standing.front } else { &mut standing.back }.push(spot);
            }
        }
        for row in &answers[self.first] {
            let number = asked(row, FIRST_KEY)?;
            if let Some((standing, lane)) = standing.get_mut(number).zip(self.lanes.get(number)) {
                standing.first = first(row, writing.known, lane.lifecycle)?;
            }
        }
        let mut turns = Turns::default();
        for (lane, standing) in self.lanes.iter().zip(&standing) {
            if lane.ordered {
                standing.settle_ordered(&mut turns, writing, lane);
            } else {
                standing.settle(&mut turns, writing, lane);
            }
        }
        if !turns.lanes.is_empty() {
            let spots = || turns.lanes.iter().map(|(spot, ..)| spot);
            let parameters = vec![
                arg(spots().map(|spot| spot.lifecycle).collect::<Vec<_>>()),
                arg(turns.lanes.iter().map(|(_, key, _)| key.clone()).collect::<Vec<_>>()),
                arg(spots().map(|spot| spot.rank).collect::<Vec<_>>()),
                arg(spots().map(|spot| spot.row).collect::<Vec<_>>()),
                arg(turns.lanes.iter().map(|(.., front)| *front).collect::<Vec<_>>()),
            ];
            pipeline.add(TURN, parameters);
        }
        turns.ready.write(pipeline);
        Ok(())
    }
}

/// The first job of an ordered key, where it waits for a worker.
fn first(row: &Row, known: &Known, lifecycle: i64) -> Result<Option<Spot>, StoreError> {
    let number = rows::definition(row)?;
    if number > known.catalog.number() {
        // Another process brought it just now: to be learnt before the next attempt.
        return Err(StoreError::Busy);
    }
    let (stored, record) = rows::record(row, &known.catalog)?;
    Ok(readiness(&record).map(|waiting| Spot {
        lifecycle,
        rank: rank(waiting.priority, waiting.from),
        row: rows::signed(stored.row),
        from: waiting.from,
        definition: i64::from(number),
    }))
}

/// Who stands in one lane.
#[derive(Default)]
struct Standing {
    front: Vec<Spot>,
    back: Vec<Spot>,
    first: Option<Spot>,
    free: usize,
}

impl Standing {
    fn settle_ordered(&self, turns: &mut Turns, writing: &mut Writing<'_>, lane: &Lane) {
        let stands = |spot: &Spot| self.first.is_some_and(|first| first.row == spot.row);
        for spot in self.front.iter().filter(|spot| !stands(spot)) {
            turns.turn(writing, lane, spot, false);
        }
        if let Some(first) = &self.first
            && !self.front.iter().any(stands)
        {
            turns.turn(writing, lane, first, true);
        }
    }

    /// One in front whose time has not come is not among these: it stays where it is, and takes nobody's place.
    fn settle(&self, turns: &mut Turns, writing: &mut Writing<'_>, lane: &Lane) {
        let mut best: Vec<&Spot> = self.front.iter().chain(&self.back).collect();
        best.sort_unstable_by_key(|spot| (spot.rank, spot.row));
        best.truncate(self.free);
        let wanted: BTreeSet<i64> = best.iter().map(|spot| spot.row).collect();
        for spot in self.front.iter().filter(|spot| !wanted.contains(&spot.row)) {
            turns.turn(writing, lane, spot, false);
        }
        for spot in self.back.iter().filter(|spot| wanted.contains(&spot.row)) {
            turns.turn(writing, lane, spot, true);
        }
    }
}
