//! The read set of a batch: the loaded values, and the changes that the operations decided so far make to them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onceward_core::decide::{Account, Changes, ConcurrencyKey, CounterKey, LinkKey, ReadKey, Snapshot, UniqueKey};
use onceward_core::decide::{link_changes, ordered_queue_key};
use onceward_core::record::{Execution, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::log::Sha256Hash;

/// Position of a job in an ordered queue: its creation time and id.
pub type QueuePosition = (Time, RecordId);

/// The part of the store that a batch reads.
///
/// [`Store::load`](crate::Store::load) adds the values that `decide` misses. [`apply`](Self::apply) applies each
/// decision, so that the next operation of the batch sees it, even in values that are loaded later.
/// [`Store::save`](crate::Store::save) compares the loaded values with the stored ones.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    snapshot: Snapshot,
    observed: ObservedValues,
    overlay: Overlay,
    generation: Option<u64>,
    /// How many jobs of a queue to load, if that does not follow from the overlay.
    queue_depths: HashMap<ConcurrencyKey, usize>,
    cache_use: CacheUse,
}

/// Whether a store may answer from its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CacheUse {
    /// The store may use its cache but has not done so yet.
    #[default]
    Allowed,
    /// Some values come from the cache, so they may miss recent writes of other processes.
    Used,
    /// The store must read from the database.
    Bypassed,
}

/// The values as loaded, without the changes of the batch.
#[derive(Clone, Debug, Default)]
struct ObservedValues {
    records: HashMap<RecordId, Option<RecordMeta>>,
    originals: HashMap<RecordId, Arc<Record>>,
    uniques: HashMap<UniqueKey, Option<RecordId>>,
    counts: HashMap<CounterKey, u64>,
    accounts: HashMap<Account, i64>,
    /// The link version of the target record.
    links: HashMap<LinkKey, u64>,
    /// Ended executions never change, so they are not compared on save.
    executions: BTreeSet<(RecordId, FencingToken)>,
    queues: HashMap<ConcurrencyKey, QueueFront>,
}

/// The first `requested` jobs of an ordered queue, oldest first, or all if there are fewer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct QueueFront {
    requested: usize,
    positions: Vec<QueuePosition>,
}

/// A record's metadata in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMeta {
    /// The store's own number for the record, dense and in the order of creation.
    pub row_id: u64,
    pub version: u64,
    /// Lease expiry of the newest execution. A heartbeat changes it without raising the version.
    pub expires_at: Option<Time>,
    /// Hash of the record's last log entry.
    pub head_hash: Sha256Hash,
    /// Id of that entry: its seq in SQLite; its batch number and index in PostgreSQL.
    pub head_entry_id: u64,
}

/// Changes by the batch to values that may be loaded later.
#[derive(Clone, Debug, Default)]
struct Overlay {
    counts: HashMap<CounterKey, i64>,
    accounts: HashMap<Account, i64>,
    links: HashMap<LinkKey, Vec<(RecordId, bool)>>,
    queues: HashMap<ConcurrencyKey, QueueDelta>,
    /// Unique keys that the batch released or claimed again without loading them. The record that held them is
    /// validated instead.
    uniques: HashSet<UniqueKey>,
    /// Records that the batch created. If such a record was not loaded before, it is not validated: the store's primary
    /// key prevents a second record with the same id.
    created: HashSet<RecordId>,
}

/// Changes by the batch to an ordered queue.
#[derive(Clone, Debug, Default)]
struct QueueDelta {
    removed: BTreeSet<QueuePosition>,
    added: BTreeSet<QueuePosition>,
}

impl ReadSet {
    /// Creates a read set that the store must not fill from its cache.
    pub fn uncached() -> Self {
        Self { cache_use: CacheUse::Bypassed, ..Self::default() }
    }

    pub(crate) fn bypasses_cache(&self) -> bool {
        self.cache_use == CacheUse::Bypassed
    }

    /// Returns whether any value came from the cache. `save` validates such values too. An outcome that is not saved,
    /// such as a refusal, must be decided again on an [`uncached`](Self::uncached) read set.
    pub fn used_cache(&self) -> bool {
        self.cache_use == CacheUse::Used
    }

    /// Returns the snapshot for `decide`.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Applies a decision. Every decision of a saved batch must be applied, in batch order.
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

    /// Moves a job between ordered concurrency queues in the overlay. [`Snapshot::apply`] drops a changed queue, because it
    /// does not know the next job; the read set restores it.
    fn update_queue(&mut self, before: Option<&Record>, after: &Record) {
        let position = (after.created_at, after.id);
        let (old, new) = (before.and_then(ordered_queue_key), ordered_queue_key(after));
        if old != new {
            if let Some(key) = &old {
                let delta = self.overlay.queues.entry(key.clone()).or_default();
                if !delta.added.remove(&position) {
                    delta.removed.insert(position);
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

    /// Returns all loaded keys, so that the caller can load them at once after a conflict.
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

    /// Returns whether the key must still be loaded.
    pub(crate) fn needs_load(&self, key: &ReadKey) -> bool {
        match key {
            ReadKey::Record(id) => !self.observed.records.contains_key(id),
            ReadKey::Unique(key) => !self.observed.uniques.contains_key(key),
            ReadKey::Counter(key) => !self.observed.counts.contains_key(key),
            ReadKey::Account(account) => !self.observed.accounts.contains_key(account),
            ReadKey::Links(key) => !self.observed.links.contains_key(key),
            ReadKey::Execution(record, token) => !self.observed.executions.contains(&(*record, *token)),
            // Loaded again if the batch removed all jobs that were loaded.
            ReadKey::ConcurrencyQueue(key) => !self.snapshot.concurrency_queues.contains_key(key),
        }
    }

    /// Returns whether the key was loaded.
    pub(crate) fn has_observed(&self, key: &ReadKey) -> bool {
        match key {
            ReadKey::ConcurrencyQueue(key) => self.observed.queues.contains_key(key),
            other => !self.needs_load(other),
        }
    }

    /// Returns whether `save` must compare the key. Ended executions never change, and an execution that ended in this
    /// batch was never loaded.
    pub(crate) fn needs_validation(&self, key: &ReadKey) -> bool {
        match key {
            ReadKey::Unique(key) => !self.overlay.uniques.contains(key),
            ReadKey::Record(id) => self.observed.records.contains_key(id) || !self.overlay.created.contains(id),
            ReadKey::Execution(..) => false,
            _ => true,
        }
    }

    /// Returns whether the key was free when it was loaded.
    pub(crate) fn was_unique_key_free(&self, key: &UniqueKey) -> bool {
        self.observed.uniques.get(key).is_some_and(Option::is_none)
    }

    /// Returns `None` if the record did not exist or was not loaded.
    pub(crate) fn record_meta(&self, id: RecordId) -> Option<&RecordMeta> {
        self.observed.records.get(&id)?.as_ref()
    }

    /// Returns the record as stored, without the changes of the batch.
    pub(crate) fn original_record(&self, id: RecordId) -> Option<&Arc<Record>> {
        self.observed.originals.get(&id)
    }

    /// Returns the store's write count when the first key was loaded.
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
        // A version that the batch itself made is newer than the stored one.
        self.snapshot.records.entry(id).or_insert(record);
    }

    /// Adds a record as this process last saved it.
    pub(crate) fn put_cached_record(&mut self, stored: RecordMeta, record: Arc<Record>) {
        self.cache_use = CacheUse::Used;
        self.put_record(record.id, Some((stored, record)));
    }

    /// Adds only a record's metadata, for a probe.
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

    /// Adds the records that link to the key's target, oldest first, and the target's link version.
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

    /// Returns how many of a queue's first jobs must be loaded: those that the batch removed, and one more.
    pub(crate) fn queue_depth(&self, key: &ConcurrencyKey) -> usize {
        let removed_count = self.overlay.queues.get(key).map_or(0, |overlay| overlay.removed.len());
        self.queue_depths.get(key).map_or(removed_count + 1, |depth| *depth)
    }

    /// Adds the first jobs of a queue, oldest first: `queue_depth` of them, or all.
    pub(crate) fn put_queue(&mut self, key: ConcurrencyKey, positions: Vec<QueuePosition>) {
        let requested = self.queue_depth(&key);
        let front = self.observed.queues.entry(key.clone()).or_default();
        let line = self.overlay.queues.entry(key.clone()).or_default();
        let now = QueueFront { requested, positions };
        // One more job was loaded than the batch removed, so at least one remains or the list is complete.
        let waiting = line.waiting_positions(&now).unwrap_or_default();
        // If the store returns other jobs than the first time, keep the first answer: `save` then reports the conflict.
        if now.positions.starts_with(&front.positions) {
            *front = now;
        }
        self.snapshot.concurrency_queues.insert(key, waiting);
    }

    /// Creates an empty read set that loads as much of each queue as this one did.
    pub(crate) fn new_probe(&self) -> Self {
        let depths = self.observed.queues.iter().map(|(key, front)| (key.clone(), front.requested)).collect();
        Self { queue_depths: depths, ..Self::default() }
    }

    /// Returns the keys in `fresh` whose values differ from this read set.
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
    /// Returns the known waiting jobs, or `None` if an unknown job may be the first.
    fn waiting_positions(&self, front: &QueueFront) -> Option<BTreeSet<QueuePosition>> {
        let remaining: BTreeSet<QueuePosition> =
            front.positions.iter().filter(|position| !self.removed.contains(position)).copied().collect();
        if remaining.is_empty() && front.positions.len() == front.requested {
            return None;
        }
        Some(&remaining | &self.added)
    }
}
