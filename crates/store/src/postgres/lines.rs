//! Where records stand in line: links, timers, ordered queues, work that is ready, and the lanes of work keys.

use std::sync::Arc;

use onceward_core::decide::Waiting;
use onceward_core::record::Record;
use onceward_core::time::Time;
use uuid::Uuid;

use super::marks::Ranks;
use super::pipeline::{Pipeline, arg};
use super::rows::key_text;
use super::write::Writing;
use crate::error::StoreError;
use crate::net::NetRecord;
use crate::query::rank;

// Rows that go are found first, each by its key, and then taken by where they stand. Joined at once, a table that was empty when
// it was last counted would be read for each of them from end to end, however much stands in it by now. Nobody else moves
// these rows: whoever does holds the record's lock, or the work key's.

// A list may name one record twice; it is one link.
const LINK: &str = "INSERT INTO onceward.links (target, lifecycle, field, source) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) ON CONFLICT DO NOTHING";

const UNLINK: &str = "DELETE FROM onceward.links l USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
     k(t, l, f, s) WHERE l.target = k.t AND l.lifecycle = k.l AND l.field = k.f AND l.source = k.s";

const LINKED: &str = "UPDATE onceward.records r SET links = r.links + k.n \
     FROM (SELECT t, count(*) AS n FROM unnest($1::bigint[]) t GROUP BY t) k WHERE r.row = k.t";

const WIND: &str = "INSERT INTO onceward.timers (due, record) SELECT unnest($1::bigint[]), unnest($2::bigint[])";

const UNWIND: &str = "DELETE FROM onceward.timers WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS d, unnest($2::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.timers WHERE due = k.d AND record = k.r OFFSET 0) x))";

const QUEUE: &str = "INSERT INTO onceward.queues (lifecycle, parts, created_at, id) \
     SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::uuid[])";

const UNQUEUE: &str = "DELETE FROM onceward.queues WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::uuid[]) k(l, p, c, i) CROSS JOIN LATERAL (SELECT ctid \
     FROM onceward.queues WHERE lifecycle = k.l AND parts = k.p AND created_at = k.c AND id = k.i OFFSET 0) x))";

const READY: &str = "INSERT INTO onceward.ready (lifecycle, rank, record, ready_at, definition, key) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), \
     unnest($5::bigint[]), unnest($6::text[])";

const UNREADY: &str = "DELETE FROM onceward.ready WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS l, unnest($2::bigint[]) AS k, unnest($3::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.ready WHERE lifecycle = k.l AND rank = k.k AND record = k.r OFFSET 0) x))";

const LATER: &str = "INSERT INTO onceward.later (lifecycle, rank, record, ready_at, definition, key) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), \
     unnest($5::bigint[]), unnest($6::text[])";

const NOT_LATER: &str = "DELETE FROM onceward.later WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS a, unnest($2::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.later WHERE ready_at = k.a AND record = k.r OFFSET 0) x))";

const JOIN: &str = "INSERT INTO onceward.lanes (lifecycle, key, front, rank, record, ready_at, definition) \
     SELECT k.l, k.p, false, k.k, k.r, k.a, k.d \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) k(l, p, k, r, a, d)";

const LEAVE: &str = "DELETE FROM onceward.lanes WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) k(l, p, k, r) CROSS JOIN LATERAL (SELECT ctid \
     FROM onceward.lanes WHERE lifecycle = k.l AND key = k.p AND front IN (false, true) AND rank = k.k AND record = k.r \
     OFFSET 0) x))";

/// Columns of rows that name a link: target, lifecycle, field, source.
type Links = (Vec<i64>, Vec<i64>, Vec<i64>, Vec<i64>);
/// Of places in a queue: lifecycle, key, time, record.
type Places = (Vec<i64>, Vec<String>, Vec<i64>, Vec<Uuid>);

/// Everybody who comes and goes, in columns.
#[derive(Default)]
pub(super) struct Lines {
    link: Links,
    unlink: Links,
    wind: (Vec<i64>, Vec<i64>),
    unwind: (Vec<i64>, Vec<i64>),
    queue: Places,
    unqueue: Places,
    pub(super) ready: Ready,
    /// With the key.
    later: Vec<(Spot, Option<String>)>,
    not_later: (Vec<i64>, Vec<i64>),
    /// With the key.
    join: Vec<(Spot, String)>,
    leave: (Vec<i64>, Vec<String>, Vec<i64>, Vec<i64>),
}

/// Rows of `ready` that come and go.
#[derive(Default)]
pub(super) struct Ready {
    /// With the key.
    come: Vec<(Spot, Option<String>)>,
    go: (Vec<i64>, Vec<i64>, Vec<i64>),
}

/// A waiting job's row, in `ready` or in a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) lifecycle: i64,
    pub(super) rank: i64,
    pub(super) row: i64,
    pub(super) from: Time,
    pub(super) definition: i64,
}

impl Ready {
    fn come(&mut self, ranks: &mut Ranks, spot: &Spot, key: Option<String>) {
        self.come.push((*spot, key));
        ranks.comes(spot.lifecycle, spot.rank);
    }

    pub(super) fn go(&mut self, lifecycle: i64, rank: i64, row: i64) {
        self.go.0.push(lifecycle);
        self.go.1.push(rank);
        self.go.2.push(row);
    }

    pub(super) fn write(self, pipeline: &mut Pipeline<'_>) {
        if !self.go.0.is_empty() {
            pipeline.add(UNREADY, vec![arg(self.go.0), arg(self.go.1), arg(self.go.2)]);
        }
        come(pipeline, READY, self.come);
    }
}

/// Rows of `ready` or `later`, with their keys.
fn come(pipeline: &mut Pipeline<'_>, sql: &'static str, rows: Vec<(Spot, Option<String>)>) {
    if rows.is_empty() {
        return;
    }
    let spots = || rows.iter().map(|(spot, _)| spot);
    let (lifecycles, ranks): (Vec<i64>, Vec<i64>) = spots().map(|spot| (spot.lifecycle, spot.rank)).unzip();
    let (numbers, times): (Vec<i64>, Vec<i64>) = spots().map(|spot| (spot.row, spot.from.micros())).unzip();
    let definitions: Vec<i64> = spots().map(|spot| spot.definition).collect();
    let keys: Vec<Option<String>> = rows.into_iter().map(|(_, key)| key).collect();
    pipeline.add(sql, vec![arg(lifecycles), arg(ranks), arg(numbers), arg(times), arg(definitions), arg(keys)]);
}

impl Lines {
    pub(super) fn add(&mut self, writing: &mut Writing<'_>, record: &NetRecord) -> Result<(), StoreError> {
        let names = &writing.known.names;
        let after = &record.after;
        for (link, added) in record.links() {
            let columns = if added { &mut self.link } else { &mut self.unlink };
            columns.0.push(writing.row(link.target)?);
            columns.1.push(names.known(&link.lifecycle)?);
            columns.2.push(names.known(&link.field)?);
            columns.3.push(writing.row(after.id)?);
        }
        let (old, new) = record.due();
        if old != new {
            let row = writing.row(after.id)?;
            for (due, columns) in [(old, &mut self.unwind), (new, &mut self.wind)] {
                if let Some(due) = due {
                    columns.0.push(due.micros());
                    columns.1.push(row);
                }
            }
            writing.ranks.earliest = new.map_or(writing.ranks.earliest, |due| due.min(writing.ranks.earliest));
        }
        let (old, new) = record.queue();
        if old != new {
            let (created_at, id) = record.place();
            for (key, columns) in [(old, &mut self.unqueue), (new, &mut self.queue)] {
                if let Some(key) = key {
                    columns.0.push(names.known(&key.lifecycle)?);
                    columns.1.push(key_text(&key.parts)?.0);
                    columns.2.push(created_at.micros());
                    columns.3.push(id.0);
                }
            }
        }
        let (old, new) = record.waiting();
        if old != new || record.is_moved() {
            self.wait(writing, record, old, new)?;
        }
        Ok(())
    }

    /// One whose time has not come waits for it. Else a job without a key may be leased, and one with a key stands at the back until
    /// its lane is settled.
    fn wait(
        &mut self,
        writing: &mut Writing<'_>,
        record: &NetRecord,
        old: Option<Waiting>,
        new: Option<Waiting>,
    ) -> Result<(), StoreError> {
        let (after, known) = (&record.after, writing.known);
        let (lifecycle, row) = (known.names.known(&after.lifecycle.name)?, writing.row(after.id)?);
        if let Some(was) = old {
            let rank = rank(was.priority, was.from);
            // Without a key it never waited for another time than its fields said.
            let waited = |before: &Arc<Record>| was.key.is_some() || was.from > before.entered_at;
            if record.before.as_ref().is_some_and(waited) {
                self.not_later.0.push(was.from.micros());
                self.not_later.1.push(row);
            }
            self.ready.go(lifecycle, rank, row);
            if let Some(key) = was.key {
                self.leave.0.push(lifecycle);
                self.leave.1.push(key_text(&key.parts)?.0);
                self.leave.2.push(rank);
                self.leave.3.push(row);
            }
        }
        let Some(is) = new else { return Ok(()) };
        let definition = known.catalog.number_of(&after.lifecycle)?;
        let (rank, from) = (rank(is.priority, is.from), is.from);
        let spot = Spot { lifecycle, rank, row, from, definition: i64::from(definition) };
        let key = is.key.map(|key| key_text(&key.parts)).transpose()?.map(|(text, _)| text);
        match key {
            key if from > writing.latest() => {
                writing.ranks.soonest = from.min(writing.ranks.soonest);
                self.later.push((spot, key));
            }
            None => self.ready.come(&mut writing.ranks, &spot, None),
            Some(key) => self.join.push((spot, key)),
        }
        Ok(())
    }

    pub(super) fn write(self, pipeline: &mut Pipeline<'_>) {
        let targets: Vec<i64> = self.link.0.iter().chain(&self.unlink.0).copied().collect();
        for (sql, (targets, lifecycles, fields, sources)) in [(UNLINK, self.unlink), (LINK, self.link)] {
            if !targets.is_empty() {
                pipeline.add(sql, vec![arg(targets), arg(lifecycles), arg(fields), arg(sources)]);
            }
        }
        if !targets.is_empty() {
            pipeline.add(LINKED, vec![arg(targets)]);
        }
        for (sql, (times, rows)) in [(UNWIND, self.unwind), (WIND, self.wind)] {
            if !times.is_empty() {
                pipeline.add(sql, vec![arg(times), arg(rows)]);
            }
        }
        for (sql, (lifecycles, keys, times, ids)) in [(UNQUEUE, self.unqueue), (QUEUE, self.queue)] {
            if !keys.is_empty() {
                pipeline.add(sql, vec![arg(lifecycles), arg(keys), arg(times), arg(ids)]);
            }
        }
        // Before `ready` is looked at: whoever puts one there meanwhile holds its row here until that is done.
        if !self.not_later.0.is_empty() {
            pipeline.add(NOT_LATER, vec![arg(self.not_later.0), arg(self.not_later.1)]);
        }
        self.ready.write(pipeline);
        come(pipeline, LATER, self.later);
        if !self.leave.0.is_empty() {
            let (lifecycles, keys, ranks, rows) = self.leave;
            pipeline.add(LEAVE, vec![arg(lifecycles), arg(keys), arg(ranks), arg(rows)]);
        }
        if !self.join.is_empty() {
            let spots = || self.join.iter().map(|(spot, _)| spot);
            let parameters = vec![
                arg(spots().map(|spot| spot.lifecycle).collect::<Vec<_>>()),
                arg(self.join.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>()),
                arg(spots().map(|spot| spot.rank).collect::<Vec<_>>()),
                arg(spots().map(|spot| spot.row).collect::<Vec<_>>()),
                arg(spots().map(|spot| spot.from.micros()).collect::<Vec<_>>()),
                arg(spots().map(|spot| spot.definition).collect::<Vec<_>>()),
            ];
            pipeline.add(JOIN, parameters);
        }
    }
}
