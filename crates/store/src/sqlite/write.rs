//! Writing what a batch comes to, each row once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::decide::{Account, CountKey, QueueKey};
use onceward_core::record::{Execution, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, params};

use super::lanes::{self, Spot};
use super::load::row_of;
use crate::base::Base;
use crate::columns::{NO_WINDOW, write_fields, write_parts, write_status, write_timers};
use crate::error::StoreError;
use crate::names::Known;
use crate::net::{Net, NetRecord};
use crate::query::running;

/// One batch on its way into the database.
pub(super) struct Writing<'a> {
    connection: &'a Connection,
    known: &'a Known,
    base: &'a Base,
    pub(super) last_row: u64,
    /// The rows of records that the base does not know, and of new ones.
    rows: HashMap<RecordId, u64>,
    /// Where each record's newest entry stands.
    entries: HashMap<RecordId, u64>,
    /// Work keys whose lanes must be looked at.
    touched: BTreeSet<QueueKey>,
}

impl<'a> Writing<'a> {
    pub(super) fn new(connection: &'a Connection, known: &'a Known, base: &'a Base, last_row: u64) -> Self {
        let (rows, entries) = (HashMap::new(), HashMap::new());
        Self { connection, known, base, last_row, rows, entries, touched: BTreeSet::new() }
    }

    /// Everything; the places that its entries have in the log. Lanes are settled as of `latest`.
    pub(super) fn all(&mut self, net: &Net, now: Time, latest: Time) -> Result<(u64, u64), StoreError> {
        let mut counter = self.connection.prepare_cached("SELECT seq FROM counter")?;
        let before: u64 = counter.query_row([], |row| row.get(0))?;
        for record in &net.records {
            if record.before.is_none() {
                self.last_row += 1;
                self.rows.insert(record.after.id, self.last_row);
            }
        }
        let last = self.log(net, before)?;
        for record in &net.records {
            self.record(record)?;
        }
        for ((id, _), execution) in &net.executions {
            self.execution(*id, execution)?;
        }
        for effect in &net.effects {
            let sql = "INSERT INTO effects (record, execution, token, result) VALUES (?1, ?2, ?3, ?4)";
            let row = self.row(effect.record)?;
            let values = params![row, effect.execution.0.as_bytes(), effect.token.0, effect.result.to_string()];
            self.connection.prepare_cached(sql)?.execute(values)?;
        }
        self.keys(net)?;
        self.accounts(net)?;
        self.tallies(net)?;
        for record in &net.records {
            self.links(record)?;
            self.waiting(record, latest)?;
        }
        for key in std::mem::take(&mut self.touched) {
            // By the current version: should an older one share its keys otherwise, `decide` has the last word.
            if let Some(current) = self.known.catalog.definitions.get(&key.lifecycle) {
                lanes::settle(self.connection, self.known, &key, self.known.catalog.number_of(current)?, latest)?;
            }
        }
        for (payload, bytes) in &net.contents {
            let sql = "INSERT INTO contents (sha256, bytes) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            self.connection.prepare_cached(sql)?.execute(params![payload.sha256, bytes])?;
        }
        for request in &net.requests {
            let sql = "INSERT INTO requests (owner, key, digest, answer, at) VALUES (?1, ?2, ?3, ?4, ?5)";
            let name = &request.name;
            let values = params![name.owner, name.key, request.digest, request.answer, now.micros()];
            self.connection.prepare_cached(sql)?.execute(values)?;
        }
        // Last: a place in the log is the order of commit.
        if last > before {
            self.connection.prepare_cached("UPDATE counter SET seq = ?1")?.execute([last])?;
        }
        Ok((before + 1, last))
    }

    /// The row of a record that exists when this batch is done.
    fn row(&mut self, id: RecordId) -> Result<u64, StoreError> {
        if let Some(stored) = self.base.stored(id) {
            return Ok(stored.row);
        }
        if let Some(row) = self.rows.get(&id) {
            return Ok(*row);
        }
        let row = row_of(self.connection, id)?.ok_or_else(|| StoreError::Rejected(format!("{id} does not exist")))?;
        self.rows.insert(id, row);
        Ok(row)
    }

    fn log(&mut self, net: &Net, before: u64) -> Result<u64, StoreError> {
        let sql =
            "INSERT INTO history (seq, record, version, at, previous, text, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut seq = before;
        for entry in &net.entries {
            seq += 1;
            let (mut row, mut previous) = (None, None);
            if let Some(id) = entry.record {
                row = Some(self.row(id)?);
                previous = self.entries.insert(id, seq).or_else(|| self.base.stored(id).map(|stored| stored.entry));
            }
            let at = entry.at.micros();
            statement.execute(params![seq, row, entry.version, at, previous, &*entry.text, entry.hash])?;
        }
        Ok(seq)
    }

    fn record(&mut self, net: &NetRecord) -> Result<(), StoreError> {
        let after = &*net.after;
        // A mere heartbeat changes its execution only.
        let Some(entry) = self.entries.get(&after.id).copied() else { return Ok(()) };
        let row = self.row(after.id)?;
        let changed = if net.before.is_none() {
            self.insert(row, after, net, entry)?
        } else {
            self.update(row, after, net, entry)?
        };
        if changed == 1 {
            Ok(())
        } else {
            Err(StoreError::Rejected(format!("{} is not there to be changed", after.id)))
        }
    }

    fn insert(&self, row: u64, after: &Record, net: &NetRecord, entry: u64) -> Result<usize, StoreError> {
        let sql = "INSERT INTO records (row, id, definition, state, version, owner, fields, attempt, created_at, updated_at, \
                   started_at, finished_at, entered_at, hold, timers, committed, payload, payload_bytes, stuck, head, entry) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";
        let values = params![
            row,
            after.id.0.as_bytes(),
            self.known.catalog.number_of(&after.lifecycle)?,
            after.state,
            after.version,
            after.owner,
            write_fields(after)?,
            after.attempt,
            after.created_at.micros(),
            after.updated_at.micros(),
            after.started_at.map(Time::micros),
            after.finished_at.map(Time::micros),
            after.entered_at.micros(),
            after.hold,
            write_timers(&after.timers)?,
            after.committed.map(|token| token.0),
            after.payload.map(|payload| payload.sha256),
            after.payload.map(|payload| payload.bytes),
            after.stuck,
            net.head,
            entry,
        ];
        Ok(self.connection.prepare_cached(sql)?.execute(values)?)
    }

    /// What may change. The version that it had is named once more: the last line of defence against a lost update.
    fn update(&self, row: u64, after: &Record, net: &NetRecord, entry: u64) -> Result<usize, StoreError> {
        let sql = "UPDATE records SET state = ?3, version = ?4, fields = ?5, attempt = ?6, updated_at = ?7, started_at = ?8, \
                   finished_at = ?9, entered_at = ?10, hold = ?11, timers = ?12, committed = ?13, stuck = ?14, head = ?15, \
                   entry = ?16 WHERE row = ?1 AND version = ?2";
        let values = params![
            row,
            net.before.as_ref().map(|before| before.version),
            after.state,
            after.version,
            write_fields(after)?,
            after.attempt,
            after.updated_at.micros(),
            after.started_at.map(Time::micros),
            after.finished_at.map(Time::micros),
            after.entered_at.micros(),
            after.hold,
            write_timers(&after.timers)?,
            after.committed.map(|token| token.0),
            after.stuck,
            net.head,
            entry,
        ];
        Ok(self.connection.prepare_cached(sql)?.execute(values)?)
    }

    fn execution(&mut self, record: RecordId, execution: &Execution) -> Result<(), StoreError> {
        let sql = "INSERT INTO executions (record, token, id, worker, holder, status, leased_at, expires_at, started_at, \
                   finished_at, abort_code, abort_retryable, finish_moves, key) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
                   ON CONFLICT (record, token) DO UPDATE SET status = excluded.status, expires_at = excluded.expires_at, \
                   started_at = excluded.started_at, finished_at = excluded.finished_at, abort_code = excluded.abort_code, \
                   abort_retryable = excluded.abort_retryable, finish_moves = excluded.finish_moves, key = excluded.key";
        let key = execution.key.as_deref().map(write_parts).transpose()?;
        let values = params![
            self.row(record)?,
            execution.token.0,
            execution.id.0.as_bytes(),
            execution.worker,
            execution.holder,
            write_status(execution.status),
            execution.leased_at.micros(),
            execution.expires_at.micros(),
            execution.started_at.map(Time::micros),
            execution.finished_at.map(Time::micros),
            execution.aborted.as_ref().map(|abort| &abort.code),
            execution.aborted.as_ref().map(|abort| abort.retryable),
            execution.finish_moves,
            key,
        ];
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    fn keys(&mut self, net: &Net) -> Result<(), StoreError> {
        for (key, holder) in &net.uniques {
            let (lifecycle, name) = (self.known.names.known(&key.lifecycle)?, self.known.names.known(&key.unique)?);
            let parts = write_parts(&key.parts)?;
            let sql = match (holder, self.base.was_free(key)) {
                (None, _) => "DELETE FROM uniques WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND ?4 IS NULL",
                // Free when it was loaded: should it be taken after all, the primary key says no.
                (Some(_), true) => "INSERT INTO uniques (lifecycle, name, parts, holder) VALUES (?1, ?2, ?3, ?4)",
                (Some(_), false) => {
                    "INSERT INTO uniques (lifecycle, name, parts, holder) VALUES (?1, ?2, ?3, ?4) \
                     ON CONFLICT (lifecycle, name, parts) DO UPDATE SET holder = excluded.holder"
                }
            };
            let holder = holder.map(|holder| *holder.0.as_bytes());
            self.connection.prepare_cached(sql)?.execute(params![lifecycle, name, parts, holder])?;
        }
        for (key, delta) in &net.counts {
            let (lifecycle, name) = (self.known.names.known(&key.lifecycle)?, self.known.names.known(&key.limit)?);
            let at = params![lifecycle, name, write_parts(&key.parts)?, key.window.unwrap_or(NO_WINDOW), delta];
            let sql = if *delta > 0 {
                "INSERT INTO counts (lifecycle, name, parts, window, count) VALUES (?1, ?2, ?3, ?4, ?5) \
                 ON CONFLICT (lifecycle, name, parts, window) DO UPDATE SET count = count + excluded.count"
            } else {
                "UPDATE counts SET count = count + ?5 WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND window = ?4"
            };
            if *delta != 0 && self.connection.prepare_cached(sql)?.execute(at)? == 0 {
                return Err(StoreError::Rejected(format!("fewer than none would count for {key:?}")));
            }
            if **key == running(&queue_of(key)) {
                self.touched.insert(queue_of(key));
            }
        }
        Ok(())
    }

    fn accounts(&self, net: &Net) -> Result<(), StoreError> {
        for (account, delta) in &net.accounts {
            let Account::Named { asset, name } = account else { continue };
            let sql = "UPDATE accounts SET balance = balance + ?3 WHERE asset = ?1 AND name = ?2";
            if self.connection.prepare_cached(sql)?.execute(params![asset, name, delta])? == 0 {
                let sql = "INSERT INTO accounts (asset, name, outside, balance) VALUES (?1, ?2, 0, ?3)";
                self.connection.prepare_cached(sql)?.execute(params![asset, name, delta])?;
            }
        }
        Ok(())
    }

    fn tallies(&self, net: &Net) -> Result<(), StoreError> {
        for ((lifecycle, owner, state), delta) in net.tallies() {
            let (lifecycle, state) = (self.known.names.known(&lifecycle)?, self.known.names.known(&state)?);
            let sql = "UPDATE tallies SET count = count + ?4 WHERE lifecycle = ?1 AND owner = ?2 AND state = ?3";
            if self.connection.prepare_cached(sql)?.execute(params![lifecycle, owner, state, delta])? == 0 {
                let sql = "INSERT INTO tallies (lifecycle, owner, state, count) VALUES (?1, ?2, ?3, ?4)";
                self.connection.prepare_cached(sql)?.execute(params![lifecycle, owner, state, delta])?;
            }
        }
        Ok(())
    }

    fn links(&mut self, record: &NetRecord) -> Result<(), StoreError> {
        for (link, added) in record.links() {
            let (target, source) = (self.row(link.target)?, self.row(record.after.id)?);
            let (lifecycle, field) = (self.known.names.known(&link.lifecycle)?, self.known.names.known(&link.field)?);
            let sql = if added {
                // A list may name one record twice; it is one link.
                "INSERT INTO links (target, lifecycle, field, source) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING"
            } else {
                "DELETE FROM links WHERE target = ?1 AND lifecycle = ?2 AND field = ?3 AND source = ?4"
            };
            self.connection.prepare_cached(sql)?.execute(params![target, lifecycle, field, source])?;
            self.connection.prepare_cached("UPDATE records SET links = links + 1 WHERE row = ?1")?.execute([target])?;
        }
        Ok(())
    }

    /// What waits for a worker, for its turn or for a time.
    fn waiting(&mut self, record: &NetRecord, now: Time) -> Result<(), StoreError> {
        let row = self.row(record.after.id)?;
        let after = &record.after;
        let lifecycle = self.known.names.known(&after.lifecycle.name)?;
        let definition = self.known.catalog.number_of(&after.lifecycle)?;
        let (old, new) = record.due();
        if old != new {
            if let Some(due) = old {
                let sql = "DELETE FROM timers WHERE due = ?1 AND record = ?2";
                self.connection.prepare_cached(sql)?.execute(params![due.micros(), row])?;
            }
            if let Some(due) = new {
                let sql = "INSERT INTO timers (due, record) VALUES (?1, ?2)";
                self.connection.prepare_cached(sql)?.execute(params![due.micros(), row])?;
            }
        }
        let (old, new) = record.queue();
        if old != new {
            let (created_at, id) = record.place();
            for (key, sql) in [
                (&old, "DELETE FROM queues WHERE lifecycle = ?1 AND parts = ?2 AND created_at = ?3 AND id = ?4"),
                (&new, "INSERT INTO queues (lifecycle, parts, created_at, id) VALUES (?1, ?2, ?3, ?4)"),
            ] {
                let Some(key) = key else { continue };
                let at = params![lifecycle, write_parts(&key.parts)?, created_at.micros(), id.0.as_bytes()];
                self.connection.prepare_cached(sql)?.execute(at)?;
                self.touched.insert(key.clone());
            }
        }
        let (old, new) = record.waiting();
        if old == new {
            return Ok(());
        }
        let spot = Spot { lifecycle, row, definition };
        if let Some(waiting) = &old {
            lanes::leave(self.connection, spot, waiting)?;
        }
        if let Some(waiting) = &new {
            lanes::join(self.connection, self.known, spot, waiting, now)?;
        }
        for key in [old, new].into_iter().flatten().filter_map(|waiting| waiting.key) {
            self.touched.insert(key);
        }
        Ok(())
    }
}

/// The work key whose running jobs a count would count.
fn queue_of(key: &CountKey) -> QueueKey {
    QueueKey { lifecycle: Arc::clone(&key.lifecycle), parts: key.parts.clone() }
}
