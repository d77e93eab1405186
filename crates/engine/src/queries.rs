//! Looking: who sees what, and never a state whose time is over.
//!
//! Who may see a record is for core to say (`reading`). What may not be seen is answered like what is not there: in lists,
//! counts, histories and the log stream too.

use std::collections::HashSet;
use std::sync::Arc;

use onceward_core::decide::{
    Effect, ReadAccess, ReadKey, Visibility, is_due, read_access, reads_everything, visibility,
};
use onceward_core::execution_id::ExecutionId;
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, Execution, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Catalog, ListQuery, LogEntry, ReadSet, RecordPage, StateCount, Store};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::objects::PayloadReader;
use crate::shared::{Shared, due_submission};
use crate::timers::await_due;
use crate::weight::estimated_json_bytes;

/// Turns of bringing records up to date for one look.
const MAX_READ_ROUNDS: usize = 1_000;

/// Records that one page of a list looks through where not all of them may be shown. A page may then have fewer records than
/// were asked for, or none, and still tell where the next one starts.
const MAX_SCANNED_RECORDS: usize = 1_000;

/// Short looks at the store for one page, where few of the records fit.
const MAX_SCANS_PER_PAGE: usize = 100;

/// Looks at records after which what was read of others is forgotten.
const MAX_READS_PER_READ_SET: usize = 32;

/// Records that are loaded together for a page of the log. A record may be large.
const VISIBILITY_LOAD_RECORDS: usize = 100;

/// What is due is done before a list or a count, in so many batches at most; what a page shows is brought up to date in any
/// case.
const MAX_DUE_BATCHES: usize = 20;

impl<S: Store + 'static> Engine<S> {
    /// A record as it is now: what is due on it is done first. `None` where there is none that the actor may see.
    pub async fn get(&self, actor: &Actor, id: RecordId) -> Result<Option<Arc<Record>>, EngineError> {
        AuthorizedReader::new(&self.shared, actor).await?.get(id).await
    }

    /// A record's own log after a version: a page of it. `None` where there is no record that the actor may see.
    pub async fn history(
        &self,
        actor: &Actor,
        id: RecordId,
        after: u64,
        limit: usize,
    ) -> Result<Option<HistoryPage>, EngineError> {
        let Some(record) = self.get(actor, id).await? else { return Ok(None) };
        let entries = self.shared.store.history(id, after, self.shared.page_limit(limit)).await?;
        let next = entries.last().map(|last| last.version).filter(|last| *last < record.version);
        Ok(Some(HistoryPage { entries, next }))
    }

    /// The attempts at a job after a token, the first first: a page of them. `None` where there is no record that the actor may see.
    pub async fn executions(
        &self,
        actor: &Actor,
        id: RecordId,
        after: FencingToken,
        limit: usize,
    ) -> Result<Option<ExecutionPage>, EngineError> {
        let Some(record) = self.get(actor, id).await? else { return Ok(None) };
        let executions = self.shared.store.executions_page(id, after, self.shared.page_limit(limit)).await?;
        // The newest has the record's own number.
        let next = executions.last().map(|last| last.token).filter(|last| last.0 < record.attempt);
        Ok(Some(ExecutionPage { executions, next }))
    }

    /// One of them. `None` where there is none that the actor may see.
    pub async fn execution(&self, actor: &Actor, execution_id: ExecutionId) -> Result<Option<Execution>, EngineError> {
        let before = FencingToken(execution_id.token.0.saturating_sub(1));
        let found = self.executions(actor, execution_id.record, before, 1).await?;
        Ok(found.and_then(|mut found| found.executions.pop()).filter(|execution| execution.token == execution_id.token))
    }

    /// What a job's commit left; `None` too where there is no record that the actor may see.
    pub async fn effect(&self, actor: &Actor, id: RecordId) -> Result<Option<Effect>, EngineError> {
        if self.get(actor, id).await?.is_none() {
            return Ok(None);
        }
        Ok(self.shared.store.effect(id).await?)
    }

    /// The bytes of a record's payload: for its owner, and for who holds its lease. Whoever else may see the record sees its
    /// hash and size.
    pub async fn payload(&self, actor: &Actor, id: RecordId) -> Result<Option<Arc<[u8]>>, EngineError> {
        match self.payload_reader(actor, id).await? {
            Some(reader) => Ok(reader.read_all(u64::MAX).await?),
            None => Ok(None),
        }
    }

    /// The same in pieces, so that a large one is never in memory as a whole.
    pub async fn payload_reader(&self, actor: &Actor, id: RecordId) -> Result<Option<PayloadReader>, EngineError> {
        let Some(record) = self.get(actor, id).await? else { return Ok(None) };
        let holds_lease = record.live_execution().is_some_and(|execution| execution.holder == actor.id);
        let Some(payload) = record.payload.filter(|_| holds_lease || record.owner == actor.id) else { return Ok(None) };
        self.shared.open_payload(payload).await
    }

    /// Records that the actor may see, oldest first. What is due is done first. A page may have fewer records than were asked for, or
    /// none, and still tell where the next one starts: only so many records are looked at for one page.
    pub async fn list(&self, actor: &Actor, query: &ListQuery) -> Result<RecordPage, EngineError> {
        // No database has a NUL in a text, and not each can be asked for one.
        let filters = [&query.lifecycle, &query.state, &query.owner];
        if filters.into_iter().flatten().any(|text| text.contains('\0')) {
            return Ok(RecordPage::default());
        }
        fire_all_due(&self.shared).await?;
        let mut reader = AuthorizedReader::new(&self.shared, actor).await?;
        let mut query = ListQuery { limit: self.shared.clamp_page_items(query.limit), ..query.clone() };
        if !reads_everything(actor) && reader.widest_visibility(query.lifecycle.as_deref()) == Visibility::Owners {
            if query.owner.as_ref().is_some_and(|owner| *owner != actor.id) {
                return Ok(RecordPage::default());
            }
            query.owner = Some(Arc::clone(&actor.id));
        }
        let mut page = RecordPage::default();
        // Where the store picks among records that the actor may not see, the length of pages tells how many fit. So it picks only
        // among the actor's own, or where nobody is kept from anything.
        let requested = query.clone();
        let is_unrestricted = reads_everything(actor) || query.owner.as_ref() == Some(&actor.id);
        if !is_unrestricted && !reader.is_public(query.lifecycle.as_deref()) {
            query = ListQuery { lifecycle: None, state: None, owner: None, ..query };
        }
        if self.is_state_empty(&query).await? {
            return Ok(page);
        }
        let (max_records, mut scanned_records, mut scans) = (query.limit, 0, 0);
        let (max_bytes, mut bytes) = (self.shared.config.max_page_bytes, 0_usize);
        query.max_bytes = Some(max_bytes);
        loop {
            query.limit = max_records - page.records.len();
            let found = self.shared.store.list(&query).await?;
            scanned_records += found.records.len();
            page.unreadable += found.unreadable;
            scans += 1;
            let now = self.shared.store.now().await?;
            for (index, record) in found.row_ids.into_iter().zip(found.records) {
                match reader.filter_listed(record, now, &requested).await {
                    Ok(Some(record)) => {
                        bytes = bytes.saturating_add(estimated_json_bytes(&record));
                        if bytes > max_bytes && !page.records.is_empty() {
                            // Behind the one before it.
                            page.next = query.after;
                            return Ok(page);
                        }
                        page.records.push(record);
                        page.row_ids.push(index);
                    }
                    Ok(None) => {}
                    // Nobody can say what it is now: whoever asks for it by its id is told why.
                    Err(error) if error.is_single_operation_fault() => page.unreadable += 1,
                    Err(error) => return Err(error),
                }
                query.after = Some(index);
            }
            (page.next, query.after) = (found.next, found.next);
            // What little room is left is not worth another look.
            let is_full = page.records.len() >= max_records || bytes > max_bytes / 4 * 3;
            if page.next.is_none() || is_full || scanned_records >= MAX_SCANNED_RECORDS || scans >= MAX_SCANS_PER_PAGE {
                return Ok(page);
            }
        }
    }

    /// Whether no record is in the state that is asked for: then nobody need look for one.
    async fn is_state_empty(&self, query: &ListQuery) -> Result<bool, EngineError> {
        let Some(state) = &query.state else { return Ok(false) };
        let counts = self.shared.store.counts_by_state(query.owner.as_deref()).await?;
        let is_match = |count: &StateCount| {
            count.state == *state && query.lifecycle.as_ref().is_none_or(|lifecycle| *lifecycle == count.lifecycle)
        };
        Ok(!counts.iter().any(is_match))
    }

    /// How many records of each lifecycle are in each state: of all where every version of it is open to anyone, else of the
    /// actor's own; an operator counts all. What is due is done first.
    pub async fn counts(&self, actor: &Actor) -> Result<Vec<StateCount>, EngineError> {
        fire_all_due(&self.shared).await?;
        let store = &self.shared.store;
        if reads_everything(actor) {
            return Ok(store.counts_by_state(None).await?);
        }
        let reader = AuthorizedReader::new(&self.shared, actor).await?;
        // Counts do not tell versions apart: one that hides its records hides them all.
        let is_public = |count: &StateCount| reader.is_public(Some(&count.lifecycle));
        let mut counts = store.counts_by_state(Some(&actor.id)).await?;
        counts.retain(|count| !is_public(count));
        if reader.widest_visibility(None) == Visibility::Anyone {
            counts.extend(store.counts_by_state(None).await?.into_iter().filter(is_public));
        }
        counts.sort_unstable();
        Ok(counts)
    }
}

/// A page of a record's log.
#[derive(Clone, Debug, Default)]
pub struct HistoryPage {
    pub entries: Vec<LogEntry>,
    /// The version after which the next page starts; `None` on the last.
    pub next: Option<u64>,
}

/// A page of the attempts at a job.
#[derive(Clone, Debug, Default)]
pub struct ExecutionPage {
    pub executions: Vec<Execution>,
    /// The token after which the next page starts; `None` on the last.
    pub next: Option<FencingToken>,
}

/// One actor's look at the store.
pub(crate) struct AuthorizedReader<'a, S> {
    shared: &'a Shared<S>,
    actor: &'a Actor,
    catalog: Arc<Catalog>,
    /// What was read of other records, to tell who may see this one. Nothing from memory: somebody elsewhere may have changed who sees it, and
    /// no save compares what is only read.
    read_set: ReadSet,
    /// How often that was asked since the base was empty.
    reads: usize,
}

impl<'a, S: Store> AuthorizedReader<'a, S> {
    pub(crate) async fn new(shared: &'a Shared<S>, actor: &'a Actor) -> Result<Self, EngineError> {
        let catalog = shared.store.catalog().await?;
        Ok(Self { shared, actor, catalog, read_set: ReadSet::uncached(), reads: 0 })
    }

    /// A record brought up to date, where the actor may see it.
    pub(crate) async fn get(&mut self, id: RecordId) -> Result<Option<Arc<Record>>, EngineError> {
        let Some(record) = read_current(self.shared, id).await? else { return Ok(None) };
        Ok(if self.can_read(&record).await? { Some(record) } else { None })
    }

    /// A record of a list, brought up to date, where it is as asked and the actor may see it.
    async fn filter_listed(
        &mut self,
        record: Arc<Record>,
        now: Time,
        query: &ListQuery,
    ) -> Result<Option<Arc<Record>>, EngineError> {
        let matches = |asked: &Option<Arc<str>>, own: &str| asked.as_deref().is_none_or(|asked| asked == own);
        if !matches(&query.lifecycle, &record.lifecycle.name) || !matches(&query.owner, &record.owner) {
            return Ok(None);
        }
        let record = if is_due(&record, now) { read_current(self.shared, record.id).await? } else { Some(record) };
        let fits = |record: &Arc<Record>| matches(&query.state, record.state_name());
        match record.filter(fits) {
            Some(record) if self.can_read(&record).await? => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    /// Which of these records the actor may see as they were last saved: for their log, which a closing engine can still tell.
    pub(crate) async fn visible_records(&self, ids: &[RecordId]) -> Result<HashSet<RecordId>, EngineError> {
        let (store, definitions) = (&self.shared.store, &self.catalog.definitions);
        let mut visible = HashSet::new();
        for chunk in ids.chunks(VISIBILITY_LOAD_RECORDS) {
            // Nothing from memory: somebody elsewhere may have changed who sees it.
            let mut read_set = ReadSet::uncached();
            store.load(&mut read_set, &chunk.iter().map(|id| ReadKey::Record(*id)).collect::<Vec<_>>()).await?;
            let now = store.now().await?;
            for id in chunk {
                let Some(record) = read_set.snapshot().record(*id).cloned() else { continue };
                if evaluate_access(store, definitions, &mut read_set, self.actor, &record, now).await?
                    == ReadAccess::Allowed
                {
                    visible.insert(*id);
                }
            }
        }
        Ok(visible)
    }

    async fn can_read(&mut self, record: &Record) -> Result<bool, EngineError> {
        self.reset_read_set_if_full();
        let store = &self.shared.store;
        for _ in 0..MAX_READ_ROUNDS {
            let now = store.now().await?;
            match evaluate_access(store, &self.catalog.definitions, &mut self.read_set, self.actor, record, now).await?
            {
                ReadAccess::Allowed => return Ok(true),
                ReadAccess::Due(records) => {
                    fire_due(self.shared, records).await?;
                    self.read_set = ReadSet::uncached();
                }
                ReadAccess::Denied | ReadAccess::Missing(_) => return Ok(false),
            }
        }
        Err(EngineError::Undecided)
    }

    /// Neighbours often stand to the same others. But what is read of them is kept for some only: each may be large.
    fn reset_read_set_if_full(&mut self) {
        self.reads += 1;
        if self.reads > MAX_READS_PER_READ_SET {
            (self.read_set, self.reads) = (ReadSet::uncached(), 1);
        }
    }

    /// Whether every version of a lifecycle shows its records to anyone.
    fn is_public(&self, lifecycle: Option<&str>) -> bool {
        let all = self.catalog.lifecycles();
        let mut versions = all.values().filter(|own| lifecycle == Some(&*own.name));
        versions.next().is_some_and(|first| visibility(first) == Visibility::Anyone)
            && versions.all(|other| visibility(other) == Visibility::Anyone)
    }

    /// How far any version of a lifecycle, or of all of them, shows its records.
    fn widest_visibility(&self, lifecycle: Option<&str>) -> Visibility {
        let all = self.catalog.lifecycles();
        let versions = all.values().filter(|own| lifecycle.is_none_or(|name| *own.name == *name));
        let shown: Vec<Visibility> = versions.map(|own| visibility(own)).collect();
        let has = |which| shown.contains(&which);
        match () {
            () if has(Visibility::Anyone) => Visibility::Anyone,
            () if has(Visibility::SomeCallers) => Visibility::SomeCallers,
            () => Visibility::Owners,
        }
    }
}

/// What core says of a look at a record, after loading what it needs. Never `Missing`.
async fn evaluate_access<S: Store>(
    store: &S,
    definitions: &Definitions,
    read_set: &mut ReadSet,
    actor: &Actor,
    record: &Record,
    now: Time,
) -> Result<ReadAccess, EngineError> {
    for _ in 0..MAX_READ_ROUNDS {
        match read_access(definitions, read_set.snapshot(), record, actor, now) {
            ReadAccess::Missing(keys) => store.load(read_set, &keys).await?,
            access => return Ok(access),
        }
    }
    Err(EngineError::Undecided)
}

/// Whether an actor may see a record, told without moving anything: for the loop that saves, which cannot wait for itself.
pub(crate) async fn can_read_without_firing<S: Store>(
    store: &S,
    definitions: &Definitions,
    actor: &Actor,
    record: &Record,
    now: Time,
) -> Result<bool, EngineError> {
    Ok(evaluate_access(store, definitions, &mut ReadSet::uncached(), actor, record, now).await? == ReadAccess::Allowed)
}

/// A record as it is now, whoever looks.
pub(crate) async fn read_current<S: Store>(
    shared: &Shared<S>,
    id: RecordId,
) -> Result<Option<Arc<Record>>, EngineError> {
    let store = &shared.store;
    for _ in 0..MAX_READ_ROUNDS {
        let Some(record) = store.record(id).await? else { return Ok(None) };
        if !is_due(&record, store.now().await?) {
            return Ok(Some(record));
        }
        fire_due(shared, vec![id]).await?;
    }
    Err(EngineError::Undecided)
}

async fn fire_due<S: Store>(shared: &Shared<S>, records: Vec<RecordId>) -> Result<(), EngineError> {
    for receiver in shared.queue.submit(records.into_iter().map(due_submission).collect())? {
        shared.queue.wait_reply(receiver).await?;
    }
    Ok(())
}

/// Do what is due, as far as a few batches go. A record that cannot be moved keeps nobody from seeing the others.
async fn fire_all_due<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    for _ in 0..MAX_DUE_BATCHES {
        let now = shared.store.now().await?;
        let due_records = shared.blocked_records.due_unblocked(&shared.store, now, shared.max_due_per_poll()).await?;
        if due_records.is_empty() {
            break;
        }
        let receivers = shared.queue.submit(due_records.iter().map(|(_, record)| due_submission(*record)).collect())?;
        let result = await_due(shared, due_records, receivers).await;
        if let Some(error) = result.error {
            return Err(error);
        }
        if !result.made_progress {
            break;
        }
    }
    Ok(())
}
