//! Taking records out of the database. Off the way of every save: nothing here is kept at hand, and no index serves it.

use std::collections::BTreeMap;

use onceward_core::value::RecordId;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::load;
use super::rows;
use super::save::Writer;
use crate::batch::RequestName;
use crate::columns::{NO_WINDOW, write_parts};
use crate::error::StoreError;
use crate::names::Known;
use crate::net::TallyKey;
use crate::prune::{
    Carry, CountPlace, Forgotten, ForgottenCounts, Kin, OldCounts, OldPage, OldQuery, OldRequests, Prune, PruneSave,
    Standing, Taken,
};

pub(super) fn standing(connection: &Connection) -> Result<Standing, StoreError> {
    let mut statement = connection.prepare_cached("SELECT checkpoint, floor, head FROM pruned")?;
    let found =
        statement.query_row([], |row| Ok(Standing { checkpoint: row.get(0)?, floor: row.get(1)?, head: row.get(2)? }));
    Ok(found?)
}

/// In the order of creation, a bounded number at a time; an index by when they ended would cost every record.
pub(super) fn old(connection: &Connection, query: &OldQuery) -> Result<OldPage, StoreError> {
    let sql = "SELECT row, id, created_at, updated_at, finished_at FROM records \
               WHERE row > ?1 ORDER BY row LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![query.after, query.limit])?;
    let before = query.before.micros();
    let (mut page, mut young, mut looked) = (OldPage::default(), true, 0);
    while let Some(row) = found.next()? {
        looked += 1;
        page.next = Some(row.get(0)?);
        let (created, updated, finished): (i64, i64, Option<i64>) = (row.get(2)?, row.get(3)?, row.get(4)?);
        young &= created > before;
        if finished.is_some_and(|at| at <= before) && updated <= before {
            page.records.push(rows::id(row, 1)?);
        }
    }
    if young || looked < query.limit {
        page.next = None;
    }
    Ok(page)
}

pub(super) fn kin(connection: &Connection, known: &Known, ids: &[RecordId]) -> Result<Vec<Kin>, StoreError> {
    let mut all = Vec::with_capacity(ids.len());
    let mut links = connection.prepare_cached("SELECT links FROM records WHERE row = ?1")?;
    let sql = "SELECT DISTINCT r.id FROM links l JOIN records r ON r.row = l.source WHERE l.target = ?1 ORDER BY r.id";
    let mut sources = connection.prepare_cached(sql)?;
    for id in ids {
        let Some((stored, record)) = load::record(connection, known, *id)? else { continue };
        let mut kin = Kin { stored, record, links: 0, sources: Vec::new() };
        kin.links = links.query_row([kin.stored.row], |row| row.get(0))?;
        let mut found = sources.query([kin.stored.row])?;
        while let Some(row) = found.next()? {
            kin.sources.push(rows::id(row, 0)?);
        }
        all.push(kin);
    }
    Ok(all)
}

impl Writer {
    pub(super) fn prune(&mut self, prune: &Prune) -> Result<PruneSave, StoreError> {
        let saved = self.take_out(prune);
        if !matches!(saved, Ok(PruneSave::Conflict)) {
            self.trust_nothing();
            let entries: usize = prune.carry.taken.iter().map(|one| one.entries.len()).sum();
            self.written(prune.carry.taken.len() / 2 + entries / 4);
        }
        saved
    }

    fn take_out(&mut self, prune: &Prune) -> Result<PruneSave, StoreError> {
        let known = self.shared.known();
        // FM-2, INV-2: all of it or nothing.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let pruning = Pruning { transaction: &transaction, known: &known, carry: &prune.carry };
        let Some(seq) = pruning.all(prune)? else { return Ok(PruneSave::Conflict) };
        transaction.commit()?;
        Ok(PruneSave::Saved(seq))
    }

    pub(super) fn forget_counts(&mut self, old: &OldCounts) -> Result<ForgottenCounts, StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut forgotten = ForgottenCounts::default();
        let mut gone = Vec::new();
        {
            let after = old.after.clone().unwrap_or_default();
            let sql = "SELECT lifecycle, name, parts, window, count FROM counts \
                       WHERE (lifecycle, name, parts, window) > (?1, ?2, ?3, ?4) \
                       ORDER BY lifecycle, name, parts, window LIMIT ?5";
            let mut statement = transaction.prepare_cached(sql)?;
            let from = params![after.lifecycle, after.name, after.parts, after.window, old.limit];
            let mut found = statement.query(from)?;
            let mut looked = 0;
            while let Some(row) = found.next()? {
                looked += 1;
                let window: i64 = row.get(3)?;
                let place = CountPlace { lifecycle: row.get(0)?, name: row.get(1)?, parts: row.get(2)?, window };
                if old.are_over(row.get(4)?, (window != NO_WINDOW).then_some(window)) {
                    gone.push(place.clone());
                }
                forgotten.next = Some(place);
            }
            if looked < old.limit {
                forgotten.next = None;
            }
        }
        for CountPlace { lifecycle, name, parts, window } in gone {
            let sql = "DELETE FROM counts WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND window = ?4";
            let deleted = transaction.prepare_cached(sql)?.execute(params![lifecycle, name, parts, window])?;
            forgotten.counts += u64::try_from(deleted).unwrap_or(0);
        }
        transaction.commit()?;
        Ok(forgotten)
    }

    pub(super) fn forget(&mut self, old: &OldRequests) -> Result<Forgotten, StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut forgotten = Forgotten::default();
        let mut gone = Vec::new();
        {
            let (owner, key) = old.after.as_ref().map_or(("", ""), |name| (&name.owner, &name.key));
            let sql = "SELECT owner, key, at FROM requests WHERE (owner, key) > (?1, ?2) ORDER BY owner, key LIMIT ?3";
            let mut statement = transaction.prepare_cached(sql)?;
            let mut found = statement.query(params![owner, key, old.limit])?;
            let mut looked = 0;
            while let Some(row) = found.next()? {
                looked += 1;
                let name = RequestName { owner: row.get(0)?, key: row.get(1)? };
                if row.get::<_, i64>(2)? <= old.before.micros() {
                    gone.push(name.clone());
                }
                forgotten.next = Some(name);
            }
            if looked < old.limit {
                forgotten.next = None;
            }
        }
        for name in gone {
            let sql = "DELETE FROM requests WHERE owner = ?1 AND key = ?2";
            let deleted = transaction.prepare_cached(sql)?.execute([&name.owner, &name.key])?;
            forgotten.requests += u64::try_from(deleted).unwrap_or(0);
        }
        transaction.commit()?;
        Ok(forgotten)
    }
}

/// One prune on its way.
struct Pruning<'a> {
    transaction: &'a Transaction<'a>,
    known: &'a Known,
    carry: &'a Carry,
}

impl Pruning<'_> {
    /// The place of the checkpoint; `None` where something has changed.
    fn all(&self, prune: &Prune) -> Result<Option<u64>, StoreError> {
        for one in &self.carry.taken {
            if !self.stands(one)? {
                return Ok(None);
            }
        }
        for one in &self.carry.taken {
            self.delete(one)?;
        }
        self.unlink()?;
        self.free()?;
        self.moved()?;
        self.contents()?;
        self.tallies()?;
        self.log(prune).map(Some)
    }

    /// Whether a record is as it was, and nobody has come to point to it.
    fn stands(&self, one: &Taken) -> Result<bool, StoreError> {
        let sql = "SELECT version, links FROM records WHERE row = ?1 AND id = ?2";
        let mut statement = self.transaction.prepare_cached(sql)?;
        let at = params![one.stored.row, one.record.id.0.as_bytes()];
        let found: Option<(u64, u64)> = statement.query_row(at, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(found == Some((one.record.version, one.links)))
    }

    fn delete(&self, one: &Taken) -> Result<(), StoreError> {
        for sql in [
            "DELETE FROM records WHERE row = ?1",
            "DELETE FROM executions WHERE record = ?1",
            "DELETE FROM effects WHERE record = ?1",
            "DELETE FROM links WHERE target = ?1",
        ] {
            self.transaction.prepare_cached(sql)?.execute([one.stored.row])?;
        }
        let sql = "DELETE FROM history WHERE seq = ?1 AND record = ?2";
        let mut statement = self.transaction.prepare_cached(sql)?;
        for entry in &one.entries {
            if statement.execute(params![entry.seq, one.stored.row])? != 1 {
                return Err(StoreError::corrupt(format!("log entry {} is not there to be pruned", entry.seq)));
            }
        }
        Ok(())
    }

    /// Links to records that stay: whoever read them must know that they are gone.
    fn unlink(&self) -> Result<(), StoreError> {
        let rows: BTreeMap<RecordId, u64> =
            self.carry.taken.iter().map(|one| (one.record.id, one.stored.row)).collect();
        for (key, source) in &self.carry.unlinked {
            let Some(target) = load::row_of(self.transaction, key.target)? else { continue };
            let (lifecycle, field) = (self.known.names.known(&key.lifecycle)?, self.known.names.known(&key.field)?);
            let sql = "DELETE FROM links WHERE target = ?1 AND lifecycle = ?2 AND field = ?3 AND source = ?4";
            let at = params![target, lifecycle, field, rows.get(source)];
            self.transaction.prepare_cached(sql)?.execute(at)?;
            self.transaction
                .prepare_cached("UPDATE records SET links = links + 1 WHERE row = ?1")?
                .execute([target])?;
        }
        Ok(())
    }

    /// Keys and counts of records that ended in a state that has them.
    fn free(&self) -> Result<(), StoreError> {
        let names = &self.known.names;
        for (key, holder) in self.carry.freed_uniques() {
            let sql = "DELETE FROM uniques WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND holder = ?4";
            let (lifecycle, name) = (names.known(&key.lifecycle)?, names.known(&key.unique)?);
            let at = params![lifecycle, name, write_parts(&key.parts)?, holder.0.as_bytes()];
            self.transaction.prepare_cached(sql)?.execute(at)?;
        }
        for (key, delta) in &self.carry.checkpoint.freed.counts {
            let sql = "UPDATE counts SET count = count + ?5 WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND window = ?4";
            let (lifecycle, name) = (names.known(&key.lifecycle)?, names.known(&key.limit)?);
            let at = params![lifecycle, name, write_parts(&key.parts)?, key.window.unwrap_or(NO_WINDOW), delta];
            self.transaction.prepare_cached(sql)?.execute(at)?;
        }
        Ok(())
    }

    /// What they moved stays in the balances, and no longer on the statements.
    fn moved(&self) -> Result<(), StoreError> {
        for (account, seq) in &self.carry.moved {
            let sql = "DELETE FROM entries WHERE asset = ?1 AND name = ?2 AND seq = ?3";
            self.transaction.prepare_cached(sql)?.execute(params![account.asset, account.name, seq])?;
        }
        Ok(())
    }

    /// Bytes that no record has as payload any more.
    fn contents(&self) -> Result<(), StoreError> {
        for (sha256, records) in self.carry.contents() {
            let sql = "UPDATE contents SET refs = refs - ?2 WHERE sha256 = ?1";
            self.transaction.prepare_cached(sql)?.execute(params![sha256, records])?;
            let sql = "DELETE FROM contents WHERE sha256 = ?1 AND refs = 0";
            self.transaction.prepare_cached(sql)?.execute([sha256])?;
        }
        Ok(())
    }

    fn tallies(&self) -> Result<(), StoreError> {
        for (TallyKey { definition, owner, state }, delta) in self.carry.tallies() {
            let (definition, state) = (self.known.catalog.number_by(&definition)?, self.known.names.known(&state)?);
            let sql = "UPDATE tallies SET count = count + ?4 WHERE definition = ?1 AND owner = ?2 AND state = ?3";
            self.transaction.prepare_cached(sql)?.execute(params![definition, owner, state, delta])?;
            // States that they came through, too, by whatever version: nothing else may tell of them any more.
            let sql = "DELETE FROM tallies WHERE owner = ?2 AND count = 0 AND definition IN (SELECT number FROM definitions \
                       WHERE name = (SELECT name FROM definitions WHERE number = ?1))";
            self.transaction.prepare_cached(sql)?.execute(params![definition, owner])?;
        }
        Ok(())
    }

    fn log(&self, prune: &Prune) -> Result<u64, StoreError> {
        let (entry, now) = self.carry.entry(&standing(self.transaction)?, prune.now)?;
        let seq: u64 = self.transaction.query_row("SELECT seq + 1 FROM counter", [], |row| row.get(0))?;
        let sql = "INSERT INTO history (seq, record, version, at, previous, text, hash) VALUES (?1, NULL, ?2, ?3, NULL, ?4, ?5)";
        let values = params![seq, entry.version, entry.at.micros(), &*entry.text, entry.hash];
        self.transaction.execute(sql, values)?;
        self.transaction.execute("UPDATE counter SET seq = ?1", [seq])?;
        let sql = "UPDATE pruned SET checkpoint = ?1, floor = ?2, head = ?3";
        self.transaction.execute(sql, params![seq, now.floor, now.head])?;
        Ok(seq)
    }
}
