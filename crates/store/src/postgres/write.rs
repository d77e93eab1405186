//! Writes the write set of a batch to PostgreSQL: one statement for each table, each row once.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::Account;
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use uuid::Uuid;

use super::lock_plan::{LockPlan, LockResult};
use super::pipeline::{Pipeline, param};
use super::queue_writes::QueueWrites;
use super::rows::{indexed_key_text, to_limit, to_signed};
use super::scan_cursors::LowestWritten;
use crate::columns::{NO_WINDOW, write_fields, write_timers};
use crate::error::StoreError;
use crate::read_set::{ReadSet, RecordMeta};
use crate::symbols::CatalogSnapshot;
use crate::write_set::{RecordWrite, StateCountKey, WriteSet};

/// An entry's id contains its index in the batch in the lower 20 bits.
const MAX_BATCH_ENTRIES: usize = 1 << 20;

// A statement that must change a certain number of rows divides by zero if it does not. It is sent together with the
// commit and must prevent it.
pub(super) const INSERT_HISTORY_SQL: &str = "INSERT INTO onceward.history (entry_id, record, version, at, previous, text, hash) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), \
     unnest($5::bigint[]), unnest($6::text[]), unnest($7::bytea[])";

const INSERT_RECORDS_SQL: &str = "INSERT INTO onceward.records (row, id, definition, state, version, owner, fields, attempt, \
     created_at, updated_at, started_at, finished_at, entered_at, hold, timers, committed, payload, payload_bytes, \
     stuck, head, entry, trace) SELECT unnest($1::bigint[]), unnest($2::uuid[]), unnest($3::bigint[]), \
     unnest($4::smallint[]), unnest($5::bigint[]), unnest($6::text[]), unnest($7::text[]), unnest($8::bigint[]), \
     unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::bigint[]), unnest($12::bigint[]), unnest($13::bigint[]), \
     unnest($14::bigint[]), unnest($15::text[]), unnest($16::bigint[]), unnest($17::bytea[]), unnest($18::bigint[]), \
     unnest($19::text[]), unnest($20::bytea[]), unnest($21::bigint[]), \
     unnest($22::bytea[])";

const UPDATE_RECORDS_SQL: &str = "WITH changed AS (UPDATE onceward.records r SET state = n.state, version = n.version, \
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

/// Migrates records to other versions.
const UPDATE_VERSIONS_SQL: &str = "UPDATE onceward.records r SET definition = k.d FROM unnest($1::bigint[], $2::bigint[]) k(r, d) \
     WHERE r.row = k.r";

const DELETE_UNIQUES_SQL: &str = "DELETE FROM onceward.uniques u USING unnest($1::bigint[], $2::bigint[], $3::text[]) k(l, n, p) \
     WHERE u.lifecycle = k.l AND u.name = k.n AND u.parts = k.p";

const UPSERT_UNIQUES_SQL: &str = "INSERT INTO onceward.uniques (lifecycle, name, parts, holder, full_parts) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::uuid[], $5::text[]) \
     ON CONFLICT (lifecycle, name, parts) DO UPDATE SET holder = excluded.holder";

const UPDATE_COUNTERS_SQL: &str = "WITH changed AS (UPDATE onceward.counts c SET count = c.count + k.d \
     FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) k(l, n, p, w, d) \
     WHERE c.lifecycle = k.l AND c.name = k.n AND c.parts = k.p AND c.window_start = k.w RETURNING 1) \
     SELECT 1 / (count(*) = $6::bigint)::int FROM changed";

const UPDATE_BALANCES_SQL: &str = "WITH changed AS (UPDATE onceward.accounts a SET balance = a.balance + k.d \
     FROM unnest($1::text[], $2::text[], $3::bigint[]) k(a, n, d) WHERE a.asset = k.a AND a.name = k.n RETURNING 1) \
     SELECT 1 / (count(*) = $4::bigint)::int FROM changed";

const DELETE_UNUSED_ACCOUNTS_SQL: &str = "DELETE FROM onceward.accounts a USING unnest($1::text[], $2::text[]) k(a, n) \
     WHERE a.asset = k.a AND a.name = k.n AND a.balance = 0 AND NOT a.outside";

const UPSERT_CONTENTS_SQL: &str = "INSERT INTO onceward.contents AS c (sha256, bytes, refs) \
     SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) ON CONFLICT (sha256) DO UPDATE \
     SET refs = c.refs + excluded.refs, bytes = CASE WHEN octet_length(c.bytes) = 0 THEN excluded.bytes ELSE c.bytes END";

pub(super) const LOCK_LOG_END_SQL: &str = "SELECT one FROM onceward.log_end FOR UPDATE";

/// Runs after the end of the log is locked, so the last seq cannot change before the commit.
pub(super) const APPEND_BATCH_SQL: &str = "INSERT INTO onceward.batches (last, first, batch) \
     SELECT coalesce(max(last), 0) + $1, coalesce(max(last), 0) + 1, $2 FROM onceward.batches RETURNING first, last";

/// Like [`APPEND_BATCH_SQL`], but also inserts account index rows, whose seqs are known only now.
const APPEND_BATCH_WITH_ACCOUNTS_SQL: &str = "WITH placed AS (INSERT INTO onceward.batches (last, first, batch) \
     SELECT coalesce(max(last), 0) + $1, coalesce(max(last), 0) + 1, $2 FROM onceward.batches RETURNING first, last), \
     moved AS (INSERT INTO onceward.account_entries (asset, name, seq) SELECT k.a, k.n, placed.first + k.i \
     FROM placed CROSS JOIN unnest($3::text[], $4::text[], $5::bigint[]) k(a, n, i)) SELECT first, last FROM placed";

const SELECT_LOG_END_SQL: &str = "SELECT coalesce(max(last), 0) + 1, coalesce(max(last), 0) FROM onceward.batches";

const RAISE_STATE_COUNTS_SQL: &str = "INSERT INTO onceward.state_counts AS t (definition, owner, state, count) \
     SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) \
     ON CONFLICT (definition, owner, state) DO UPDATE SET count = t.count + excluded.count";

pub(super) const LOWER_STATE_COUNTS_SQL: &str = "WITH changed AS (UPDATE onceward.state_counts t SET count = t.count + k.d \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) k(l, o, s, d) \
     WHERE t.definition = k.l AND t.owner = k.o AND t.state = k.s RETURNING 1) \
     SELECT 1 / (count(*) = $5::bigint)::int FROM changed";

/// Writes one batch in its transaction.
pub(super) struct BatchWriter<'a> {
    pub(super) snapshot: &'a CatalogSnapshot,
    pub(super) read_set: &'a ReadSet,
    pub(super) write_set: &'a WriteSet<'a>,
    batch_number: i64,
    new_row_ids: &'a HashMap<RecordId, i64>,
    unused_accounts: &'a [(String, String)],
    /// Id of each record's newest entry.
    head_entry_ids: HashMap<RecordId, i64>,
    pub(super) lowest_written: LowestWritten,
}

impl<'a> BatchWriter<'a> {
    pub(super) fn new(
        snapshot: &'a CatalogSnapshot,
        read_set: &'a ReadSet,
        write_set: &'a WriteSet<'a>,
        lock_result: &'a LockResult,
    ) -> Result<Self, StoreError> {
        if write_set.entries.len() > MAX_BATCH_ENTRIES {
            return Err(StoreError::Rejected(format!(
                "the batch has too many log entries: {}",
                write_set.entries.len()
            )));
        }
        let (entries, ranks) = (HashMap::new(), LowestWritten::default());
        let (batch, rows, unmoved) = (lock_result.batch_number, &lock_result.row_ids, &lock_result.unused_accounts[..]);
        Ok(Self {
            snapshot,
            read_set,
            write_set,
            batch_number: batch,
            new_row_ids: rows,
            unused_accounts: unmoved,
            head_entry_ids: entries,
            lowest_written: ranks,
        })
    }

    /// Returns the row id of a record that exists after this batch.
    pub(super) fn row_id(&self, id: RecordId) -> Result<i64, StoreError> {
        if let Some(stored) = self.read_set.record_meta(id) {
            return Ok(to_signed(stored.row_id));
        }
        self.new_row_ids.get(&id).copied().ok_or_else(|| StoreError::Rejected(format!("record {id} does not exist")))
    }

    /// Returns the time at which jobs are delayed and lanes rebalanced.
    pub(super) fn latest_at(&self) -> Time {
        self.write_set.latest_at
    }

    /// Writes everything except rows that all saves share.
    pub(super) fn write_records(
        &mut self,
        pipeline: &mut Pipeline<'a>,
        lock_plan: &LockPlan<'_>,
    ) -> Result<(), StoreError> {
        self.write_log(pipeline)?;
        let (new, old): (Vec<&RecordWrite>, Vec<&RecordWrite>) =
            self.write_set.records.iter().partition(|record| record.before.is_none());
        self.insert_records(pipeline, &new)?;
        self.update_records(pipeline, &old)?;
        self.write_executions(pipeline)?;
        self.write_effects(pipeline)?;
        self.write_uniques(pipeline, lock_plan)?;
        self.write_counters(pipeline)?;
        self.write_accounts(pipeline, false);
        if !self.unused_accounts.is_empty() {
            let (assets, names): (Vec<&str>, Vec<&str>) =
                self.unused_accounts.iter().map(|(asset, name)| (&**asset, &**name)).unzip();
            pipeline.add(DELETE_UNUSED_ACCOUNTS_SQL, vec![param(assets), param(names)]);
        }
        let (mut queue_writes, net) = (QueueWrites::default(), self.write_set);
        for record in &net.records {
            queue_writes.add(self, record)?;
        }
        queue_writes.write(pipeline);
        // Sorted by hash, so that two saves that write the same payloads cannot deadlock.
        let payloads = self.write_set.payloads_by_hash();
        if !payloads.is_empty() {
            let hashes: Vec<Vec<u8>> = payloads.keys().map(|hash| hash.to_vec()).collect();
            let (bytes, refs): (Vec<&[u8]>, Vec<i64>) = payloads.into_values().unzip();
            pipeline.add(UPSERT_CONTENTS_SQL, vec![param(hashes), param(bytes), param(refs)]);
        }
        Ok(())
    }

    /// Writes the rows that all saves share, last: the end of the log and the counts. Returns the position of the
    /// result with the batch's seqs.
    pub(super) fn write_shared(&self, pipeline: &mut Pipeline<'a>) -> Result<usize, StoreError> {
        if self.write_set.entries.is_empty() {
            return Ok(pipeline.add(SELECT_LOG_END_SQL, Vec::new()));
        }
        pipeline.add(LOCK_LOG_END_SQL, Vec::new());
        let appended = self.append_batch(pipeline);
        for is_increase in [true, false] {
            let (mut definitions, mut owners, mut states, mut deltas) =
                (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for (StateCountKey { definition, owner, state }, delta) in self.write_set.state_count_deltas() {
                if (delta > 0) == is_increase {
                    definitions.push(i64::from(self.snapshot.catalog.version_number_by_hash(&definition)?));
                    owners.push(owner.to_string());
                    states.push(self.snapshot.symbols.require_id(&state)?);
                    deltas.push(delta);
                }
            }
            if !deltas.is_empty() {
                let all = to_limit(deltas.len());
                let mut parameters = vec![param(definitions), param(owners), param(states), param(deltas)];
                if !is_increase {
                    parameters.push(param(all));
                }
                pipeline.add(if is_increase { RAISE_STATE_COUNTS_SQL } else { LOWER_STATE_COUNTS_SQL }, parameters);
            }
        }
        self.write_accounts(pipeline, true);
        Ok(appended)
    }

    fn append_batch(&self, pipeline: &mut Pipeline<'a>) -> usize {
        let (mut assets, mut names, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, entry) in (0_i64..).zip(&*self.write_set.entries) {
            for account in &entry.accounts {
                assets.push(&*account.asset);
                names.push(&*account.name);
                numbers.push(number);
            }
        }
        let mut parameters = vec![param(to_limit(self.write_set.entries.len())), param(self.batch_number)];
        if numbers.is_empty() {
            return pipeline.add(APPEND_BATCH_SQL, parameters);
        }
        parameters.extend([param(assets), param(names), param(numbers)]);
        pipeline.add(APPEND_BATCH_WITH_ACCOUNTS_SQL, parameters)
    }

    fn write_log(&mut self, pipeline: &mut Pipeline<'a>) -> Result<(), StoreError> {
        let entries = &self.write_set.entries;
        if entries.is_empty() {
            return Ok(());
        }
        let (mut entry_ids, mut records, mut previous) = (Vec::new(), Vec::new(), Vec::new());
        for (number, entry) in entries.iter().enumerate() {
            let entry_id =
                self.batch_number.saturating_mul(to_limit(MAX_BATCH_ENTRIES)).saturating_add(to_limit(number));
            entry_ids.push(entry_id);
            records.push(entry.record.map(|id| self.row_id(id)).transpose()?);
            let stored = |id| self.read_set.record_meta(id).map(|stored| to_signed(stored.head_entry_id));
            previous.push(entry.record.and_then(|id| self.head_entry_ids.insert(id, entry_id).or_else(|| stored(id))));
        }
        let versions: Vec<i64> = entries.iter().map(|entry| to_signed(entry.version)).collect();
        let times: Vec<i64> = entries.iter().map(|entry| entry.at.micros()).collect();
        let texts: Vec<&str> = entries.iter().map(|entry| &*entry.text).collect();
        let hashes: Vec<&[u8]> = entries.iter().map(|entry| &entry.hash[..]).collect();
        let parameters = vec![
            param(entry_ids),
            param(records),
            param(versions),
            param(times),
            param(previous),
            param(texts),
            param(hashes),
        ];
        pipeline.add(INSERT_HISTORY_SQL, parameters);
        Ok(())
    }

    fn insert_records(&self, pipeline: &mut Pipeline<'a>, new_records: &[&'a RecordWrite]) -> Result<(), StoreError> {
        if new_records.is_empty() {
            return Ok(());
        }
        let after = || new_records.iter().map(|record| &*record.after);
        let rows = after().map(|record| self.row_id(record.id)).collect::<Result<Vec<_>, _>>()?;
        let numbers = after().map(|record| Ok(i64::from(self.snapshot.catalog.version_number(&record.lifecycle)?)));
        let payloads = after().map(|record| record.payload.as_ref());
        let parameters = vec![
            param(rows),
            param(after().map(|record| record.id.0).collect::<Vec<Uuid>>()),
            param(numbers.collect::<Result<Vec<_>, StoreError>>()?),
            param(after().map(|record| i16::from(record.state)).collect::<Vec<_>>()),
            param(after().map(|record| to_signed(record.version)).collect::<Vec<_>>()),
            param(after().map(|record| &*record.owner).collect::<Vec<&str>>()),
            param(after().map(write_fields).collect::<Result<Vec<_>, _>>()?),
            param(after().map(|record| to_signed(record.attempt)).collect::<Vec<_>>()),
            param(after().map(|record| record.created_at.micros()).collect::<Vec<_>>()),
            param(after().map(|record| record.updated_at.micros()).collect::<Vec<_>>()),
            param(after().map(|record| record.started_at.map(Time::micros)).collect::<Vec<_>>()),
            param(after().map(|record| record.finished_at.map(Time::micros)).collect::<Vec<_>>()),
            param(after().map(|record| record.entered_at.micros()).collect::<Vec<_>>()),
            param(after().map(|record| record.hold).collect::<Vec<_>>()),
            param(after().map(|record| write_timers(&record.timers)).collect::<Result<Vec<_>, _>>()?),
            param(after().map(|record| record.committed_token.map(|token| to_signed(token.0))).collect::<Vec<_>>()),
            param(payloads.clone().map(|payload| payload.map(|payload| &payload.sha256[..])).collect::<Vec<_>>()),
            param(payloads.map(|payload| payload.map(|payload| to_signed(payload.bytes))).collect::<Vec<_>>()),
            param(after().map(|record| record.stuck_reason.as_deref()).collect::<Vec<_>>()),
            param(new_records.iter().map(|record| &record.head_hash[..]).collect::<Vec<_>>()),
            param(after().map(|record| self.head_entry_id(record)).collect::<Result<Vec<_>, _>>()?),
            param(after().map(|record| record.trace.map(|trace| trace.to_bytes().to_vec())).collect::<Vec<_>>()),
        ];
        pipeline.add(INSERT_RECORDS_SQL, parameters);
        Ok(())
    }

    fn head_entry_id(&self, record: &Record) -> Result<i64, StoreError> {
        let found = self.head_entry_ids.get(&record.id).copied();
        found.ok_or_else(|| StoreError::Rejected(format!("record {} has no log entry", record.id)))
    }

    /// Returns a record as saved by this batch. A heartbeat alone does not change its last entry.
    pub(super) fn saved_record(&self, record: &RecordWrite) -> Option<(RecordMeta, Arc<Record>)> {
        let after = &record.after;
        let entry_id = self.head_entry_ids.get(&after.id).and_then(|entry_id| u64::try_from(*entry_id).ok());
        let stored = RecordMeta {
            row_id: u64::try_from(self.row_id(after.id).ok()?).ok()?,
            version: after.version,
            expires_at: after.execution.as_ref().map(|execution| execution.expires_at),
            head_hash: record.head_hash,
            head_entry_id: entry_id
                .or_else(|| self.read_set.record_meta(after.id).map(|stored| stored.head_entry_id))?,
        };
        Some((stored, Arc::clone(after)))
    }

    /// Updates the columns that can change. The condition on the old version is a second protection against lost
    /// updates.
    fn update_records(
        &self,
        pipeline: &mut Pipeline<'a>,
        changed_records: &[&'a RecordWrite],
    ) -> Result<(), StoreError> {
        // A heartbeat alone changes only the execution.
        let old: Vec<&RecordWrite> = changed_records
            .iter()
            .filter(|record| self.head_entry_ids.contains_key(&record.after.id))
            .copied()
            .collect();
        if old.is_empty() {
            return Ok(());
        }
        let after = || old.iter().map(|record| &*record.after);
        let previous_version =
            |record: &&RecordWrite| record.before.as_ref().map_or(0, |before| to_signed(before.version));
        let parameters = vec![
            param(after().map(|record| self.row_id(record.id)).collect::<Result<Vec<_>, _>>()?),
            param(old.iter().map(previous_version).collect::<Vec<_>>()),
            param(after().map(|record| i16::from(record.state)).collect::<Vec<_>>()),
            param(after().map(|record| to_signed(record.version)).collect::<Vec<_>>()),
            param(after().map(write_fields).collect::<Result<Vec<_>, _>>()?),
            param(after().map(|record| to_signed(record.attempt)).collect::<Vec<_>>()),
            param(after().map(|record| record.updated_at.micros()).collect::<Vec<_>>()),
            param(after().map(|record| record.started_at.map(Time::micros)).collect::<Vec<_>>()),
            param(after().map(|record| record.finished_at.map(Time::micros)).collect::<Vec<_>>()),
            param(after().map(|record| record.entered_at.micros()).collect::<Vec<_>>()),
            param(after().map(|record| record.hold).collect::<Vec<_>>()),
            param(after().map(|record| write_timers(&record.timers)).collect::<Result<Vec<_>, _>>()?),
            param(after().map(|record| record.committed_token.map(|token| to_signed(token.0))).collect::<Vec<_>>()),
            param(after().map(|record| record.stuck_reason.as_deref()).collect::<Vec<_>>()),
            param(old.iter().map(|record| &record.head_hash[..]).collect::<Vec<_>>()),
            param(after().map(|record| self.head_entry_id(record)).collect::<Result<Vec<_>, _>>()?),
            param(to_limit(old.len())),
        ];
        pipeline.add(UPDATE_RECORDS_SQL, parameters);
        let (mut row_ids, mut definitions) = (Vec::new(), Vec::new());
        for record in old.iter().filter(|record| record.is_version_migrated()) {
            row_ids.push(self.row_id(record.after.id)?);
            definitions.push(i64::from(self.snapshot.catalog.version_number(&record.after.lifecycle)?));
        }
        if !row_ids.is_empty() {
            pipeline.add(UPDATE_VERSIONS_SQL, vec![param(row_ids), param(definitions)]);
        }
        Ok(())
    }

    /// Writes unique keys, except those that were free, which the lock plan has claimed.
    fn write_uniques(&self, pipeline: &mut Pipeline<'a>, lock_plan: &LockPlan<'_>) -> Result<(), StoreError> {
        let (mut lifecycles, mut names, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let mut taken = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (lifecycle, name, text) in lock_plan.temporary_claims() {
            lifecycles.push(lifecycle);
            names.push(name);
            parts.push(text.to_owned());
        }
        for (key, holder) in self.write_set.uniques.iter().filter(|(key, _)| !self.read_set.was_unique_key_free(key)) {
            let (lifecycle, name) =
                (self.snapshot.symbols.require_id(&key.lifecycle)?, self.snapshot.symbols.require_id(&key.unique)?);
            let (text, whole) = indexed_key_text(&key.parts)?;
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
            pipeline.add(DELETE_UNIQUES_SQL, vec![param(lifecycles), param(names), param(parts)]);
        }
        if !taken.0.is_empty() {
            let parameters = vec![param(taken.0), param(taken.1), param(taken.2), param(taken.3), param(taken.4)];
            pipeline.add(UPSERT_UNIQUES_SQL, parameters);
        }
        Ok(())
    }

    fn write_counters(&self, pipeline: &mut Pipeline<'a>) -> Result<(), StoreError> {
        let (mut lifecycles, mut names, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut spans, mut deltas) = (Vec::new(), Vec::new());
        for (key, delta) in self.write_set.counts.iter().filter(|(_, delta)| **delta != 0) {
            lifecycles.push(self.snapshot.symbols.require_id(&key.lifecycle)?);
            names.push(self.snapshot.symbols.require_id(&key.limit)?);
            parts.push(indexed_key_text(&key.parts)?.0);
            spans.push(key.window_start.unwrap_or(NO_WINDOW));
            deltas.push(*delta);
        }
        if !deltas.is_empty() {
            let all = to_limit(deltas.len());
            let parameters =
                vec![param(lifecycles), param(names), param(parts), param(spans), param(deltas), param(all)];
            pipeline.add(UPDATE_COUNTERS_SQL, parameters);
        }
        Ok(())
    }

    /// Writes either outside accounts or the others.
    fn write_accounts(&self, pipeline: &mut Pipeline<'a>, outside: bool) {
        let (mut assets, mut names, mut deltas) = (Vec::new(), Vec::new(), Vec::new());
        for (account, delta) in &self.write_set.accounts {
            if let Account::Named { asset, name } = account
                && self.snapshot.catalog.definitions.is_outside_account(asset, name) == outside
            {
                assets.push(&**asset);
                names.push(&**name);
                deltas.push(*delta);
            }
        }
        if !deltas.is_empty() {
            let all = to_limit(deltas.len());
            pipeline.add(UPDATE_BALANCES_SQL, vec![param(assets), param(names), param(deltas), param(all)]);
        }
    }
}
