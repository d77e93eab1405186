//! One of the stores, chosen when the program runs. A plain `match` in place of a trait object: futures differ by store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Effect, Key};
use onceward_core::diagnostic::Files;
use onceward_core::record::{Execution, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use tokio::sync::watch;

use crate::account::{AccountName, AccountsQuery, Balance, Statement, StatementQuery};
use crate::api_keys::{KeptKeys, KeyEdit, KeySave};
use crate::base::Base;
use crate::batch::{Batch, Request, RequestName, Save};
use crate::catalog::Catalog;
use crate::error::StoreError;
use crate::glance::Glance;
use crate::histogram::Distribution;
use crate::inbox::{Letter, LetterAnswer};
use crate::log::Entry;
use crate::memory::MemoryStore;
use crate::postgres::PostgresStore;
use crate::prune::{
    Forgotten, ForgottenCounts, ForgottenLetters, Kin, OldCounts, OldLetters, OldPage, OldQuery, OldRequests, Prune,
    PruneSave, Standing,
};
use crate::query::{Candidate, LeaseQuery, ListQuery, Most, Page, StateCount, VersionCount};
use crate::relation::{LinkPage, LinkQuery};
use crate::sqlite::SqliteStore;
use crate::store::Store;
use crate::workers::{Holding, WorkerSeen};

/// Any of the stores. Clones are the same store.
#[derive(Clone, Debug)]
pub enum AnyStore {
    Memory(MemoryStore),
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

impl Store for AnyStore {
    async fn load(&self, base: &mut Base, keys: &[Key]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.load(base, keys).await,
            Self::Sqlite(store) => store.load(base, keys).await,
            Self::Postgres(store) => store.load(base, keys).await,
        }
    }

    async fn save(&self, base: &Arc<Base>, batch: &Arc<Batch>) -> Result<Save, StoreError> {
        match self {
            Self::Memory(store) => store.save(base, batch).await,
            Self::Sqlite(store) => store.save(base, batch).await,
            Self::Postgres(store) => store.save(base, batch).await,
        }
    }

    async fn leasable(&self, query: &LeaseQuery) -> Result<Vec<Candidate>, StoreError> {
        match self {
            Self::Memory(store) => store.leasable(query).await,
            Self::Sqlite(store) => store.leasable(query).await,
            Self::Postgres(store) => store.leasable(query).await,
        }
    }

    async fn due(&self, until: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        match self {
            Self::Memory(store) => store.due(until, limit).await,
            Self::Sqlite(store) => store.due(until, limit).await,
            Self::Postgres(store) => store.due(until, limit).await,
        }
    }

    async fn log(&self, after: u64, most: impl Into<Most> + Send) -> Result<Vec<Entry>, StoreError> {
        match self {
            Self::Memory(store) => store.log(after, most).await,
            Self::Sqlite(store) => store.log(after, most).await,
            Self::Postgres(store) => store.log(after, most).await,
        }
    }

    async fn last(&self) -> Result<u64, StoreError> {
        match self {
            Self::Memory(store) => store.last().await,
            Self::Sqlite(store) => store.last().await,
            Self::Postgres(store) => store.last().await,
        }
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Entry>, StoreError> {
        match self {
            Self::Memory(store) => store.history(record, after_version, most).await,
            Self::Sqlite(store) => store.history(record, after_version, most).await,
            Self::Postgres(store) => store.history(record, after_version, most).await,
        }
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        match self {
            Self::Memory(store) => store.record(id).await,
            Self::Sqlite(store) => store.record(id).await,
            Self::Postgres(store) => store.record(id).await,
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        match self {
            Self::Memory(store) => store.list(query).await,
            Self::Sqlite(store) => store.list(query).await,
            Self::Postgres(store) => store.list(query).await,
        }
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        match self {
            Self::Memory(store) => store.counts_by_state(owner).await,
            Self::Sqlite(store) => store.counts_by_state(owner).await,
            Self::Postgres(store) => store.counts_by_state(owner).await,
        }
    }

    async fn glance(&self, now: Time) -> Result<Glance, StoreError> {
        match self {
            Self::Memory(store) => store.glance(now).await,
            Self::Sqlite(store) => store.glance(now).await,
            Self::Postgres(store) => store.glance(now).await,
        }
    }

    fn commits(&self) -> Option<Distribution> {
        match self {
            Self::Memory(store) => store.commits(),
            Self::Sqlite(store) => store.commits(),
            Self::Postgres(store) => store.commits(),
        }
    }

    async fn content(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        match self {
            Self::Memory(store) => store.content(sha256).await,
            Self::Sqlite(store) => store.content(sha256).await,
            Self::Postgres(store) => store.content(sha256).await,
        }
    }

    async fn referenced(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        match self {
            Self::Memory(store) => store.referenced(hashes).await,
            Self::Sqlite(store) => store.referenced(hashes).await,
            Self::Postgres(store) => store.referenced(hashes).await,
        }
    }

    async fn contents(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        match self {
            Self::Memory(store) => store.contents(sha256s).await,
            Self::Sqlite(store) => store.contents(sha256s).await,
            Self::Postgres(store) => store.contents(sha256s).await,
        }
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        match self {
            Self::Memory(store) => store.effect(record).await,
            Self::Sqlite(store) => store.effect(record).await,
            Self::Postgres(store) => store.effect(record).await,
        }
    }

    async fn attempts(
        &self,
        record: RecordId,
        after: Token,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        match self {
            Self::Memory(store) => store.attempts(record, after, most).await,
            Self::Sqlite(store) => store.attempts(record, after, most).await,
            Self::Postgres(store) => store.attempts(record, after, most).await,
        }
    }

    async fn linked(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        match self {
            Self::Memory(store) => store.linked(query).await,
            Self::Sqlite(store) => store.linked(query).await,
            Self::Postgres(store) => store.linked(query).await,
        }
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<Balance>, StoreError> {
        match self {
            Self::Memory(store) => store.accounts(query).await,
            Self::Sqlite(store) => store.accounts(query).await,
            Self::Postgres(store) => store.accounts(query).await,
        }
    }

    async fn account(&self, account: &AccountName) -> Result<Option<Balance>, StoreError> {
        match self {
            Self::Memory(store) => store.account(account).await,
            Self::Sqlite(store) => store.account(account).await,
            Self::Postgres(store) => store.account(account).await,
        }
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<Statement>, StoreError> {
        match self {
            Self::Memory(store) => store.statement(query).await,
            Self::Sqlite(store) => store.statement(query).await,
            Self::Postgres(store) => store.statement(query).await,
        }
    }

    async fn note_workers(&self, seen: &[WorkerSeen]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.note_workers(seen).await,
            Self::Sqlite(store) => store.note_workers(seen).await,
            Self::Postgres(store) => store.note_workers(seen).await,
        }
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSeen>, StoreError> {
        match self {
            Self::Memory(store) => store.workers(limit).await,
            Self::Sqlite(store) => store.workers(limit).await,
            Self::Postgres(store) => store.workers(limit).await,
        }
    }

    async fn holding(&self, limit: usize) -> Result<Holding, StoreError> {
        match self {
            Self::Memory(store) => store.holding(limit).await,
            Self::Sqlite(store) => store.holding(limit).await,
            Self::Postgres(store) => store.holding(limit).await,
        }
    }

    async fn forget_workers(&self, before: Time, most: usize) -> Result<u64, StoreError> {
        match self {
            Self::Memory(store) => store.forget_workers(before, most).await,
            Self::Sqlite(store) => store.forget_workers(before, most).await,
            Self::Postgres(store) => store.forget_workers(before, most).await,
        }
    }

    async fn requests(&self, names: &[RequestName]) -> Result<Vec<Option<Request>>, StoreError> {
        match self {
            Self::Memory(store) => store.requests(names).await,
            Self::Sqlite(store) => store.requests(names).await,
            Self::Postgres(store) => store.requests(names).await,
        }
    }

    async fn definitions(&self) -> Result<Arc<Catalog>, StoreError> {
        match self {
            Self::Memory(store) => store.definitions().await,
            Self::Sqlite(store) => store.definitions().await,
            Self::Postgres(store) => store.definitions().await,
        }
    }

    async fn put_definitions(&self, files: &Files) -> Result<Arc<Catalog>, StoreError> {
        match self {
            Self::Memory(store) => store.put_definitions(files).await,
            Self::Sqlite(store) => store.put_definitions(files).await,
            Self::Postgres(store) => store.put_definitions(files).await,
        }
    }

    async fn use_definition(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        match self {
            Self::Memory(store) => store.use_definition(hash, by, now).await,
            Self::Sqlite(store) => store.use_definition(hash, by, now).await,
            Self::Postgres(store) => store.use_definition(hash, by, now).await,
        }
    }

    async fn newest_definitions(&self) -> Result<Arc<Catalog>, StoreError> {
        match self {
            Self::Memory(store) => store.newest_definitions().await,
            Self::Sqlite(store) => store.newest_definitions().await,
            Self::Postgres(store) => store.newest_definitions().await,
        }
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        match self {
            Self::Memory(store) => store.counts_by_version().await,
            Self::Sqlite(store) => store.counts_by_version().await,
            Self::Postgres(store) => store.counts_by_version().await,
        }
    }

    async fn old(&self, query: &OldQuery) -> Result<OldPage, StoreError> {
        match self {
            Self::Memory(store) => store.old(query).await,
            Self::Sqlite(store) => store.old(query).await,
            Self::Postgres(store) => store.old(query).await,
        }
    }

    async fn kin(&self, ids: &[RecordId]) -> Result<Vec<Kin>, StoreError> {
        match self {
            Self::Memory(store) => store.kin(ids).await,
            Self::Sqlite(store) => store.kin(ids).await,
            Self::Postgres(store) => store.kin(ids).await,
        }
    }

    async fn prune(&self, prune: &Arc<Prune>) -> Result<PruneSave, StoreError> {
        match self {
            Self::Memory(store) => store.prune(prune).await,
            Self::Sqlite(store) => store.prune(prune).await,
            Self::Postgres(store) => store.prune(prune).await,
        }
    }

    async fn turn_to_prune(&self, rest: Duration) -> Result<bool, StoreError> {
        match self {
            Self::Memory(store) => store.turn_to_prune(rest).await,
            Self::Sqlite(store) => store.turn_to_prune(rest).await,
            Self::Postgres(store) => store.turn_to_prune(rest).await,
        }
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        match self {
            Self::Memory(store) => store.standing().await,
            Self::Sqlite(store) => store.standing().await,
            Self::Postgres(store) => store.standing().await,
        }
    }

    async fn forget(&self, old: &OldRequests) -> Result<Forgotten, StoreError> {
        match self {
            Self::Memory(store) => store.forget(old).await,
            Self::Sqlite(store) => store.forget(old).await,
            Self::Postgres(store) => store.forget(old).await,
        }
    }

    async fn forget_counts(&self, old: &OldCounts) -> Result<ForgottenCounts, StoreError> {
        match self {
            Self::Memory(store) => store.forget_counts(old).await,
            Self::Sqlite(store) => store.forget_counts(old).await,
            Self::Postgres(store) => store.forget_counts(old).await,
        }
    }

    async fn keys(&self) -> Result<KeptKeys, StoreError> {
        match self {
            Self::Memory(store) => store.keys().await,
            Self::Sqlite(store) => store.keys().await,
            Self::Postgres(store) => store.keys().await,
        }
    }

    async fn key_changes(&self) -> Result<u64, StoreError> {
        match self {
            Self::Memory(store) => store.key_changes().await,
            Self::Sqlite(store) => store.key_changes().await,
            Self::Postgres(store) => store.key_changes().await,
        }
    }

    async fn edit_keys(&self, edit: &Arc<KeyEdit>) -> Result<KeySave, StoreError> {
        match self {
            Self::Memory(store) => store.edit_keys(edit).await,
            Self::Sqlite(store) => store.edit_keys(edit).await,
            Self::Postgres(store) => store.edit_keys(edit).await,
        }
    }

    fn opening(&self) -> Option<Arc<str>> {
        match self {
            Self::Memory(store) => store.opening(),
            Self::Sqlite(store) => store.opening(),
            Self::Postgres(store) => store.opening(),
        }
    }

    async fn left_behind(&self, limit: usize) -> Result<Vec<(RecordId, Token)>, StoreError> {
        match self {
            Self::Memory(store) => store.left_behind(limit).await,
            Self::Sqlite(store) => store.left_behind(limit).await,
            Self::Postgres(store) => store.left_behind(limit).await,
        }
    }

    fn news(&self) -> Option<watch::Receiver<u64>> {
        match self {
            Self::Memory(store) => store.news(),
            Self::Sqlite(store) => store.news(),
            Self::Postgres(store) => store.news(),
        }
    }

    async fn letters(&self, limit: usize) -> Result<Vec<Letter>, StoreError> {
        match self {
            Self::Memory(store) => store.letters(limit).await,
            Self::Sqlite(store) => store.letters(limit).await,
            Self::Postgres(store) => store.letters(limit).await,
        }
    }

    async fn answer_letters(&self, answers: &[LetterAnswer]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.answer_letters(answers).await,
            Self::Sqlite(store) => store.answer_letters(answers).await,
            Self::Postgres(store) => store.answer_letters(answers).await,
        }
    }

    async fn forget_letters(&self, old: &OldLetters) -> Result<ForgottenLetters, StoreError> {
        match self {
            Self::Memory(store) => store.forget_letters(old).await,
            Self::Sqlite(store) => store.forget_letters(old).await,
            Self::Postgres(store) => store.forget_letters(old).await,
        }
    }

    async fn now(&self) -> Result<Time, StoreError> {
        match self {
            Self::Memory(store) => store.now().await,
            Self::Sqlite(store) => store.now().await,
            Self::Postgres(store) => store.now().await,
        }
    }
}
