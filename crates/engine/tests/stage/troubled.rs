//! A store that fails when a test says so: before anything is written, or after all of it is and before that is told.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onceward_core::decide::{Effect, Key};
use onceward_core::diagnostic::Files;
use onceward_core::record::{Execution, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{
    AccountName, AccountsQuery, Balance, Base, Batch, Candidate, Catalog, Distribution, Entry, Forgotten,
    ForgottenCounts, ForgottenLetters, Glance, Holding, KeptKeys, KeyEdit, KeySave, Kin, LeaseQuery, Letter,
    LetterAnswer, LinkPage, LinkQuery, ListQuery, MemoryStore, Most, OldCounts, OldLetters, OldPage, OldQuery,
    OldRequests, Page, Prune, PruneSave, Request, RequestName, Save, Standing, StateCount, Statement, StatementQuery,
    Store, StoreError, VersionCount, WorkerSeen,
};
use tokio::sync::{Semaphore, watch};

type Trouble = Box<dyn Fn(&Batch) -> Option<Result<Save, StoreError>> + Send + Sync>;

type Loss = Box<dyn Fn(&Batch) -> bool + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Troubled<S = MemoryStore> {
    pub(crate) inner: S,
    /// What comes of a save instead.
    trouble: Arc<Trouble>,
    /// Whether a save is carried out and its answer lost.
    loss: Arc<Loss>,
    /// Each save takes one for good.
    pub(crate) gate: Arc<Semaphore>,
    /// Saves that have come to the gate.
    pub(crate) came: Arc<AtomicUsize>,
    /// Each look at the log takes one for good.
    pub(crate) log_gate: Arc<Semaphore>,
    /// Looks at the log that have come to their gate, records that were looked for one by one, and loads.
    pub(crate) logs: Arc<AtomicUsize>,
    pub(crate) singly: Arc<AtomicUsize>,
    pub(crate) loads: Arc<AtomicUsize>,
    /// Looks for jobs.
    pub(crate) looks: Arc<AtomicUsize>,
    /// The most candidates that were asked for at once.
    pub(crate) asked: Arc<AtomicUsize>,
    /// Records that cannot be read for an operation.
    pub(crate) damaged: Arc<Mutex<HashSet<RecordId>>>,
}

impl<S> Troubled<S> {
    /// Until so many saves have come to the gate.
    pub(crate) async fn have_come(&self, saves: usize) {
        while self.came.load(Ordering::SeqCst) < saves {
            tokio::task::yield_now().await;
        }
    }

    /// Nothing is wrong with it, but no save comes through before the gate opens.
    pub(crate) fn gated(inner: S) -> Self {
        Self::new(inner, |_: &Batch| None).with_gate()
    }

    #[must_use]
    pub(crate) fn with_gate(self) -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), ..self }
    }

    /// What it has saved it sometimes does not tell.
    #[must_use]
    pub(crate) fn losing(self, loss: impl Fn(&Batch) -> bool + Send + Sync + 'static) -> Self {
        Self { loss: Arc::new(Box::new(loss)), ..self }
    }

    pub(crate) fn new(
        inner: S,
        trouble: impl Fn(&Batch) -> Option<Result<Save, StoreError>> + Send + Sync + 'static,
    ) -> Self {
        let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self {
            inner,
            trouble: Arc::new(Box::new(trouble)),
            loss: Arc::new(Box::new(|_: &Batch| false)),
            gate,
            came: Arc::default(),
            log_gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            logs: Arc::default(),
            singly: Arc::default(),
            loads: Arc::default(),
            looks: Arc::default(),
            asked: Arc::default(),
            damaged: Arc::default(),
        }
    }
}

impl<S: Store> Store for Troubled<S> {
    async fn load(&self, base: &mut Base, keys: &[Key]) -> Result<(), StoreError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        let is_damaged = |key: &Key| matches!(key, Key::Record(id) if self.damaged.lock().unwrap().contains(id));
        if keys.iter().any(is_damaged) {
            return Err(StoreError::Corrupt("a record".to_owned()));
        }
        self.inner.load(base, keys).await
    }

    async fn save(&self, base: &Arc<Base>, batch: &Arc<Batch>) -> Result<Save, StoreError> {
        self.came.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.expect("never closed").forget();
        if let Some(instead) = (self.trouble)(batch) {
            return instead;
        }
        let saved = self.inner.save(base, batch).await;
        if matches!(saved, Ok(Save::Saved { .. })) && (self.loss)(batch) {
            return Err(StoreError::Unavailable("the answer was lost".to_owned()));
        }
        saved
    }

    async fn leasable(&self, query: &LeaseQuery) -> Result<Vec<Candidate>, StoreError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.asked.fetch_max(query.limit, Ordering::SeqCst);
        self.inner.leasable(query).await
    }

    async fn due(&self, until: Time, limit: usize) -> Result<Vec<(Time, RecordId)>, StoreError> {
        self.inner.due(until, limit).await
    }

    async fn log(&self, after: u64, most: impl Into<Most> + Send) -> Result<Vec<Entry>, StoreError> {
        self.logs.fetch_add(1, Ordering::SeqCst);
        self.log_gate.acquire().await.expect("never closed").forget();
        self.inner.log(after, most).await
    }

    async fn last(&self) -> Result<u64, StoreError> {
        self.inner.last().await
    }

    async fn history(
        &self,
        record: RecordId,
        after_version: u64,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Entry>, StoreError> {
        self.inner.history(record, after_version, most).await
    }

    async fn record(&self, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
        self.singly.fetch_add(1, Ordering::SeqCst);
        self.inner.record(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.inner.list(query).await
    }

    async fn counts_by_state(&self, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
        self.inner.counts_by_state(owner).await
    }

    async fn glance(&self, now: Time) -> Result<Glance, StoreError> {
        self.inner.glance(now).await
    }

    async fn content(&self, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
        self.inner.content(sha256).await
    }

    async fn referenced(&self, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
        self.inner.referenced(hashes).await
    }

    async fn contents(&self, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        self.inner.contents(sha256s).await
    }

    async fn effect(&self, record: RecordId) -> Result<Option<Effect>, StoreError> {
        self.inner.effect(record).await
    }

    async fn attempts(
        &self,
        record: RecordId,
        after: Token,
        most: impl Into<Most> + Send,
    ) -> Result<Vec<Execution>, StoreError> {
        self.inner.attempts(record, after, most).await
    }

    async fn linked(&self, query: &LinkQuery) -> Result<LinkPage, StoreError> {
        self.inner.linked(query).await
    }

    async fn accounts(&self, query: &AccountsQuery) -> Result<Vec<Balance>, StoreError> {
        self.inner.accounts(query).await
    }

    async fn account(&self, account: &AccountName) -> Result<Option<Balance>, StoreError> {
        self.inner.account(account).await
    }

    async fn statement(&self, query: &StatementQuery) -> Result<Option<Statement>, StoreError> {
        self.inner.statement(query).await
    }

    async fn note_workers(&self, seen: &[WorkerSeen]) -> Result<(), StoreError> {
        self.inner.note_workers(seen).await
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerSeen>, StoreError> {
        self.inner.workers(limit).await
    }

    async fn holding(&self, limit: usize) -> Result<Holding, StoreError> {
        self.inner.holding(limit).await
    }

    async fn forget_workers(&self, before: Time, most: usize) -> Result<u64, StoreError> {
        self.inner.forget_workers(before, most).await
    }

    async fn requests(&self, names: &[RequestName]) -> Result<Vec<Option<Request>>, StoreError> {
        self.inner.requests(names).await
    }

    async fn definitions(&self) -> Result<Arc<Catalog>, StoreError> {
        self.inner.definitions().await
    }

    async fn put_definitions(&self, files: &Files) -> Result<Arc<Catalog>, StoreError> {
        self.inner.put_definitions(files).await
    }

    async fn use_definition(&self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        self.inner.use_definition(hash, by, now).await
    }

    async fn counts_by_version(&self) -> Result<Vec<VersionCount>, StoreError> {
        self.inner.counts_by_version().await
    }

    async fn old(&self, query: &OldQuery) -> Result<OldPage, StoreError> {
        self.inner.old(query).await
    }

    async fn kin(&self, ids: &[RecordId]) -> Result<Vec<Kin>, StoreError> {
        self.inner.kin(ids).await
    }

    async fn prune(&self, prune: &Arc<Prune>) -> Result<PruneSave, StoreError> {
        self.inner.prune(prune).await
    }

    async fn turn_to_prune(&self, rest: std::time::Duration) -> Result<bool, StoreError> {
        self.inner.turn_to_prune(rest).await
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        self.inner.standing().await
    }

    async fn forget(&self, old: &OldRequests) -> Result<Forgotten, StoreError> {
        self.inner.forget(old).await
    }

    async fn forget_counts(&self, old: &OldCounts) -> Result<ForgottenCounts, StoreError> {
        self.inner.forget_counts(old).await
    }

    async fn keys(&self) -> Result<KeptKeys, StoreError> {
        self.inner.keys().await
    }

    async fn key_changes(&self) -> Result<u64, StoreError> {
        self.inner.key_changes().await
    }

    async fn edit_keys(&self, edit: &Arc<KeyEdit>) -> Result<KeySave, StoreError> {
        self.inner.edit_keys(edit).await
    }

    fn commits(&self) -> Option<Distribution> {
        self.inner.commits()
    }

    async fn newest_definitions(&self) -> Result<Arc<Catalog>, StoreError> {
        self.inner.newest_definitions().await
    }

    fn opening(&self) -> Option<Arc<str>> {
        self.inner.opening()
    }

    async fn left_behind(&self, limit: usize) -> Result<Vec<(RecordId, Token)>, StoreError> {
        self.inner.left_behind(limit).await
    }

    fn news(&self) -> Option<watch::Receiver<u64>> {
        self.inner.news()
    }

    async fn letters(&self, limit: usize) -> Result<Vec<Letter>, StoreError> {
        self.inner.letters(limit).await
    }

    async fn answer_letters(&self, answers: &[LetterAnswer]) -> Result<(), StoreError> {
        self.inner.answer_letters(answers).await
    }

    async fn forget_letters(&self, old: &OldLetters) -> Result<ForgottenLetters, StoreError> {
        self.inner.forget_letters(old).await
    }

    async fn now(&self) -> Result<Time, StoreError> {
        self.inner.now().await
    }
}
