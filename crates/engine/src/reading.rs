//! Looking: who sees what, and never a state whose time is over.
//!
//! Who may see a record is for core to say (`reading`). What may not be seen is answered like what is not there: in lists,
//! counts, histories and the log stream too.

use std::collections::HashSet;
use std::sync::Arc;

use onceward_core::decide::{Effect, Key, Reading, Shown, is_due, reading, sees_all, shown_to};
use onceward_core::execution_id::ExecutionId;
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, Execution, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Base, Catalog, Entry, ListQuery, Page, StateCount, Store};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::objects::PayloadReader;
use crate::shared::{Shared, due};
use crate::timers::came_of;
use crate::weight::weight;

/// Turns of bringing records up to date for one look.
const TURNS: usize = 1_000;

/// Records that one page of a list looks through where not all of them may be shown. A page may then have fewer records than
/// were asked for, or none, and still tell where the next one starts.
const LOOKED_THROUGH: usize = 1_000;

/// Short looks at the store for one page, where few of the records fit.
const LOOKS: usize = 100;

/// Looks at records after which what was read of others is forgotten.
const REMEMBERED: usize = 32;

/// Records that are loaded together for a page of the log. A record may be large.
const TOGETHER: usize = 100;

/// What is due is done before a list or a count, in so many batches at most; what a page shows is brought up to date in any
/// case.
const SWEEPS: usize = 20;

impl<S: Store + 'static> Engine<S> {
    /// A record as it is now: what is due on it is done first. `None` where there is none that the actor may see.
    pub async fn get(&self, actor: &Actor, id: RecordId) -> Result<Option<Arc<Record>>, EngineError> {
        Reader::new(&self.shared, actor).await?.get(id).await
    }

    /// A record's own log after a version: a page of it. `None` where there is no record that the actor may see.
    pub async fn history(
        &self,
        actor: &Actor,
        id: RecordId,
        after: u64,
        limit: usize,
    ) -> Result<Option<History>, EngineError> {
        let Some(record) = self.get(actor, id).await? else { return Ok(None) };
        let entries = self.shared.store.history(id, after, self.shared.most(limit)).await?;
        let next = entries.last().map(|last| last.version).filter(|last| *last < record.version);
        Ok(Some(History { entries, next }))
    }

    /// The attempts at a job after a token, the first first: a page of them. `None` where there is no record that the actor may see.
    pub async fn executions(
        &self,
        actor: &Actor,
        id: RecordId,
        after: Token,
        limit: usize,
    ) -> Result<Option<Attempts>, EngineError> {
        let Some(record) = self.get(actor, id).await? else { return Ok(None) };
        let executions = self.shared.store.attempts(id, after, self.shared.most(limit)).await?;
        // The newest has the record's own number.
        let next = executions.last().map(|last| last.token).filter(|last| last.0 < record.attempt);
        Ok(Some(Attempts { executions, next }))
    }

    /// One of them. `None` where there is none that the actor may see.
    pub async fn execution(&self, actor: &Actor, at: ExecutionId) -> Result<Option<Execution>, EngineError> {
        let before = Token(at.token.0.saturating_sub(1));
        let found = self.executions(actor, at.record, before, 1).await?;
        Ok(found.and_then(|mut found| found.executions.pop()).filter(|execution| execution.token == at.token))
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
            Some(reader) => Ok(reader.whole(u64::MAX).await?),
            None => Ok(None),
        }
    }

    /// The same in pieces, so that a large one is never in memory as a whole.
    pub async fn payload_reader(&self, actor: &Actor, id: RecordId) -> Result<Option<PayloadReader>, EngineError> {
        let Some(record) = self.get(actor, id).await? else { return Ok(None) };
        let holds = record.live_execution().is_some_and(|execution| execution.holder == actor.id);
        let Some(payload) = record.payload.filter(|_| holds || record.owner == actor.id) else { return Ok(None) };
        self.shared.payload(payload).await
    }

    /// Records that the actor may see, oldest first. What is due is done first. A page may have fewer records than were asked for, or
    /// none, and still tell where the next one starts: only so many records are looked at for one page.
    pub async fn list(&self, actor: &Actor, query: &ListQuery) -> Result<Page, EngineError> {
        // No database has a NUL in a text, and not each can be asked for one.
        let asked = [&query.lifecycle, &query.state, &query.owner];
        if asked.into_iter().flatten().any(|text| text.contains('\0')) {
            return Ok(Page::default());
        }
        sweep(&self.shared).await?;
        let mut reader = Reader::new(&self.shared, actor).await?;
        let mut query = ListQuery { limit: self.shared.page(query.limit), ..query.clone() };
        if !sees_all(actor) && reader.widest(query.lifecycle.as_deref()) == Shown::ToOwners {
            if query.owner.as_ref().is_some_and(|owner| *owner != actor.id) {
                return Ok(Page::default());
            }
            query.owner = Some(Arc::clone(&actor.id));
        }
        let mut page = Page::default();
        // Where the store picks among records that the actor may not see, the length of pages tells how many fit. So it picks only
        // among the actor's own, or where nobody is kept from anything.
        let asked = query.clone();
        let is_open = sees_all(actor) || query.owner.as_ref() == Some(&actor.id);
        if !is_open && !reader.hides_nothing(query.lifecycle.as_deref()) {
            query = ListQuery { lifecycle: None, state: None, owner: None, ..query };
        }
        if self.are_none(&query).await? {
            return Ok(page);
        }
        let (wanted, mut looked_through, mut looks) = (query.limit, 0, 0);
        let (most, mut bytes) = (self.shared.config.page_bytes, 0_usize);
        query.bytes = Some(most);
        loop {
            query.limit = wanted - page.records.len();
            let found = self.shared.store.list(&query).await?;
            looked_through += found.records.len();
            page.unreadable += found.unreadable;
            looks += 1;
            let now = self.shared.store.now().await?;
            for (place, record) in found.places.into_iter().zip(found.records) {
                match reader.listed(record, now, &asked).await {
                    Ok(Some(record)) => {
                        bytes = bytes.saturating_add(weight(&record));
                        if bytes > most && !page.records.is_empty() {
                            // Behind the one before it.
                            page.next = query.after;
                            return Ok(page);
                        }
                        page.records.push(record);
                        page.places.push(place);
                    }
                    Ok(None) => {}
                    // Nobody can say what it is now: whoever asks for it by its id is told why.
                    Err(error) if error.may_be_of_one() => page.unreadable += 1,
                    Err(error) => return Err(error),
                }
                query.after = Some(place);
            }
            (page.next, query.after) = (found.next, found.next);
            // What little room is left is not worth another look.
            let is_full = page.records.len() >= wanted || bytes > most / 4 * 3;
            if page.next.is_none() || is_full || looked_through >= LOOKED_THROUGH || looks >= LOOKS {
                return Ok(page);
            }
        }
    }

    /// Whether no record is in the state that is asked for: then nobody need look for one.
    async fn are_none(&self, query: &ListQuery) -> Result<bool, EngineError> {
        let Some(state) = &query.state else { return Ok(false) };
        let counts = self.shared.store.counts_by_state(query.owner.as_deref()).await?;
        let fits = |count: &StateCount| {
            count.state == *state && query.lifecycle.as_ref().is_none_or(|lifecycle| *lifecycle == count.lifecycle)
        };
        Ok(!counts.iter().any(fits))
    }

    /// How many records of each lifecycle are in each state: of all where every version of it is open to anyone, else of the
    /// actor's own; an operator counts all. What is due is done first.
    pub async fn counts(&self, actor: &Actor) -> Result<Vec<StateCount>, EngineError> {
        sweep(&self.shared).await?;
        let store = &self.shared.store;
        if sees_all(actor) {
            return Ok(store.counts_by_state(None).await?);
        }
        let reader = Reader::new(&self.shared, actor).await?;
        // Counts do not tell versions apart: one that hides its records hides them all.
        let open = |count: &StateCount| reader.hides_nothing(Some(&count.lifecycle));
        let mut counts = store.counts_by_state(Some(&actor.id)).await?;
        counts.retain(|count| !open(count));
        if reader.widest(None) == Shown::ToAnyone {
            counts.extend(store.counts_by_state(None).await?.into_iter().filter(open));
        }
        counts.sort_unstable();
        Ok(counts)
    }
}

/// A page of a record's log.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub entries: Vec<Entry>,
    /// The version after which the next page starts; `None` on the last.
    pub next: Option<u64>,
}

/// A page of the attempts at a job.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    pub executions: Vec<Execution>,
    /// The token after which the next page starts; `None` on the last.
    pub next: Option<Token>,
}

/// One actor's look at the store.
pub(crate) struct Reader<'a, S> {
    shared: &'a Shared<S>,
    actor: &'a Actor,
    catalog: Arc<Catalog>,
    /// What was read of other records, to tell who may see this one. Nothing from memory: somebody elsewhere may have changed who sees it, and
    /// no save compares what is only read.
    base: Base,
    /// How often that was asked since the base was empty.
    looks: usize,
}

impl<'a, S: Store> Reader<'a, S> {
    pub(crate) async fn new(shared: &'a Shared<S>, actor: &'a Actor) -> Result<Self, EngineError> {
        let catalog = shared.store.definitions().await?;
        Ok(Self { shared, actor, catalog, base: Base::wary(), looks: 0 })
    }

    /// A record brought up to date, where the actor may see it.
    pub(crate) async fn get(&mut self, id: RecordId) -> Result<Option<Arc<Record>>, EngineError> {
        let Some(record) = fresh(self.shared, id).await? else { return Ok(None) };
        Ok(if self.may(&record).await? { Some(record) } else { None })
    }

    /// A record of a list, brought up to date, where it is as asked and the actor may see it.
    async fn listed(
        &mut self,
        record: Arc<Record>,
        now: Time,
        asked: &ListQuery,
    ) -> Result<Option<Arc<Record>>, EngineError> {
        let is_it = |asked: &Option<Arc<str>>, own: &str| asked.as_deref().is_none_or(|asked| asked == own);
        if !is_it(&asked.lifecycle, &record.lifecycle.name) || !is_it(&asked.owner, &record.owner) {
            return Ok(None);
        }
        let record = if is_due(&record, now) { fresh(self.shared, record.id).await? } else { Some(record) };
        let fits = |record: &Arc<Record>| is_it(&asked.state, record.state_name());
        match record.filter(fits) {
            Some(record) if self.may(&record).await? => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    /// Which of these records the actor may see as they were last saved: for their log, which a closing engine can still tell.
    pub(crate) async fn sees(&self, ids: &[RecordId]) -> Result<HashSet<RecordId>, EngineError> {
        let (store, definitions) = (&self.shared.store, &self.catalog.definitions);
        let mut seen = HashSet::new();
        for some in ids.chunks(TOGETHER) {
            // Nothing from memory: somebody elsewhere may have changed who sees it.
            let mut base = Base::wary();
            store.load(&mut base, &some.iter().map(|id| Key::Record(*id)).collect::<Vec<_>>()).await?;
            let now = store.now().await?;
            for id in some {
                let Some(record) = base.snapshot().record(*id).cloned() else { continue };
                if look(store, definitions, &mut base, self.actor, &record, now).await? == Reading::Yes {
                    seen.insert(*id);
                }
            }
        }
        Ok(seen)
    }

    async fn may(&mut self, record: &Record) -> Result<bool, EngineError> {
        self.forget_some();
        let store = &self.shared.store;
        for _ in 0..TURNS {
            let now = store.now().await?;
            match look(store, &self.catalog.definitions, &mut self.base, self.actor, record, now).await? {
                Reading::Yes => return Ok(true),
                Reading::Due(records) => {
                    bring_up(self.shared, records).await?;
                    self.base = Base::wary();
                }
                Reading::No | Reading::Missing(_) => return Ok(false),
            }
        }
        Err(EngineError::Undecided)
    }

    /// Neighbours often stand to the same others. But what is read of them is kept for some only: each may be large.
    fn forget_some(&mut self) {
        self.looks += 1;
        if self.looks > REMEMBERED {
            (self.base, self.looks) = (Base::wary(), 1);
        }
    }

    /// Whether every version of a lifecycle shows its records to anyone.
    fn hides_nothing(&self, lifecycle: Option<&str>) -> bool {
        let all = self.catalog.lifecycles();
        let mut own = all.values().filter(|own| lifecycle == Some(&*own.name));
        own.next().is_some_and(|first| shown_to(first) == Shown::ToAnyone)
            && own.all(|other| shown_to(other) == Shown::ToAnyone)
    }

    /// How far any version of a lifecycle, or of all of them, shows its records.
    fn widest(&self, lifecycle: Option<&str>) -> Shown {
        let all = self.catalog.lifecycles();
        let own = all.values().filter(|own| lifecycle.is_none_or(|name| *own.name == *name));
        let shown: Vec<Shown> = own.map(|own| shown_to(own)).collect();
        let has = |which| shown.contains(&which);
        match () {
            () if has(Shown::ToAnyone) => Shown::ToAnyone,
            () if has(Shown::ToSome) => Shown::ToSome,
            () => Shown::ToOwners,
        }
    }
}

/// What core says of a look at a record, after loading what it needs. Never `Missing`.
async fn look<S: Store>(
    store: &S,
    definitions: &Definitions,
    base: &mut Base,
    actor: &Actor,
    record: &Record,
    now: Time,
) -> Result<Reading, EngineError> {
    for _ in 0..TURNS {
        match reading(definitions, base.snapshot(), record, actor, now) {
            Reading::Missing(keys) => store.load(base, &keys).await?,
            said => return Ok(said),
        }
    }
    Err(EngineError::Undecided)
}

/// Whether an actor may see a record, told without moving anything: for the loop that saves, which cannot wait for itself.
pub(crate) async fn at_a_glance<S: Store>(
    store: &S,
    definitions: &Definitions,
    actor: &Actor,
    record: &Record,
    now: Time,
) -> Result<bool, EngineError> {
    Ok(look(store, definitions, &mut Base::wary(), actor, record, now).await? == Reading::Yes)
}

/// A record as it is now, whoever looks.
pub(crate) async fn fresh<S: Store>(shared: &Shared<S>, id: RecordId) -> Result<Option<Arc<Record>>, EngineError> {
    let store = &shared.store;
    for _ in 0..TURNS {
        let Some(record) = store.record(id).await? else { return Ok(None) };
        if !is_due(&record, store.now().await?) {
            return Ok(Some(record));
        }
        bring_up(shared, vec![id]).await?;
    }
    Err(EngineError::Undecided)
}

async fn bring_up<S: Store>(shared: &Shared<S>, records: Vec<RecordId>) -> Result<(), EngineError> {
    for answer in shared.queue.enter(records.into_iter().map(due).collect())? {
        shared.queue.answered(answer).await?;
    }
    Ok(())
}

/// Do what is due, as far as a few batches go. A record that cannot be moved keeps nobody from seeing the others.
async fn sweep<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    for _ in 0..SWEEPS {
        let now = shared.store.now().await?;
        let found = shared.set_aside.others(&shared.store, now, shared.due_at_once()).await?;
        if found.is_empty() {
            break;
        }
        let answers = shared.queue.enter(found.iter().map(|(_, record)| due(*record)).collect())?;
        let came = came_of(shared, found, answers).await;
        if let Some(error) = came.failed {
            return Err(error);
        }
        if !came.got_on {
            break;
        }
    }
    Ok(())
}
