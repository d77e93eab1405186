//! Reads with authorization and freshness: due timers of a record are fired before it is shown.
//!
//! Core decides whether an actor may see a record (`read_access`). A record that the actor may not see is treated as
//! missing: in lists, counts, histories and the log stream too.

use std::collections::HashSet;
use std::sync::Arc;

use onceward_core::decide::{
    Effect, ReadAccess, ReadKey, Visibility, is_due, read_access, reads_everything, visibility,
};
use onceward_core::execution_id::ExecutionId;
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, Execution, FencingToken, PayloadRef, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Catalog, ListQuery, LogEntry, ReadSet, RecordPage, StateCount, Store};

use crate::decision::retry_policy::MAX_LOAD_ROUNDS;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::objects::PayloadReader;
use crate::scheduler::{fire_all_due, fire_due};
use crate::shared::Shared;
use crate::submission::json_size::estimated_json_bytes;

/// Bounds the repetitions of one read while records keep falling due.
const MAX_READ_ROUNDS: usize = 1_000;

/// Bounds one page of a list if some records are not visible. Such a page may have fewer records than requested, or
/// none, and still have a next page.
const MAX_SCANNED_RECORDS: usize = 1_000;

/// Bounds the store queries of one page if few records match.
const MAX_SCANS_PER_PAGE: usize = 100;

/// Reads after which the read set is dropped. Bounds its memory.
const MAX_READS_PER_READ_SET: usize = 32;

/// Bounds memory: a record may be large.
const VISIBILITY_LOAD_RECORDS: usize = 100;

impl<S: Store + 'static> Engine<S> {
    /// Returns a record after firing its due timers. `None` if it does not exist or the actor may not see it.
    pub async fn get(&self, actor: &Actor, id: RecordId) -> Result<Option<Arc<Record>>, EngineError> {
        AuthorizedReader::new(&self.shared, actor).await?.get(id).await
    }

    /// Returns a page of a record's log after a version. `None` if the record does not exist or the actor may not see
    /// it.
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

    /// Returns a page of a job's executions after a token, oldest first. `None` if the record does not exist or the
    /// actor may not see it.
    pub async fn executions(
        &self,
        actor: &Actor,
        id: RecordId,
        after: FencingToken,
        limit: usize,
    ) -> Result<Option<ExecutionPage>, EngineError> {
        let Some(record) = self.get(actor, id).await? else { return Ok(None) };
        let executions = self.shared.store.executions_page(id, after, self.shared.page_limit(limit)).await?;
        // The newest execution has the record's attempt number.
        let next = executions.last().map(|last| last.token).filter(|last| last.0 < record.attempt);
        Ok(Some(ExecutionPage { executions, next }))
    }

    /// Returns one execution. `None` if it does not exist or the actor may not see it.
    pub async fn execution(&self, actor: &Actor, execution_id: ExecutionId) -> Result<Option<Execution>, EngineError> {
        let before = FencingToken(execution_id.token.0.saturating_sub(1));
        let found = self.executions(actor, execution_id.record, before, 1).await?;
        Ok(found.and_then(|mut found| found.executions.pop()).filter(|execution| execution.token == execution_id.token))
    }

    /// Returns the effect that a job committed. `None` also if the actor may not see the record.
    pub async fn effect(&self, actor: &Actor, id: RecordId) -> Result<Option<Effect>, EngineError> {
        if self.get(actor, id).await?.is_none() {
            return Ok(None);
        }
        Ok(self.shared.store.effect(id).await?)
    }

    /// Returns a record's payload. Only its owner and the holder of its lease may read it; other actors that may see
    /// the record see hash and size.
    pub async fn payload(&self, actor: &Actor, id: RecordId) -> Result<Option<Arc<[u8]>>, EngineError> {
        match self.payload_reader(actor, id).await? {
            Some(reader) => Ok(reader.read_all(u64::MAX).await?),
            None => Ok(None),
        }
    }

    /// Like [`payload`](Self::payload), but reads in chunks, so that a large payload is never in memory as a whole.
    pub async fn payload_reader(&self, actor: &Actor, id: RecordId) -> Result<Option<PayloadReader>, EngineError> {
        match self.readable_payload(actor, id).await? {
            Some(payload) => self.open_payload(payload).await,
            None => Ok(None),
        }
    }

    /// Returns hash and size of the payload, if the actor may read the bytes.
    pub async fn readable_payload(&self, actor: &Actor, id: RecordId) -> Result<Option<PayloadRef>, EngineError> {
        let Some(record) = self.get(actor, id).await? else { return Ok(None) };
        let holds_lease = record.live_execution().is_some_and(|execution| execution.holder == actor.id);
        Ok(record.payload.filter(|_| holds_lease || record.owner == actor.id))
    }

    /// Opens a payload without authorization.
    pub async fn open_payload(&self, payload: PayloadRef) -> Result<Option<PayloadReader>, EngineError> {
        self.shared.open_payload(payload).await
    }

    /// Lists records that the actor may see, oldest first, after firing due timers. A page may have fewer records than
    /// requested, or none, and still have a next page, because the engine bounds how many it scans.
    pub async fn list(&self, actor: &Actor, query: &ListQuery) -> Result<RecordPage, EngineError> {
        // No stored text contains NUL, and PostgreSQL rejects it as a parameter.
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
        // If the store filtered among records that the actor may not see, page lengths would reveal how many match. So
        // the store filters only the actor's own records, or public ones.
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
                            // The next page starts with this record.
                            page.next = query.after;
                            return Ok(page);
                        }
                        page.records.push(record);
                        page.row_ids.push(index);
                    }
                    Ok(None) => {}
                    // The record's current state is unknown; `get` with its id returns the error.
                    Err(error) if error.is_single_operation_fault() => page.unreadable += 1,
                    Err(error) => return Err(error),
                }
                query.after = Some(index);
            }
            (page.next, query.after) = (found.next, found.next);
            // The remaining space does not justify another query.
            let is_full = page.records.len() >= max_records || bytes > max_bytes / 4 * 3;
            if page.next.is_none() || is_full || scanned_records >= MAX_SCANNED_RECORDS || scans >= MAX_SCANS_PER_PAGE {
                return Ok(page);
            }
        }
    }

    /// Returns whether no record is in the requested state, so that the list is empty.
    async fn is_state_empty(&self, query: &ListQuery) -> Result<bool, EngineError> {
        let Some(state) = &query.state else { return Ok(false) };
        let counts = self.shared.store.counts_by_state(query.owner.as_deref()).await?;
        let is_match = |count: &StateCount| {
            count.state == *state && query.lifecycle.as_ref().is_none_or(|lifecycle| *lifecycle == count.lifecycle)
        };
        Ok(!counts.iter().any(is_match))
    }

    /// Counts records by lifecycle and state, after firing due timers. An operator counts all. Other actors count all
    /// records of lifecycles whose every version is public, and their own records of the others.
    pub async fn counts(&self, actor: &Actor) -> Result<Vec<StateCount>, EngineError> {
        fire_all_due(&self.shared).await?;
        let store = &self.shared.store;
        if reads_everything(actor) {
            return Ok(store.counts_by_state(None).await?);
        }
        let reader = AuthorizedReader::new(&self.shared, actor).await?;
        // Counts do not distinguish versions: one version that hides its records hides them all.
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
    /// The version after which the next page starts; `None` on the last page.
    pub next: Option<u64>,
}

/// A page of a job's executions.
#[derive(Clone, Debug, Default)]
pub struct ExecutionPage {
    pub executions: Vec<Execution>,
    /// The token after which the next page starts; `None` on the last page.
    pub next: Option<FencingToken>,
}

/// Reads records on behalf of one actor.
pub(crate) struct AuthorizedReader<'a, S> {
    shared: &'a Shared<S>,
    actor: &'a Actor,
    catalog: Arc<Catalog>,
    /// Other records that authorization read. Uncached: another process may have changed them, and no save validates a
    /// plain read.
    read_set: ReadSet,
    /// Reads since the read set was empty.
    reads: usize,
}

impl<'a, S: Store> AuthorizedReader<'a, S> {
    pub(crate) async fn new(shared: &'a Shared<S>, actor: &'a Actor) -> Result<Self, EngineError> {
        let catalog = shared.store.catalog().await?;
        Ok(Self { shared, actor, catalog, read_set: ReadSet::uncached(), reads: 0 })
    }

    /// Returns a fresh record, if the actor may see it.
    pub(crate) async fn get(&mut self, id: RecordId) -> Result<Option<Arc<Record>>, EngineError> {
        let Some(record) = read_current(self.shared, id).await? else { return Ok(None) };
        Ok(if self.can_read(&record).await? { Some(record) } else { None })
    }

    /// Returns a fresh record of a list, if it still matches the query and the actor may see it.
    async fn filter_listed(
        &mut self,
        record: Arc<Record>,
        now: Time,
        query: &ListQuery,
    ) -> Result<Option<Arc<Record>>, EngineError> {
        let matches = |wanted: &Option<Arc<str>>, own: &str| wanted.as_deref().is_none_or(|wanted| wanted == own);
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

    /// Returns which of these records the actor may see. If that depends on a due timer, fires it first, as `get` does;
    /// nothing else is fired.
    pub(crate) async fn visible_records(&mut self, ids: &[RecordId]) -> Result<HashSet<RecordId>, EngineError> {
        let (store, catalog) = (&self.shared.store, Arc::clone(&self.catalog));
        let mut visible = HashSet::new();
        for chunk in ids.chunks(VISIBILITY_LOAD_RECORDS) {
            // Uncached: another process may have changed the visibility.
            let mut read_set = ReadSet::uncached();
            store.load(&mut read_set, &chunk.iter().map(|id| ReadKey::Record(*id)).collect::<Vec<_>>()).await?;
            let now = store.now().await?;
            for id in chunk {
                let Some(record) = read_set.snapshot().record(*id).cloned() else { continue };
                let definitions = &catalog.definitions;
                let access = evaluate_access(store, definitions, &mut read_set, self.actor, &record, now).await?;
                let is_visible = match access {
                    ReadAccess::Allowed => true,
                    ReadAccess::Due(_) => self.is_visible_after_firing(*id).await?,
                    ReadAccess::Denied | ReadAccess::Missing(_) => {
                        is_due(&record, now) && self.is_visible_after_firing(*id).await?
                    }
                };
                if is_visible {
                    visible.insert(*id);
                }
            }
        }
        Ok(visible)
    }

    /// Returns whether the actor may see a record once what is due was fired. A record that cannot be brought up to date
    /// is left out, as in a list.
    async fn is_visible_after_firing(&mut self, id: RecordId) -> Result<bool, EngineError> {
        match self.get(id).await {
            Ok(record) => Ok(record.is_some()),
            Err(error) if error.is_single_operation_fault() || error.refusal().is_some() => Ok(false),
            Err(error) => Err(error),
        }
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

    /// Neighboring records often refer to the same others, so the read set is shared; but each record may be large, so
    /// it is dropped regularly.
    fn reset_read_set_if_full(&mut self) {
        self.reads += 1;
        if self.reads > MAX_READS_PER_READ_SET {
            (self.read_set, self.reads) = (ReadSet::uncached(), 1);
        }
    }

    /// Returns whether every version of a lifecycle is public.
    fn is_public(&self, lifecycle: Option<&str>) -> bool {
        let all = self.catalog.lifecycles();
        let mut versions = all.values().filter(|own| lifecycle == Some(&*own.name));
        versions.next().is_some_and(|first| visibility(first) == Visibility::Anyone)
            && versions.all(|other| visibility(other) == Visibility::Anyone)
    }

    /// Returns the widest visibility of any version of a lifecycle, or of all lifecycles.
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

/// Evaluates core's `read_access` and loads what it needs. Never returns `Missing`.
async fn evaluate_access<S: Store>(
    store: &S,
    definitions: &Definitions,
    read_set: &mut ReadSet,
    actor: &Actor,
    record: &Record,
    now: Time,
) -> Result<ReadAccess, EngineError> {
    for _ in 0..MAX_LOAD_ROUNDS {
        match read_access(definitions, read_set.snapshot(), record, actor, now) {
            ReadAccess::Missing(keys) => store.load(read_set, &keys).await?,
            access => return Ok(access),
        }
    }
    Err(EngineError::Undecided)
}

/// Returns whether an actor may see a record as saved, without firing due timers. False if that depends on a due timer.
/// For the group commit, which cannot wait for itself.
pub(crate) async fn can_read_without_firing<S: Store>(
    store: &S,
    definitions: &Definitions,
    actor: &Actor,
    record: &Record,
    now: Time,
) -> Result<bool, EngineError> {
    let access = evaluate_access(store, definitions, &mut ReadSet::uncached(), actor, record, now).await?;
    Ok(access == ReadAccess::Allowed && !is_due(record, now))
}

/// Returns a fresh record without authorization.
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
