//! Checkpoints in the replay database: pruned seqs, and the values that checkpoints carry forward.
//!
//! Checkpoints that exist when the replay starts are loaded before the log, so that the state is correct after the last
//! pruned seq. A checkpoint that is appended later removes records that the replay already contains.

use onceward_core::decide::link_changes;
use onceward_core::value::RecordId;
use rusqlite::{OptionalExtension as _, params};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{ReplayDatabase, ReplayTable};
use crate::StoreError;
use crate::log::{Checkpoint, LogEntry, Sha256Hash};
use crate::prune::PruneState;
use crate::scan::{ReplayedRecord, counter_key_text, join_key_parts, unique_key_text};

pub(super) const PRUNE_SCHEMA_SQL: &str = "
    CREATE TABLE pruned_ranges (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
    CREATE TABLE carried_forward (id BLOB PRIMARY KEY, hold INTEGER NOT NULL, link_changes INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE key_writes (seq INTEGER NOT NULL, key TEXT NOT NULL, holder TEXT, PRIMARY KEY (seq, key)) WITHOUT ROWID;
";

/// Progress of the replay through checkpoints.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PruneProgress {
    /// Seq of the newest preloaded checkpoint.
    newest_preloaded_seq: u64,
    pub(super) last_pruned_seq: u64,
    /// The pruned range that the last lookup found.
    last_found_range: Option<(u64, u64)>,
    /// State according to the entries replayed so far.
    state: PruneState,
    has_entry_index: bool,
}

/// Rows that a checkpoint removed from the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrunedRows {
    pub records: u64,
    pub digest: Sha256Hash,
}

impl ReplayDatabase {
    /// Loads a checkpoint before the log is replayed.
    pub fn preload_checkpoint(&mut self, seq: u64, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        self.prune_progress.newest_preloaded_seq = self.prune_progress.newest_preloaded_seq.max(seq);
        self.prune_progress.last_pruned_seq = self.prune_progress.last_pruned_seq.max(checkpoint.last_pruned_seq());
        for (first, last) in checkpoint.seqs.ranges() {
            let sql = "INSERT OR IGNORE INTO pruned_ranges (first, last) VALUES (?1, ?2)";
            self.connection.prepare_cached(sql)?.execute([first, last])?;
        }
        for (asset, name, sum) in &checkpoint.accounts {
            self.add_delta(ReplayTable::Account, &join_key_parts(&[asset, name]), *sum)?;
        }
        for (key, sum) in &checkpoint.counts {
            self.add_delta(ReplayTable::Count, &counter_key_text(key), *sum)?;
        }
        let sql = "INSERT INTO carried_forward (id, hold, link_changes) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (id) DO UPDATE SET hold = hold + excluded.hold, \
                   link_changes = link_changes + excluded.link_changes";
        for (id, hold) in &checkpoint.holds {
            self.connection.prepare_cached(sql)?.execute(params![id.0.as_bytes(), hold, 0])?;
        }
        for (id, changes) in &checkpoint.links {
            self.connection.prepare_cached(sql)?.execute(params![id.0.as_bytes(), 0, changes])?;
        }
        let sql = "INSERT OR REPLACE INTO key_writes (seq, key, holder) VALUES (?1, ?2, ?3)";
        for (seq, key, holder) in &checkpoint.uniques {
            let holder = holder.map(|holder| holder.to_string());
            self.connection.prepare_cached(sql)?.execute(params![seq, unique_key_text(key), holder])?;
        }
        Ok(())
    }

    /// Returns the largest seq pruned by preloaded checkpoints. No entry after it is missing.
    pub const fn last_pruned_seq(&self) -> u64 {
        self.prune_progress.last_pruned_seq
    }

    /// Returns whether pruning may have deleted values that an operation at this seq read.
    pub const fn is_before_checkpoint(&self, seq: u64) -> bool {
        seq < self.prune_progress.newest_preloaded_seq
    }

    /// Returns the prune state that the store should have.
    pub const fn prune_state(&self) -> &PruneState {
        &self.prune_progress.state
    }

    /// Returns whether a known checkpoint pruned the entry with this seq.
    pub fn is_pruned(&mut self, seq: u64) -> Result<bool, StoreError> {
        if seq > self.prune_progress.last_pruned_seq {
            return Ok(false);
        }
        if let Some((first, last)) = self.prune_progress.last_found_range
            && (first..=last).contains(&seq)
        {
            return Ok(true);
        }
        let sql = "SELECT first, last FROM pruned_ranges WHERE first <= ?1 ORDER BY first DESC LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found: Option<(u64, u64)> = statement.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        self.prune_progress.last_found_range = found;
        Ok(found.is_some_and(|(_, last)| seq <= last))
    }

    /// Finds the seqs in `from..to` that are missing although no checkpoint pruned them. Returns the first ones and
    /// their number.
    pub fn missing_seqs(&mut self, from: u64, to: u64, limit: usize) -> Result<(Vec<u64>, u64), StoreError> {
        let (mut first_seqs, mut count, mut seq) = (Vec::new(), 0, from);
        while seq < to {
            if self.is_pruned(seq)? {
                seq = self.prune_progress.last_found_range.map_or(seq, |(_, last)| last) + 1;
                continue;
            }
            let sql = "SELECT min(first) FROM pruned_ranges WHERE first > ?1";
            let next: Option<u64> = self.connection.prepare_cached(sql)?.query_row([seq], |row| row.get(0))?;
            let end = next.unwrap_or(to).min(to);
            first_seqs.extend((seq..end).take(limit - first_seqs.len()));
            count += end - seq;
            seq = end;
        }
        Ok((first_seqs, count))
    }

    /// Applies the key writes of pruned entries before this seq.
    pub fn apply_key_writes_before(&mut self, seq: u64) -> Result<(), StoreError> {
        if self.prune_progress.last_pruned_seq == 0 {
            return Ok(());
        }
        loop {
            let sql = "SELECT seq, key, holder FROM key_writes WHERE seq < ?1 ORDER BY seq, key LIMIT 1";
            let mut statement = self.connection.prepare_cached(sql)?;
            let key_write: Option<(u64, String, Option<String>)> =
                statement.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
            drop(statement);
            let Some((seq, key, holder)) = key_write else { return Ok(()) };
            self.put_row(ReplayTable::Unique, &key, holder.as_deref())?;
            let sql = "DELETE FROM key_writes WHERE seq = ?1 AND key = ?2";
            self.connection.prepare_cached(sql)?.execute(params![seq, key])?;
        }
    }

    /// Returns the values carried forward to a remaining record: its ledger balance, and how often links to it changed.
    pub(super) fn carried_forward(&self, id: RecordId) -> Result<(i64, u64), StoreError> {
        if self.prune_progress.newest_preloaded_seq == 0 {
            return Ok((0, 0));
        }
        let mut statement =
            self.connection.prepare_cached("SELECT hold, link_changes FROM carried_forward WHERE id = ?1")?;
        let found = statement.query_row([id.0.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(found.unwrap_or((0, 0)))
    }

    /// Returns whether records that linked to this one were pruned.
    pub fn has_pruned_referrers(&self, id: RecordId) -> Result<bool, StoreError> {
        Ok(self.carried_forward(id)?.1 > 0)
    }

    /// Applies a checkpoint when the replay reaches its entry. If it was not preloaded, removes the pruned rows and
    /// returns them.
    pub fn apply_checkpoint(
        &mut self,
        entry: &LogEntry,
        checkpoint: &Checkpoint,
    ) -> Result<Option<PrunedRows>, StoreError> {
        self.advance_to(entry.seq);
        self.apply_key_writes_before(entry.seq)?;
        let state = &mut self.prune_progress.state;
        let floor = state.last_pruned_seq.max(checkpoint.last_pruned_seq());
        *state = PruneState { checkpoint_seq: entry.seq, checkpoint_hash: entry.hash, last_pruned_seq: floor };
        let removed = if entry.seq > self.prune_progress.newest_preloaded_seq {
            Some(self.remove_pruned(checkpoint)?)
        } else {
            None
        };
        for key in &checkpoint.released.uniques {
            self.put_row(ReplayTable::Unique, &unique_key_text(key), None)?;
        }
        for (key, delta) in &checkpoint.released.counts {
            self.add_delta(ReplayTable::Count, &counter_key_text(key), *delta)?;
        }
        Ok(removed)
    }

    /// Removes the records whose last entry the checkpoint pruned.
    fn remove_pruned(&mut self, checkpoint: &Checkpoint) -> Result<PrunedRows, StoreError> {
        self.flush()?;
        if !self.prune_progress.has_entry_index {
            self.connection.execute_batch("CREATE INDEX records_by_entry ON records (entry)")?;
            self.prune_progress.has_entry_index = true;
        }
        let mut rows: Vec<(u64, RecordId)> = Vec::new();
        for (first, last) in checkpoint.seqs.ranges() {
            let sql = "DELETE FROM account_entries WHERE seq BETWEEN ?1 AND ?2";
            self.connection.prepare_cached(sql)?.execute([first, last])?;
            let sql = "SELECT row, id FROM records WHERE entry BETWEEN ?1 AND ?2";
            let mut statement = self.connection.prepare_cached(sql)?;
            let found = statement.query_map([first, last], |row| Ok((row.get(0)?, row.get::<_, [u8; 16]>(1)?)))?;
            for one in found {
                let (row, id) = one?;
                rows.push((row, RecordId(Uuid::from_bytes(id))));
            }
        }
        // Row ids have the order of the records' first entries, which the digest requires.
        rows.sort_unstable();
        let mut sha = Sha256::new();
        for (row, id) in &rows {
            let Some(replayed) = self.replayed_record(*id)? else { continue };
            sha.update(id.0.as_bytes());
            sha.update(replayed.head_hash);
            self.remove_record(*row, &replayed)?;
        }
        let records = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        self.pruned_records += records;
        Ok(PrunedRows { records, digest: sha.finalize().into() })
    }

    fn remove_record(&mut self, row: u64, replayed: &ReplayedRecord) -> Result<(), StoreError> {
        self.add_delta(ReplayTable::StateCount, &self.state_count_key(&replayed.record)?, -1)?;
        if let Some(payload) = replayed.record.payload {
            self.add_delta(ReplayTable::PayloadReference, &onceward_core::hex::encode(&payload.sha256), -1)?;
        }
        for link in link_changes(None, &replayed.record) {
            let Some(target) = self.replayed_record(link.key.target)? else { continue };
            let name = join_key_parts(&[&link.key.lifecycle, &link.key.field]);
            let sql = "DELETE FROM links WHERE target = ?1 AND name = ?2 AND source = ?3";
            self.connection.prepare_cached(sql)?.execute(params![target.row_id, name, row])?;
            self.update_record(link.key.target, |replayed| {
                replayed.link_version += 1;
                replayed.incoming_links = replayed.incoming_links.saturating_sub(1);
            })?;
        }
        self.cached.remove(&replayed.record.id);
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
