//! What has been loaded for a batch: what the store said, and what the operations decided so far have made of it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onceward_core::decide::{Account, Changes, CountKey, Key, LinkKey, QueueKey, Snapshot, UniqueKey};
use onceward_core::decide::{in_order, link_changes};
use onceward_core::record::{Execution, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::log::Hash;

/// A job in an ordered queue: when it was made, and which.
pub type Place = (Time, RecordId);

/// The part of the store that a batch is decided on.
///
/// [`Store::load`](crate::Store::load) adds to it what `decide` misses; [`apply`](Self::apply) carries each decision over,
/// so that the next operation of the batch sees it, also in what is loaded later; [`Store::save`](crate::Store::save)
/// compares what the store said with what it would say now.
#[derive(Clone, Debug, Default)]
pub struct Base {
    snapshot: Snapshot,
    said: Said,
    pending: Pending,
    generation: Option<u64>,
    /// How much of a queue to ask for, where that does not follow from what is pending.
    depths: HashMap<QueueKey, usize>,
    trust: Trust,
}

/// Whether a store may answer from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    /// It may, and has not.
    #[default]
    Free,
    /// It has: what it said is as of its last save, and others may have written since.
    Remembered,
    /// It must look.
    Wary,
}

/// What the store said when it was asked, whatever was decided since.
#[derive(Clone, Debug, Default)]
struct Said {
    records: HashMap<RecordId, Option<Stored>>,
    originals: HashMap<RecordId, Arc<Record>>,
    uniques: HashMap<UniqueKey, Option<RecordId>>,
    counts: HashMap<CountKey, u64>,
    accounts: HashMap<Account, i64>,
    /// The link version of the target.
    links: HashMap<LinkKey, u64>,
    /// Ended executions never change: they are remembered, not compared.
    executions: BTreeSet<(RecordId, Token)>,
    queues: HashMap<QueueKey, Front>,
}

/// The first jobs of an ordered queue, oldest first: as many as were asked for, or all that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Front {
    asked: usize,
    first: Vec<Place>,
}

/// How a record stood in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The store's own number for it, dense and in the order of creation.
    pub row: u64,
    pub version: u64,
    /// Of its newest execution: a heartbeat moves it and raises no version.
    pub expires_at: Option<Time>,
    /// Hash of its last log entry.
    pub head: Hash,
    /// The place of that entry in the log.
    pub entry: u64,
}

/// What the batch has changed so far of things that may be loaded only later.
#[derive(Clone, Debug, Default)]
struct Pending {
    counts: HashMap<CountKey, i64>,
    accounts: HashMap<Account, i64>,
    links: HashMap<LinkKey, Vec<(RecordId, bool)>>,
    queues: HashMap<QueueKey, Line>,
    /// Keys that were released, or claimed again, without having been loaded: that they were held follows from the record
    /// that held them, which is compared.
    uniques: HashSet<UniqueKey>,
    /// Records that the batch has made. One that was not looked for is not compared: the store takes no second one under its id.
    made: HashSet<RecordId>,
}

/// An ordered queue as the batch knows it.
#[derive(Clone, Debug, Default)]
struct Line {
    gone: BTreeSet<Place>,
    come: BTreeSet<Place>,
}

impl Base {
    /// A base that is told nothing from memory.
    pub fn wary() -> Self {
        Self { trust: Trust::Wary, ..Self::default() }
    }

    pub(crate) fn is_wary(&self) -> bool {
        self.trust == Trust::Wary
    }

    /// Whether some of it was remembered, not looked up. What is saved is compared all the same; what is not saved, as a
    /// refusal, must be decided again on a [`wary`](Self::wary) one.
    pub fn is_remembered(&self) -> bool {
        self.trust == Trust::Remembered
    }

    /// What `decide` decides on.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Carry a decision over. Every one that is saved must have been applied, in the same order.
    pub fn apply(&mut self, changes: &Changes) {
        self.snapshot.apply(changes);
        for (key, _) in &changes.uniques {
            if !self.said.uniques.contains_key(key) {
                self.pending.uniques.insert(key.clone());
            }
        }
        for (key, delta) in &changes.counts {
            *self.pending.counts.entry(key.clone()).or_default() += delta;
        }
        for entry in &changes.moves {
            for (account, delta) in [(&entry.from, -entry.amount), (&entry.to, entry.amount)] {
                *self.pending.accounts.entry(account.clone()).or_default() += delta;
            }
        }
        for change in &changes.records {
            if change.before.is_none() {
                self.pending.made.insert(change.after.id);
            }
            for link in link_changes(change.before.as_deref(), &change.after) {
                self.pending.links.entry(link.key).or_default().push((change.after.id, link.added));
            }
            self.requeue(change.before.as_deref(), &change.after);
        }
    }

    /// Core drops a queue that an operation touched, since it cannot know who is next; we can, from what was loaded.
    fn requeue(&mut self, before: Option<&Record>, after: &Record) {
        let place = (after.created_at, after.id);
        let (old, new) = (before.and_then(in_order), in_order(after));
        if old != new {
            if let Some(key) = &old {
                let line = self.pending.queues.entry(key.clone()).or_default();
                if !line.come.remove(&place) {
                    line.gone.insert(place);
                }
            }
            if let Some(key) = &new {
                let line = self.pending.queues.entry(key.clone()).or_default();
                if !line.gone.remove(&place) {
                    line.come.insert(place);
                }
            }
        }
        for key in [old, new].into_iter().flatten() {
            self.show_queue(key);
        }
    }

    fn show_queue(&mut self, key: QueueKey) {
        if let Some(line) = self.pending.queues.get(&key)
            && let Some(waiting) = self.said.queues.get(&key).and_then(|front| line.waiting(front))
        {
            self.snapshot.queues.insert(key, waiting);
        }
    }

    /// Every key that was loaded: what to load again after a conflict, all at once.
    pub fn keys(&self) -> Vec<Key> {
        let said = &self.said;
        let mut keys: Vec<Key> = said.records.keys().map(|id| Key::Record(*id)).collect();
        keys.extend(said.uniques.keys().cloned().map(Key::Unique));
        keys.extend(said.counts.keys().cloned().map(Key::Count));
        keys.extend(said.accounts.keys().cloned().map(Key::Account));
        keys.extend(said.links.keys().cloned().map(Key::Links));
        keys.extend(said.executions.iter().map(|(record, token)| Key::Execution(*record, *token)));
        keys.extend(said.queues.keys().cloned().map(Key::Queue));
        keys.sort_unstable();
        keys
    }

    /// Whether the store must still be asked.
    pub(crate) fn lacks(&self, key: &Key) -> bool {
        match key {
            Key::Record(id) => !self.said.records.contains_key(id),
            Key::Unique(key) => !self.said.uniques.contains_key(key),
            Key::Count(key) => !self.said.counts.contains_key(key),
            Key::Account(account) => !self.said.accounts.contains_key(account),
            Key::Links(key) => !self.said.links.contains_key(key),
            Key::Execution(record, token) => !self.said.executions.contains(&(*record, *token)),
            // Asked again where the first ones it named are all gone.
            Key::Queue(key) => !self.snapshot.queues.contains_key(key),
        }
    }

    /// Whether the store has said something of a key.
    pub(crate) fn was_told(&self, key: &Key) -> bool {
        match key {
            Key::Queue(key) => self.said.queues.contains_key(key),
            other => !self.lacks(other),
        }
    }

    /// Whether a key that was read is compared with what the store said. An ended execution never changes, and one that
    /// ended in this very batch was never loaded.
    pub(crate) fn is_compared(&self, key: &Key) -> bool {
        match key {
            Key::Unique(key) => !self.pending.uniques.contains(key),
            Key::Record(id) => self.said.records.contains_key(id) || !self.pending.made.contains(id),
            Key::Execution(..) => false,
            _ => true,
        }
    }

    /// Whether nobody held a key when the store was asked.
    pub(crate) fn was_free(&self, key: &UniqueKey) -> bool {
        self.said.uniques.get(key).is_some_and(Option::is_none)
    }

    /// How a record stood in the store; `None` where it was not there, or not asked for.
    pub(crate) fn stored(&self, id: RecordId) -> Option<&Stored> {
        self.said.records.get(&id)?.as_ref()
    }

    /// A record as the store has it, whatever the batch has made of it.
    pub(crate) fn original(&self, id: RecordId) -> Option<&Arc<Record>> {
        self.said.originals.get(&id)
    }

    /// How often the store had been written when the first key was loaded.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.generation
    }

    pub(crate) fn begin(&mut self, generation: u64) {
        self.generation.get_or_insert(generation);
    }

    pub(crate) fn put_record(&mut self, id: RecordId, found: Option<(Stored, Arc<Record>)>) {
        let (stored, record) = found.unzip();
        self.said.records.insert(id, stored);
        self.said.originals.extend(record.iter().map(|record| (id, Arc::clone(record))));
        // One that the batch itself has made is newer than what the store says.
        self.snapshot.records.entry(id).or_insert(record);
    }

    /// A record as this process last saved it.
    pub(crate) fn put_remembered(&mut self, stored: Stored, record: Arc<Record>) {
        self.trust = Trust::Remembered;
        self.put_record(record.id, Some((stored, record)));
    }

    /// How a record stands, where what is in it does not matter: in a probe.
    pub(crate) fn put_standing(&mut self, id: RecordId, stored: Stored) {
        self.said.records.insert(id, Some(stored));
    }

    pub(crate) fn put_unique(&mut self, key: UniqueKey, holder: Option<RecordId>) {
        self.said.uniques.insert(key.clone(), holder);
        self.snapshot.uniques.entry(key).or_insert(holder);
    }

    pub(crate) fn put_count(&mut self, key: CountKey, count: u64) {
        let pending = self.pending.counts.get(&key).copied().unwrap_or(0);
        self.said.counts.insert(key.clone(), count);
        self.snapshot.counts.insert(key, count.saturating_add_signed(pending));
    }

    pub(crate) fn put_account(&mut self, account: Account, balance: i64) {
        let pending = self.pending.accounts.get(&account).copied().unwrap_or(0);
        self.said.accounts.insert(account.clone(), balance);
        self.snapshot.accounts.insert(account, balance.saturating_add(pending));
    }

    /// The records that point to the key's target, oldest first, and the target's link version.
    pub(crate) fn put_links(&mut self, key: LinkKey, mut linked: Vec<RecordId>, version: u64) {
        for (record, added) in self.pending.links.get(&key).into_iter().flatten() {
            if *added {
                linked.push(*record);
            } else {
                linked.retain(|id| id != record);
            }
        }
        self.said.links.insert(key.clone(), version);
        self.snapshot.links.insert(key, linked);
    }

    pub(crate) fn put_execution(&mut self, record: RecordId, token: Token, execution: Option<Execution>) {
        self.said.executions.insert((record, token));
        self.snapshot.executions.entry((record, token)).or_insert(execution);
    }

    /// How many of a queue's first jobs the store must name: those that the batch has finished do not count.
    pub(crate) fn queue_depth(&self, key: &QueueKey) -> usize {
        let gone = self.pending.queues.get(key).map_or(0, |line| line.gone.len());
        self.depths.get(key).map_or(gone + 1, |depth| *depth)
    }

    /// The first jobs of a queue, oldest first: as many as were asked for, or all.
    pub(crate) fn put_queue(&mut self, key: QueueKey, first: Vec<Place>) {
        let asked = self.queue_depth(&key);
        let front = self.said.queues.entry(key.clone()).or_default();
        let line = self.pending.queues.entry(key.clone()).or_default();
        let now = Front { asked, first };
        // As many were asked for as are gone and one more: one is left, or these are all.
        let waiting = line.waiting(&now).unwrap_or_default();
        // Where the store now says something else than the first time, the first stays: it will be found to have changed.
        if now.first.starts_with(&front.first) {
            *front = now;
        }
        self.snapshot.queues.insert(key, waiting);
    }

    /// An empty base that asks for as much of each queue as this one did.
    pub(crate) fn probe(&self) -> Self {
        let depths = self.said.queues.iter().map(|(key, front)| (key.clone(), front.asked)).collect();
        Self { depths, ..Self::default() }
    }

    /// The keys among those of `fresh` of which the store now says something else.
    pub(crate) fn changed_in(&self, fresh: &Self) -> Vec<Key> {
        fn differ<K: Eq + std::hash::Hash + Clone, V: PartialEq>(
            old: &HashMap<K, V>,
            new: &HashMap<K, V>,
            key: impl Fn(K) -> Key,
            out: &mut Vec<Key>,
        ) {
            let changed = new.iter().filter(|(at, value)| old.get(*at) != Some(*value));
            out.extend(changed.map(|(at, _)| key(at.clone())));
        }
        let (old, new) = (&self.said, &fresh.said);
        let mut keys = Vec::new();
        differ(&old.records, &new.records, Key::Record, &mut keys);
        differ(&old.uniques, &new.uniques, Key::Unique, &mut keys);
        differ(&old.counts, &new.counts, Key::Count, &mut keys);
        differ(&old.accounts, &new.accounts, Key::Account, &mut keys);
        differ(&old.links, &new.links, Key::Links, &mut keys);
        differ(&old.queues, &new.queues, Key::Queue, &mut keys);
        keys.sort_unstable();
        keys
    }
}

impl Line {
    /// Those that wait, as far as they are known; `None` where the first may be one that is not.
    fn waiting(&self, front: &Front) -> Option<BTreeSet<Place>> {
        let left: BTreeSet<Place> = front.first.iter().filter(|place| !self.gone.contains(place)).copied().collect();
        if left.is_empty() && front.first.len() == front.asked {
            return None;
        }
        Some(&left | &self.come)
    }
}
