//! Saving a batch: compare, write, take a place in the log, commit.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::decide::Key;
use rusqlite::Connection;

use super::checkpoint::Checkpoints;
use super::transaction::{Busy, Transaction};
use super::write::Writing;
use super::{Shared, definitions, later, load, read};
use crate::base::Base;
use crate::batch::{Batch, Conflict, Save};
use crate::error::StoreError;
use crate::names::Known;
use crate::net::{Net, Told};

/// Batches whose writes are remembered: more than an engine has on their way at once.
const LATELY: usize = 8;

/// What the thread that writes has at hand.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
    /// SQLite's number for what others have written, when it was last looked at. It moves when another connection commits, which
    /// none should while we have the lock; nothing is known by heart then, nor where it is `None`.
    others: Option<i64>,
    /// The last row number given to a record. Only this thread gives them.
    last_row: u64,
    lately: Lately,
    checkpoints: Checkpoints,
}

/// What the last few batches wrote, each under the generation that it ended.
#[derive(Debug, Default)]
struct Lately(VecDeque<(u64, HashSet<Key>)>);

impl Lately {
    fn put(&mut self, generation: u64, written: HashSet<Key>) {
        self.0.push_back((generation, written));
        if self.0.len() > LATELY {
            self.0.pop_front();
        }
    }

    /// Where it is not known what became of a write, all that was loaded before it is compared.
    fn forget(&mut self) {
        self.0.clear();
    }

    /// Whether a key may have changed since a generation: certainly not where no batch since then wrote it.
    fn may_have_changed(&self, key: &Key, since: u64) -> bool {
        let known = self.0.front().is_some_and(|(first, _)| *first <= since);
        !known || self.0.iter().any(|(generation, written)| *generation >= since && written.contains(key))
    }
}

/// A save that takes longer may not be done on a runtime's thread: others wait for their turn on it.
const QUICK: Duration = Duration::from_millis(2);

impl Writer {
    pub(super) fn new(
        connection: Connection,
        shared: Arc<Shared>,
        checkpoints: Checkpoints,
    ) -> Result<Self, StoreError> {
        let others = Some(others(&connection)?);
        let last_row = last_row(&connection)?;
        let lately = Lately::default();
        Ok(Self { connection, shared, others, last_row, lately, checkpoints })
    }

    pub(super) fn save(&mut self, base: &Base, batch: &Batch, told: &Told, busy: Busy) -> Result<Save, StoreError> {
        let began = Instant::now();
        let saved = self.write(base, batch, told, busy);
        self.shared.disk_is_quick.store(began.elapsed() < QUICK, Ordering::Relaxed);
        if saved.is_err() {
            // Whether it was written is not known.
            self.others = None;
            self.trust_nothing();
        }
        saved
    }

    /// A job panicked. What it had begun was taken back when it let go of it; what it had got to is not known.
    pub(super) fn recover(&mut self) {
        super::let_go(&self.connection);
        self.others = None;
        self.trust_nothing();
    }

    /// Nothing that was loaded or remembered before is taken on trust.
    pub(super) fn trust_nothing(&mut self) {
        distrust(&self.shared, &mut self.lately);
    }

    /// After something else than a batch was written: so many pages, by estimate.
    pub(super) fn written(&mut self, pages: usize) {
        self.checkpoints.more(&self.connection, pages);
    }

    /// Whether the next save may have to fold back what the WAL has, which takes its time.
    pub(super) const fn is_folding(&self) -> bool {
        self.checkpoints.is_running()
    }

    fn write(&mut self, base: &Base, batch: &Batch, told: &Told, busy: Busy) -> Result<Save, StoreError> {
        let net = Net::with(base, batch, told)?;
        // FM-2, INV-2: all of the batch or nothing of it.
        let transaction = Transaction::to_write(&self.connection, busy)?;
        let others = Some(others(&transaction)?);
        if others != self.others {
            *self.shared.known.write().unwrap_or_else(PoisonError::into_inner) = definitions::recall(&transaction)?;
            self.last_row = last_row(&transaction)?;
            self.shared.soonest.store(later::soonest(&transaction)?.micros(), Ordering::Release);
            distrust(&self.shared, &mut self.lately);
            self.others = others;
        }
        let known = self.shared.known();
        // New records are made by what is current. A batch may have been decided before this thread took in new lifecycles.
        if net.makes_records() && batch.catalog < known.catalog.number() {
            return Ok(Save::Conflict(Conflict::default()));
        }
        let generation = self.shared.generation.load(Ordering::Acquire);
        let conflict = conflict(&transaction, &known, base, &net, (generation, &self.lately))?;
        if !conflict.is_empty() {
            return Ok(Save::Conflict(conflict));
        }
        let mut writing = Writing::new(&transaction, &known, base, self.last_row);
        let (first, last) = writing.all(&net, batch.now)?;
        let places = net.records.iter().map(|record| writing.stored(record)).collect::<Result<Vec<_>, _>>()?;
        let (last_row, soonest) = (writing.last_row, writing.soonest);
        let begun = Instant::now();
        transaction.commit()?;
        self.shared.commits.add_time(begun.elapsed());
        self.last_row = last_row;
        self.shared.soonest.fetch_min(soonest.micros(), Ordering::AcqRel);
        let mut recent = self.shared.recent();
        for (record, stored) in net.records.iter().zip(places) {
            recent.put(stored, &record.after);
        }
        drop(recent);
        // After the commit: whoever sees the new number sees what was written.
        self.shared.generation.fetch_add(1, Ordering::Release);
        self.lately.put(generation, net.written());
        self.checkpoints.written(&self.connection, &net);
        Ok(Save::Saved { first, last })
    }
}

fn distrust(shared: &Shared, lately: &mut Lately) {
    shared.recent().forget();
    lately.forget();
    shared.generation.fetch_add(1, Ordering::Release);
}

/// A number that is another one after each commit of another connection. Checkpoints leave it alone.
fn others(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

/// The last row number that was given.
fn last_row(connection: &Connection) -> Result<u64, StoreError> {
    Ok(connection.query_row("SELECT coalesce(max(row), 0) FROM records", [], |row| row.get(0))?)
}

/// What no longer holds. Where nothing was saved since the base was begun, nothing can have changed: this process is the only
/// one that writes; where something was, only what it wrote. What the base does not hold at all is still found out.
fn conflict(
    connection: &Connection,
    known: &Known,
    base: &Base,
    net: &Net,
    (generation, lately): (u64, &Lately),
) -> Result<Conflict, StoreError> {
    let mut requests = net.repeated.clone();
    for request in &net.requests {
        if read::request(connection, &request.name)?.is_some() {
            requests.push(request.name.clone());
        }
    }
    let since = base.generation().unwrap_or(0);
    let keys = if since == generation {
        net.untold(base)
    } else {
        let mut keys: Vec<Key> = net.compared(base);
        keys.retain(|key| !base.was_told(key) || lately.may_have_changed(key, since));
        let mut fresh = base.probe();
        load::load(connection, known, &mut fresh, &keys)?;
        base.changed_in(&fresh)
    };
    Ok(Conflict { keys, requests })
}

#[cfg(test)]
mod tests {
    use onceward_core::time::Time;
    use onceward_core::value::RecordId;
    use onceward_testkit::Folder;

    use super::*;
    use crate::SqliteStore;
    use crate::clock::Clock;

    fn key(number: u128) -> Key {
        Key::Record(RecordId(uuid::Uuid::from_u128(number)))
    }

    /// What stands in no batch since a generation is sound; of what was before the oldest that is remembered, nothing is.
    #[test]
    fn only_so_many_batches_are_remembered() {
        let mut lately = Lately::default();
        assert!(lately.may_have_changed(&key(1), 5), "nothing is known yet");
        lately.put(5, [key(5)].into());
        assert!(lately.may_have_changed(&key(5), 5) && !lately.may_have_changed(&key(1), 5));
        assert!(lately.may_have_changed(&key(1), 4), "what came before is not known");
        for generation in 6..5 + LATELY as u64 {
            lately.put(generation, [key(generation.into())].into());
        }
        assert!(!lately.may_have_changed(&key(1), 5), "as many as are remembered");
        assert!(lately.may_have_changed(&key(6), 6) && !lately.may_have_changed(&key(6), 7));
        lately.put(5 + LATELY as u64, [key(1)].into());
        assert!(lately.may_have_changed(&key(2), 5), "the oldest has gone");
        assert!(!lately.may_have_changed(&key(2), 6) && lately.may_have_changed(&key(1), 6));
        assert_eq!(lately.0.len(), LATELY);
        lately.forget();
        assert!((0..20).all(|since| lately.may_have_changed(&key(2), since)), "nothing is known any more");
    }

    /// A job that panics leaves nothing behind it, and the thread goes on; nothing is known by heart then.
    #[test]
    fn a_panic_is_taken_back() {
        let folder = Folder::new();
        let store = SqliteStore::open(folder.file(), Clock::manual(Time::from_secs(0))).expect("a new file");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let before = store.inner.shared.generation.load(Ordering::Acquire);
        let job = |writer: &mut Writer| -> Result<(), StoreError> {
            let transaction = writer.connection.transaction()?;
            transaction.execute("INSERT INTO names (id, name) VALUES (99, 'left')", [])?;
            panic!("a job that panics, for the test");
        };
        let said = runtime.block_on(store.inner.writer.run(job));
        assert!(matches!(&said, Err(StoreError::Unavailable(why)) if why.contains("for the test")), "{said:?}");
        let found = runtime.block_on(store.inner.writer.run(|writer| {
            let names: i64 = writer.connection.query_row("SELECT count(*) FROM names", [], |row| row.get(0))?;
            Ok((writer.connection.is_autocommit(), names, writer.others))
        }));
        assert_eq!(found.expect("the thread is there"), (true, 0, None));
        assert_eq!(store.inner.shared.generation.load(Ordering::Acquire), before + 1);
        let read = store.inner.readers.run(|_| -> Result<(), StoreError> { panic!("a reader's, for the test") });
        assert!(runtime.block_on(read).is_err());
        for _ in 0..2 * crate::sqlite::READERS {
            runtime.block_on(store.inner.readers.run(|_| Ok(()))).expect("all readers are there");
        }
    }
}
