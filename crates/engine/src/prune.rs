//! Taking out what has ended long ago: whole records, each with all of its entries, in transactions of a bounded size.
//!
//! Records that can only go together are a family: whoever points to a record goes with it, and so does a record whose
//! lifecycle counts or reaches those that point to it. A family goes when all of it is over, or not at all.

mod leftovers;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{link_changes, next_due};
use onceward_core::model::{Clock, LinkSource};
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::log::Share;
use onceward_store::{Carry, Catalog, Kin, OldQuery, OldRequests, Prune, PruneSave, Store, StoreError, Taken, Unsound};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::error::EngineError;
use crate::objects::collect;
use crate::retention::Retention;
use crate::roll;
use crate::shared::Shared;
use crate::verify::Watch;

/// Records that are looked at in one read.
const STEP: usize = 1_000;

/// Log entries that are taken in one transaction, but for those of one family.
const ENTRIES: u64 = 20_000;

/// A family with more is kept: it could not be taken in one short transaction.
const FAMILY_ENTRIES: u64 = 100_000;

/// How long after its start an engine looks for the first time.
const FIRST: Duration = Duration::from_mins(1);

/// Records that are damaged and therefore kept: so many are named.
const NAMED: usize = 100;

/// What to take out by hand.
#[derive(Clone, Debug, Default)]
pub struct PruneOptions {
    pub retention: Retention,
    /// No more records than this, but for what goes together.
    pub most: Option<u64>,
    /// Only find out what would go.
    pub dry_run: bool,
}

/// What was taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub records: u64,
    pub entries: u64,
    /// The same by lifecycle, owner and final state.
    pub shares: Vec<Share>,
    /// Answers to callers' keys.
    pub requests: u64,
    /// Records that are over, and stay because others that belong to them do not go.
    pub held: u64,
    /// Records that stay because somebody changed them, or those that point to them, or because another process pruned: they
    /// are looked at again next time.
    pub busy: u64,
    /// Records whose log does not come to what is kept of them. They are evidence, and stay.
    pub damaged: Vec<Unsound>,
    /// The place of the last checkpoint.
    pub checkpoint: Option<u64>,
}

/// The engine's own duty: now and then, never for long at a time.
pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    let options = PruneOptions { retention: shared.config.retention.clone(), ..PruneOptions::default() };
    let every = options.retention.every.max(Duration::from_millis(1));
    let mut next = every.min(FIRST);
    while !shared.queue.is_closed() {
        sleep(next).await;
        next = every;
        // What another process walked through lately need not be walked through again; payloads are where each of them has them.
        if !is_our_turn(&shared.store, every).await {
            let _ = tidy(&shared).await;
            continue;
        }
        // Where the store fails there is no hurry: what is over stays over.
        match prune(&shared.store, &options).await {
            Ok(pruned) => {
                tell(&shared, &pruned);
                if let Err(error) = tidy(&shared).await {
                    warn!(code = error.code(), "payloads that are nobody's could not be taken away");
                }
            }
            Err(error) => warn!(code = error.code(), "pruning failed"),
        }
    }
}

/// A little less than the time between two: whoever walked the last time would else be a moment too early for the next.
async fn is_our_turn<S: Store>(store: &S, every: Duration) -> bool {
    store.turn_to_prune(every * 9 / 10).await.unwrap_or(true)
}

/// Whoever follows the log learns of the checkpoint.
pub(crate) fn tell<S: Store>(shared: &Shared<S>, pruned: &Pruned) {
    let Pruned { records, entries, requests, held, .. } = pruned;
    if pruned.checkpoint.is_some() || *requests > 0 {
        info!(records, entries, requests, held, "pruned");
    }
    if !pruned.damaged.is_empty() {
        warn!(records = pruned.damaged.len(), "records that are over are damaged, and stay: run `onceward verify`");
    }
    if let Some(place) = pruned.checkpoint {
        shared.signals.logged(place);
    }
}

/// Payloads whose last record is gone, and those whose record never came.
pub(crate) async fn tidy<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    if let Some(objects) = &shared.config.objects {
        collect(&shared.store, objects, shared.config.orphans).await?;
    }
    Ok(())
}

/// Take out of a store what is over by its clock. Beside an engine that writes, or with none.
pub async fn prune<S: Store>(store: &S, options: &PruneOptions) -> Result<Pruned, StoreError> {
    carry_out(store, options, None).await
}

/// The same, and somebody is told how far it is.
pub async fn prune_watched<S: Store>(
    store: &S,
    options: &PruneOptions,
    watch: &mut dyn Watch,
) -> Result<Pruned, StoreError> {
    let counts = store.counts_by_version().await?;
    let all = counts.iter().map(|count| count.count).sum();
    carry_out(store, options, Some(Watched { watch, all })).await
}

/// Somebody looks on.
struct Watched<'a> {
    watch: &'a mut dyn Watch,
    /// Records, when it began.
    all: u64,
}

async fn carry_out<S: Store>(
    store: &S,
    options: &PruneOptions,
    watched: Option<Watched<'_>>,
) -> Result<Pruned, StoreError> {
    let now = store.now().await?;
    let retention = Retention { batch: options.retention.batch.max(1), ..options.retention.clone() };
    let catalog = store.definitions().await?;
    let mut sweep = Sweep {
        store,
        now,
        retention: &retention,
        dry_run: options.dry_run,
        seen: seen_links(&catalog),
        looked_up: looked_up(&catalog),
        catalog,
        near: HashMap::new(),
        settled: HashSet::new(),
        damaged: HashSet::new(),
        chosen: Vec::new(),
        shares: BTreeMap::new(),
        pruned: Pruned::default(),
        watched,
    };
    if let Some(before) = retention.over_somewhere(now) {
        sweep.records(before, options.most.unwrap_or(u64::MAX)).await?;
    }
    if let (Some(before), false) = (retention.requests_over(now), options.dry_run) {
        sweep.requests(before).await?;
        leftovers::letters(store, before).await?;
    }
    if !options.dry_run {
        leftovers::counts(store, &sweep.catalog, retention.requests_over(now)).await?;
    }
    if let (Some(before), false) = (now.checked_sub(roll::REMEMBERED), options.dry_run) {
        store.forget_workers(before, roll::MOST).await?;
    }
    Ok(sweep.done())
}

/// Links that a lifecycle names, in any version: what is at their other end is counted, or reached by its rules.
fn seen_links(catalog: &Catalog) -> HashSet<LinkSource> {
    let lifecycles = catalog.lifecycles();
    lifecycles.values().flat_map(|lifecycle| &lifecycle.links).flat_map(|link| link.from.iter().cloned()).collect()
}

/// Lifecycles whose records others look up by their key, without pointing to them.
fn looked_up(catalog: &Catalog) -> HashSet<Arc<str>> {
    let lifecycles = catalog.lifecycles();
    lifecycles.values().flat_map(|lifecycle| &lifecycle.lookups).map(|lookup| Arc::clone(&lookup.lifecycle)).collect()
}

/// Lifecycle, owner and state.
type Kind = (Arc<str>, Arc<str>, Arc<str>);

/// One walk through the records of a store.
struct Sweep<'a, 'w, S> {
    store: &'a S,
    now: Time,
    retention: &'a Retention,
    dry_run: bool,
    seen: HashSet<LinkSource>,
    looked_up: HashSet<Arc<str>>,
    catalog: Arc<Catalog>,
    /// Records that were loaded since the last transaction.
    near: HashMap<RecordId, Kin>,
    /// Records of this step whose fate is known.
    settled: HashSet<RecordId>,
    damaged: HashSet<RecordId>,
    /// Records that go in the next transaction.
    chosen: Vec<Kin>,
    shares: BTreeMap<Kind, u64>,
    pruned: Pruned,
    watched: Option<Watched<'w>>,
}

impl<S: Store> Sweep<'_, '_, S> {
    async fn records(&mut self, before: Time, most: u64) -> Result<(), StoreError> {
        let (mut after, mut looked) = (0, 0);
        loop {
            let page = self.store.old(&OldQuery { after, before, limit: STEP }).await?;
            self.settled.clear();
            self.near.clear();
            for (at, id) in page.records.iter().enumerate() {
                if self.settled.contains(id) {
                    continue;
                }
                if self.pruned.records + size(&self.chosen) >= most {
                    return self.flush().await;
                }
                if self.near.is_empty() {
                    self.meet(&page.records[at..]).await?;
                }
                self.choose(*id).await?;
                self.is_at(looked + at);
                let entries: u64 = self.chosen.iter().map(|kin| kin.record.version).sum();
                if self.chosen.len() >= self.retention.batch || entries >= ENTRIES {
                    self.flush().await?;
                }
            }
            self.flush().await?;
            looked += STEP;
            self.is_at(looked);
            match page.next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// So many records were looked at.
    fn is_at(&mut self, looked: usize) {
        if let Some(Watched { watch, all }) = &mut self.watched {
            watch.progress("records", u64::try_from(looked).unwrap_or(u64::MAX).min(*all), *all);
        }
    }

    /// A record goes, with its family, or stays.
    async fn choose(&mut self, id: RecordId) -> Result<(), StoreError> {
        match self.family(id).await? {
            Some(family) => {
                self.settled.extend(family.iter().map(|kin| kin.record.id));
                self.chosen.extend(family);
            }
            // It is named already.
            None if self.damaged.contains(&id) => {}
            // It is not old enough for its own lifecycle, or is not asked about.
            None if self.near.get(&id).is_some_and(|kin| !self.is_old(kin)) => {}
            None => self.pruned.held += 1,
        }
        Ok(())
    }

    /// Load records that are not near yet.
    async fn meet(&mut self, ids: &[RecordId]) -> Result<(), StoreError> {
        let far: Vec<RecordId> = ids.iter().filter(|id| !self.near.contains_key(id)).copied().collect();
        if !far.is_empty() {
            let met = self.store.kin(&far).await?;
            self.near.extend(met.into_iter().map(|kin| (kin.record.id, kin)));
        }
        Ok(())
    }

    /// A record with all that must go with it; `None` where one of them is not over, or they are too many.
    async fn family(&mut self, first: RecordId) -> Result<Option<Vec<Kin>>, StoreError> {
        let mut members: Vec<Kin> = Vec::new();
        // Those that go in the same transaction go in any case.
        let mut known: BTreeSet<RecordId> = self.chosen.iter().map(|kin| kin.record.id).collect();
        let before = known.len();
        known.insert(first);
        let mut next = vec![first];
        let mut entries = 0;
        while !next.is_empty() {
            self.meet(&next).await?;
            let mut found = Vec::new();
            for id in std::mem::take(&mut next) {
                // One that is gone meanwhile needs nobody.
                let Some(kin) = self.near.get(&id) else { continue };
                if !self.is_over(kin) {
                    return Ok(None);
                }
                entries += kin.record.version;
                found.extend(kin.sources.iter().copied());
                found.extend(self.seen_from(kin));
                members.push(kin.clone());
            }
            next.extend(found.into_iter().filter(|id| known.insert(*id)));
            if known.len() - before > self.retention.batch || entries > FAMILY_ENTRIES {
                return Ok(None);
            }
        }
        Ok(Some(members))
    }

    /// The records whose rules may count this one, or reach it.
    fn seen_from(&self, kin: &Kin) -> Vec<RecordId> {
        let links = link_changes(None, &kin.record).into_iter().map(|link| link.key);
        let source = |lifecycle: &Arc<str>, field: &Arc<str>| LinkSource {
            lifecycle: Arc::clone(lifecycle),
            field: Arc::clone(field),
        };
        links.filter(|key| self.seen.contains(&source(&key.lifecycle, &key.field))).map(|key| key.target).collect()
    }

    /// Whether its time is over, as its lifecycle has it.
    fn is_old(&self, kin: &Kin) -> bool {
        let record = &*kin.record;
        let over = self.retention.over(&record.lifecycle, self.now);
        over.is_some_and(|before| record.finished_at.is_some_and(|at| at <= before) && record.updated_at <= before)
    }

    /// Whether nothing can happen to a record any more, and its time is over.
    fn is_over(&self, kin: &Kin) -> bool {
        let record = &*kin.record;
        self.is_old(kin)
            && record.is_final()
            && !self.damaged.contains(&record.id)
            && record.hold == 0
            && record.stuck.is_none()
            && record.live_execution().is_none()
            && next_due(record).is_none()
            // What a signed log tells of is folded from it, and may be told otherwise later.
            && record.lifecycle.clock == Clock::Engine
            && !self.looked_up.contains(&record.lifecycle.name)
    }

    /// Take out those that were chosen. Whoever is damaged stays, with all that belong to it; where something has changed, all do.
    async fn flush(&mut self) -> Result<(), StoreError> {
        let begun = Instant::now();
        while !self.chosen.is_empty() {
            let mut taken = Vec::new();
            for kin in &self.chosen {
                let entries = self.store.history(kin.record.id, 0, usize::MAX >> 1).await?;
                let Kin { stored, record, links, sources } = kin.clone();
                taken.push(Taken { stored, record, links, sources, entries });
            }
            let until = self.chosen.iter().filter_map(|kin| kin.record.finished_at).max().unwrap_or(self.now);
            let carry = match Carry::of(taken, until, &self.catalog) {
                Ok(carry) => carry,
                Err(unsound) => {
                    self.keep(unsound).await?;
                    continue;
                }
            };
            let chosen = std::mem::take(&mut self.chosen);
            if self.dry_run {
                for kin in chosen {
                    self.count(&kin.record);
                }
                break;
            }
            match self.store.prune(&Arc::new(Prune { carry, now: self.store.now().await? })).await? {
                PruneSave::Saved(place) => {
                    self.pruned.checkpoint = Some(place);
                    for kin in chosen {
                        self.count(&kin.record);
                    }
                }
                PruneSave::Conflict => self.pruned.busy += size(&chosen),
            }
            // What was loaded before is no longer so.
            self.near.clear();
            // As long a rest as it took: callers come first.
            sleep(begun.elapsed()).await;
        }
        Ok(())
    }

    /// A damaged record stays; who goes without it is found anew.
    async fn keep(&mut self, unsound: Unsound) -> Result<(), StoreError> {
        self.damaged.insert(unsound.record);
        if self.pruned.damaged.len() < NAMED {
            self.pruned.damaged.push(unsound);
        }
        for kin in std::mem::take(&mut self.chosen) {
            if !self.chosen.iter().any(|chosen| chosen.record.id == kin.record.id) {
                self.choose(kin.record.id).await?;
            }
        }
        Ok(())
    }

    fn count(&mut self, record: &Record) {
        self.pruned.records += 1;
        self.pruned.entries += record.version;
        let share = (Arc::clone(&record.lifecycle.name), Arc::clone(&record.owner), Arc::clone(record.state_name()));
        *self.shares.entry(share).or_default() += 1;
    }

    async fn requests(&mut self, before: Time) -> Result<(), StoreError> {
        let mut old = OldRequests { after: None, before, limit: STEP };
        loop {
            let begun = Instant::now();
            let forgotten = self.store.forget(&old).await?;
            self.pruned.requests += forgotten.requests;
            if forgotten.next.is_none() {
                return Ok(());
            }
            old.after = forgotten.next;
            sleep(begun.elapsed()).await;
        }
    }

    fn done(mut self) -> Pruned {
        let share = |((lifecycle, owner, state), records)| Share { lifecycle, owner, state, records };
        self.pruned.shares = self.shares.into_iter().map(share).collect();
        self.pruned
    }
}

fn size(all: &[Kin]) -> u64 {
    u64::try_from(all.len()).unwrap_or(u64::MAX)
}
