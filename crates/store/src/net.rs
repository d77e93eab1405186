//! A batch folded into what it comes to: each row of a store is written once, however many operations touched it.
//! All stores write from this, so that none of them has ideas of its own.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use onceward_core::decide::{
    Account, Changes, CountKey, Effect, Key, LinkKey, QueueKey, UniqueKey, Waiting, in_order, link_changes, next_due,
    readiness,
};
use onceward_core::record::{Execution, Payload, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::StoreError;
use crate::base::{Base, Place};
use crate::batch::{Batch, Outcome, Request, RequestName, Write};
use crate::log::{Hash, NO_HASH, NewEntry, entries_of};
use crate::unhurried::unhurried;

/// What a batch comes to.
#[derive(Debug, Default)]
pub(crate) struct Net<'a> {
    /// In the order first changed.
    pub(crate) records: Vec<NetRecord>,
    index: HashMap<RecordId, usize>,
    pub(crate) executions: BTreeMap<(RecordId, Token), Execution>,
    pub(crate) effects: Vec<&'a Effect>,
    pub(crate) uniques: BTreeMap<&'a UniqueKey, Option<RecordId>>,
    pub(crate) counts: BTreeMap<&'a CountKey, i64>,
    /// Named accounts only: a hold stands in its record.
    pub(crate) accounts: BTreeMap<&'a Account, i64>,
    pub(crate) contents: Vec<(Payload, &'a [u8])>,
    pub(crate) requests: Vec<&'a Request>,
    pub(crate) entries: Cow<'a, [NewEntry]>,
    /// Every key that a decision rests on, once, in order.
    pub(crate) reads: Vec<&'a Key>,
    /// The latest time of the batch: an operation may be decided later than the clock says.
    pub(crate) latest: Time,
    /// A request that stands twice in the batch itself.
    pub(crate) repeated: Vec<RequestName>,
}

/// A record before and after the batch.
#[derive(Debug)]
pub(crate) struct NetRecord {
    pub(crate) before: Option<Arc<Record>>,
    pub(crate) after: Arc<Record>,
    /// The hash of its last entry; unchanged by a mere heartbeat.
    pub(crate) head: Hash,
}

/// How many records of a version and an owner are in a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TallyKey {
    /// The version's hash.
    pub(crate) definition: Arc<str>,
    pub(crate) owner: Arc<str>,
    pub(crate) state: Arc<str>,
}

impl TallyKey {
    pub(crate) fn of(record: &Record) -> Self {
        let (definition, owner) = (Arc::clone(&record.lifecycle.hash), Arc::clone(&record.owner));
        Self { definition, owner, state: Arc::clone(record.state_name()) }
    }
}

impl NetRecord {
    /// Whether it lives by another version than before.
    pub(crate) fn is_moved(&self) -> bool {
        let same = |before: &Arc<Record>| {
            Arc::ptr_eq(&before.lifecycle, &self.after.lifecycle) || before.lifecycle.hash == self.after.lifecycle.hash
        };
        self.before.as_ref().is_some_and(|before| !same(before))
    }

    /// Whether it waits for a worker, before and after.
    pub(crate) fn waiting(&self) -> (Option<Waiting>, Option<Waiting>) {
        (self.before.as_deref().and_then(readiness), readiness(&self.after))
    }

    /// When it next needs the engine, before and after.
    pub(crate) fn due(&self) -> (Option<Time>, Option<Time>) {
        (self.before.as_deref().and_then(next_due), next_due(&self.after))
    }

    /// The ordered queue it stands in, before and after.
    pub(crate) fn queue(&self) -> (Option<QueueKey>, Option<QueueKey>) {
        (self.before.as_deref().and_then(in_order), in_order(&self.after))
    }

    pub(crate) fn place(&self) -> Place {
        (self.after.created_at, self.after.id)
    }

    pub(crate) fn links(&self) -> Vec<(LinkKey, bool)> {
        link_changes(self.before.as_deref(), &self.after).into_iter().map(|link| (link.key, link.added)).collect()
    }
}

/// What a batch adds to the log. Apart from the rest, because making and hashing its text takes long and needs no database:
/// it can be done while another batch is being written.
#[derive(Debug, Default)]
pub(crate) struct Told {
    entries: Vec<NewEntry>,
    /// The hash of each record's last entry.
    heads: HashMap<RecordId, Hash>,
}

impl Told {
    pub(crate) fn of(base: &Base, batch: &Batch) -> Result<Self, StoreError> {
        let records = |write: &Write| match &write.outcome {
            Outcome::Changes(changes) => changes.records.len(),
            Outcome::NoOp(_) | Outcome::Refusal(_) => 0,
        };
        unhurried(batch.writes.iter().map(records).sum(), || Self::worded(base, batch))
    }

    fn worded(base: &Base, batch: &Batch) -> Result<Self, StoreError> {
        let mut told = Self::default();
        let heads = &mut told.heads;
        let mut head = |id: RecordId, new: Option<Hash>| {
            let known = heads.entry(id).or_insert_with(|| base.stored(id).map_or(NO_HASH, |stored| stored.head));
            if let Some(new) = new {
                *known = new;
            }
            *known
        };
        for write in &batch.writes {
            entries_of(write, batch.now, batch.catalog, &mut head, &mut told.entries)?;
        }
        Ok(told)
    }
}

impl<'a> Net<'a> {
    pub(crate) fn of(base: &Base, batch: &'a Batch) -> Result<Self, StoreError> {
        let Told { entries, heads } = Told::of(base, batch)?;
        Self::folded(base, batch, entries.into(), &heads)
    }

    /// With what is told already, which stays whole for another try.
    pub(crate) fn with(base: &Base, batch: &'a Batch, told: &'a Told) -> Result<Self, StoreError> {
        Self::folded(base, batch, (&*told.entries).into(), &told.heads)
    }

    fn folded(
        base: &Base,
        batch: &'a Batch,
        entries: Cow<'a, [NewEntry]>,
        heads: &HashMap<RecordId, Hash>,
    ) -> Result<Self, StoreError> {
        let mut net = Self { latest: batch.now, entries, ..Self::default() };
        let mut named = HashSet::new();
        for write in &batch.writes {
            net.reads.extend(write.reads());
            net.contents.extend(write.contents.iter().map(|content| (content.payload, &*content.bytes)));
            if let Some(request) = &write.request {
                if !named.insert(&request.name) {
                    net.repeated.push(request.name.clone());
                }
                net.requests.push(request);
            }
            if let Outcome::Changes(changes) = &write.outcome {
                net.latest = net.latest.max(changes.now);
                net.fold(base, changes)?;
            }
        }
        for record in &mut net.records {
            let before = || base.stored(record.after.id).map_or(NO_HASH, |stored| stored.head);
            record.head = heads.get(&record.after.id).copied().unwrap_or_else(before);
        }
        net.reads.sort_unstable();
        net.reads.dedup();
        Ok(net)
    }

    /// Whether there is a new record in it.
    pub(crate) fn makes_records(&self) -> bool {
        self.records.iter().any(|record| record.before.is_none())
    }

    fn fold(&mut self, base: &Base, changes: &'a Changes) -> Result<(), StoreError> {
        for change in &changes.records {
            self.change(change.before.as_ref(), Arc::clone(&change.after));
        }
        for (record, execution) in &changes.executions {
            self.executions.insert((*record, execution.token), execution.clone());
        }
        if let Some((id, execution)) = &changes.heartbeat {
            self.executions.insert((*id, execution.token), execution.clone());
            let known = self.index.get(id).map(|at| &self.records[*at].after);
            let before = known.or_else(|| base.original(*id)).cloned();
            let before =
                before.ok_or_else(|| StoreError::Rejected(format!("a heartbeat of {id}, which is not loaded")))?;
            let mut after = Record::clone(&before);
            after.execution = Some(execution.clone());
            self.change(Some(&before), Arc::new(after));
        }
        self.effects.extend(&changes.effects);
        for (key, holder) in &changes.uniques {
            self.uniques.insert(key, *holder);
        }
        for (key, delta) in &changes.counts {
            *self.counts.entry(key).or_default() += delta;
        }
        for entry in &changes.moves {
            for (account, delta) in [(&entry.from, -entry.amount), (&entry.to, entry.amount)] {
                if matches!(account, Account::Named { .. }) {
                    let sum = self.accounts.entry(account).or_default();
                    let overflow = || StoreError::Rejected(format!("{account:?} would hold more than can be counted"));
                    *sum = sum.checked_add(delta).ok_or_else(overflow)?;
                }
            }
        }
        self.contents.extend(changes.payloads.iter().map(|new| (new.payload, new.bytes.as_bytes())));
        Ok(())
    }

    fn change(&mut self, before: Option<&Arc<Record>>, after: Arc<Record>) {
        if let Some(at) = self.index.get(&after.id) {
            self.records[*at].after = after;
            return;
        }
        self.index.insert(after.id, self.records.len());
        self.records.push(NetRecord { before: before.cloned(), after, head: NO_HASH });
    }

    /// Bytes by their hash, and how many new records have them as payload. Empty where they are not here: a record may name
    /// bytes that came before, or never.
    pub(crate) fn contents_by_hash(&self) -> BTreeMap<[u8; 32], (&'a [u8], i64)> {
        let mut contents: BTreeMap<[u8; 32], (&[u8], i64)> = BTreeMap::new();
        contents.extend(self.contents.iter().map(|(payload, bytes)| (payload.sha256, (*bytes, 0))));
        let new = self.records.iter().filter(|record| record.before.is_none());
        for payload in new.filter_map(|record| record.after.payload) {
            contents.entry(payload.sha256).or_default().1 += 1;
        }
        contents
    }

    /// What must be as the base was told: all that was read, and each record that is written over. Whether a new record's
    /// id is free is for the store's own key to say, where nobody asked.
    pub(crate) fn compared(&self, base: &Base) -> Vec<Key> {
        let mut keys: Vec<Key> =
            self.reads.iter().filter(|key| base.is_compared(key)).map(|key| (*key).clone()).collect();
        let written =
            self.records.iter().filter(|record| record.before.is_some() || base.stored(record.after.id).is_some());
        keys.extend(written.map(|record| Key::Record(record.after.id)));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Those among them of which the base was told nothing: where nothing can have changed, only this can be wrong.
    pub(crate) fn untold(&self, base: &Base) -> Vec<Key> {
        let untold = self.reads.iter().filter(|key| base.is_compared(key) && !base.was_told(key));
        let mut keys: Vec<Key> = untold.map(|key| (*key).clone()).collect();
        let written = self.records.iter().filter(|record| record.before.is_some());
        keys.extend(written.map(|record| Key::Record(record.after.id)).filter(|key| !base.was_told(key)));
        keys
    }

    /// Every key of which a store says something else after this batch.
    pub(crate) fn written(&self) -> HashSet<Key> {
        let mut keys: HashSet<Key> = self.records.iter().map(|record| Key::Record(record.after.id)).collect();
        keys.extend(self.uniques.keys().map(|key| Key::Unique((*key).clone())));
        keys.extend(self.counts.keys().map(|key| Key::Count((*key).clone())));
        keys.extend(self.accounts.keys().map(|account| Key::Account((*account).clone())));
        for record in &self.records {
            keys.extend(record.links().into_iter().map(|(link, _)| Key::Links(link)));
            let (old, new) = record.queue();
            if old != new {
                keys.extend([old, new].into_iter().flatten().map(Key::Queue));
            }
        }
        keys
    }

    /// How the numbers of records by version, owner and state change.
    pub(crate) fn tallies(&self) -> BTreeMap<TallyKey, i64> {
        let mut tallies: BTreeMap<TallyKey, i64> = BTreeMap::new();
        for record in &self.records {
            if !record.is_moved() && record.before.as_ref().is_some_and(|before| before.state == record.after.state) {
                continue;
            }
            if let Some(before) = &record.before {
                *tallies.entry(TallyKey::of(before)).or_default() -= 1;
            }
            *tallies.entry(TallyKey::of(&record.after)).or_default() += 1;
        }
        tallies.retain(|_, delta| *delta != 0);
        tallies
    }
}
