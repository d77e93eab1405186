//! The embedded database: one SQLite file, one thread that writes, a few that read beside it.
//!
//! A save is one transaction, durable before it is answered (`synchronous=FULL`). Inside, records are known by dense row
//! numbers. What SQL holds are constraints (one effect for a job, no balance below zero, keys that are unique), never rules.

mod backup;
mod checkpoint;
mod definitions;
mod errors;
mod glance;
mod hot;
mod keys;
mod lanes;
mod later;
mod ledger;
mod load;
mod look;
mod migrate;
mod names;
mod open;
mod prune;
mod read;
mod rows;
mod save;
mod scan;
mod shared;
mod threads;
mod transaction;
mod view;
mod wal;
mod work;
mod workers;
mod write;

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use onceward_core::decide::{Effect, Key};
use onceward_core::diagnostic::Files;
use onceward_core::record::{Execution, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::Connection;

use crate::account::{AccountName, AccountsQuery, Balance, Statement, StatementQuery};
use crate::anchors::Anchors;
use crate::api_keys::{KeptKeys, KeyEdit, KeySave};
use crate::base::Base;
use crate::batch::{Batch, Request, RequestName, Save};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::glance::Glance;
use crate::histogram::{Distribution, Histogram, TIMES};
use crate::log::Entry;
use crate::names::Known;
use crate::net::Told;
use crate::prune::{
    Forgotten, ForgottenCounts, Kin, OldCounts, OldPage, OldQuery, OldRequests, Prune, PruneSave, Standing,
};
use crate::query::{Candidate, LeaseQuery, ListQuery, Most, Page, StateCount, VersionCount};
use crate::relation::{LinkPage, LinkQuery};
use crate::schema::Schema;
use crate::store::Store;
use crate::workers::{Holding, WorkerSeen};
pub use backup::{Backup, BackupError, back_up};
use checkpoint::Checkpoints;
use open::EngineLock;
use save::Writer;
use shared::Shared;
use threads::Threads;
use transaction::{Busy, Transaction};
pub use view::SqliteView;
use work::Looked;

/// Threads that read. Loading for the next batch, a list and the log stream can go on side by side.
const READERS: usize = 3;

/// So few operations are written by whoever brings them, where nobody else is writing and the disk was quick the last time: to wake
/// the thread that writes, and to be woken by it, takes longer than the disk. And so few jobs are looked for, and so few keys loaded, by whoever asks: they stand in a page or two that are nearly always in memory, and
/// waking another thread twice takes longer.
const FEW: usize = 16;

/// A store in a file. Clones are the same store; the file is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    // In the order in which they must end: the readers, the writer, then the lock.
    readers: Threads<Reader>,
    near: Mutex<Reader>,
    writer: Threads<Writer>,
    shared: Arc<Shared>,
    clock: Clock,
    /// A name that no other opening of the file has had.
    opening: Arc<str>,
    _lock: EngineLock,
}

/// What a thread that reads has at hand.
#[derive(Debug)]
struct Reader {
    connection: Connection,
    shared: Arc<Shared>,
}

impl SqliteStore {
    /// Open a database file, or make it. Refused while another engine has it open.
    pub fn open(path: impl AsRef<Path>, clock: Clock) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let lock = EngineLock::take(path)?;
        let connection = open::writer(path)?;
        let known = definitions::recall(&connection)?;
        let shared = Arc::new(Shared {
            generation: AtomicU64::new(1),
            known: RwLock::new(known),
            recent: Mutex::default(),
            commits: Histogram::new(TIMES),
            disk_is_quick: AtomicBool::new(false),
            soonest: AtomicI64::new(later::soonest(&connection)?.micros()),
            anchors: Anchors::default(),
        });
        let reader = || Ok(Reader { connection: open::reader(path)?, shared: Arc::clone(&shared) });
        let readers = (0..READERS).map(|_| reader()).collect::<Result<Vec<_>, StoreError>>()?;
        let near = Mutex::new(reader()?);
        let writer = Writer::new(connection, Arc::clone(&shared), Checkpoints::start(path)?)?;
        let inner = Inner {
            readers: Threads::start("read", readers, |reader| let_go(&reader.connection))?,
            near,
            writer: Threads::start("write", vec![writer], Writer::recover)?,
            shared,
            clock,
            // The standard library's hashes begin with chance.
            opening: format!("{:016x}", RandomState::new().hash_one(std::process::id())).into(),
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// How many threads a runtime beside this store had better have: one core is for the thread that writes. Where all cores have a thread of
    /// the runtime's, these wake one another for what one of them could do, and the writer takes turns with them (decision 0182).
    pub fn runtime_threads() -> usize {
        std::thread::available_parallelism().map_or(1, |cores| threads::beside_the_writer(cores.get()))
    }

    /// Which schema a file has. Nothing is written, and an engine may have it open.
    pub fn schema(path: impl AsRef<Path>) -> Result<Schema, StoreError> {
        migrate::schema(&open::reader(path.as_ref())?, migrate::MIGRATIONS)
    }

    /// Bring a file up to date, as opening it does. What it had before. Refused while an engine has it open.
    pub fn migrate(path: impl AsRef<Path>) -> Result<Schema, StoreError> {
        let path = path.as_ref();
        let before = Self::schema(path)?;
        if !before.missing.is_empty() {
            let _lock = EngineLock::take(path)?;
            drop(open::writer(path)?);
        }
        Ok(before)
    }

    async fn look(&self, query: &LeaseQuery) -> Result<Looked, StoreError> {
        if query.limit <= FEW
            && let Ok(near) = self.inner.near.try_lock()
        {
            return near.read(|connection, known| work::leasable(connection, known, query));
        }
        let query = query.clone();
        self.read(move |connection, known| work::leasable(connection, known, &query)).await
    }

    async fn read<R: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection, &Known) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.inner.readers.run(move |reader| reader.read(job)).await
    }
}

/// After a panic: a snapshot that is still held, should there be one, is not.
fn let_go(connection: &Connection) {
    if !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
}

impl Reader {
    /// One snapshot for all statements of a job: it takes SQLite's locks once, not once each.
    fn read<R>(&self, job: impl FnOnce(&Connection, &Known) -> Result<R, StoreError>) -> Result<R, StoreError> {
        let transaction = Transaction::to_read(&self.connection)?;
        // The snapshot begins with the first statement: what is known must not be older than it.
        read::last(&transaction)?;
        job(&transaction, &self.shared.known())
    }
}

impl Store for SqliteStore {
    async fn load(&self, base: &mut Base, keys: &[Key]) -> Result<(), StoreError> {
        // Before anything is read: what is saved meanwhile will be noticed.
        base.begin(self.inner.shared.generation.load(Ordering::Acquire));
        let keys = self.inner.shared.recall(base, keys);
        if keys.is_empty() {
            return Ok(());
        }
        if keys.len() <= FEW
            && self.inner.shared.disk_is_quick.load(Ordering::Relaxed)
            && let Ok(near) = self.inner.near.try_lock()
        {
            return near.read(|connection, known| load::load(connection, known, base, &keys));
        }
        let mut taken = std::mem::take(base);
        *base = self
            .read(move |connection, known| load::load(connection, known, &mut taken, &keys).map(|()| taken))
            .await?;
        Ok(())
    }

    async fn save(&self, base: &Arc<Base>, batch: &Arc<Batch>) -> Result<Save, StoreError> {
        // Here, so that the thread that writes can be busy with another batch meanwhile.
        let told = Arc::new(Told::of(base, batch)?);
        if batch.writes.len() <= FEW && self.inner.shared.disk_is_quick.load(Ordering::Relaxed) {
            // Folding back, and waiting for another process that writes, are for the thread that writes.
            let save = |writer: &mut Writer| writer.save(base, batch, &told, Busy::IsTold);
            match self.inner.writer.here(|writer| !writer.is_folding(), save) {
                Err(_) | Ok(Err(StoreError::Busy)) => {}
                Ok(saved) => return saved,
            }
        }
        let (base, batch) = (Arc::clone(base), Arc::clone(batch));
        self.inner.writer.run(move |writer| writer.save(&base, &batch, &told, Busy::IsWaitedFor)).await
    }

    async fn leasable(&self, query: &LeaseQuery) -> Result<Vec<Candidate>, StoreError> {
        let (now, shared) = (query.now, &self.inner.shared);
        let is_due = || shared.soonest.load(Ordering::Acquire) <= now.micros();
        if is_due() {
            self.inner.writer.run(move |writer| writer.put_right(now, &[])).await?;
        }
        let mut before = Vec::new();
        loop {
            let Looked { found, early } = self.look(query).await?;
            // The same again: damaged rows cannot be put right.
            if (early.is_empty() || early == before) && (found.len() >= query.limit || !is_due()) {
                return Ok(found);
            }
            before.clone_from(&early);
            self.inner.writer.run(move |writer| writer.put_right(now, &early)).await?;
        }
    }

    async fn due(&self, until: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        self.read(move |connection, _| work::due(connection, until, limit)).await
    }

    async fn log(&self, after: u64, most: impl Into<Most> + Send) -> Result<Vec<Entry>, StoreError> {
        let most = most.into();
        self.read(move |connection, _| read::log(connection, after, most)).await
    }

    async fn last(&self) -> Result<u64, StoreError> {
        self.read(|connection, _| read::last(connection)).await
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Entry>, StoreError> {
        let most = most.into();
        let shared = Arc::clone(&self.inner.shared);
        self.read(move |connection, _| read::history(connection, &shared.anchors, record, after_version, most)).await
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        self.read(move |connection, known| Ok(load::record(connection, known, id)?.map(|(_, record)| record))).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let query = query.clone();
        self.read(move |connection, known| read::list(connection, known, &query)).await
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        let owner = owner.map(str::to_owned);
        self.read(move |connection, known| read::counts_by_state(connection, known, owner.as_deref())).await
    }

    async fn glance(&self, now: Time) -> Result<Glance, StoreError> {
        self.read(move |connection, known| glance::glance(connection, known, now)).await
    }

    fn commits(&self) -> Option<Distribution> {
        Some(self.inner.shared.commits.counted())
    }

    async fn content(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        let sha256 = *sha256;
        self.read(move |connection, _| read::content(connection, &sha256)).await
    }

    async fn referenced(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        let hashes = hashes.to_vec();
        self.read(move |connection, _| read::referenced(connection, &hashes)).await
    }

    async fn contents(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        let sha256s = sha256s.to_vec();
        self.read(move |connection, _| sha256s.iter().map(|sha256| read::content(connection, sha256)).collect()).await
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        self.read(move |connection, _| read::effect(connection, record)).await
    }

    async fn attempts(
        &self,
        record: RecordId,
        after: Token,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        let most = most.into();
        self.read(move |connection, _| read::attempts(connection, record, after, most)).await
    }

    async fn linked(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        let query = query.clone();
        self.read(move |connection, known| read::linked(connection, known, &query)).await
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<Balance>, StoreError> {
        let query = query.clone();
        self.read(move |connection, _| ledger::accounts(connection, &query)).await
    }

    async fn account(&self, account: &AccountName) -> Result<Option<Balance>, StoreError> {
        let account = account.clone();
        self.read(move |connection, _| ledger::account(connection, &account)).await
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<Statement>, StoreError> {
        let query = query.clone();
        self.read(move |connection, _| ledger::statement(connection, &query)).await
    }

    async fn note_workers(&self, seen: &[WorkerSeen]) -> Result<(), StoreError> {
        let seen = seen.to_vec();
        self.inner.writer.run(move |writer| writer.note_workers(&seen)).await
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSeen>, StoreError> {
        self.read(move |connection, _| workers::workers(connection, limit)).await
    }

    async fn holding(&self, limit: usize) -> Result<Holding, StoreError> {
        self.read(move |connection, _| workers::holding(connection, limit)).await
    }

    async fn forget_workers(&self, before: Time, most: usize) -> Result<u64, StoreError> {
        self.inner.writer.run(move |writer| writer.forget_workers(before, most)).await
    }

    async fn requests(&self, names: &[RequestName]) -> Result<Vec<Option<Request>>, StoreError> {
        let names = names.to_vec();
        self.read(move |connection, _| names.iter().map(|name| read::request(connection, name)).collect()).await
    }

    async fn definitions(&self) -> Result<Arc<Catalog>, StoreError> {
        Ok(self.inner.shared.known().catalog)
    }

    async fn put_definitions(&self, files: &Files) -> Result<Arc<Catalog>, StoreError> {
        let (files, now) = (files.clone(), self.inner.clock.now());
        let put = move |writer: &mut Writer| {
            let known = writer.shared.known();
            let new = definitions::put(&mut writer.connection, &known, &files, now)?;
            Ok(learn(writer, &known, new))
        };
        self.inner.writer.run(put).await
    }

    async fn use_definition(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        let (hash, by) = (hash.to_owned(), by.to_owned());
        let turn = move |writer: &mut Writer| {
            let known = writer.shared.known();
            let new = definitions::make_current(&mut writer.connection, &known, &hash, &by, now)?;
            Ok(learn(writer, &known, new))
        };
        self.inner.writer.run(turn).await
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        self.read(|connection, known| read::counts_by_version(connection, &known.catalog, &known.names)).await
    }

    async fn old(&self, query: &OldQuery) -> Result<OldPage, StoreError> {
        let query = *query;
        self.read(move |connection, _| prune::old(connection, &query)).await
    }

    async fn kin(&self, ids: &[RecordId]) -> Result<Vec<Kin>, StoreError> {
        let ids = ids.to_vec();
        self.read(move |connection, known| prune::kin(connection, known, &ids)).await
    }

    async fn prune(&self, prune: &Arc<Prune>) -> Result<PruneSave, StoreError> {
        let prune = Arc::clone(prune);
        self.inner.writer.run(move |writer| writer.prune(&prune)).await
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        self.read(|connection, _| prune::standing(connection)).await
    }

    async fn forget(&self, old: &OldRequests) -> Result<Forgotten, StoreError> {
        let old = old.clone();
        self.inner.writer.run(move |writer| writer.forget(&old)).await
    }

    async fn forget_counts(&self, old: &OldCounts) -> Result<ForgottenCounts, StoreError> {
        let old = old.clone();
        self.inner.writer.run(move |writer| writer.forget_counts(&old)).await
    }

    async fn keys(&self) -> Result<KeptKeys, StoreError> {
        self.read(|connection, _| keys::keys(connection)).await
    }

    async fn key_changes(&self) -> Result<u64, StoreError> {
        self.read(|connection, _| keys::changes(connection)).await
    }

    async fn edit_keys(&self, edit: &Arc<KeyEdit>) -> Result<KeySave, StoreError> {
        let edit = Arc::clone(edit);
        self.inner.writer.run(move |writer| writer.edit_keys(&edit)).await
    }

    fn opening(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.inner.opening))
    }

    async fn left_behind(&self, limit: usize) -> Result<Vec<(RecordId, Token)>, StoreError> {
        let opening = Arc::clone(&self.inner.opening);
        self.read(move |connection, _| read::left_behind(connection, &opening, limit)).await
    }

    async fn now(&self) -> Result<Time, StoreError> {
        Ok(self.inner.clock.now())
    }
}

/// What is known from now on, where something new is.
fn learn(writer: &Writer, known: &Known, new: Option<Known>) -> Arc<Catalog> {
    let Some(new) = new else { return Arc::clone(&known.catalog) };
    let catalog = Arc::clone(&new.catalog);
    *writer.shared.known.write().unwrap_or_else(PoisonError::into_inner) = new;
    catalog
}
