//! Writing what a batch comes to, each row once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::decide::{Account, CountKey, QueueKey};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, params};

use super::hot::{Hot, Place};
use super::lanes::{self, Spot};
use super::later;
use super::load::row_of;
use crate::base::{Base, Stored};
use crate::columns::{NO_WINDOW, write_parts};
use crate::error::StoreError;
use crate::names::Known;
use crate::net::{Net, NetRecord, TallyKey};
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
    /// The earliest time that somebody was put off to.
    pub(super) soonest: Time,
}

impl<'a> Writing<'a> {
    pub(super) fn new(connection: &'a Connection, known: &'a Known, base: &'a Base, last_row: u64) -> Self {
        let (rows, entries) = (HashMap::new(), HashMap::new());
        Self { connection, known, base, last_row, rows, entries, touched: BTreeSet::new(), soonest: Time::MAX }
    }

    /// Everything; the places that its entries have in the log.
    pub(super) fn all(&mut self, net: &Net, now: Time) -> Result<(u64, u64), StoreError> {
        let mut counter = self.connection.prepare_cached("SELECT seq FROM counter")?;
        let before: u64 = counter.query_row([], |row| row.get(0))?;
        for record in &net.records {
            if record.before.is_none() {
                self.last_row += 1;
                self.rows.insert(record.after.id, self.last_row);
            }
        }
        let hot = &mut Hot::new(self.connection);
        let last = self.log(hot, net, before)?;
        for record in &net.records {
            self.record(hot, record)?;
        }
        for ((id, _), execution) in &net.executions {
            hot.execution(self.row(*id)?, execution)?;
        }
        for effect in &net.effects {
            hot.effect(self.row(effect.record)?, effect)?;
        }
        self.keys(net)?;
        self.accounts(net)?;
        self.tallies(net)?;
        for record in &net.records {
            self.links(record)?;
            self.waiting(hot, record, net.latest)?;
        }
        later::settle((self.connection, hot), self.known, std::mem::take(&mut self.touched), net.latest)?;
        self.soonest = hot.soonest;
        for (sha256, (bytes, refs)) in net.contents_by_hash() {
            let sql = "INSERT INTO contents (sha256, bytes, refs) VALUES (?1, ?2, ?3) ON CONFLICT (sha256) DO UPDATE \
                       SET refs = refs + excluded.refs, bytes = CASE WHEN length(bytes) = 0 THEN excluded.bytes ELSE bytes END";
            self.connection.prepare_cached(sql)?.execute(params![sha256, bytes, refs])?;
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

    /// How a record stands after the batch.
    pub(super) fn stored(&mut self, net: &NetRecord) -> Result<Stored, StoreError> {
        let after = &net.after;
        let before = self.base.stored(after.id).map_or(0, |stored| stored.entry);
        Ok(Stored {
            row: self.row(after.id)?,
            version: after.version,
            expires_at: after.execution.as_ref().map(|execution| execution.expires_at),
            head: net.head,
            entry: self.entries.get(&after.id).copied().unwrap_or(before),
        })
    }

    fn log(&mut self, hot: &mut Hot, net: &Net, before: u64) -> Result<u64, StoreError> {
        let mut seq = before;
        for entry in &*net.entries {
            seq += 1;
            let (mut row, mut previous) = (None, None);
            if let Some(id) = entry.record {
                row = Some(self.row(id)?);
                previous = self.entries.insert(id, seq).or_else(|| self.base.stored(id).map(|stored| stored.entry));
            }
            hot.entry(entry, seq, row, previous)?;
            for account in &entry.accounts {
                let sql = "INSERT INTO entries (asset, name, seq) VALUES (?1, ?2, ?3)";
                self.connection.prepare_cached(sql)?.execute(params![account.asset, account.name, seq])?;
            }
        }
        Ok(seq)
    }

    fn record(&mut self, hot: &mut Hot, net: &NetRecord) -> Result<(), StoreError> {
        let after = &*net.after;
        // A mere heartbeat changes its execution only.
        let Some(entry) = self.entries.get(&after.id).copied() else { return Ok(()) };
        let place = Place { row: self.row(after.id)?, head: net.head, entry };
        let changed = match &net.before {
            None => hot.new_record(after, self.known.catalog.number_of(&after.lifecycle)?, place)?,
            Some(before) => hot.record(before.version, after, place)?,
        };
        if changed == 1 {
            if net.is_moved() {
                let definition = self.known.catalog.number_of(&after.lifecycle)?;
                let sql = "UPDATE records SET definition = ?2 WHERE row = ?1";
                self.connection.prepare_cached(sql)?.execute(params![place.row, definition])?;
            }
            Ok(())
        } else {
            Err(StoreError::Rejected(format!("{} is not there to be changed", after.id)))
        }
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
        for (TallyKey { definition, owner, state }, delta) in net.tallies() {
            let (definition, state) = (self.known.catalog.number_by(&definition)?, self.known.names.known(&state)?);
            let sql = "UPDATE tallies SET count = count + ?4 WHERE definition = ?1 AND owner = ?2 AND state = ?3";
            if self.connection.prepare_cached(sql)?.execute(params![definition, owner, state, delta])? == 0 {
                let sql = "INSERT INTO tallies (definition, owner, state, count) VALUES (?1, ?2, ?3, ?4)";
                self.connection.prepare_cached(sql)?.execute(params![definition, owner, state, delta])?;
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
    fn waiting(&mut self, hot: &mut Hot, record: &NetRecord, now: Time) -> Result<(), StoreError> {
        let row = self.row(record.after.id)?;
        let after = &record.after;
        let lifecycle = self.known.names.known(&after.lifecycle.name)?;
        let definition = self.known.catalog.number_of(&after.lifecycle)?;
        let (old, new) = record.due();
        hot.timer(row, old, new)?;
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
        if old == new && !record.is_moved() {
            return Ok(());
        }
        let spot = Spot { lifecycle, row, definition };
        if let Some(waiting) = &old {
            lanes::leave(self.connection, hot, spot, waiting)?;
        }
        if let Some(waiting) = &new {
            lanes::join((self.connection, hot), spot, waiting, now)?;
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
