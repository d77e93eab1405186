//! Writing what a batch comes to: one statement for each table, each row once.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::Account;
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use uuid::Uuid;

use super::claim::{Ground, Stood};
use super::lines::Lines;
use super::marks::Ranks;
use super::pipeline::{Pipeline, arg};
use super::rows::{key_text, signed, size};
use crate::base::{Base, Stored};
use crate::columns::{NO_WINDOW, write_fields, write_timers};
use crate::error::StoreError;
use crate::names::Known;
use crate::net::{Net, NetRecord, TallyKey};

/// Entries of one batch: what of an entry's place is its number in the batch.
const ENTRIES: usize = 1 << 20;

// A statement that must change as many rows as it names divides by zero where it does not: it is sent together with the
// commit, and must stop it.
pub(super) const HISTORY: &str = "INSERT INTO onceward.history (place, record, version, at, previous, text, hash) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), \
     unnest($5::bigint[]), unnest($6::text[]), unnest($7::bytea[])";

const CREATE: &str = "INSERT INTO onceward.records (row, id, definition, state, version, owner, fields, attempt, \
     created_at, updated_at, started_at, finished_at, entered_at, hold, timers, committed, payload, payload_bytes, \
     stuck, head, entry, trace) SELECT unnest($1::bigint[]), unnest($2::uuid[]), unnest($3::bigint[]), \
     unnest($4::smallint[]), unnest($5::bigint[]), unnest($6::text[]), unnest($7::text[]), unnest($8::bigint[]), \
     unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::bigint[]), unnest($12::bigint[]), unnest($13::bigint[]), \
     unnest($14::bigint[]), unnest($15::text[]), unnest($16::bigint[]), unnest($17::bytea[]), unnest($18::bigint[]), \
     unnest($19::text[]), unnest($20::bytea[]), unnest($21::bigint[]), \
     unnest($22::bytea[])";

const CHANGE: &str = "WITH changed AS (UPDATE onceward.records r SET state = n.state, version = n.version, \
     fields = n.fields, attempt = n.attempt, updated_at = n.updated_at, started_at = n.started_at, \
     finished_at = n.finished_at, entered_at = n.entered_at, hold = n.hold, timers = n.timers, \
     committed = n.committed, stuck = n.stuck, head = n.head, entry = n.entry FROM (SELECT \
     unnest($1::bigint[]) AS row, unnest($2::bigint[]) AS was, unnest($3::smallint[]) AS state, \
     unnest($4::bigint[]) AS version, unnest($5::text[]) AS fields, unnest($6::bigint[]) AS attempt, \
     unnest($7::bigint[]) AS updated_at, unnest($8::bigint[]) AS started_at, unnest($9::bigint[]) AS finished_at, \
     unnest($10::bigint[]) AS entered_at, unnest($11::bigint[]) AS hold, unnest($12::text[]) AS timers, \
     unnest($13::bigint[]) AS committed, unnest($14::text[]) AS stuck, unnest($15::bytea[]) AS head, \
     unnest($16::bigint[]) AS entry) n WHERE r.row = n.row AND r.version = n.was RETURNING 1) \
     SELECT 1 / (count(*) = $17::bigint)::int FROM changed";

/// Records that live by another version from now on.
const MOVE: &str = "UPDATE onceward.records r SET definition = k.d FROM unnest($1::bigint[], $2::bigint[]) k(r, d) \
     WHERE r.row = k.r";

const RELEASE: &str = "DELETE FROM onceward.uniques u USING unnest($1::bigint[], $2::bigint[], $3::text[]) k(l, n, p) \
     WHERE u.lifecycle = k.l AND u.name = k.n AND u.parts = k.p";

const TAKE: &str = "INSERT INTO onceward.uniques (lifecycle, name, parts, holder, whole) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::uuid[], $5::text[]) \
     ON CONFLICT (lifecycle, name, parts) DO UPDATE SET holder = excluded.holder";

const COUNT: &str = "WITH changed AS (UPDATE onceward.counts c SET count = c.count + k.d \
     FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) k(l, n, p, w, d) \
     WHERE c.lifecycle = k.l AND c.name = k.n AND c.parts = k.p AND c.span = k.w RETURNING 1) \
     SELECT 1 / (count(*) = $6::bigint)::int FROM changed";

const ADD: &str = "WITH changed AS (UPDATE onceward.accounts a SET balance = a.balance + k.d \
     FROM unnest($1::text[], $2::text[], $3::bigint[]) k(a, n, d) WHERE a.asset = k.a AND a.name = k.n RETURNING 1) \
     SELECT 1 / (count(*) = $4::bigint)::int FROM changed";

const UNCLAIM: &str = "DELETE FROM onceward.accounts a USING unnest($1::text[], $2::text[]) k(a, n) \
     WHERE a.asset = k.a AND a.name = k.n AND a.balance = 0 AND NOT a.outside";

const CONTENTS: &str = "INSERT INTO onceward.contents AS c (sha256, bytes, refs) \
     SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) ON CONFLICT (sha256) DO UPDATE \
     SET refs = c.refs + excluded.refs, bytes = CASE WHEN octet_length(c.bytes) = 0 THEN excluded.bytes ELSE c.bytes END";

pub(super) const END: &str = "SELECT one FROM onceward.log_end FOR UPDATE";

/// Asked after the end of the log was locked: what is last now stays so until we commit.
pub(super) const PLACE: &str = "INSERT INTO onceward.batches (last, first, batch) \
     SELECT coalesce(max(last), 0) + $1, coalesce(max(last), 0) + 1, $2 FROM onceward.batches RETURNING first, last";

/// The same, and which of its entries moved something on which account: they have their numbers only now.
const PLACE_WITH_MOVES: &str = "WITH placed AS (INSERT INTO onceward.batches (last, first, batch) \
     SELECT coalesce(max(last), 0) + $1, coalesce(max(last), 0) + 1, $2 FROM onceward.batches RETURNING first, last), \
     moved AS (INSERT INTO onceward.entries (asset, name, seq) SELECT k.a, k.n, placed.first + k.i \
     FROM placed CROSS JOIN unnest($3::text[], $4::text[], $5::bigint[]) k(a, n, i)) SELECT first, last FROM placed";

const NO_PLACE: &str = "SELECT coalesce(max(last), 0) + 1, coalesce(max(last), 0) FROM onceward.batches";

const MORE: &str = "INSERT INTO onceward.tallies AS t (definition, owner, state, count) \
     SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) \
     ON CONFLICT (definition, owner, state) DO UPDATE SET count = t.count + excluded.count";

pub(super) const FEWER: &str = "WITH changed AS (UPDATE onceward.tallies t SET count = t.count + k.d \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) k(l, o, s, d) \
     WHERE t.definition = k.l AND t.owner = k.o AND t.state = k.s RETURNING 1) \
     SELECT 1 / (count(*) = $5::bigint)::int FROM changed";

/// One batch on its way into the database.
pub(super) struct Writing<'a> {
    pub(super) known: &'a Known,
    pub(super) base: &'a Base,
    pub(super) net: &'a Net<'a>,
    batch: i64,
    rows: &'a HashMap<RecordId, i64>,
    unmoved: &'a [(String, String)],
    /// The place of each record's newest entry.
    entries: HashMap<RecordId, i64>,
    pub(super) ranks: Ranks,
}

impl<'a> Writing<'a> {
    pub(super) fn new(
        known: &'a Known,
        base: &'a Base,
        net: &'a Net<'a>,
        stood: &'a Stood,
    ) -> Result<Self, StoreError> {
        if net.entries.len() > ENTRIES {
            return Err(StoreError::Rejected(format!("{} log entries in one batch", net.entries.len())));
        }
        let (entries, ranks) = (HashMap::new(), Ranks::default());
        let (batch, rows, unmoved) = (stood.batch, &stood.rows, &stood.unmoved[..]);
        Ok(Self { known, base, net, batch, rows, unmoved, entries, ranks })
    }

    /// The row of a record that exists when this batch is done.
    pub(super) fn row(&self, id: RecordId) -> Result<i64, StoreError> {
        if let Some(stored) = self.base.stored(id) {
            return Ok(signed(stored.row));
        }
        self.rows.get(&id).copied().ok_or_else(|| StoreError::Rejected(format!("{id} does not exist")))
    }

    /// The time as of which jobs are put off, and lanes settled.
    pub(super) fn latest(&self) -> Time {
        self.net.latest
    }

    /// All but what everybody shares.
    pub(super) fn all(&mut self, pipeline: &mut Pipeline<'a>, ground: &Ground<'_>) -> Result<(), StoreError> {
        self.log(pipeline)?;
        let (new, old): (Vec<&NetRecord>, Vec<&NetRecord>) =
            self.net.records.iter().partition(|record| record.before.is_none());
        self.create(pipeline, &new)?;
        self.change(pipeline, &old)?;
        self.executions(pipeline)?;
        self.effects(pipeline)?;
        self.uniques(pipeline, ground)?;
        self.counts(pipeline)?;
        self.accounts(pipeline, false);
        if !self.unmoved.is_empty() {
            let (assets, names): (Vec<&str>, Vec<&str>) =
                self.unmoved.iter().map(|(asset, name)| (&**asset, &**name)).unzip();
            pipeline.add(UNCLAIM, vec![arg(assets), arg(names)]);
        }
        let (mut lines, net) = (Lines::default(), self.net);
        for record in &net.records {
            lines.add(self, record)?;
        }
        lines.write(pipeline);
        // In order: two saves that bring the same contents wait for each other one way only.
        let contents = self.net.contents_by_hash();
        if !contents.is_empty() {
            let hashes: Vec<Vec<u8>> = contents.keys().map(|hash| hash.to_vec()).collect();
            let (bytes, refs): (Vec<&[u8]>, Vec<i64>) = contents.into_values().unzip();
            pipeline.add(CONTENTS, vec![arg(hashes), arg(bytes), arg(refs)]);
        }
        Ok(())
    }

    /// What everybody shares, last: the end of the log, and what is only counted. Where the answer says the batch's place.
    pub(super) fn end(&self, pipeline: &mut Pipeline<'a>) -> Result<usize, StoreError> {
        if self.net.entries.is_empty() {
            return Ok(pipeline.add(NO_PLACE, Vec::new()));
        }
        pipeline.add(END, Vec::new());
        let place = self.place(pipeline);
        for more in [true, false] {
            let (mut definitions, mut owners, mut states, mut deltas) =
                (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for (TallyKey { definition, owner, state }, delta) in self.net.tallies() {
                if (delta > 0) == more {
                    definitions.push(i64::from(self.known.catalog.number_by(&definition)?));
                    owners.push(owner.to_string());
                    states.push(self.known.names.known(&state)?);
                    deltas.push(delta);
                }
            }
            if !deltas.is_empty() {
                let all = size(deltas.len());
                let mut parameters = vec![arg(definitions), arg(owners), arg(states), arg(deltas)];
                if !more {
                    parameters.push(arg(all));
                }
                pipeline.add(if more { MORE } else { FEWER }, parameters);
            }
        }
        self.accounts(pipeline, true);
        Ok(place)
    }

    fn place(&self, pipeline: &mut Pipeline<'a>) -> usize {
        let (mut assets, mut names, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, entry) in (0_i64..).zip(&*self.net.entries) {
            for account in &entry.accounts {
                assets.push(&*account.asset);
                names.push(&*account.name);
                numbers.push(number);
            }
        }
        let mut parameters = vec![arg(size(self.net.entries.len())), arg(self.batch)];
        if numbers.is_empty() {
            return pipeline.add(PLACE, parameters);
        }
        parameters.extend([arg(assets), arg(names), arg(numbers)]);
        pipeline.add(PLACE_WITH_MOVES, parameters)
    }

    fn log(&mut self, pipeline: &mut Pipeline<'a>) -> Result<(), StoreError> {
        let entries = &self.net.entries;
        if entries.is_empty() {
            return Ok(());
        }
        let (mut places, mut records, mut previous) = (Vec::new(), Vec::new(), Vec::new());
        for (number, entry) in entries.iter().enumerate() {
            let place = self.batch.saturating_mul(size(ENTRIES)).saturating_add(size(number));
            places.push(place);
            records.push(entry.record.map(|id| self.row(id)).transpose()?);
            let stored = |id| self.base.stored(id).map(|stored| signed(stored.entry));
            previous.push(entry.record.and_then(|id| self.entries.insert(id, place).or_else(|| stored(id))));
        }
        let versions: Vec<i64> = entries.iter().map(|entry| signed(entry.version)).collect();
        let times: Vec<i64> = entries.iter().map(|entry| entry.at.micros()).collect();
        let texts: Vec<&str> = entries.iter().map(|entry| &*entry.text).collect();
        let hashes: Vec<&[u8]> = entries.iter().map(|entry| &entry.hash[..]).collect();
        let parameters =
            vec![arg(places), arg(records), arg(versions), arg(times), arg(previous), arg(texts), arg(hashes)];
        pipeline.add(HISTORY, parameters);
        Ok(())
    }

    fn create(&self, pipeline: &mut Pipeline<'a>, new: &[&'a NetRecord]) -> Result<(), StoreError> {
        if new.is_empty() {
            return Ok(());
        }
        let after = || new.iter().map(|record| &*record.after);
        let rows = after().map(|record| self.row(record.id)).collect::<Result<Vec<_>, _>>()?;
        let numbers = after().map(|record| Ok(i64::from(self.known.catalog.number_of(&record.lifecycle)?)));
        let payloads = after().map(|record| record.payload.as_ref());
        let parameters = vec![
            arg(rows),
            arg(after().map(|record| record.id.0).collect::<Vec<Uuid>>()),
            arg(numbers.collect::<Result<Vec<_>, StoreError>>()?),
            arg(after().map(|record| i16::from(record.state)).collect::<Vec<_>>()),
            arg(after().map(|record| signed(record.version)).collect::<Vec<_>>()),
            arg(after().map(|record| &*record.owner).collect::<Vec<&str>>()),
            arg(after().map(write_fields).collect::<Result<Vec<_>, _>>()?),
            arg(after().map(|record| signed(record.attempt)).collect::<Vec<_>>()),
            arg(after().map(|record| record.created_at.micros()).collect::<Vec<_>>()),
            arg(after().map(|record| record.updated_at.micros()).collect::<Vec<_>>()),
            arg(after().map(|record| record.started_at.map(Time::micros)).collect::<Vec<_>>()),
            arg(after().map(|record| record.finished_at.map(Time::micros)).collect::<Vec<_>>()),
            arg(after().map(|record| record.entered_at.micros()).collect::<Vec<_>>()),
            arg(after().map(|record| record.hold).collect::<Vec<_>>()),
            arg(after().map(|record| write_timers(&record.timers)).collect::<Result<Vec<_>, _>>()?),
            arg(after().map(|record| record.committed.map(|token| signed(token.0))).collect::<Vec<_>>()),
            arg(payloads.clone().map(|payload| payload.map(|payload| &payload.sha256[..])).collect::<Vec<_>>()),
            arg(payloads.map(|payload| payload.map(|payload| signed(payload.bytes))).collect::<Vec<_>>()),
            arg(after().map(|record| record.stuck.as_deref()).collect::<Vec<_>>()),
            arg(new.iter().map(|record| &record.head[..]).collect::<Vec<_>>()),
            arg(after().map(|record| self.entry(record)).collect::<Result<Vec<_>, _>>()?),
            arg(after().map(|record| record.trace.map(|trace| trace.to_bytes().to_vec())).collect::<Vec<_>>()),
        ];
        pipeline.add(CREATE, parameters);
        Ok(())
    }

    fn entry(&self, record: &Record) -> Result<i64, StoreError> {
        let found = self.entries.get(&record.id).copied();
        found.ok_or_else(|| StoreError::Rejected(format!("{} would come without a log entry", record.id)))
    }

    /// How a record stands once this batch is saved. A mere heartbeat leaves it where it was in the log.
    pub(super) fn saved(&self, record: &NetRecord) -> Option<(Stored, Arc<Record>)> {
        let after = &record.after;
        let place = self.entries.get(&after.id).and_then(|place| u64::try_from(*place).ok());
        let stored = Stored {
            row: u64::try_from(self.row(after.id).ok()?).ok()?,
            version: after.version,
            expires_at: after.execution.as_ref().map(|execution| execution.expires_at),
            head: record.head,
            entry: place.or_else(|| self.base.stored(after.id).map(|stored| stored.entry))?,
        };
        Some((stored, Arc::clone(after)))
    }

    /// What may change. The version that it had is named once more: the last line of defence against a lost update.
    fn change(&self, pipeline: &mut Pipeline<'a>, old: &[&'a NetRecord]) -> Result<(), StoreError> {
        // A mere heartbeat changes its execution only.
        let old: Vec<&NetRecord> =
            old.iter().filter(|record| self.entries.contains_key(&record.after.id)).copied().collect();
        if old.is_empty() {
            return Ok(());
        }
        let after = || old.iter().map(|record| &*record.after);
        let was = |record: &&NetRecord| record.before.as_ref().map_or(0, |before| signed(before.version));
        let parameters = vec![
            arg(after().map(|record| self.row(record.id)).collect::<Result<Vec<_>, _>>()?),
            arg(old.iter().map(was).collect::<Vec<_>>()),
            arg(after().map(|record| i16::from(record.state)).collect::<Vec<_>>()),
            arg(after().map(|record| signed(record.version)).collect::<Vec<_>>()),
            arg(after().map(write_fields).collect::<Result<Vec<_>, _>>()?),
            arg(after().map(|record| signed(record.attempt)).collect::<Vec<_>>()),
            arg(after().map(|record| record.updated_at.micros()).collect::<Vec<_>>()),
            arg(after().map(|record| record.started_at.map(Time::micros)).collect::<Vec<_>>()),
            arg(after().map(|record| record.finished_at.map(Time::micros)).collect::<Vec<_>>()),
            arg(after().map(|record| record.entered_at.micros()).collect::<Vec<_>>()),
            arg(after().map(|record| record.hold).collect::<Vec<_>>()),
            arg(after().map(|record| write_timers(&record.timers)).collect::<Result<Vec<_>, _>>()?),
            arg(after().map(|record| record.committed.map(|token| signed(token.0))).collect::<Vec<_>>()),
            arg(after().map(|record| record.stuck.as_deref()).collect::<Vec<_>>()),
            arg(old.iter().map(|record| &record.head[..]).collect::<Vec<_>>()),
            arg(after().map(|record| self.entry(record)).collect::<Result<Vec<_>, _>>()?),
            arg(size(old.len())),
        ];
        pipeline.add(CHANGE, parameters);
        let (mut rows, mut definitions) = (Vec::new(), Vec::new());
        for record in old.iter().filter(|record| record.is_moved()) {
            rows.push(self.row(record.after.id)?);
            definitions.push(i64::from(self.known.catalog.number_of(&record.after.lifecycle)?));
        }
        if !rows.is_empty() {
            pipeline.add(MOVE, vec![arg(rows), arg(definitions)]);
        }
        Ok(())
    }

    /// Those that were free are claimed already.
    fn uniques(&self, pipeline: &mut Pipeline<'a>, ground: &Ground<'_>) -> Result<(), StoreError> {
        let (mut lifecycles, mut names, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let mut taken = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (lifecycle, name, text) in ground.for_nobody() {
            lifecycles.push(lifecycle);
            names.push(name);
            parts.push(text.to_owned());
        }
        for (key, holder) in self.net.uniques.iter().filter(|(key, _)| !self.base.was_free(key)) {
            let (lifecycle, name) = (self.known.names.known(&key.lifecycle)?, self.known.names.known(&key.unique)?);
            let (text, whole) = key_text(&key.parts)?;
            if let Some(holder) = holder {
                taken.0.push(lifecycle);
                taken.1.push(name);
                taken.2.push(text);
                taken.3.push(holder.0);
                taken.4.push(whole);
            } else {
                lifecycles.push(lifecycle);
                names.push(name);
                parts.push(text);
            }
        }
        if !parts.is_empty() {
            pipeline.add(RELEASE, vec![arg(lifecycles), arg(names), arg(parts)]);
        }
        if !taken.0.is_empty() {
            let parameters = vec![arg(taken.0), arg(taken.1), arg(taken.2), arg(taken.3), arg(taken.4)];
            pipeline.add(TAKE, parameters);
        }
        Ok(())
    }

    fn counts(&self, pipeline: &mut Pipeline<'a>) -> Result<(), StoreError> {
        let (mut lifecycles, mut names, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut spans, mut deltas) = (Vec::new(), Vec::new());
        for (key, delta) in self.net.counts.iter().filter(|(_, delta)| **delta != 0) {
            lifecycles.push(self.known.names.known(&key.lifecycle)?);
            names.push(self.known.names.known(&key.limit)?);
            parts.push(key_text(&key.parts)?.0);
            spans.push(key.window.unwrap_or(NO_WINDOW));
            deltas.push(*delta);
        }
        if !deltas.is_empty() {
            let all = size(deltas.len());
            let parameters = vec![arg(lifecycles), arg(names), arg(parts), arg(spans), arg(deltas), arg(all)];
            pipeline.add(COUNT, parameters);
        }
        Ok(())
    }

    /// Those that stand for the world outside, or the others.
    fn accounts(&self, pipeline: &mut Pipeline<'a>, outside: bool) {
        let (mut assets, mut names, mut deltas) = (Vec::new(), Vec::new(), Vec::new());
        for (account, delta) in &self.net.accounts {
            if let Account::Named { asset, name } = account
                && self.known.catalog.definitions.is_outside(asset, name) == outside
            {
                assets.push(&**asset);
                names.push(&**name);
                deltas.push(*delta);
            }
        }
        if !deltas.is_empty() {
            let all = size(deltas.len());
            pipeline.add(ADD, vec![arg(assets), arg(names), arg(deltas), arg(all)]);
        }
    }
}
