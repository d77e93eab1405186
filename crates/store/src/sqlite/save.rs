//! Saves a batch: validate, write, append to the log, commit.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::decide::ReadKey;
use rusqlite::Connection;

use super::transaction::{OnBusy, SqliteTransaction};
use super::wal_checkpoint::WalCheckpointer;
use super::write::BatchWriter;
use super::{SqliteShared, definitions, delayed, load, read};
use crate::batch::{Batch, SaveConflict, SaveResult};
use crate::error::StoreError;
use crate::read_set::ReadSet;
use crate::symbols::CatalogSnapshot;
use crate::write_set::{EncodedEntries, WriteSet};

/// More batches than an engine has in flight at once.
const MAX_RECENT_BATCHES: usize = 8;

/// The resources of the writer thread.
#[derive(Debug)]
pub(super) struct SqliteWriter {
    pub(super) connection: Connection,
    pub(super) shared: Arc<SqliteShared>,
    /// SQLite's `data_version` when it was last read. It changes when another connection commits, which should not
    /// happen while the engine holds the lock. After a change, or if it is `None`, all cached values are invalid.
    data_version: Option<i64>,
    /// The last row id of a record. Only the writer assigns row ids.
    last_row: u64,
    recent_writes: RecentWrites,
    checkpointer: WalCheckpointer,
    /// Whether a save runs and its commit has not begun. A panic then writes nothing.
    is_before_commit: bool,
}

/// The write sets of the last batches, each with the generation that it ended.
#[derive(Debug, Default)]
struct RecentWrites(VecDeque<(u64, HashSet<ReadKey>)>);

impl RecentWrites {
    fn push(&mut self, generation: u64, written_keys: HashSet<ReadKey>) {
        self.0.push_back((generation, written_keys));
        if self.0.len() > MAX_RECENT_BATCHES {
            self.0.pop_front();
        }
    }

    /// Forgets all batches, because the outcome of a write is unknown. All values loaded before are then compared.
    fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns false only if no batch since `since_generation` wrote the key.
    fn may_have_changed(&self, key: &ReadKey, since_generation: u64) -> bool {
        let covers_generation = self.0.front().is_some_and(|(first, _)| *first <= since_generation);
        !covers_generation
            || self.0.iter().any(|(generation, written)| *generation >= since_generation && written.contains(key))
    }
}

/// A longer save would delay other tasks of the runtime thread.
const MAX_INLINE_SAVE_TIME: Duration = Duration::from_millis(2);

impl SqliteWriter {
    pub(super) fn new(
        connection: Connection,
        shared: Arc<SqliteShared>,
        checkpointer: WalCheckpointer,
    ) -> Result<Self, StoreError> {
        let data_version = Some(read_data_version(&connection)?);
        let last_row = read_last_row_id(&connection)?;
        let recent_writes = RecentWrites::default();
        Ok(Self { connection, shared, data_version, last_row, recent_writes, checkpointer, is_before_commit: false })
    }

    pub(super) fn save(
        &mut self,
        read_set: &ReadSet,
        batch: &Batch,
        encoded: &EncodedEntries,
        on_busy: OnBusy,
    ) -> Result<SaveResult, StoreError> {
        let started = Instant::now();
        self.is_before_commit = true;
        let result = self.write_batch(read_set, batch, encoded, on_busy);
        self.is_before_commit = false;
        self.shared.is_disk_fast.store(started.elapsed() < MAX_INLINE_SAVE_TIME, Ordering::Relaxed);
        if result.is_err() {
            // The outcome of the write is unknown.
            self.data_version = None;
            self.invalidate_caches();
        }
        result
    }

    /// Restores the writer after a job panicked: rolls back its transaction and drops the cached values, which may be
    /// wrong. Returns whether the job was a save that certainly wrote nothing.
    pub(super) fn recover(&mut self) -> bool {
        super::roll_back_open(&self.connection);
        self.data_version = None;
        self.invalidate_caches();
        std::mem::take(&mut self.is_before_commit)
    }

    /// Makes sure that no value loaded or cached before is used without comparison.
    pub(super) fn invalidate_caches(&mut self) {
        clear_caches(&self.shared, &mut self.recent_writes);
    }

    /// Counts pages written by something other than a batch, by estimate.
    pub(super) fn add_written_pages(&mut self, pages: usize) {
        self.checkpointer.add_pages(&self.connection, pages);
    }

    /// Returns whether the next save may have to checkpoint the WAL, which takes long.
    pub(super) const fn is_checkpointing(&self) -> bool {
        self.checkpointer.is_running()
    }

    fn write_batch(
        &mut self,
        read_set: &ReadSet,
        batch: &Batch,
        encoded: &EncodedEntries,
        on_busy: OnBusy,
    ) -> Result<SaveResult, StoreError> {
        let write_set = WriteSet::from_encoded(read_set, batch, encoded)?;
        // FM-2, INV-2: one transaction.
        let transaction = SqliteTransaction::begin_write(&self.connection, on_busy)?;
        let data_version = Some(read_data_version(&transaction)?);
        if data_version != self.data_version {
            *self.shared.catalog_snapshot.write().unwrap_or_else(PoisonError::into_inner) =
                definitions::load_catalog(&transaction)?;
            self.last_row = read_last_row_id(&transaction)?;
            self.shared
                .earliest_delayed_micros
                .store(delayed::earliest_ready_at(&transaction)?.micros(), Ordering::Release);
            clear_caches(&self.shared, &mut self.recent_writes);
            self.data_version = data_version;
        }
        let snapshot = self.shared.current_catalog();
        // New records must use the current versions. The batch may have been decided before the writer added new
        // lifecycles.
        if write_set.has_new_records() && batch.catalog_revision < snapshot.catalog.revision() {
            return Ok(SaveResult::Conflict(SaveConflict::default()));
        }
        let generation = self.shared.generation.load(Ordering::Acquire);
        let conflict = find_conflict(&transaction, &snapshot, read_set, &write_set, (generation, &self.recent_writes))?;
        if !conflict.is_empty() {
            return Ok(SaveResult::Conflict(conflict));
        }
        let mut writer = BatchWriter::new(&transaction, &snapshot, read_set, self.last_row);
        let (first, last) = writer.write_batch(&write_set, batch.decided_at)?;
        let metas = write_set.records.iter().map(|record| writer.record_meta(record)).collect::<Result<Vec<_>, _>>()?;
        let (last_row, earliest_ready_at) = (writer.last_row_id, writer.earliest_ready_at);
        let commit_started = Instant::now();
        self.is_before_commit = false;
        transaction.commit()?;
        self.shared.commit_latency.record_duration(commit_started.elapsed());
        self.last_row = last_row;
        self.shared.earliest_delayed_micros.fetch_min(earliest_ready_at.micros(), Ordering::AcqRel);
        let mut cache = self.shared.lock_record_cache();
        for (record, stored) in write_set.records.iter().zip(metas) {
            cache.put(stored, &record.after);
        }
        drop(cache);
        // Incremented after the commit: a reader that sees the new generation also sees the written values.
        self.shared.generation.fetch_add(1, Ordering::Release);
        self.recent_writes.push(generation, write_set.written_keys());
        self.checkpointer.add_batch(&self.connection, &write_set);
        Ok(SaveResult::Saved { first_seq: first, last_seq: last })
    }
}

fn clear_caches(shared: &SqliteShared, recent_writes: &mut RecentWrites) {
    shared.lock_record_cache().clear();
    recent_writes.clear();
    shared.generation.fetch_add(1, Ordering::Release);
}

/// Returns a number that changes with each commit of another connection. Checkpoints do not change it.
fn read_data_version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

fn read_last_row_id(connection: &Connection) -> Result<u64, StoreError> {
    Ok(connection.query_row("SELECT coalesce(max(row), 0) FROM records", [], |row| row.get(0))?)
}

/// Returns the keys whose values have changed. Only this process writes, so only keys that a batch wrote since the read
/// set was loaded can have changed. Also returns keys that were never loaded.
fn find_conflict(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    read_set: &ReadSet,
    write_set: &WriteSet,
    (generation, recent_writes): (u64, &RecentWrites),
) -> Result<SaveConflict, StoreError> {
    let mut answered_ids = write_set.duplicate_ids.clone();
    for request in &write_set.idempotency_records {
        if read::idempotency_record(connection, &request.id)?.is_some() {
            answered_ids.push(request.id.clone());
        }
    }
    let loaded_generation = read_set.generation().unwrap_or(0);
    let keys = if loaded_generation == generation {
        write_set.unobserved_keys(read_set)
    } else {
        let mut keys: Vec<ReadKey> = write_set.keys_to_validate(read_set);
        keys.retain(|key| !read_set.has_observed(key) || recent_writes.may_have_changed(key, loaded_generation));
        let mut fresh = read_set.new_probe();
        load::load(connection, snapshot, &mut fresh, &keys)?;
        read_set.changed_keys(&fresh)
    };
    Ok(SaveConflict { changed_keys: keys, answered_ids })
}

#[cfg(test)]
mod tests {
    use onceward_core::time::Time;
    use onceward_core::value::RecordId;
    use onceward_testkit::TempDir;

    use super::*;
    use crate::SqliteStore;
    use crate::clock::Clock;

    fn record_key(number: u128) -> ReadKey {
        ReadKey::Record(RecordId(uuid::Uuid::from_u128(number)))
    }

    #[test]
    fn recent_writes_report_change_beyond_remembered_batches() {
        let mut recent_writes = RecentWrites::default();
        assert!(recent_writes.may_have_changed(&record_key(1), 5), "an empty tracker reports a possible change");
        recent_writes.push(5, [record_key(5)].into());
        assert!(
            recent_writes.may_have_changed(&record_key(5), 5) && !recent_writes.may_have_changed(&record_key(1), 5)
        );
        assert!(recent_writes.may_have_changed(&record_key(1), 4), "changes before the first tracked seq are unknown");
        for generation in 6..5 + MAX_RECENT_BATCHES as u64 {
            recent_writes.push(generation, [record_key(generation.into())].into());
        }
        assert!(!recent_writes.may_have_changed(&record_key(1), 5), "all tracked changes fit");
        assert!(
            recent_writes.may_have_changed(&record_key(6), 6) && !recent_writes.may_have_changed(&record_key(6), 7)
        );
        recent_writes.push(5 + MAX_RECENT_BATCHES as u64, [record_key(1)].into());
        assert!(recent_writes.may_have_changed(&record_key(2), 5), "the oldest change is evicted");
        assert!(
            !recent_writes.may_have_changed(&record_key(2), 6) && recent_writes.may_have_changed(&record_key(1), 6)
        );
        assert_eq!(recent_writes.0.len(), MAX_RECENT_BATCHES);
        recent_writes.clear();
        assert!(
            (0..20).all(|since| recent_writes.may_have_changed(&record_key(2), since)),
            "a cleared tracker reports a possible change"
        );
    }

    /// All cached values are dropped too.
    #[test]
    fn panicking_job_is_rolled_back_and_thread_continues() {
        let folder = TempDir::new();
        let store = SqliteStore::open(folder.database_path(), Clock::manual(Time::from_secs(0))).expect("a new file");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let before = store.inner.shared.generation.load(Ordering::Acquire);
        let job = |writer: &mut SqliteWriter| -> Result<(), StoreError> {
            let transaction = writer.connection.transaction()?;
            transaction.execute("INSERT INTO names (id, name) VALUES (99, 'left')", [])?;
            panic!("a job that panics, for the test");
        };
        let result = runtime.block_on(store.inner.writer.run(job));
        assert!(matches!(&result, Err(StoreError::Unavailable(why)) if why.contains("for the test")), "{result:?}");
        let found = runtime.block_on(store.inner.writer.run(|writer| {
            let names: i64 = writer.connection.query_row("SELECT count(*) FROM names", [], |row| row.get(0))?;
            Ok((writer.connection.is_autocommit(), names, writer.data_version))
        }));
        assert_eq!(found.expect("the writer thread survives the panic"), (true, 0, None));
        let save = |writer: &mut SqliteWriter| -> Result<(), StoreError> {
            writer.is_before_commit = true;
            panic!("a save that panics before its commit, for the test");
        };
        for (expected, job) in [(true, save as fn(&mut _) -> _), (false, job)] {
            let result = runtime.block_on(store.inner.writer.run(job));
            assert_eq!(matches!(result, Err(StoreError::Panicked)), expected, "{result:?}");
        }
        assert_eq!(store.inner.shared.generation.load(Ordering::Acquire), before + 3);
        let read = store.inner.readers.run(|_| -> Result<(), StoreError> { panic!("a reader panics, for the test") });
        assert!(runtime.block_on(read).is_err());
        for _ in 0..2 * crate::sqlite::READER_THREADS {
            runtime.block_on(store.inner.readers.run(|_| Ok(()))).expect("all readers survive the panic");
        }
    }
}
