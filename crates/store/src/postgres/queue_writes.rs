//! Writes links, timers, ordered queues, ready and delayed jobs, and lanes to PostgreSQL.

use std::sync::Arc;

use onceward_core::decide::Readiness;
use onceward_core::record::Record;
use onceward_core::time::Time;
use uuid::Uuid;

use super::pipeline::{Pipeline, param};
use super::rows::indexed_key_text;
use super::scan_cursors::LowestWritten;
use super::write::BatchWriter;
use crate::error::StoreError;
use crate::query::priority_rank;
use crate::write_set::RecordWrite;

// Deletes find each row by its key first and then delete by `ctid`. With a plain join, a table that was empty at its
// last ANALYZE would be scanned completely for each row, however large it is by now. The `ctid` cannot change in
// between: any change of these rows requires the lock of the record or of the concurrency key.

// A list field can contain the same record twice; that is one link.
const INSERT_LINKS_SQL: &str = "INSERT INTO onceward.links (target, lifecycle, field, source) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) ON CONFLICT DO NOTHING";

const DELETE_LINKS_SQL: &str = "DELETE FROM onceward.links l USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
     k(t, l, f, s) WHERE l.target = k.t AND l.lifecycle = k.l AND l.field = k.f AND l.source = k.s";

const RAISE_LINK_VERSIONS_SQL: &str = "UPDATE onceward.records r SET link_version = r.link_version + k.n \
     FROM (SELECT t, count(*) AS n FROM unnest($1::bigint[]) t GROUP BY t) k WHERE r.row = k.t";

const INSERT_TIMERS_SQL: &str =
    "INSERT INTO onceward.timers (due_at, record) SELECT unnest($1::bigint[]), unnest($2::bigint[])";

const DELETE_TIMERS_SQL: &str = "DELETE FROM onceward.timers WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS d, unnest($2::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.timers WHERE due_at = k.d AND record = k.r OFFSET 0) x))";

const INSERT_QUEUES_SQL: &str = "INSERT INTO onceward.queues (lifecycle, parts, created_at, id) \
     SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::uuid[])";

const DELETE_QUEUES_SQL: &str = "DELETE FROM onceward.queues WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::uuid[]) k(l, p, c, i) CROSS JOIN LATERAL (SELECT ctid \
     FROM onceward.queues WHERE lifecycle = k.l AND parts = k.p AND created_at = k.c AND id = k.i OFFSET 0) x))";

const INSERT_READY_SQL: &str = "INSERT INTO onceward.ready (lifecycle, rank, record, ready_at, definition, key) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), \
     unnest($5::bigint[]), unnest($6::text[])";

const DELETE_READY_SQL: &str = "DELETE FROM onceward.ready WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS l, unnest($2::bigint[]) AS k, unnest($3::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.ready WHERE lifecycle = k.l AND rank = k.k AND record = k.r OFFSET 0) x))";

const INSERT_DELAYED_SQL: &str = "INSERT INTO onceward.delayed (lifecycle, rank, record, ready_at, definition, key) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), \
     unnest($5::bigint[]), unnest($6::text[])";

const DELETE_DELAYED_SQL: &str = "DELETE FROM onceward.delayed WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS a, unnest($2::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.delayed WHERE ready_at = k.a AND record = k.r OFFSET 0) x))";

const INSERT_LANES_SQL: &str = "INSERT INTO onceward.lanes (lifecycle, key, front, rank, record, ready_at, definition) \
     SELECT k.l, k.p, false, k.k, k.r, k.a, k.d \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) k(l, p, k, r, a, d)";

const DELETE_LANES_SQL: &str = "DELETE FROM onceward.lanes WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) k(l, p, k, r) CROSS JOIN LATERAL (SELECT ctid \
     FROM onceward.lanes WHERE lifecycle = k.l AND key = k.p AND front IN (false, true) AND rank = k.k AND record = k.r \
     OFFSET 0) x))";

/// Columns of links: target, lifecycle, field, source.
type LinkColumns = (Vec<i64>, Vec<i64>, Vec<i64>, Vec<i64>);
/// Columns of queue positions: lifecycle, key, time, record.
type QueueColumns = (Vec<i64>, Vec<String>, Vec<i64>, Vec<Uuid>);

/// All rows to add and remove, in columns.
#[derive(Default)]
pub(super) struct QueueWrites {
    added_links: LinkColumns,
    removed_links: LinkColumns,
    added_timers: (Vec<i64>, Vec<i64>),
    removed_timers: (Vec<i64>, Vec<i64>),
    added_positions: QueueColumns,
    removed_positions: QueueColumns,
    pub(super) ready: ReadyWrites,
    /// With the key.
    added_delayed: Vec<(ReadyRow, Option<String>)>,
    removed_delayed: (Vec<i64>, Vec<i64>),
    /// With the key.
    added_lanes: Vec<(ReadyRow, String)>,
    removed_lanes: (Vec<i64>, Vec<String>, Vec<i64>, Vec<i64>),
}

/// Changes of the ready table.
#[derive(Default)]
pub(super) struct ReadyWrites {
    /// With the key.
    added: Vec<(ReadyRow, Option<String>)>,
    removed: (Vec<i64>, Vec<i64>, Vec<i64>),
}

/// A waiting job's row, in the ready table or in a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyRow {
    pub(super) lifecycle: i64,
    pub(super) rank: i64,
    pub(super) record_row: i64,
    pub(super) ready_at: Time,
    pub(super) version_number: i64,
}

impl ReadyWrites {
    fn add(&mut self, lowest_written: &mut LowestWritten, row: &ReadyRow, key: Option<String>) {
        self.added.push((*row, key));
        lowest_written.add_ready(row.lifecycle, row.rank);
    }

    pub(super) fn remove(&mut self, lifecycle: i64, rank: i64, record_row: i64) {
        self.removed.0.push(lifecycle);
        self.removed.1.push(rank);
        self.removed.2.push(record_row);
    }

    pub(super) fn write(self, pipeline: &mut Pipeline<'_>) {
        if !self.removed.0.is_empty() {
            pipeline.add(DELETE_READY_SQL, vec![param(self.removed.0), param(self.removed.1), param(self.removed.2)]);
        }
        insert_rows(pipeline, INSERT_READY_SQL, self.added);
    }
}

/// Inserts ready or delayed rows, with their keys.
fn insert_rows(pipeline: &mut Pipeline<'_>, sql: &'static str, rows: Vec<(ReadyRow, Option<String>)>) {
    if rows.is_empty() {
        return;
    }
    let ready_rows = || rows.iter().map(|(ready_row, _)| ready_row);
    let (lifecycles, ranks): (Vec<i64>, Vec<i64>) =
        ready_rows().map(|ready_row| (ready_row.lifecycle, ready_row.rank)).unzip();
    let (numbers, times): (Vec<i64>, Vec<i64>) =
        ready_rows().map(|ready_row| (ready_row.record_row, ready_row.ready_at.micros())).unzip();
    let definitions: Vec<i64> = ready_rows().map(|ready_row| ready_row.version_number).collect();
    let keys: Vec<Option<String>> = rows.into_iter().map(|(_, key)| key).collect();
    pipeline
        .add(sql, vec![param(lifecycles), param(ranks), param(numbers), param(times), param(definitions), param(keys)]);
}

impl QueueWrites {
    pub(super) fn add(&mut self, writer: &mut BatchWriter<'_>, record: &RecordWrite) -> Result<(), StoreError> {
        let names = &writer.snapshot.symbols;
        let after = &record.after;
        for (link, added) in record.changed_links() {
            let columns = if added { &mut self.added_links } else { &mut self.removed_links };
            columns.0.push(writer.row_id(link.target)?);
            columns.1.push(names.require_id(&link.lifecycle)?);
            columns.2.push(names.require_id(&link.field)?);
            columns.3.push(writer.row_id(after.id)?);
        }
        let (old, new) = record.due_change();
        if old != new {
            let row = writer.row_id(after.id)?;
            for (due, columns) in [(old, &mut self.removed_timers), (new, &mut self.added_timers)] {
                if let Some(due) = due {
                    columns.0.push(due.micros());
                    columns.1.push(row);
                }
            }
            writer.lowest_written.earliest_due_at =
                new.map_or(writer.lowest_written.earliest_due_at, |due| due.min(writer.lowest_written.earliest_due_at));
        }
        let (old, new) = record.queue_change();
        if old != new {
            let (created_at, id) = record.queue_position();
            for (key, columns) in [(old, &mut self.removed_positions), (new, &mut self.added_positions)] {
                if let Some(key) = key {
                    columns.0.push(names.require_id(&key.lifecycle)?);
                    columns.1.push(indexed_key_text(&key.parts)?.0);
                    columns.2.push(created_at.micros());
                    columns.3.push(id.0);
                }
            }
        }
        let (old, new) = record.readiness_change();
        if old != new || record.is_version_migrated() {
            self.update_readiness(writer, record, old, new)?;
        }
        Ok(())
    }

    /// Adds a waiting job: as delayed if it is not due, as ready if it has no concurrency key, else at the back of its
    /// lane until the lane is rebalanced.
    fn update_readiness(
        &mut self,
        writer: &mut BatchWriter<'_>,
        record: &RecordWrite,
        old: Option<Readiness>,
        new: Option<Readiness>,
    ) -> Result<(), StoreError> {
        let (after, snapshot) = (&record.after, writer.snapshot);
        let (lifecycle, row) = (snapshot.symbols.require_id(&after.lifecycle.name)?, writer.row_id(after.id)?);
        if let Some(was) = old {
            let rank = priority_rank(was.priority, was.ready_at);
            // A job without a key was delayed only if its ready time was later than its entry into the state.
            let waited = |before: &Arc<Record>| was.concurrency_key.is_some() || was.ready_at > before.entered_at;
            if record.before.as_ref().is_some_and(waited) {
                self.removed_delayed.0.push(was.ready_at.micros());
                self.removed_delayed.1.push(row);
            }
            self.ready.remove(lifecycle, rank, row);
            if let Some(key) = was.concurrency_key {
                self.removed_lanes.0.push(lifecycle);
                self.removed_lanes.1.push(indexed_key_text(&key.parts)?.0);
                self.removed_lanes.2.push(rank);
                self.removed_lanes.3.push(row);
            }
        }
        let Some(is) = new else { return Ok(()) };
        let definition = snapshot.catalog.version_number(&after.lifecycle)?;
        let (rank, ready_at) = (priority_rank(is.priority, is.ready_at), is.ready_at);
        let ready_row = ReadyRow { lifecycle, rank, record_row: row, ready_at, version_number: i64::from(definition) };
        let key = is.concurrency_key.map(|key| indexed_key_text(&key.parts)).transpose()?.map(|(text, _)| text);
        match key {
            key if ready_at > writer.latest_at() => {
                writer.lowest_written.earliest_ready_at = ready_at.min(writer.lowest_written.earliest_ready_at);
                self.added_delayed.push((ready_row, key));
            }
            None => self.ready.add(&mut writer.lowest_written, &ready_row, None),
            Some(key) => self.added_lanes.push((ready_row, key)),
        }
        Ok(())
    }

    pub(super) fn write(self, pipeline: &mut Pipeline<'_>) {
        let targets: Vec<i64> = self.added_links.0.iter().chain(&self.removed_links.0).copied().collect();
        for (sql, (targets, lifecycles, fields, sources)) in
            [(DELETE_LINKS_SQL, self.removed_links), (INSERT_LINKS_SQL, self.added_links)]
        {
            if !targets.is_empty() {
                pipeline.add(sql, vec![param(targets), param(lifecycles), param(fields), param(sources)]);
            }
        }
        if !targets.is_empty() {
            pipeline.add(RAISE_LINK_VERSIONS_SQL, vec![param(targets)]);
        }
        for (sql, (times, rows)) in [(DELETE_TIMERS_SQL, self.removed_timers), (INSERT_TIMERS_SQL, self.added_timers)] {
            if !times.is_empty() {
                pipeline.add(sql, vec![param(times), param(rows)]);
            }
        }
        for (sql, (lifecycles, keys, times, ids)) in
            [(DELETE_QUEUES_SQL, self.removed_positions), (INSERT_QUEUES_SQL, self.added_positions)]
        {
            if !keys.is_empty() {
                pipeline.add(sql, vec![param(lifecycles), param(keys), param(times), param(ids)]);
            }
        }
        // Before the ready table is accessed: a promotion that is moving the job there holds its delayed row until it
        // commits.
        if !self.removed_delayed.0.is_empty() {
            pipeline.add(DELETE_DELAYED_SQL, vec![param(self.removed_delayed.0), param(self.removed_delayed.1)]);
        }
        self.ready.write(pipeline);
        insert_rows(pipeline, INSERT_DELAYED_SQL, self.added_delayed);
        if !self.removed_lanes.0.is_empty() {
            let (lifecycles, keys, ranks, rows) = self.removed_lanes;
            pipeline.add(DELETE_LANES_SQL, vec![param(lifecycles), param(keys), param(ranks), param(rows)]);
        }
        if !self.added_lanes.is_empty() {
            let ready_rows = || self.added_lanes.iter().map(|(ready_row, _)| ready_row);
            let parameters = vec![
                param(ready_rows().map(|ready_row| ready_row.lifecycle).collect::<Vec<_>>()),
                param(self.added_lanes.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>()),
                param(ready_rows().map(|ready_row| ready_row.rank).collect::<Vec<_>>()),
                param(ready_rows().map(|ready_row| ready_row.record_row).collect::<Vec<_>>()),
                param(ready_rows().map(|ready_row| ready_row.ready_at.micros()).collect::<Vec<_>>()),
                param(ready_rows().map(|ready_row| ready_row.version_number).collect::<Vec<_>>()),
            ];
            pipeline.add(INSERT_LANES_SQL, parameters);
        }
    }
}
