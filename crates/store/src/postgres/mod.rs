//! PostgreSQL: many processes on one database, none of them in charge.
//!
//! A save is one transaction at READ COMMITTED. It claims what is free, locks what is there in one order that every save
//! keeps, compares, writes arrays of rows, and takes its place in the log last of all, so that the order of the log is the
//! order of commit. What SQL holds are constraints (one effect for a job, no balance below zero, keys that are unique), never
//! rules. Nothing lives in a session: no advisory lock, no temporary table, no setting that anything but speed depends on.

mod attempts;
mod claim;
mod client;
mod connect;
mod definitions;
mod errors;
mod glance;
mod inbox;
mod keys;
mod lanes;
mod later;
mod ledger;
mod leftovers;
mod lines;
mod load;
mod look;
mod marks;
mod memory;
mod migrate;
mod news;
mod opening;
mod pipeline;
mod prune;
mod read;
mod rows;
mod save;
mod scan;
mod sweeps;
mod tls;
mod view;
mod work;
mod workers;
mod write;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use onceward_core::decide::{Effect, Key};
use onceward_core::diagnostic::Files;
use onceward_core::record::{Execution, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use tokio::sync::watch;
use tokio_postgres::Row;

use crate::account::{AccountName, AccountsQuery, Balance, Statement, StatementQuery};
use crate::anchors::Anchors;
use crate::api_keys::{KeptKeys, KeyEdit, KeySave};
use crate::base::Base;
use crate::batch::{Batch, Request, RequestName, Save};
use crate::catalog::Catalog;
use crate::clock::{Clock, Sampled};
use crate::error::StoreError;
use crate::glance::Glance;
use crate::histogram::{Distribution, Histogram, TIMES};
use crate::inbox::{Letter, LetterAnswer};
use crate::log::Entry;
use crate::names::{Known, Names};
use crate::prune::{
    Forgotten, ForgottenCounts, ForgottenLetters, Kin, OldCounts, OldLetters, OldPage, OldQuery, OldRequests, Prune,
    PruneSave, Standing,
};
use crate::query::{Candidate, LeaseQuery, ListQuery, Most, Page, StateCount, VersionCount};
use crate::relation::{LinkPage, LinkQuery};
use crate::schema::Schema;
use crate::store::Store;
use crate::workers::{Holding, WorkerSeen};
use connect::{InTransaction, Pool};
use load::{Asking, Wish};
use marks::Marks;
use memory::Memory;
use migrate::MIGRATIONS;
use news::News;
use opening::Opening;
use pipeline::Pipeline;
use sweeps::Sweeps;
pub use view::PostgresView;

/// Rounds of learning what another process has brought meanwhile.
const ROUNDS: usize = 5;

const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// A store in a PostgreSQL database. Clones are the same store.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    known: RwLock<Arc<Known>>,
    marks: Marks,
    anchors: Anchors,
    memory: Memory,
    news: News,
    sweeps: Sweeps,
    /// A manual one in tests; else the database's, remembered for a moment.
    clock: Option<Clock>,
    sampled: Sampled,
    /// How long the commits of batches took, there and back.
    commits: Histogram,
    /// Of a server with a name.
    opening: OnceLock<Opening>,
}

impl PostgresStore {
    /// Open a database by its URL, `postgres://user:password@host:port/name`. Makes its tables where there are none; older
    /// ones are left to `onceward migrate`. Many processes may. Needs a tokio runtime with I/O and time.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::connect(url, None).await
    }

    /// The same under a clock of one's own: for tests and simulations.
    pub async fn open_with_clock(url: &str, clock: Clock) -> Result<Self, StoreError> {
        Self::connect(url, Some(clock)).await
    }

    /// The same store, opened by a server of this name: letters, digits, `.`, `_` and `-`, at most 64. What workers inside an earlier
    /// process of the name had leased is free again at once. No two processes should have one name at the same time: the older one's
    /// workers would lose their jobs, though nothing is done twice.
    pub async fn named(self, name: &str) -> Result<Self, StoreError> {
        let opening = opening::next(&self.inner, name).await?;
        // A second name changes nothing.
        let _ = self.inner.opening.set(opening);
        Ok(self)
    }

    /// Which schema a database has. Nothing is written.
    pub async fn schema(url: &str) -> Result<Schema, StoreError> {
        migrate::schema(&connect::pool(url)?.get().await?, MIGRATIONS).await
    }

    /// Bring a database up to date. What it had before. No process should be working on it with a program that knows only the older
    /// schema.
    pub async fn migrate(url: &str) -> Result<Schema, StoreError> {
        migrate::migrate(&connect::pool(url)?, MIGRATIONS).await
    }

    async fn connect(url: &str, clock: Option<Clock>) -> Result<Self, StoreError> {
        let pool = connect::pool(url)?;
        migrate::make(&pool, MIGRATIONS).await?;
        let name: String = pool.get().await?.query_one("SELECT gen_random_uuid()::text", &[]).await?.try_get(0)?;
        let news = News::start(connect::config(url)?, pool.clone(), name);
        let nothing = Known { catalog: Arc::default(), names: Arc::new(Names::default()) };
        let known = RwLock::new(Arc::new(nothing));
        let sweeps = Sweeps::start(pool.clone());
        let inner = Inner {
            pool,
            known,
            marks: Marks::default(),
            anchors: Anchors::default(),
            memory: Memory::default(),
            news,
            sweeps,
            clock,
            sampled: Sampled::default(),
            commits: Histogram::new(TIMES),
            opening: OnceLock::new(),
        };
        inner.refresh().await?;
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Inner {
    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Learn what the database knows by now.
    async fn refresh(&self) -> Result<Arc<Known>, StoreError> {
        let known = definitions::recall(&self.pool.get().await?, &self.known()).await?;
        Ok(self.learn(known))
    }

    /// Definitions only come: should another task have learnt more meanwhile, that stays.
    fn learn(&self, known: Known) -> Arc<Known> {
        let mut kept = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if kept.catalog.number() <= known.catalog.number() {
            *kept = Arc::new(known);
        }
        Arc::clone(&kept)
    }

    /// What is known, with this definition in it if there is one.
    async fn known_up_to(&self, definition: u32) -> Result<Arc<Known>, StoreError> {
        let known = self.known();
        if definition <= known.catalog.newest() { Ok(known) } else { self.refresh().await }
    }

    /// What is known, with this lifecycle in it if there is one.
    async fn known_with(&self, lifecycle: &str) -> Result<Arc<Known>, StoreError> {
        let known = self.known();
        if known.catalog.definitions.get(lifecycle).is_some() { Ok(known) } else { self.newest().await }
    }

    /// What the database knows now.
    async fn newest(&self) -> Result<Arc<Known>, StoreError> {
        let mut pipeline = Pipeline::default();
        pipeline.add(definitions::NEWEST, Vec::new());
        let answers = self.run(&pipeline).await?;
        let newest = answers[0].first().map_or(Ok(0), |row| rows::number(row, 0))?;
        let known = self.known();
        if newest <= known.catalog.number() { Ok(known) } else { self.refresh().await }
    }

    /// Statements outside of a transaction, which only read. A connection that died while it lay idle is tried once more.
    async fn run(&self, pipeline: &Pipeline<'_>) -> Result<Vec<Vec<Row>>, StoreError> {
        let client = self.pool.get().await?;
        match pipeline.run(&client).await {
            Err(StoreError::Unavailable(_)) if client.is_closed() => {
                drop(client);
                pipeline.run(&self.pool.get().await?).await
            }
            done => done,
        }
    }

    /// The same, all of them at one moment.
    async fn read_at_once(&self, pipeline: &Pipeline<'_>) -> Result<Vec<Vec<Row>>, StoreError> {
        for is_last in [false, true] {
            let transaction = InTransaction::new(self.pool.get().await?);
            match pipeline.read_at_once(transaction.client()?).await {
                Ok(answers) => {
                    transaction.ended();
                    return Ok(answers);
                }
                Err(StoreError::Unavailable(_)) if !is_last && transaction.client()?.is_closed() => {}
                Err(error) => {
                    transaction.roll_back().await;
                    return Err(error);
                }
            }
        }
        Err(StoreError::Busy)
    }
}

impl Store for PostgresStore {
    async fn load(&self, base: &mut Base, keys: &[Key]) -> Result<(), StoreError> {
        self.inner.memory.tell(base, keys, self.inner.news.others());
        for round in 0.. {
            let known = self.inner.known();
            let mut pipeline = Pipeline::default();
            let asking = Asking::new(&mut pipeline, &known.names, base, keys, Wish::Whole)?;
            if pipeline.is_empty() {
                break;
            }
            let newest = pipeline.add(definitions::NEWEST, Vec::new());
            // A refusal rests on what is read here, and no save compares it: half of another's move must not be in it.
            let answers = if asking.is_mixed() {
                self.inner.read_at_once(&pipeline).await?
            } else {
                self.inner.run(&pipeline).await?
            };
            let newest = answers[newest].first().map_or(Ok(0), |row| rows::number(row, 0))?;
            // Names that were not known may be by now, so everything is asked again.
            let is_new = newest > known.catalog.number();
            if (is_new || asking.newest_definition(&answers)? > known.catalog.newest()) && round < ROUNDS {
                self.inner.refresh().await?;
                continue;
            }
            asking.put(base, &answers, &known, Wish::Whole)?;
            break;
        }
        Ok(())
    }

    async fn save(&self, base: &Arc<Base>, batch: &Arc<Batch>) -> Result<Save, StoreError> {
        // In a task of its own: a caller that goes away must not leave a transaction half done.
        let work = save::save(Arc::clone(&self.inner), Arc::clone(base), Arc::clone(batch));
        let ended = |error: tokio::task::JoinError| StoreError::Unavailable(format!("the save did not end: {error}"));
        tokio::spawn(work).await.map_err(ended)?
    }

    async fn leasable(&self, query: &LeaseQuery) -> Result<Vec<Candidate>, StoreError> {
        work::leasable(&self.inner, query).await
    }

    async fn due(&self, until: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        work::due(&self.inner, until, limit).await
    }

    async fn log(&self, after: u64, most: impl Into<Most> + Send) -> Result<Vec<Entry>, StoreError> {
        read::log(&self.inner, after, most.into()).await
    }

    async fn last(&self) -> Result<u64, StoreError> {
        read::last(&self.inner).await
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Entry>, StoreError> {
        read::history(&self.inner, record, after_version, most.into()).await
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        read::record(&self.inner, id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        read::list(&self.inner, query).await
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        read::counts_by_state(&self.inner, owner).await
    }

    async fn glance(&self, now: Time) -> Result<Glance, StoreError> {
        glance::glance(&self.inner, now).await
    }

    fn commits(&self) -> Option<Distribution> {
        Some(self.inner.commits.counted())
    }

    async fn content(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        read::content(&self.inner, sha256).await
    }

    async fn referenced(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        read::referenced(&self.inner, hashes).await
    }

    async fn contents(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        read::contents(&self.inner, sha256s).await
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        read::effect(&self.inner, record).await
    }

    async fn attempts(
        &self,
        record: RecordId,
        after: Token,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        read::attempts(&self.inner, record, after, most.into()).await
    }

    async fn linked(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        read::linked(&self.inner, query).await
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<Balance>, StoreError> {
        ledger::accounts(&self.inner, query).await
    }

    async fn account(&self, account: &AccountName) -> Result<Option<Balance>, StoreError> {
        ledger::account(&self.inner, account).await
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<Statement>, StoreError> {
        ledger::statement(&self.inner, query).await
    }

    async fn note_workers(&self, seen: &[WorkerSeen]) -> Result<(), StoreError> {
        workers::note_workers(&self.inner, seen).await
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSeen>, StoreError> {
        workers::workers(&self.inner, limit).await
    }

    async fn holding(&self, limit: usize) -> Result<Holding, StoreError> {
        workers::holding(&self.inner, limit).await
    }

    async fn forget_workers(&self, before: Time, most: usize) -> Result<u64, StoreError> {
        workers::forget_workers(&self.inner, before, most).await
    }

    async fn requests(&self, names: &[RequestName]) -> Result<Vec<Option<Request>>, StoreError> {
        read::requests(&self.inner, names).await
    }

    async fn definitions(&self) -> Result<Arc<Catalog>, StoreError> {
        Ok(Arc::clone(&self.inner.known().catalog))
    }

    async fn put_definitions(&self, files: &Files) -> Result<Arc<Catalog>, StoreError> {
        let known = definitions::put(&self.inner, files, self.now().await?).await?;
        Ok(Arc::clone(&self.inner.learn(known).catalog))
    }

    async fn use_definition(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        let known = definitions::make_current(&self.inner, hash, by, now).await?;
        Ok(Arc::clone(&self.inner.learn(known).catalog))
    }

    async fn newest_definitions(&self) -> Result<Arc<Catalog>, StoreError> {
        Ok(Arc::clone(&self.inner.newest().await?.catalog))
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        read::counts_by_version(&self.inner).await
    }

    async fn old(&self, query: &OldQuery) -> Result<OldPage, StoreError> {
        prune::old(&self.inner, query).await
    }

    async fn kin(&self, ids: &[RecordId]) -> Result<Vec<Kin>, StoreError> {
        prune::kin(&self.inner, ids).await
    }

    async fn prune(&self, prune: &Arc<Prune>) -> Result<PruneSave, StoreError> {
        // In a task of its own: a caller that goes away must not leave a transaction half done.
        let work = prune::prune(Arc::clone(&self.inner), Arc::clone(prune));
        let ended = |error: tokio::task::JoinError| StoreError::Unavailable(format!("the prune did not end: {error}"));
        tokio::spawn(work).await.map_err(ended)?
    }

    async fn turn_to_prune(&self, rest: Duration) -> Result<bool, StoreError> {
        prune::turn(&self.inner, rest).await
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        prune::standing(&self.inner).await
    }

    async fn forget(&self, old: &OldRequests) -> Result<Forgotten, StoreError> {
        prune::forget(&self.inner, old).await
    }

    async fn forget_counts(&self, old: &OldCounts) -> Result<ForgottenCounts, StoreError> {
        leftovers::counts(&self.inner, old).await
    }

    async fn keys(&self) -> Result<KeptKeys, StoreError> {
        keys::keys(&self.inner).await
    }

    async fn key_changes(&self) -> Result<u64, StoreError> {
        keys::changes(&self.inner).await
    }

    async fn edit_keys(&self, edit: &Arc<KeyEdit>) -> Result<KeySave, StoreError> {
        // In a task of its own: a caller that goes away must not leave a transaction half done.
        let work = keys::edit(Arc::clone(&self.inner), Arc::clone(edit));
        let ended = |error: tokio::task::JoinError| StoreError::Unavailable(format!("the edit did not end: {error}"));
        tokio::spawn(work).await.map_err(ended)?
    }

    fn opening(&self) -> Option<Arc<str>> {
        self.inner.opening.get().map(Opening::mark)
    }

    async fn left_behind(&self, limit: usize) -> Result<Vec<(RecordId, Token)>, StoreError> {
        match self.inner.opening.get() {
            Some(own) => opening::left_behind(&self.inner, own, limit).await,
            None => Ok(Vec::new()),
        }
    }

    fn news(&self) -> Option<watch::Receiver<u64>> {
        Some(self.inner.news.heard())
    }

    async fn letters(&self, limit: usize) -> Result<Vec<Letter>, StoreError> {
        inbox::take(&self.inner, limit).await
    }

    async fn answer_letters(&self, answers: &[LetterAnswer]) -> Result<(), StoreError> {
        inbox::answer(&self.inner, answers).await
    }

    async fn forget_letters(&self, old: &OldLetters) -> Result<ForgottenLetters, StoreError> {
        leftovers::letters(&self.inner, old).await
    }

    async fn now(&self) -> Result<Time, StoreError> {
        if let Some(clock) = &self.inner.clock {
            return Ok(clock.now());
        }
        if let Some(now) = self.inner.sampled.now() {
            return Ok(now);
        }
        let mut pipeline = Pipeline::default();
        pipeline.add(CLOCK, Vec::new());
        let answers = self.inner.run(&pipeline).await?;
        let row = answers[0].first().ok_or_else(|| StoreError::corrupt("the database has no clock"))?;
        Ok(self.inner.sampled.sample(rows::time(row, 0)?))
    }
}
