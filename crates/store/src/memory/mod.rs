//! The reference model: a world in memory that is simple enough to be obviously right. For tests and simulations, not for
//! users: nothing outlives the process.

mod definitions;
mod kept;
mod keys;
mod ledger;
mod prune;
mod read;
mod save;
mod scan;
mod workers;

use std::collections::HashSet;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_core::decide::{Effect, Key};
use onceward_core::diagnostic::Files;
use onceward_core::record::{Execution, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::account::{AccountName, AccountsQuery, Balance, Statement, StatementQuery};
use crate::api_keys::{KeptKeys, KeyEdit, KeySave};
use crate::base::Base;
use crate::batch::{Batch, Request, RequestName, Save};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::glance::Glance;
use crate::log::Entry;
use crate::prune::{
    Forgotten, ForgottenCounts, Kin, OldCounts, OldPage, OldQuery, OldRequests, Prune, PruneSave, Standing,
};
use crate::query::{Candidate, Filling, LeaseQuery, ListQuery, Most, Page, StateCount, VersionCount};
use crate::relation::{LinkPage, LinkQuery};
use crate::store::Store;
use crate::workers::{Holding, WorkerSeen};
use kept::Kept;

/// A store in memory. Clones are the same store.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    kept: Arc<Mutex<Kept>>,
    clock: Clock,
}

impl MemoryStore {
    pub fn new(clock: Clock) -> Self {
        Self { kept: Arc::new(Mutex::new(Kept::default())), clock }
    }

    /// Nothing panics between two changes that belong together, so a poisoned lock guards a whole world all the same.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    async fn load(&self, base: &mut Base, keys: &[Key]) -> Result<(), StoreError> {
        let kept = self.kept();
        base.begin(kept.generation);
        kept.load(base, keys);
        Ok(())
    }

    async fn save(&self, base: &Arc<Base>, batch: &Arc<Batch>) -> Result<Save, StoreError> {
        self.kept().save(base, batch)
    }

    async fn leasable(&self, query: &LeaseQuery) -> Result<Vec<Candidate>, StoreError> {
        Ok(self.kept().leasable(query))
    }

    async fn due(&self, until: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        Ok(self.kept().due(until, limit))
    }

    async fn log(&self, after: u64, most: impl Into<Most> + Send) -> Result<Vec<Entry>, StoreError> {
        let kept = self.kept();
        if after < kept.pruned.floor {
            return Err(StoreError::Pruned { oldest: kept.pruned.floor });
        }
        let mut filling = Filling::new(most.into());
        let page =
            kept.log.iter().filter(|entry| entry.seq > after).take_while(|entry| filling.takes(entry.text.len()));
        Ok(page.cloned().collect())
    }

    async fn last(&self) -> Result<u64, StoreError> {
        Ok(self.kept().log.last().map_or(0, |entry| entry.seq))
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Entry>, StoreError> {
        let (kept, mut filling) = (self.kept(), Filling::new(most.into()));
        let own = kept.log.iter().filter(|entry| entry.record == Some(record) && entry.version > after_version);
        Ok(own.take_while(|entry| filling.takes(entry.text.len())).cloned().collect())
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        Ok(self.kept().world.record(id).cloned())
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        Ok(self.kept().list(query))
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        Ok(self.kept().counts_by_state(owner))
    }

    async fn glance(&self, now: Time) -> Result<Glance, StoreError> {
        Ok(self.kept().glance(now))
    }

    async fn content(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(self.kept().contents.get(sha256).cloned())
    }

    async fn referenced(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        let kept = self.kept();
        let had = kept.world.records.values().flatten().filter_map(|record| record.payload);
        Ok(had.map(|payload| payload.sha256).filter(|sha256| hashes.contains(sha256)).collect())
    }

    async fn contents(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        let kept = self.kept();
        Ok(sha256s.iter().map(|sha256| kept.contents.get(sha256).cloned()).collect())
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        Ok(self.kept().effects.get(&record).cloned())
    }

    async fn attempts(
        &self,
        record: RecordId,
        after: Token,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        Ok(self.kept().attempts(record, after, most.into()))
    }

    async fn linked(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        Ok(self.kept().linked(query))
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<Balance>, StoreError> {
        Ok(self.kept().accounts(query))
    }

    async fn account(&self, account: &AccountName) -> Result<Option<Balance>, StoreError> {
        Ok(self.kept().account(account))
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<Statement>, StoreError> {
        self.kept().statement(query)
    }

    async fn note_workers(&self, seen: &[WorkerSeen]) -> Result<(), StoreError> {
        self.kept().note_workers(seen);
        Ok(())
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSeen>, StoreError> {
        Ok(self.kept().workers(limit))
    }

    async fn holding(&self, limit: usize) -> Result<Holding, StoreError> {
        Ok(self.kept().holding(limit))
    }

    async fn forget_workers(&self, before: Time, most: usize) -> Result<u64, StoreError> {
        Ok(self.kept().forget_workers(before, most))
    }

    async fn requests(&self, names: &[RequestName]) -> Result<Vec<Option<Request>>, StoreError> {
        let kept = self.kept();
        Ok(names.iter().map(|name| kept.requests.get(name).map(|(request, _)| request.clone())).collect())
    }

    async fn definitions(&self) -> Result<Arc<Catalog>, StoreError> {
        Ok(Arc::clone(&self.kept().catalog))
    }

    fn put_definitions(&self, files: &Files) -> impl Future<Output = Result<Arc<Catalog>, StoreError>> + Send {
        ready(self.kept().define(files, self.clock.now()))
    }

    async fn use_definition(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        self.kept().use_definition(hash, by, now)
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        Ok(self.kept().counts_by_version())
    }

    async fn old(&self, query: &OldQuery) -> Result<OldPage, StoreError> {
        Ok(self.kept().old(query))
    }

    async fn kin(&self, ids: &[RecordId]) -> Result<Vec<Kin>, StoreError> {
        Ok(self.kept().kin(ids))
    }

    async fn prune(&self, prune: &Arc<Prune>) -> Result<PruneSave, StoreError> {
        self.kept().prune(prune)
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        Ok(self.kept().pruned)
    }

    async fn forget(&self, old: &OldRequests) -> Result<Forgotten, StoreError> {
        Ok(self.kept().forget(old))
    }

    async fn forget_counts(&self, old: &OldCounts) -> Result<ForgottenCounts, StoreError> {
        Ok(self.kept().forget_counts(old))
    }

    async fn keys(&self) -> Result<KeptKeys, StoreError> {
        Ok(self.kept().keys.clone())
    }

    async fn key_changes(&self) -> Result<u64, StoreError> {
        Ok(self.kept().keys.changes)
    }

    async fn edit_keys(&self, edit: &Arc<KeyEdit>) -> Result<KeySave, StoreError> {
        self.kept().edit_keys(edit)
    }

    async fn now(&self) -> Result<Time, StoreError> {
        Ok(self.clock.now())
    }
}
