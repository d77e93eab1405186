//! Who stands in front of a work key. Jobs of a key whose time has come wait in a lane; only as many as may run stand in `ready`
//! as well, so that leasing never walks past the many that may not. Whoever settles a key's lane holds the key's lock.

use std::collections::BTreeSet;

use onceward_core::decide::{QueueKey, readiness};
use onceward_core::time::Time;
use tokio_postgres::Row;

use super::client::Client;
use super::lines::{Ready, Spot};
use super::marks::Ranks;
use super::pipeline::{Pipeline, arg};
use super::rows::{self, asked, key_text};
use super::save::Unwritten;
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::names::Known;
use crate::query::rank;

/// Jobs that stand in front and should not: so many at most are sent back by one batch.
const SENT_BACK: i64 = 200;

/// As many as nobody has.
const NO_LIMIT: i64 = i64::MAX / 4;

/// The first in each lane, in front or at the back, with how many may stand in front.
const LANES: &str = "SELECT k.i, l.rank, l.record, l.ready_at, l.definition, greatest(0, k.most - coalesce(c.count, 0)) \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[]) WITH ORDINALITY k(l, p, most, i) \
     LEFT JOIN onceward.counts c ON c.lifecycle = k.l AND c.name = $4::bigint AND c.parts = k.p AND c.span = $5::bigint \
     CROSS JOIN LATERAL (SELECT rank, record, ready_at, definition FROM onceward.lanes \
     WHERE lifecycle = k.l AND key = k.p AND front = $6::bool \
     ORDER BY rank, record LIMIT greatest(0, k.most - coalesce(c.count, 0)) + $7::bigint) l ORDER BY k.i, l.rank, l.record";

/// The first job of each ordered key.
const FIRST: &str = "SELECT w.*, k.i FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY k(l, p, i) CROSS JOIN LATERAL \
     (SELECT id FROM onceward.queues WHERE lifecycle = k.l AND parts = k.p ORDER BY created_at, id LIMIT 1) q \
     JOIN onceward.whole w ON w.id = q.id";

/// Where the key's number stands beside the columns of `whole`.
const FIRST_KEY: usize = 34;

/// One that still waits for its time stands on neither side.
const TURN: &str = "WITH turned AS (UPDATE onceward.lanes l SET front = k.f \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bool[]) k(l, p, k, r, f) \
     WHERE l.lifecycle = k.l AND l.key = k.p AND l.front = NOT k.f AND l.rank = k.k AND l.record = k.r RETURNING l.*) \
     INSERT INTO onceward.ready (lifecycle, rank, record, ready_at, definition, key) \
     SELECT lifecycle, rank, record, ready_at, definition, key FROM turned WHERE front";

const PUT_OFF: &str = "WITH gone AS (DELETE FROM onceward.lanes WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) k(l, p, k, r) CROSS JOIN LATERAL (SELECT ctid \
     FROM onceward.lanes WHERE lifecycle = k.l AND key = k.p AND front IN (false, true) AND rank = k.k AND record = k.r \
     OFFSET 0) x)) RETURNING *) INSERT INTO onceward.later (ready_at, record, lifecycle, rank, definition, key) \
     SELECT ready_at, record, lifecycle, rank, definition, key FROM gone";

/// A work key that is looked at.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    lifecycle: i64,
    key: String,
    ordered: bool,
    /// How many may run.
    most: i64,
}

impl Lane {
    /// `None` for a lifecycle that is no longer there.
    pub(super) fn of(known: &Known, key: &QueueKey) -> Result<Option<Self>, StoreError> {
        Self::by_number(known, known.names.known(&key.lifecycle)?, key_text(&key.parts)?.0)
    }

    /// By the current version: should an older one share its keys otherwise, `decide` has the last word.
    pub(super) fn by_number(known: &Known, lifecycle: i64, key: String) -> Result<Option<Self>, StoreError> {
        let Ok(name) = known.names.name(lifecycle) else { return Ok(None) };
        let Some(current) = known.catalog.definitions.get(&name) else { return Ok(None) };
        let shared = known.work_key(known.catalog.number_of(current)?);
        let ordered = shared.is_some_and(|key| key.ordered);
        // Of an ordered key nobody else is asked about than its first job.
        let most = if ordered { 0 } else { shared.and_then(|key| key.limit).map_or(NO_LIMIT, i64::from) };
        Ok(Some(Self { lifecycle, key, ordered, most }))
    }
}

/// Bring the right jobs of these keys to the front, after all else that was to be written is. What is left to be sent.
pub(super) async fn settle<'a>(
    (client, mut pipeline): (&Client, Pipeline<'a>),
    known: &Known,
    lanes: &[Lane],
    now: Time,
    ranks: &mut Ranks,
) -> Result<Pipeline<'a>, Unwritten> {
    loop {
        let looking = Looking::ask(&mut pipeline, known, lanes);
        let answers = pipeline.attempt(client).await?;
        let standing = looking.standing(lanes, known, &answers)?;
        let mut turns = Turns::default();
        for (lane, standing) in lanes.iter().zip(&standing) {
            standing.put_off(&mut turns, lane, now);
        }
        let put_off = !turns.off.is_empty();
        if !put_off {
            for (lane, standing) in lanes.iter().zip(&standing) {
                standing.settle(&mut turns, lane, now);
            }
        }
        pipeline = Pipeline::default();
        turns.write(&mut pipeline, ranks);
        if !put_off {
            return Ok(pipeline);
        }
    }
}

/// Where the answers stand.
struct Looking {
    front: usize,
    back: usize,
    first: usize,
}

impl Looking {
    fn ask(pipeline: &mut Pipeline<'_>, known: &Known, lanes: &[Lane]) -> Self {
        let work_key = known.names.number("work.key").unwrap_or(-1);
        let lifecycles = |ordered: bool| -> Vec<i64> {
            lanes.iter().map(|lane| if ordered && !lane.ordered { -1 } else { lane.lifecycle }).collect()
        };
        let keys = || lanes.iter().map(|lane| lane.key.clone()).collect::<Vec<_>>();
        let most: Vec<i64> = lanes.iter().map(|lane| lane.most).collect();
        let mut ask = |front: bool, beyond: i64| {
            let of = [arg(lifecycles(false)), arg(keys()), arg(most.clone())];
            let how = [arg(work_key), arg(NO_WINDOW), arg(front), arg(beyond)];
            pipeline.add(LANES, of.into_iter().chain(how).collect())
        };
        let front = ask(true, SENT_BACK);
        let back = ask(false, 0);
        let first = pipeline.add(FIRST, vec![arg(lifecycles(true)), arg(keys())]);
        Self { front, back, first }
    }

    fn standing(&self, lanes: &[Lane], known: &Known, answers: &[Vec<Row>]) -> Result<Vec<Standing>, StoreError> {
        let mut standing: Vec<Standing> = lanes.iter().map(|_| Standing::default()).collect();
        for (at, front) in [(self.front, true), (self.back, false)] {
            for row in &answers[at] {
                let number = asked(row, 0)?;
                let place = standing.get_mut(number).zip(lanes.get(number));
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
            if let Some((standing, lane)) = standing.get_mut(number).zip(lanes.get(number)) {
                standing.first = first(row, known, lane.lifecycle)?;
            }
        }
        Ok(standing)
    }
}

/// Rows that change sides, in columns.
#[derive(Default)]
struct Turns {
    /// With the key, and whether it comes to the front.
    lanes: Vec<(Spot, String, bool)>,
    /// With the key: their time has not come again.
    off: Vec<(Spot, String)>,
}

impl Turns {
    fn turn(&mut self, lane: &Lane, spot: &Spot, to_front: bool) {
        self.lanes.push((*spot, lane.key.clone(), to_front));
    }

    fn write(self, pipeline: &mut Pipeline<'_>, ranks: &mut Ranks) {
        let mut ready = Ready::default();
        for (spot, _, to_front) in &self.lanes {
            if *to_front {
                ranks.comes(spot.lifecycle, spot.rank);
            } else {
                ready.go(spot.lifecycle, spot.rank, spot.row);
            }
        }
        for (spot, _) in &self.off {
            ready.go(spot.lifecycle, spot.rank, spot.row);
            ranks.soonest = spot.from.min(ranks.soonest);
        }
        ready.write(pipeline);
        if !self.off.is_empty() {
            let spots: Vec<_> = self.off.iter().map(|(spot, key)| (spot, key)).collect();
            pipeline.add(PUT_OFF, places(&spots));
        }
        if !self.lanes.is_empty() {
            let spots: Vec<_> = self.lanes.iter().map(|(spot, key, _)| (spot, key)).collect();
            let mut parameters = places(&spots);
            parameters.push(arg(self.lanes.iter().map(|(.., front)| *front).collect::<Vec<_>>()));
            pipeline.add(TURN, parameters);
        }
    }
}

/// Columns of rows in lanes: lifecycle, key, rank, record.
fn places<'a>(spots: &[(&Spot, &String)]) -> Vec<super::pipeline::Parameter<'a>> {
    let column = |of: fn(&Spot) -> i64| spots.iter().map(|(spot, _)| of(spot)).collect::<Vec<_>>();
    let keys: Vec<String> = spots.iter().map(|(_, key)| (*key).clone()).collect();
    vec![arg(column(|spot| spot.lifecycle)), arg(keys), arg(column(|spot| spot.rank)), arg(column(|spot| spot.row))]
}

/// The first job of an ordered key, where it waits for a worker.
fn first(row: &Row, known: &Known, lifecycle: i64) -> Result<Option<Spot>, StoreError> {
    let number = rows::definition(row)?;
    if number > known.catalog.newest() {
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
    /// Those whose time has not come again, because the clock was set back: whoever looks when it has finds them among those that
    /// wait for theirs.
    fn put_off(&self, turns: &mut Turns, lane: &Lane, now: Time) {
        if !lane.ordered {
            let early = self.front.iter().chain(&self.back).filter(|spot| spot.from > now);
            turns.off.extend(early.map(|spot| (*spot, lane.key.clone())));
        }
    }

    fn settle(&self, turns: &mut Turns, lane: &Lane, now: Time) {
        if lane.ordered {
            return self.settle_ordered(turns, lane, now);
        }
        let mut best: Vec<&Spot> = self.front.iter().chain(&self.back).collect();
        best.sort_unstable_by_key(|spot| (spot.rank, spot.row));
        best.truncate(self.free);
        let wanted: BTreeSet<i64> = best.iter().map(|spot| spot.row).collect();
        for spot in self.front.iter().filter(|spot| !wanted.contains(&spot.row)) {
            turns.turn(lane, spot, false);
        }
        for spot in self.back.iter().filter(|spot| wanted.contains(&spot.row)) {
            turns.turn(lane, spot, true);
        }
    }

    fn settle_ordered(&self, turns: &mut Turns, lane: &Lane, now: Time) {
        let stands = |spot: &Spot| self.first.is_some_and(|first| first.row == spot.row);
        for spot in self.front.iter().filter(|spot| !stands(spot)) {
            turns.turn(lane, spot, false);
        }
        match self.first {
            Some(first) if first.from > now => turns.off.push((first, lane.key.clone())),
            Some(first) if !self.front.iter().any(stands) => turns.turn(lane, &first, true),
            _ => {}
        }
    }
}
