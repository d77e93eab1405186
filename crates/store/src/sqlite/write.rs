//! Writes the write set of a batch to SQLite, each row once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::decide::{Account, ConcurrencyKey, CounterKey};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, params};

use super::delayed;
use super::lanes::{self, ReadyRowKey};
use super::load::find_row_id;
use super::prepared::{PreparedWrites, RecordRowHead};
use crate::columns::{NO_WINDOW, write_parts};
use crate::error::StoreError;
use crate::query::running_counter_key;
use crate::read_set::{ReadSet, RecordMeta};
use crate::symbols::CatalogSnapshot;
use crate::write_set::{RecordWrite, StateCountKey, WriteSet};

/// Writes one batch in its transaction.
pub(super) struct BatchWriter<'a> {
    connection: &'a Connection,
    snapshot: &'a CatalogSnapshot,
    read_set: &'a ReadSet,
    pub(super) last_row_id: u64,
    /// Row ids of new records, and of records that are not in the read set.
    row_ids: HashMap<RecordId, u64>,
    /// Seq of each record's newest entry.
    head_seqs: HashMap<RecordId, u64>,
    /// Concurrency keys whose lanes must be rebalanced.
    touched_keys: BTreeSet<ConcurrencyKey>,
    /// The earliest time at which a job delayed by this batch becomes ready.
    pub(super) earliest_ready_at: Time,
}

impl<'a> BatchWriter<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        snapshot: &'a CatalogSnapshot,
        read_set: &'a ReadSet,
        last_row: u64,
    ) -> Self {
        let (rows, entries) = (HashMap::new(), HashMap::new());
        Self {
            connection,
            snapshot,
            read_set,
            last_row_id: last_row,
            row_ids: rows,
            head_seqs: entries,
            touched_keys: BTreeSet::new(),
            earliest_ready_at: Time::MAX,
        }
    }

    /// Writes everything, and returns the first and last seq of its log entries.
    pub(super) fn write_batch(&mut self, write_set: &WriteSet, now: Time) -> Result<(u64, u64), StoreError> {
        let mut log_seq = self.connection.prepare_cached("SELECT seq FROM log_seq")?;
        let previous_seq: u64 = log_seq.query_row([], |row| row.get(0))?;
        for record in &write_set.records {
            if record.before.is_none() {
                self.last_row_id += 1;
                self.row_ids.insert(record.after.id, self.last_row_id);
            }
        }
        let writes = &mut PreparedWrites::new(self.connection);
        let last = self.write_log(writes, write_set, previous_seq)?;
        for record in &write_set.records {
            self.write_record(writes, record)?;
        }
        for ((id, _), execution) in &write_set.executions {
            writes.upsert_execution(self.row_id(*id)?, execution)?;
        }
        for effect in &write_set.effects {
            writes.insert_effect(self.row_id(effect.record)?, effect)?;
        }
        self.write_keys(write_set)?;
        self.write_accounts(write_set)?;
        self.write_state_counts(write_set)?;
        for record in &write_set.records {
            self.write_links(record)?;
            self.update_readiness(writes, record, write_set.latest_at)?;
        }
        delayed::rebalance_lanes(
            (self.connection, writes),
            self.snapshot,
            std::mem::take(&mut self.touched_keys),
            write_set.latest_at,
        )?;
        self.earliest_ready_at = writes.earliest_ready_at;
        for (sha256, (bytes, refs)) in write_set.payloads_by_hash() {
            let sql = "INSERT INTO contents (sha256, bytes, refs) VALUES (?1, ?2, ?3) ON CONFLICT (sha256) DO UPDATE \
                       SET refs = refs + excluded.refs, bytes = CASE WHEN length(bytes) = 0 THEN excluded.bytes ELSE bytes END";
            self.connection.prepare_cached(sql)?.execute(params![sha256, bytes, refs])?;
        }
        for request in &write_set.idempotency_records {
            let sql = "INSERT INTO idempotency_keys (owner, key, digest, reply, at) VALUES (?1, ?2, ?3, ?4, ?5)";
            let name = &request.id;
            let values = params![name.owner, name.idempotency_key, request.request_digest, request.reply, now.micros()];
            self.connection.prepare_cached(sql)?.execute(values)?;
        }
        // Last, because seqs have commit order.
        if last > previous_seq {
            self.connection.prepare_cached("UPDATE log_seq SET seq = ?1")?.execute([last])?;
        }
        Ok((previous_seq + 1, last))
    }

    /// Returns the row id of a record that exists after this batch.
    fn row_id(&mut self, id: RecordId) -> Result<u64, StoreError> {
        if let Some(stored) = self.read_set.record_meta(id) {
            return Ok(stored.row_id);
        }
        if let Some(row) = self.row_ids.get(&id) {
            return Ok(*row);
        }
        let row = find_row_id(self.connection, id)?
            .ok_or_else(|| StoreError::Rejected(format!("record {id} does not exist")))?;
        self.row_ids.insert(id, row);
        Ok(row)
    }

    /// Returns a record's metadata after the batch.
    pub(super) fn record_meta(&mut self, write: &RecordWrite) -> Result<RecordMeta, StoreError> {
        let after = &write.after;
        let before = self.read_set.record_meta(after.id).map_or(0, |stored| stored.head_entry_id);
        Ok(RecordMeta {
            row_id: self.row_id(after.id)?,
            version: after.version,
            expires_at: after.execution.as_ref().map(|execution| execution.expires_at),
            head_hash: write.head_hash,
            head_entry_id: self.head_seqs.get(&after.id).copied().unwrap_or(before),
        })
    }

    fn write_log(
        &mut self,
        writes: &mut PreparedWrites,
        write_set: &WriteSet,
        previous_seq: u64,
    ) -> Result<u64, StoreError> {
        let mut seq = previous_seq;
        for entry in &*write_set.entries {
            seq += 1;
            let (mut row, mut previous) = (None, None);
            if let Some(id) = entry.record {
                row = Some(self.row_id(id)?);
                previous = self
                    .head_seqs
                    .insert(id, seq)
                    .or_else(|| self.read_set.record_meta(id).map(|stored| stored.head_entry_id));
            }
            writes.insert_entry(entry, seq, row, previous)?;
            for account in &entry.accounts {
                let sql = "INSERT INTO account_entries (asset, name, seq) VALUES (?1, ?2, ?3)";
                self.connection.prepare_cached(sql)?.execute(params![account.asset, account.name, seq])?;
            }
        }
        Ok(seq)
    }

    fn write_record(&mut self, writes: &mut PreparedWrites, write: &RecordWrite) -> Result<(), StoreError> {
        let after = &*write.after;
        // A heartbeat alone changes only the execution.
        let Some(entry) = self.head_seqs.get(&after.id).copied() else { return Ok(()) };
        let head = RecordRowHead { row_id: self.row_id(after.id)?, head_hash: write.head_hash, head_seq: entry };
        let changed = match &write.before {
            None => writes.insert_record(after, self.snapshot.catalog.version_number(&after.lifecycle)?, head)?,
            Some(before) => writes.update_record(before.version, after, head)?,
        };
        if changed == 1 {
            if write.is_version_migrated() {
                let definition = self.snapshot.catalog.version_number(&after.lifecycle)?;
                let sql = "UPDATE records SET definition = ?2 WHERE row = ?1";
                self.connection.prepare_cached(sql)?.execute(params![head.row_id, definition])?;
            }
            Ok(())
        } else {
            Err(StoreError::Rejected(format!("record {} to change does not exist", after.id)))
        }
    }

    fn write_keys(&mut self, write_set: &WriteSet) -> Result<(), StoreError> {
        for (key, holder) in &write_set.uniques {
            let (lifecycle, name) =
                (self.snapshot.symbols.require_id(&key.lifecycle)?, self.snapshot.symbols.require_id(&key.unique)?);
            let parts = write_parts(&key.parts)?;
            let sql = match (holder, self.read_set.was_unique_key_free(key)) {
                (None, _) => "DELETE FROM uniques WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND ?4 IS NULL",
                // The key was free when it was loaded. If it is taken now, the primary key rejects the insert.
                (Some(_), true) => "INSERT INTO uniques (lifecycle, name, parts, holder) VALUES (?1, ?2, ?3, ?4)",
                (Some(_), false) => {
                    "INSERT INTO uniques (lifecycle, name, parts, holder) VALUES (?1, ?2, ?3, ?4) \
                     ON CONFLICT (lifecycle, name, parts) DO UPDATE SET holder = excluded.holder"
                }
            };
            let holder = holder.map(|holder| *holder.0.as_bytes());
            self.connection.prepare_cached(sql)?.execute(params![lifecycle, name, parts, holder])?;
        }
        for (key, delta) in &write_set.counts {
            let (lifecycle, name) =
                (self.snapshot.symbols.require_id(&key.lifecycle)?, self.snapshot.symbols.require_id(&key.limit)?);
            let at = params![lifecycle, name, write_parts(&key.parts)?, key.window_start.unwrap_or(NO_WINDOW), delta];
            let sql = if *delta > 0 {
                "INSERT INTO counts (lifecycle, name, parts, window_start, count) VALUES (?1, ?2, ?3, ?4, ?5) \
                 ON CONFLICT (lifecycle, name, parts, window_start) DO UPDATE SET count = count + excluded.count"
            } else {
                "UPDATE counts SET count = count + ?5 WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND window_start = ?4"
            };
            if *delta != 0 && self.connection.prepare_cached(sql)?.execute(at)? == 0 {
                return Err(StoreError::Rejected(format!("the counter {key:?} would become negative")));
            }
            if **key == running_counter_key(&counted_concurrency_key(key)) {
                self.touched_keys.insert(counted_concurrency_key(key));
            }
        }
        Ok(())
    }

    fn write_accounts(&self, write_set: &WriteSet) -> Result<(), StoreError> {
        for (account, delta) in &write_set.accounts {
            let Account::Named { asset, name } = account else { continue };
            let sql = "UPDATE accounts SET balance = balance + ?3 WHERE asset = ?1 AND name = ?2";
            if self.connection.prepare_cached(sql)?.execute(params![asset, name, delta])? == 0 {
                let sql = "INSERT INTO accounts (asset, name, outside, balance) VALUES (?1, ?2, 0, ?3)";
                self.connection.prepare_cached(sql)?.execute(params![asset, name, delta])?;
            }
        }
        Ok(())
    }

    fn write_state_counts(&self, write_set: &WriteSet) -> Result<(), StoreError> {
        for (StateCountKey { definition, owner, state }, delta) in write_set.state_count_deltas() {
            let (definition, state) =
                (self.snapshot.catalog.version_number_by_hash(&definition)?, self.snapshot.symbols.require_id(&state)?);
            let sql = "UPDATE state_counts SET count = count + ?4 WHERE definition = ?1 AND owner = ?2 AND state = ?3";
            if self.connection.prepare_cached(sql)?.execute(params![definition, owner, state, delta])? == 0 {
                let sql = "INSERT INTO state_counts (definition, owner, state, count) VALUES (?1, ?2, ?3, ?4)";
                self.connection.prepare_cached(sql)?.execute(params![definition, owner, state, delta])?;
            }
        }
        Ok(())
    }

    fn write_links(&mut self, record: &RecordWrite) -> Result<(), StoreError> {
        for (link, added) in record.changed_links() {
            let (target, source) = (self.row_id(link.target)?, self.row_id(record.after.id)?);
            let (lifecycle, field) =
                (self.snapshot.symbols.require_id(&link.lifecycle)?, self.snapshot.symbols.require_id(&link.field)?);
            let sql = if added {
                // A list field can contain the same record twice; that is one link.
                "INSERT INTO links (target, lifecycle, field, source) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING"
            } else {
                "DELETE FROM links WHERE target = ?1 AND lifecycle = ?2 AND field = ?3 AND source = ?4"
            };
            self.connection.prepare_cached(sql)?.execute(params![target, lifecycle, field, source])?;
            self.connection
                .prepare_cached("UPDATE records SET link_version = link_version + 1 WHERE row = ?1")?
                .execute([target])?;
        }
        Ok(())
    }

    /// Updates the tables of waiting jobs.
    fn update_readiness(
        &mut self,
        writes: &mut PreparedWrites,
        record: &RecordWrite,
        now: Time,
    ) -> Result<(), StoreError> {
        let row = self.row_id(record.after.id)?;
        let after = &record.after;
        let lifecycle = self.snapshot.symbols.require_id(&after.lifecycle.name)?;
        let definition = self.snapshot.catalog.version_number(&after.lifecycle)?;
        let (old, new) = record.due_change();
        writes.update_timer(row, old, new)?;
        let (old, new) = record.queue_change();
        if old != new {
            let (created_at, id) = record.queue_position();
            for (key, sql) in [
                (&old, "DELETE FROM queues WHERE lifecycle = ?1 AND parts = ?2 AND created_at = ?3 AND id = ?4"),
                (&new, "INSERT INTO queues (lifecycle, parts, created_at, id) VALUES (?1, ?2, ?3, ?4)"),
            ] {
                let Some(key) = key else { continue };
                let at = params![lifecycle, write_parts(&key.parts)?, created_at.micros(), id.0.as_bytes()];
                self.connection.prepare_cached(sql)?.execute(at)?;
                self.touched_keys.insert(key.clone());
            }
        }
        let (old, new) = record.readiness_change();
        if old == new && !record.is_version_migrated() {
            return Ok(());
        }
        let row_key = ReadyRowKey { lifecycle, record_row: row, version_number: definition };
        if let Some(waiting) = &old {
            lanes::remove_ready(self.connection, writes, row_key, waiting)?;
        }
        if let Some(waiting) = &new {
            lanes::add_ready((self.connection, writes), row_key, waiting, now)?;
        }
        for key in [old, new].into_iter().flatten().filter_map(|waiting| waiting.concurrency_key) {
            self.touched_keys.insert(key);
        }
        Ok(())
    }
}

/// Returns the concurrency key whose running jobs a counter counts.
fn counted_concurrency_key(key: &CounterKey) -> ConcurrencyKey {
    ConcurrencyKey { lifecycle: Arc::clone(&key.lifecycle), parts: key.parts.clone() }
}
