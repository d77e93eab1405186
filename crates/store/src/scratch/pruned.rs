//! What pruning took, as its checkpoints tell: the places that are empty, and what is carried forward from them.
//!
//! Checkpoints that stand in the log when it is first looked at are known before it is read, so that the world is right from
//! the last empty place on. One that comes later takes records out of a world that had them.

use onceward_core::decide::link_changes;
use onceward_core::value::RecordId;
use rusqlite::{OptionalExtension as _, params};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Kind, Scratch};
use crate::StoreError;
use crate::log::{Checkpoint, Entry, Hash};
use crate::prune::Standing;
use crate::scan::{Known, joined, key_of_count, key_of_unique};

pub(super) const SCHEMA: &str = "
    CREATE TABLE taken (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
    CREATE TABLE carried (id BLOB PRIMARY KEY, hold INTEGER NOT NULL, raised INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE words (place INTEGER NOT NULL, key TEXT NOT NULL, holder TEXT, PRIMARY KEY (place, key)) WITHOUT ROWID;
";

/// How far checkpoints go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pruning {
    /// The newest checkpoint that was known before the log was read, and the last place that it or one before it took.
    newest: u64,
    pub(super) floor: u64,
    /// The range of places that was asked for last.
    range: Option<(u64, u64)>,
    /// As the entries so far tell it.
    standing: Standing,
    by_entry: bool,
}

/// What a checkpoint took out of a world that had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    pub records: u64,
    pub digest: Hash,
}

impl Scratch {
    /// Know a checkpoint before the log is read.
    pub fn stand_on(&mut self, seq: u64, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        self.pruning.newest = self.pruning.newest.max(seq);
        self.pruning.floor = self.pruning.floor.max(checkpoint.floor());
        for (first, last) in checkpoint.places.ranges() {
            let sql = "INSERT OR IGNORE INTO taken (first, last) VALUES (?1, ?2)";
            self.connection.prepare_cached(sql)?.execute([first, last])?;
        }
        for (asset, name, sum) in &checkpoint.accounts {
            self.add(Kind::Account, &joined(&[asset, name]), *sum)?;
        }
        for (key, sum) in &checkpoint.counts {
            self.add(Kind::Count, &key_of_count(key), *sum)?;
        }
        let sql = "INSERT INTO carried (id, hold, raised) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (id) DO UPDATE SET hold = hold + excluded.hold, raised = raised + excluded.raised";
        for (id, hold) in &checkpoint.holds {
            self.connection.prepare_cached(sql)?.execute(params![id.0.as_bytes(), hold, 0])?;
        }
        for (id, raised) in &checkpoint.links {
            self.connection.prepare_cached(sql)?.execute(params![id.0.as_bytes(), 0, raised])?;
        }
        let sql = "INSERT OR REPLACE INTO words (place, key, holder) VALUES (?1, ?2, ?3)";
        for (place, key, holder) in &checkpoint.uniques {
            let holder = holder.map(|holder| holder.to_string());
            self.connection.prepare_cached(sql)?.execute(params![place, key_of_unique(key), holder])?;
        }
        Ok(())
    }

    /// The last place that was taken before the log was read: what follows is whole.
    pub const fn floor(&self) -> u64 {
        self.pruning.floor
    }

    /// Whether pruning may have taken what an operation at this place rested on.
    pub const fn is_before_pruning(&self, seq: u64) -> bool {
        seq < self.pruning.newest
    }

    /// How the store must be pruned by now.
    pub const fn standing(&self) -> &Standing {
        &self.pruning.standing
    }

    /// Whether a checkpoint that is known took the entry of this place.
    pub fn is_taken(&mut self, place: u64) -> Result<bool, StoreError> {
        if place > self.pruning.floor {
            return Ok(false);
        }
        if let Some((first, last)) = self.pruning.range
            && (first..=last).contains(&place)
        {
            return Ok(true);
        }
        let sql = "SELECT first, last FROM taken WHERE first <= ?1 ORDER BY first DESC LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found: Option<(u64, u64)> =
            statement.query_row([place], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        self.pruning.range = found;
        Ok(found.is_some_and(|(_, last)| place <= last))
    }

    /// Places from one to before another that no checkpoint took: the first of them, and how many there are.
    pub fn not_taken(&mut self, from: u64, to: u64, most: usize) -> Result<(Vec<u64>, u64), StoreError> {
        let (mut first_ones, mut count, mut place) = (Vec::new(), 0, from);
        while place < to {
            if self.is_taken(place)? {
                place = self.pruning.range.map_or(place, |(_, last)| last) + 1;
                continue;
            }
            let sql = "SELECT min(first) FROM taken WHERE first > ?1";
            let next: Option<u64> = self.connection.prepare_cached(sql)?.query_row([place], |row| row.get(0))?;
            let end = next.unwrap_or(to).min(to);
            first_ones.extend((place..end).take(most - first_ones.len()));
            count += end - place;
            place = end;
        }
        Ok((first_ones, count))
    }

    /// What entries before this place said of keys, where they are gone.
    pub fn words_before(&mut self, place: u64) -> Result<(), StoreError> {
        if self.pruning.floor == 0 {
            return Ok(());
        }
        loop {
            let sql = "SELECT place, key, holder FROM words WHERE place < ?1 ORDER BY place, key LIMIT 1";
            let mut statement = self.connection.prepare_cached(sql)?;
            let word: Option<(u64, String, Option<String>)> =
                statement.query_row([place], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
            drop(statement);
            let Some((at, key, holder)) = word else { return Ok(()) };
            self.put(Kind::Unique, &key, holder.as_deref())?;
            let sql = "DELETE FROM words WHERE place = ?1 AND key = ?2";
            self.connection.prepare_cached(sql)?.execute(params![at, key])?;
        }
    }

    /// What is carried forward to a record that stays: its ledger, and how often links to it came and went.
    pub(super) fn carried(&self, id: RecordId) -> Result<(i64, u64), StoreError> {
        if self.pruning.newest == 0 {
            return Ok((0, 0));
        }
        let mut statement = self.connection.prepare_cached("SELECT hold, raised FROM carried WHERE id = ?1")?;
        let found = statement.query_row([id.0.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(found.unwrap_or((0, 0)))
    }

    /// Whether some that pointed to a record are gone.
    pub fn has_lost_links(&self, id: RecordId) -> Result<bool, StoreError> {
        Ok(self.carried(id)?.1 > 0)
    }

    /// A checkpoint in its place in the log. What it took out of this world, where it was not known before.
    pub fn checkpoint(&mut self, entry: &Entry, checkpoint: &Checkpoint) -> Result<Option<Removed>, StoreError> {
        self.pass(entry.seq);
        self.words_before(entry.seq)?;
        let standing = &mut self.pruning.standing;
        let floor = standing.floor.max(checkpoint.floor());
        *standing = Standing { checkpoint: entry.seq, head: entry.hash, floor };
        let removed = if entry.seq > self.pruning.newest { Some(self.remove(checkpoint)?) } else { None };
        for key in &checkpoint.freed.uniques {
            self.put(Kind::Unique, &key_of_unique(key), None)?;
        }
        for (key, delta) in &checkpoint.freed.counts {
            self.add(Kind::Count, &key_of_count(key), *delta)?;
        }
        Ok(removed)
    }

    /// The records whose last entries are among its places.
    fn remove(&mut self, checkpoint: &Checkpoint) -> Result<Removed, StoreError> {
        self.flush()?;
        if !self.pruning.by_entry {
            self.connection.execute_batch("CREATE INDEX records_by_entry ON records (entry)")?;
            self.pruning.by_entry = true;
        }
        let mut rows: Vec<(u64, RecordId)> = Vec::new();
        for (first, last) in checkpoint.places.ranges() {
            let sql = "DELETE FROM moved WHERE seq BETWEEN ?1 AND ?2";
            self.connection.prepare_cached(sql)?.execute([first, last])?;
            let sql = "SELECT row, id FROM records WHERE entry BETWEEN ?1 AND ?2";
            let mut statement = self.connection.prepare_cached(sql)?;
            let found = statement.query_map([first, last], |row| Ok((row.get(0)?, row.get::<_, [u8; 16]>(1)?)))?;
            for one in found {
                let (row, id) = one?;
                rows.push((row, RecordId(Uuid::from_bytes(id))));
            }
        }
        // Rows count in the order of first entries.
        rows.sort_unstable();
        let mut sha = Sha256::new();
        for (row, id) in &rows {
            let Some(known) = self.known(*id)? else { continue };
            sha.update(id.0.as_bytes());
            sha.update(known.head);
            self.take_out(*row, &known)?;
        }
        let records = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        self.gone += records;
        Ok(Removed { records, digest: sha.finalize().into() })
    }

    fn take_out(&mut self, row: u64, known: &Known) -> Result<(), StoreError> {
        self.add(Kind::Tally, &self.tally(&known.record)?, -1)?;
        if let Some(payload) = known.record.payload {
            self.add(Kind::Reference, &onceward_core::hex::encode(&payload.sha256), -1)?;
        }
        for link in link_changes(None, &known.record) {
            let Some(target) = self.known(link.key.target)? else { continue };
            let name = joined(&[&link.key.lifecycle, &link.key.field]);
            let sql = "DELETE FROM links WHERE target = ?1 AND name = ?2 AND source = ?3";
            self.connection.prepare_cached(sql)?.execute(params![target.row, name, row])?;
            self.amend(link.key.target, |known| {
                known.raised += 1;
                known.linked = known.linked.saturating_sub(1);
            })?;
        }
        self.recent.remove(&known.record.id);
        for sql in [
            "DELETE FROM records WHERE row = ?1",
            "DELETE FROM executions WHERE record = ?1",
            "DELETE FROM links WHERE target = ?1",
        ] {
            self.connection.prepare_cached(sql)?.execute([row])?;
        }
        Ok(())
    }
}
