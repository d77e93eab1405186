//! What has been loaded for a batch: what the store said, and what the operations decided so far have made of it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onceward_core::decide::{Account, Changes, ConcurrencyKey, CounterKey, LinkKey, ReadKey, Snapshot, UniqueKey};
use onceward_core::decide::{link_changes, ordered_queue_key};
use onceward_core::record::{Execution, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::log::Sha256Hash;

/// A job in an ordered queue: when it was made, and which.
pub type QueuePosition = (Time, RecordId);

/// The part of the store that a batch is decided on.
///
/// [`Store::load_symbols`](crate::Store::load) adds to it what `decide` misses; [`apply`](Self::apply) carries each decision over,
/// so that the next operation of the batch sees it, also in what is loaded later; [`Store::save`](crate::Store::save)
/// compares what the store said with what it would say now.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    snapshot: Snapshot,
    observed: ObservedValues,
    overlay: Overlay,
    generation: Option<u64>,
    /// How much of a queue to ask for, where that does not follow from what is pending.
    queue_depths: HashMap<ConcurrencyKey, usize>,
    cache_use: CacheUse,
}

/// Whether a store may answer from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CacheUse {
    /// It may, and has not.
    #[default]
    Allowed,
    /// It has: what it said is as of its last save, and others may have written since.
    Used,
    /// It must look.
    Bypassed,
}

/// What the store said when it was asked, whatever was decided since.
#[derive(Clone, Debug, Default)]
struct ObservedValues {
    records: HashMap<RecordId, Option<RecordMeta>>,
    originals: HashMap<RecordId, Arc<Record>>,
    uniques: HashMap<UniqueKey, Option<RecordId>>,
    counts: HashMap<CounterKey, u64>,
    accounts: HashMap<Account, i64>,
    /// The link version of the target.
    links: HashMap<LinkKey, u64>,
    /// Ended executions never change: they are remembered, not compared.
    executions: BTreeSet<(RecordId, FencingToken)>,
    queues: HashMap<ConcurrencyKey, QueueFront>,
}

/// The first jobs of an ordered queue, oldest first: as many as were asked for, or all that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct QueueFront {
    requested: usize,
    positions: Vec<QueuePosition>,
}

/// How a record stood in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMeta {
    /// The store's own number for it, dense and in the order of creation.
    pub row_id: u64,
    pub version: u64,
    /// Of its newest execution: a heartbeat moves it and raises no version.
    pub expires_at: Option<Time>,
    /// Hash of its last log entry.
    pub head_hash: Sha256Hash,
    /// The place of that entry in the log.
    pub head_entry_id: u64,
}

/// What the batch has changed so far of things that may be loaded only later.
#[derive(Clone, Debug, Default)]
struct Overlay {
    counts: HashMap<CounterKey, i64>,
    accounts: HashMap<Account, i64>,
    links: HashMap<LinkKey, Vec<(RecordId, bool)>>,
    queues: HashMap<ConcurrencyKey, QueueDelta>,
    /// Keys that were released, or claimed again, without having been loaded: that they were held follows from the record
    /// that held them, which is compared.
    uniques: HashSet<UniqueKey>,
    /// Records that the batch has made. One that was not looked for is not compared: the store takes no second one under its id.
    created: HashSet<RecordId>,
}

/// An ordered queue as the batch knows it.
#[derive(Clone, Debug, Default)]
struct QueueDelta {
    removed: BTreeSet<QueuePosition>,
    added: BTreeSet<QueuePosition>,
}

impl ReadSet {
    /// A base that is told nothing from memory.
    pub fn uncached() -> Self {
        Self { cache_use: CacheUse::Bypassed, ..Self::default() }
    }

    pub(crate) fn bypasses_cache(&self) -> bool {
        self.cache_use == CacheUse::Bypassed
    }

    /// Whether some of it was remembered, not looked up. What is saved is compared all the same; what is not saved, as a
    /// refusal, must be decided again on a [`uncached`](Self::wary) one.
    pub fn used_cache(&self) -> bool {
        self.cache_use == CacheUse::Used
    }

    /// What `decide` decides on.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Carry a decision over. Every one that is saved must have been applied, in the same order.
    pub fn apply(&mut self, changes: &Changes) {
        self.snapshot.apply(changes);
        for (key, _) in &changes.unique_claims {
            if !self.observed.uniques.contains_key(key) {
                self.overlay.uniques.insert(key.clone());
            }
        }
        for (key, delta) in &changes.counter_deltas {
            *self.overlay.counts.entry(key.clone()).or_default() += delta;
        }
        for entry in &changes.transfers {
            for (account, delta) in [(&entry.from, -entry.amount), (&entry.to, entry.amount)] {
                *self.overlay.accounts.entry(account.clone()).or_default() += delta;
            }
        }
        for change in &changes.records {
            if change.before.is_none() {
                self.overlay.created.insert(change.after.id);
            }
            for link in link_changes(change.before.as_deref(), &change.after) {
                self.overlay.links.entry(link.key).or_default().push((change.after.id, link.is_added));
            }
            self.update_queue(change.before.as_deref(), &change.after);
        }
    }

    /// Core drops a queue that an operation touched, since it cannot know who is next; we can, from what was loaded.
    fn update_queue(&mut self, before: Option<&Record>, after: &Record) {
        let position = (after.created_at, after.id);
        let (old, new) = (before.and_then(ordered_queue_key), ordered_queue_key(after));
        if old != new {
            if let Some(key) = &old {
                let line = self.overlay.queues.entry(key.clone()).or_default();
                if !line.added.remove(&position) {
                    line.removed.insert(position);
                }
            }
            if let Some(key) = &new {
                let line = self.overlay.queues.entry(key.clone()).or_default();
                if !line.removed.remove(&position) {
                    line.added.insert(position);
                }
            }
        }
        for key in [old, new].into_iter().flatten() {
            self.refresh_queue_snapshot(key);
        }
    }

    fn refresh_queue_snapshot(&mut self, key: ConcurrencyKey) {
        if let Some(line) = self.overlay.queues.get(&key)
            && let Some(waiting) = self.observed.queues.get(&key).and_then(|front| line.waiting_positions(front))
        {
            self.snapshot.concurrency_queues.insert(key, waiting);
        }
    }

    /// Every key that was loaded: what to load again after a conflict, all at once.
    pub fn loaded_keys(&self) -> Vec<ReadKey> {
        let observed = &self.observed;
        let mut keys: Vec<ReadKey> = observed.records.keys().map(|id| ReadKey::Record(*id)).collect();
        keys.extend(observed.uniques.keys().cloned().map(ReadKey::Unique));
        keys.extend(observed.counts.keys().cloned().map(ReadKey::Counter));
        keys.extend(observed.accounts.keys().cloned().map(ReadKey::Account));
        keys.extend(observed.links.keys().cloned().map(ReadKey::Links));
        keys.extend(observed.executions.iter().map(|(record, token)| ReadKey::Execution(*record, *token)));
        keys.extend(observed.queues.keys().cloned().map(ReadKey::ConcurrencyQueue));
        keys.sort_unstable();
        keys
    }

    /// Whether the store must still be asked.
    pub(crate) fn needs_load(&self, key: &ReadKey) -> bool {
        match key {
            ReadKey::Record(id) => !self.observed.records.contains_key(id),
            ReadKey::Unique(key) => !self.observed.uniques.contains_key(key),
            ReadKey::Counter(key) => !self.observed.counts.contains_key(key),
            ReadKey::Account(account) => !self.observed.accounts.contains_key(account),
            ReadKey::Links(key) => !self.observed.links.contains_key(key),
            ReadKey::Execution(record, token) => !self.observed.executions.contains(&(*record, *token)),
            // Asked again where the first ones it named are all gone.
            ReadKey::ConcurrencyQueue(key) => !self.snapshot.concurrency_queues.contains_key(key),
        }
    }

    /// Whether the store has said something of a key.
    pub(crate) fn has_observed(&self, key: &ReadKey) -> bool {
        match key {
            ReadKey::ConcurrencyQueue(key) => self.observed.queues.contains_key(key),
            other => !self.needs_load(other),
        }
    }

    /// Whether a key that was read is compared with what the store said. An ended execution never changes, and one that
    /// ended in this very batch was never loaded.
    pub(crate) fn needs_validation(&self, key: &ReadKey) -> bool {
        match key {
            ReadKey::Unique(key) => !self.overlay.uniques.contains(key),
            ReadKey::Record(id) => self.observed.records.contains_key(id) || !self.overlay.created.contains(id),
            ReadKey::Execution(..) => false,
            _ => true,
        }
    }

    /// Whether nobody held a key when the store was asked.
    pub(crate) fn was_unique_key_free(&self, key: &UniqueKey) -> bool {
        self.observed.uniques.get(key).is_some_and(Option::is_none)
    }

    /// How a record stood in the store; `None` where it was not there, or not asked for.
    pub(crate) fn record_meta(&self, id: RecordId) -> Option<&RecordMeta> {
        self.observed.records.get(&id)?.as_ref()
    }

    /// A record as the store has it, whatever the batch has made of it.
    pub(crate) fn original_record(&self, id: RecordId) -> Option<&Arc<Record>> {
        self.observed.originals.get(&id)
    }

    /// How often the store had been written when the first key was loaded.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.generation
    }

    pub(crate) fn set_generation(&mut self, generation: u64) {
        self.generation.get_or_insert(generation);
    }

    pub(crate) fn put_record(&mut self, id: RecordId, found: Option<(RecordMeta, Arc<Record>)>) {
        let (stored, record) = found.unzip();
        self.observed.records.insert(id, stored);
        self.observed.originals.extend(record.iter().map(|record| (id, Arc::clone(record))));
        // One that the batch itself has made is newer than what the store says.
        self.snapshot.records.entry(id).or_insert(record);
    }

    /// A record as this process last saved it.
    pub(crate) fn put_cached_record(&mut self, stored: RecordMeta, record: Arc<Record>) {
        self.cache_use = CacheUse::Used;
        self.put_record(record.id, Some((stored, record)));
    }

    /// How a record stands, where what is in it does not matter: in a probe.
    pub(crate) fn put_record_meta(&mut self, id: RecordId, stored: RecordMeta) {
        self.observed.records.insert(id, Some(stored));
    }

    pub(crate) fn put_unique(&mut self, key: UniqueKey, holder: Option<RecordId>) {
        self.observed.uniques.insert(key.clone(), holder);
        self.snapshot.unique_holders.entry(key).or_insert(holder);
    }

    pub(crate) fn put_count(&mut self, key: CounterKey, count: u64) {
        let pending = self.overlay.counts.get(&key).copied().unwrap_or(0);
        self.observed.counts.insert(key.clone(), count);
        self.snapshot.counters.insert(key, count.saturating_add_signed(pending));
    }

    pub(crate) fn put_account(&mut self, account: Account, balance: i64) {
        let pending = self.overlay.accounts.get(&account).copied().unwrap_or(0);
        self.observed.accounts.insert(account.clone(), balance);
        self.snapshot.accounts.insert(account, balance.saturating_add(pending));
    }

    /// The records that point to the key's target, oldest first, and the target's link version.
    pub(crate) fn put_links(&mut self, key: LinkKey, mut linked: Vec<RecordId>, version: u64) {
        for (record, added) in self.overlay.links.get(&key).into_iter().flatten() {
            if *added {
                linked.push(*record);
            } else {
                linked.retain(|id| id != record);
            }
        }
        self.observed.links.insert(key.clone(), version);
        self.snapshot.links.insert(key, linked);
    }

    pub(crate) fn put_execution(&mut self, record: RecordId, token: FencingToken, execution: Option<Execution>) {
        self.observed.executions.insert((record, token));
        self.snapshot.executions.entry((record, token)).or_insert(execution);
    }

    /// How many of a queue's first jobs the store must name: those that the batch has finished do not count.
    pub(crate) fn queue_depth(&self, key: &ConcurrencyKey) -> usize {
        let gone = self.overlay.queues.get(key).map_or(0, |line| line.removed.len());
        self.queue_depths.get(key).map_or(gone + 1, |depth| *depth)
    }

    /// The first jobs of a queue, oldest first: as many as were asked for, or all.
    pub(crate) fn put_queue(&mut self, key: ConcurrencyKey, positions: Vec<QueuePosition>) {
        let requested = self.queue_depth(&key);
        let front = self.observed.queues.entry(key.clone()).or_default();
        let line = self.overlay.queues.entry(key.clone()).or_default();
        let now = QueueFront { requested, positions };
        // As many were asked for as are gone and one more: one is left, or these are all.
        let waiting = line.waiting_positions(&now).unwrap_or_default();
        // Where the store now says something else than the first time, the first stays: it will be found to have changed.
        if now.positions.starts_with(&front.positions) {
            *front = now;
        }
        self.snapshot.concurrency_queues.insert(key, waiting);
    }

    /// An empty base that asks for as much of each queue as this one did.
    pub(crate) fn new_probe(&self) -> Self {
        let depths = self.observed.queues.iter().map(|(key, front)| (key.clone(), front.requested)).collect();
        Self { queue_depths: depths, ..Self::default() }
    }

    /// The keys among those of `fresh` of which the store now says something else.
    pub(crate) fn changed_keys(&self, fresh: &Self) -> Vec<ReadKey> {
        fn collect_changed<K: Eq + std::hash::Hash + Clone, V: PartialEq>(
            old: &HashMap<K, V>,
            new: &HashMap<K, V>,
            key: impl Fn(K) -> ReadKey,
            out: &mut Vec<ReadKey>,
        ) {
            let changed = new.iter().filter(|(at, value)| old.get(*at) != Some(*value));
            out.extend(changed.map(|(at, _)| key(at.clone())));
        }
        let (old, new) = (&self.observed, &fresh.observed);
        let mut keys = Vec::new();
        collect_changed(&old.records, &new.records, ReadKey::Record, &mut keys);
        collect_changed(&old.uniques, &new.uniques, ReadKey::Unique, &mut keys);
        collect_changed(&old.counts, &new.counts, ReadKey::Counter, &mut keys);
        collect_changed(&old.accounts, &new.accounts, ReadKey::Account, &mut keys);
        collect_changed(&old.links, &new.links, ReadKey::Links, &mut keys);
        collect_changed(&old.queues, &new.queues, ReadKey::ConcurrencyQueue, &mut keys);
        keys.sort_unstable();
        keys
    }
}

impl QueueDelta {
    /// Those that wait, as far as they are known; `None` where the first may be one that is not.
    fn waiting_positions(&self, front: &QueueFront) -> Option<BTreeSet<QueuePosition>> {
        let remaining: BTreeSet<QueuePosition> =
            front.positions.iter().filter(|place| !self.removed.contains(place)).copied().collect();
        if remaining.is_empty() && front.positions.len() == front.requested {
            return None;
        }
        Some(&remaining | &self.added)
    }
}
