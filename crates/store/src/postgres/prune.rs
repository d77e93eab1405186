//! Taking records out of the database. One process at a time: the row of `pruned` is locked, and whoever finds it locked leaves it.
//! What is let go of is locked as every save locks it: keys, counts, records, each in order.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use onceward_core::value::RecordId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::claim::{LOCK_COUNTS, LOCK_UNIQUES};
use super::connect::{BEGIN, InTransaction};
use super::pipeline::{Parameter, Pipeline, arg};
use super::rows::{self, key_text, signed, size};
use super::write::{END, FEWER, HISTORY, PLACE};
use super::{Inner, Known};
use crate::batch::RequestName;
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::log::NewEntry;
use crate::net::TallyKey;
use crate::prune::{Carry, Forgotten, Kin, OldPage, OldQuery, OldRequests, Prune, PruneSave, Standing};

pub(super) const STANDING: &str = "SELECT checkpoint, floor, head FROM onceward.pruned";

/// In the order of creation, a bounded number at a time; an index by when they ended would cost every record.
const OLD: &str = "SELECT row, id, created_at, updated_at, finished_at FROM onceward.records \
     WHERE row > $1 ORDER BY row LIMIT $2";

const WHOLE: &str = "SELECT * FROM onceward.whole WHERE id = ANY($1::uuid[])";

const SOURCES: &str = "SELECT r.id, r.links, ARRAY(SELECT DISTINCT s.id FROM onceward.links l \
     JOIN onceward.records s ON s.row = l.source WHERE l.target = r.row ORDER BY s.id) \
     FROM onceward.records r WHERE r.id = ANY($1::uuid[])";

const TURN: &str = "SELECT checkpoint, floor, head FROM onceward.pruned FOR UPDATE SKIP LOCKED";

/// Somebody who holds the row is pruning.
const LOOK: &str = "UPDATE onceward.pruned SET looked_at = n.now FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) n \
     WHERE one = (SELECT one FROM onceward.pruned WHERE looked_at <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1 \
     FOR UPDATE SKIP LOCKED) RETURNING one";

const LOCK_RECORDS: &str = "SELECT FROM onceward.records WHERE id = ANY($1::uuid[]) ORDER BY row FOR UPDATE";

/// Asked after they were locked.
const NOW: &str = "SELECT id, row, version, links FROM onceward.records WHERE id = ANY($1::uuid[])";

/// The places of all entries of records, each followed from the last one back.
const PLACES: &str = "WITH RECURSIVE back AS ( \
     SELECT h.place, h.previous, h.record FROM onceward.records r JOIN onceward.history h ON h.place = r.entry AND h.record = r.row \
     WHERE r.id = ANY($1::uuid[]) \
     UNION ALL SELECT h.place, h.previous, h.record FROM back b JOIN onceward.history h ON h.place = b.previous \
     WHERE h.place < b.place AND h.record = b.record) SELECT place FROM back";

pub(super) const NUMBER: &str = "SELECT nextval('onceward.batch_numbers')";

const NO_HISTORY: &str = "DELETE FROM onceward.history WHERE place = ANY($1::bigint[])";

const NO_BATCHES: &str = "DELETE FROM onceward.batches b WHERE b.batch = ANY($1::bigint[]) AND NOT EXISTS ( \
     SELECT FROM onceward.history h WHERE h.place >= b.batch << 20 AND h.place < (b.batch + 1) << 20)";

const NO_RECORDS: [&str; 4] = [
    "DELETE FROM onceward.executions WHERE record = ANY($1::bigint[])",
    "DELETE FROM onceward.effects WHERE record = ANY($1::bigint[])",
    "DELETE FROM onceward.links WHERE target = ANY($1::bigint[])",
    "DELETE FROM onceward.records WHERE row = ANY($1::bigint[])",
];

/// In order, as every save brings them. Whoever brings the same bytes meanwhile waits, and brings them anew where they went.
const LOCK_CONTENTS: &str = "SELECT FROM onceward.contents WHERE sha256 = ANY($1::bytea[]) ORDER BY sha256 FOR UPDATE";

const FEWER_REFS: &str = "UPDATE onceward.contents c SET refs = c.refs - k.n FROM unnest($1::bytea[], $2::bigint[]) k(h, n) \
     WHERE c.sha256 = k.h";

const NO_CONTENTS: &str = "DELETE FROM onceward.contents WHERE sha256 = ANY($1::bytea[]) AND refs = 0";

/// What they moved stays in the balances, and no longer on the statements.
const NO_ENTRIES: &str = "DELETE FROM onceward.entries e USING unnest($1::text[], $2::text[], $3::bigint[]) k(a, n, s) \
     WHERE e.asset = k.a AND e.name = k.n AND e.seq = k.s";

const UNLINK: &str = "DELETE FROM onceward.links l USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
     k(t, l, f, s) WHERE l.target = k.t AND l.lifecycle = k.l AND l.field = k.f AND l.source = k.s";

const LINKED: &str = "UPDATE onceward.records r SET links = r.links + k.n \
     FROM (SELECT t, count(*) AS n FROM unnest($1::bigint[]) t GROUP BY t) k WHERE r.row = k.t";

const RELEASE: &str = "DELETE FROM onceward.uniques u USING unnest($1::bigint[], $2::bigint[], $3::text[], $4::uuid[]) \
     k(l, n, p, h) WHERE u.lifecycle = k.l AND u.name = k.n AND u.parts = k.p AND u.holder = k.h";

const COUNT: &str = "UPDATE onceward.counts c SET count = c.count + k.d \
     FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) k(l, n, p, w, d) \
     WHERE c.lifecycle = k.l AND c.name = k.n AND c.parts = k.p AND c.span = k.w";

/// After the checkpoint has its place, which nobody can take from it any more.
const STAND: &str =
    "UPDATE onceward.pruned SET checkpoint = (SELECT max(last) FROM onceward.batches), floor = $1, head = $2";

/// States that they came through, too: nothing else may tell of them any more.
const NONE: &str = "DELETE FROM onceward.tallies t USING unnest($1::bigint[], $2::text[]) k(d, o), \
     onceward.definitions own, onceward.definitions every WHERE own.number = k.d AND every.name = own.name \
     AND t.definition = every.number AND t.owner = k.o AND t.count = 0";

const FORGET: &str = "WITH looked AS (SELECT owner, key, at FROM onceward.requests WHERE (owner, key) > ($1, $2) \
     ORDER BY owner, key LIMIT $3), \
     gone AS (DELETE FROM onceward.requests r USING looked l WHERE r.owner = l.owner AND r.key = l.key AND l.at <= $4 RETURNING 1), \
     last AS (SELECT owner, key FROM looked ORDER BY owner DESC, key DESC LIMIT 1) \
     SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM looked), owner, key FROM last";

pub(super) fn read_standing(row: &Row) -> Result<Standing, StoreError> {
    let (checkpoint, floor) = (rows::unsigned(row, 0)?, rows::unsigned(row, 1)?);
    Ok(Standing { checkpoint, floor, head: rows::hash(row.try_get(2)?)? })
}

/// Whether nobody has looked for so long; then it is our turn.
pub(super) async fn turn(inner: &Inner, rest: Duration) -> Result<bool, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(LOOK, vec![arg(i64::try_from(rest.as_micros()).unwrap_or(i64::MAX))]);
    let answers = pipeline.run(&inner.pool.get().await?.patient()).await?;
    Ok(!answers[0].is_empty())
}

pub(super) async fn standing(inner: &Inner) -> Result<Standing, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(STANDING, Vec::new());
    let answers = inner.run(&pipeline).await?;
    answers[0].first().map_or_else(|| Err(StoreError::corrupt("`pruned` has no row")), read_standing)
}

pub(super) async fn old(inner: &Inner, query: &OldQuery) -> Result<OldPage, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(OLD, vec![arg(signed(query.after)), arg(size(query.limit))]);
    let answers = inner.run(&pipeline).await?;
    let before = query.before.micros();
    let (mut page, mut young) = (OldPage::default(), true);
    for row in &answers[0] {
        page.next = Some(rows::unsigned(row, 0)?);
        young &= row.try_get::<_, i64>(2)? > before;
        let (updated, finished): (i64, Option<i64>) = (row.try_get(3)?, row.try_get(4)?);
        if finished.is_some_and(|at| at <= before) && updated <= before {
            page.records.push(rows::id(row, 1)?);
        }
    }
    if young || answers[0].len() < query.limit {
        page.next = None;
    }
    Ok(page)
}

pub(super) async fn kin(inner: &Inner, ids: &[RecordId]) -> Result<Vec<Kin>, StoreError> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let mut pipeline = Pipeline::default();
    pipeline.add(WHOLE, vec![arg(uuids.clone())]);
    pipeline.add(SOURCES, vec![arg(uuids)]);
    let answers = inner.run(&pipeline).await?;
    let known = super::read::known_for(inner, &answers[0]).await?;
    let mut sources = HashMap::new();
    for row in &answers[1] {
        let found: Vec<Uuid> = row.try_get(2)?;
        let found: Vec<RecordId> = found.into_iter().map(RecordId).collect();
        sources.insert(rows::id(row, 0)?, (rows::unsigned(row, 1)?, found));
    }
    let mut found = HashMap::new();
    for row in &answers[0] {
        let (stored, record) = rows::record(row, &known.catalog)?;
        if let Some((links, sources)) = sources.remove(&record.id) {
            found.insert(record.id, Kin { stored, record, links, sources });
        }
    }
    Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
}

pub(super) async fn forget(inner: &Inner, old: &OldRequests) -> Result<Forgotten, StoreError> {
    let (owner, key) = old.after.as_ref().map_or(("", ""), |name| (&*name.owner, &*name.key));
    let mut pipeline = Pipeline::default();
    pipeline.add(FORGET, vec![arg(owner), arg(key), arg(size(old.limit)), arg(old.before.micros())]);
    let answers = inner.run(&pipeline).await?;
    let Some(row) = answers[0].first() else { return Ok(Forgotten::default()) };
    let last = RequestName { owner: rows::text(row, 2)?, key: rows::text(row, 3)? };
    let next = (row.try_get::<_, i64>(1)? >= size(old.limit)).then_some(last);
    Ok(Forgotten { requests: rows::unsigned(row, 0)?, next })
}

pub(super) async fn prune(inner: Arc<Inner>, prune: Arc<Prune>) -> Result<PruneSave, StoreError> {
    let known = inner.newest().await?;
    let transaction = InTransaction::new(inner.pool.get().await?.patient());
    let pruning = Pruning { known: &known, carry: &prune.carry };
    let pruned = pruning.all(&transaction, &prune).await;
    // Whatever became of it: what is gone, or may be, is not remembered.
    inner.memory.forget_all();
    match pruned {
        Ok(Some(seq)) => {
            transaction.ended();
            inner.news.tell();
            Ok(PruneSave::Saved(seq))
        }
        Ok(None) | Err(StoreError::Busy) => {
            transaction.roll_back().await;
            Ok(PruneSave::Conflict)
        }
        Err(error) => {
            transaction.roll_back().await;
            Err(error)
        }
    }
}

/// The columns of an entry that belongs to no record, alone in its batch.
pub(super) fn lone_entry(batch: i64, entry: &NewEntry) -> Vec<Parameter<'_>> {
    vec![
        arg(vec![batch << 20]),
        arg(vec![None::<i64>]),
        arg(vec![signed(entry.version)]),
        arg(vec![entry.at.micros()]),
        arg(vec![None::<i64>]),
        arg(vec![&*entry.text]),
        arg(vec![&entry.hash[..]]),
    ]
}

/// One prune on its way.
struct Pruning<'a> {
    known: &'a Known,
    carry: &'a Carry,
}

/// What the first round trip said.
struct Ground {
    standing: Standing,
    rows: HashMap<RecordId, i64>,
    places: Vec<i64>,
    batch: i64,
}

/// Columns of keys: lifecycle, name, parts.
type Keys = (Vec<i64>, Vec<i64>, Vec<String>);

impl Pruning<'_> {
    async fn all(&self, transaction: &InTransaction, prune: &Prune) -> Result<Option<u64>, StoreError> {
        let Some(ground) = self.ground(transaction).await? else { return Ok(None) };
        let (entry, standing) = self.carry.entry(&ground.standing, prune.now)?;
        let mut pipeline = Pipeline::default();
        self.delete(&mut pipeline, &ground)?;
        self.free(&mut pipeline)?;
        pipeline.add(HISTORY, lone_entry(ground.batch, &entry));
        pipeline.add(END, Vec::new());
        let place = pipeline.add(PLACE, vec![arg(1_i64), arg(ground.batch)]);
        // Only now: the last place of all may have been among them, and must not be given twice.
        let batches: BTreeSet<i64> = ground.places.iter().map(|place| place >> 20).collect();
        pipeline.add(NO_BATCHES, vec![arg(batches.into_iter().collect::<Vec<_>>())]);
        pipeline.add(STAND, vec![arg(signed(standing.floor)), arg(standing.head.to_vec())]);
        self.tallies(&mut pipeline)?;
        pipeline.plain("COMMIT");
        let answers = pipeline.run(transaction.client()?).await?;
        let row = answers.get(place).and_then(|rows| rows.first());
        Ok(Some(rows::unsigned(row.ok_or_else(|| StoreError::corrupt("the log has no end"))?, 1)?))
    }

    /// Lock all that is written, in the order that every save keeps; `None` where it is not as it was.
    async fn ground(&self, transaction: &InTransaction) -> Result<Option<Ground>, StoreError> {
        let taken: Vec<Uuid> = self.carry.taken.iter().map(|one| one.record.id.0).collect();
        let targets = self.carry.unlinked.iter().map(|(key, _)| key.target.0);
        let all: BTreeSet<Uuid> = taken.iter().copied().chain(targets).collect();
        let all: Vec<Uuid> = all.into_iter().collect();
        let mut pipeline = Pipeline::default();
        pipeline.plain(BEGIN);
        let turn = pipeline.add(TURN, Vec::new());
        let (lifecycles, names, parts) = self.unique_keys()?;
        if !parts.is_empty() {
            pipeline.add(LOCK_UNIQUES, vec![arg(lifecycles), arg(names), arg(parts)]);
        }
        let ((lifecycles, names, parts), spans) = self.count_keys()?;
        if !parts.is_empty() {
            pipeline.add(LOCK_COUNTS, vec![arg(lifecycles), arg(names), arg(parts), arg(spans)]);
        }
        pipeline.add(LOCK_RECORDS, vec![arg(all.clone())]);
        let now = pipeline.add(NOW, vec![arg(all)]);
        let places = pipeline.add(PLACES, vec![arg(taken)]);
        let number = pipeline.add(NUMBER, Vec::new());
        let answers = pipeline.run(transaction.client()?).await?;
        let Some(row) = answers[turn].first() else { return Ok(None) };
        let standing = read_standing(row)?;
        let mut found = HashMap::new();
        for row in &answers[now] {
            found.insert(rows::id(row, 0)?, (row.try_get(1)?, rows::unsigned(row, 2)?, rows::unsigned(row, 3)?));
        }
        for one in &self.carry.taken {
            let expected = (signed(one.stored.row), one.record.version, one.links);
            if found.get(&one.record.id) != Some(&expected) {
                return Ok(None);
            }
        }
        let places: Vec<i64> = answers[places].iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if u64::try_from(places.len()).ok() != Some(self.carry.checkpoint.places.count()) {
            return Err(StoreError::corrupt("entries that were to be pruned are not there"));
        }
        let batch = answers[number].first().ok_or_else(|| StoreError::corrupt("a batch without a number"))?;
        let batch = batch.try_get(0)?;
        let rows = found.into_iter().map(|(id, (row, ..))| (id, row)).collect();
        Ok(Some(Ground { standing, rows, places, batch }))
    }

    fn delete(&self, pipeline: &mut Pipeline<'_>, ground: &Ground) -> Result<(), StoreError> {
        let gone: Vec<i64> = self.carry.taken.iter().map(|one| signed(one.stored.row)).collect();
        pipeline.add(NO_HISTORY, vec![arg(ground.places.clone())]);
        let (mut targets, mut lifecycles, mut fields, mut sources) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (key, source) in &self.carry.unlinked {
            let (Some(target), Some(source)) = (ground.rows.get(&key.target), ground.rows.get(source)) else {
                continue;
            };
            targets.push(*target);
            lifecycles.push(self.known.names.known(&key.lifecycle)?);
            fields.push(self.known.names.known(&key.field)?);
            sources.push(*source);
        }
        if !targets.is_empty() {
            pipeline.add(UNLINK, vec![arg(targets.clone()), arg(lifecycles), arg(fields), arg(sources)]);
            pipeline.add(LINKED, vec![arg(targets)]);
        }
        for sql in NO_RECORDS {
            pipeline.add(sql, vec![arg(gone.clone())]);
        }
        let moved = &self.carry.moved;
        if !moved.is_empty() {
            let assets: Vec<String> = moved.iter().map(|(account, _)| account.asset.to_string()).collect();
            let names: Vec<String> = moved.iter().map(|(account, _)| account.name.to_string()).collect();
            let numbers: Vec<i64> = moved.iter().map(|(_, seq)| signed(*seq)).collect();
            pipeline.add(NO_ENTRIES, vec![arg(assets), arg(names), arg(numbers)]);
        }
        let contents = self.carry.contents();
        if !contents.is_empty() {
            let hashes: Vec<Vec<u8>> = contents.keys().map(|hash| hash.to_vec()).collect();
            let records: Vec<i64> = contents.into_values().collect();
            pipeline.add(LOCK_CONTENTS, vec![arg(hashes.clone())]);
            pipeline.add(FEWER_REFS, vec![arg(hashes.clone()), arg(records)]);
            pipeline.add(NO_CONTENTS, vec![arg(hashes)]);
        }
        Ok(())
    }

    fn unique_keys(&self) -> Result<Keys, StoreError> {
        let (mut lifecycles, mut names, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for key in &self.carry.checkpoint.freed.uniques {
            lifecycles.push(self.known.names.known(&key.lifecycle)?);
            names.push(self.known.names.known(&key.unique)?);
            parts.push(key_text(&key.parts)?.0);
        }
        Ok((lifecycles, names, parts))
    }

    fn count_keys(&self) -> Result<(Keys, Vec<i64>), StoreError> {
        let (mut lifecycles, mut names, mut parts, mut spans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (key, _) in &self.carry.checkpoint.freed.counts {
            lifecycles.push(self.known.names.known(&key.lifecycle)?);
            names.push(self.known.names.known(&key.limit)?);
            parts.push(key_text(&key.parts)?.0);
            spans.push(key.window.unwrap_or(NO_WINDOW));
        }
        Ok(((lifecycles, names, parts), spans))
    }

    /// Keys and counts of records that ended in a state that has them.
    fn free(&self, pipeline: &mut Pipeline<'_>) -> Result<(), StoreError> {
        let (lifecycles, names, parts) = self.unique_keys()?;
        if !parts.is_empty() {
            let holders: Vec<Uuid> = self.carry.freed_uniques().map(|(_, holder)| holder.0).collect();
            pipeline.add(RELEASE, vec![arg(lifecycles), arg(names), arg(parts), arg(holders)]);
        }
        let ((lifecycles, names, parts), spans) = self.count_keys()?;
        if !parts.is_empty() {
            let deltas: Vec<i64> = self.carry.checkpoint.freed.counts.iter().map(|(_, delta)| *delta).collect();
            pipeline.add(COUNT, vec![arg(lifecycles), arg(names), arg(parts), arg(spans), arg(deltas)]);
        }
        Ok(())
    }

    fn tallies(&self, pipeline: &mut Pipeline<'_>) -> Result<(), StoreError> {
        let tallies = self.carry.tallies();
        let all = size(tallies.len());
        let (mut definitions, mut owners, mut states, mut deltas) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (TallyKey { definition, owner, state }, delta) in tallies {
            definitions.push(i64::from(self.known.catalog.number_by(&definition)?));
            owners.push(owner.to_string());
            states.push(self.known.names.known(&state)?);
            deltas.push(delta);
        }
        let none = vec![arg(definitions.clone()), arg(owners.clone())];
        pipeline.add(FEWER, vec![arg(definitions), arg(owners), arg(states), arg(deltas), arg(all)]);
        pipeline.add(NONE, none);
        Ok(())
    }
}
