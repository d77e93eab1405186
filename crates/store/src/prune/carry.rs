//! What must still be known of records that go, worked out from their own entries.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::decide::{Account, CountKey, LinkKey, UniqueKey, key_parts, link_changes};
use onceward_core::model::{KeyPart, Lifecycle, StateSet};
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use sha2::{Digest, Sha256};

use super::{Standing, Taken};
use crate::StoreError;
use crate::account::{AccountName, named};
use crate::catalog::Catalog;
use crate::log::{Body, Checkpoint, Entry, Freed, NO_HASH, NewEntry, Places, Share, entry_of};
use crate::net::TallyKey;

/// Records that go together, and what they leave.
#[derive(Clone, Debug)]
pub struct Carry {
    /// In the order of their first entries.
    pub(crate) taken: Vec<Taken>,
    pub(crate) checkpoint: Checkpoint,
    /// Links to records that stay: the key, and who pointed there.
    pub(crate) unlinked: Vec<(LinkKey, RecordId)>,
    /// Whose keys are freed.
    pub(crate) holders: Vec<RecordId>,
    /// Which of the entries that go moved something on which account.
    pub(crate) moved: Vec<(AccountName, u64)>,
}

/// A record that may not go: its entries do not come to what is kept of it, and nobody may delete the evidence; or somebody who
/// stays points to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{record} cannot be pruned: {why}")]
pub struct Unsound {
    pub record: RecordId,
    pub why: String,
}

impl Unsound {
    fn new(record: RecordId, why: impl Into<String>) -> Self {
        Self { record, why: why.into() }
    }
}

/// One operation's word on a key.
struct Word {
    place: u64,
    holder: Option<RecordId>,
}

impl Carry {
    /// `until` is the time at or before which all of them ended; the catalog knows every version that they have lived by.
    pub fn of(mut taken: Vec<Taken>, until: Time, catalog: &Catalog) -> Result<Self, Unsound> {
        let lifecycles = catalog.lifecycles();
        taken.sort_by_key(|one| one.entries.first().map_or(0, |entry| entry.seq));
        let places = taken.iter().flat_map(|one| &one.entries).map(|entry| entry.seq).collect();
        let mut sums = Sums { places: Places::of(places), ..Sums::default() };
        sums.gone = taken.iter().map(|one| one.record.id).collect();
        let mut sha = Sha256::new();
        let mut shares: BTreeMap<ShareKey, u64> = BTreeMap::new();
        for one in &taken {
            sums.entries_of(one, &lifecycles)?;
            sha.update(one.record.id.0.as_bytes());
            sha.update(one.stored.head);
            *shares.entry(share(&one.record)).or_default() += 1;
        }
        let (unlinked, holders, freed) = sums.let_go(&taken);
        let moved = std::mem::take(&mut sums.moved);
        let told = |((lifecycle, owner, state), records)| Share { lifecycle, owner, state, records };
        let checkpoint = Checkpoint {
            before: None,
            until,
            taken: shares.into_iter().map(told).collect(),
            digest: sha.finalize().into(),
            uniques: sums.last_words(&freed),
            // Accounts and counts that come to nothing too: their rows stay.
            accounts: sums.accounts.into_iter().map(|((asset, name), sum)| (asset, name, sum)).collect(),
            holds: sums.holds.into_iter().filter(|(_, sum)| *sum != 0).collect(),
            counts: sums.counts.into_iter().collect(),
            links: sums.links.into_iter().collect(),
            places: sums.places,
            freed,
        };
        Ok(Self { taken, checkpoint, unlinked, holders, moved })
    }

    /// What the log will say of it, but for the checkpoint before.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The entry for the log, after the checkpoint that stands there; and how it stands then, but for the entry's place.
    pub(crate) fn entry(&self, standing: &Standing, now: Time) -> Result<(NewEntry, Standing), StoreError> {
        let before = (standing.checkpoint > 0).then_some(standing.checkpoint);
        let checkpoint = Checkpoint { before, ..self.checkpoint.clone() };
        let entry = entry_of(&checkpoint, now, &standing.head)?;
        let floor = checkpoint.floor().max(standing.floor);
        let standing = Standing { checkpoint: 0, head: entry.hash, floor };
        Ok((entry, standing))
    }

    /// How the numbers of records by version, owner and state change.
    pub(crate) fn tallies(&self) -> BTreeMap<TallyKey, i64> {
        let mut tallies = BTreeMap::new();
        for one in &self.taken {
            *tallies.entry(TallyKey::of(&one.record)).or_default() -= 1;
        }
        tallies
    }

    /// How many records that go have these bytes as payload, by their hash.
    pub(crate) fn contents(&self) -> BTreeMap<[u8; 32], i64> {
        let mut contents = BTreeMap::new();
        for payload in self.taken.iter().filter_map(|one| one.record.payload) {
            *contents.entry(payload.sha256).or_default() += 1;
        }
        contents
    }

    /// Keys that are freed, and who has held them.
    pub(crate) fn freed_uniques(&self) -> impl Iterator<Item = (&UniqueKey, RecordId)> {
        self.checkpoint.freed.uniques.iter().zip(self.holders.iter().copied())
    }
}

/// Lifecycle, owner and state, as the log tells of those that went.
type ShareKey = (Arc<str>, Arc<str>, Arc<str>);

fn share(record: &Record) -> ShareKey {
    (Arc::clone(&record.lifecycle.name), Arc::clone(&record.owner), Arc::clone(record.state_name()))
}

/// What the entries have added up to so far.
#[derive(Default)]
struct Sums {
    places: Places,
    gone: BTreeSet<RecordId>,
    accounts: BTreeMap<(Arc<str>, Arc<str>), i64>,
    holds: BTreeMap<RecordId, i64>,
    counts: BTreeMap<CountKey, i64>,
    links: BTreeMap<RecordId, u64>,
    words: BTreeMap<UniqueKey, Vec<Word>>,
    /// How many entries follow the first one of an operation, by its place.
    more: HashMap<u64, u64>,
    /// Whose entry stands at a place.
    whose: HashMap<u64, RecordId>,
    /// Records with an entry of an operation whose first entry stays: what it said of keys stays there.
    told_elsewhere: BTreeSet<RecordId>,
    moved: Vec<(AccountName, u64)>,
}

impl Sums {
    /// A record from its first entry to its last, which must come to what is kept.
    fn entries_of(&mut self, one: &Taken, lifecycles: &HashMap<Arc<str>, Arc<Lifecycle>>) -> Result<(), Unsound> {
        let id = one.record.id;
        let bad = |why: &str| Unsound::new(id, why);
        if let Some(source) = one.sources.iter().find(|source| !self.gone.contains(source)) {
            return Err(Unsound::new(id, format!("{source} points to it, and stays")));
        }
        let mut known: Option<Record> = None;
        let mut head = NO_HASH;
        for entry in &one.entries {
            if entry.record != Some(id) || entry.expected_hash(&head) != entry.hash {
                return Err(bad("the chain of its entries is broken"));
            }
            head = entry.hash;
            let body = entry.body().map_err(|error| Unsound::new(id, error.to_string()))?;
            let diff = body.change.as_ref().ok_or_else(|| bad("an entry changes nothing"))?;
            let start = match (known.take(), &diff.created) {
                (Some(known), None) => known,
                (None, Some(created)) => {
                    let lifecycle = lifecycles.get(&created.definition);
                    created.unborn(id, lifecycle.ok_or_else(|| bad("its version is not known"))?, entry.at)
                }
                _ => return Err(bad("its first entry is missing")),
            };
            if entry.version != start.version + 1 {
                return Err(bad("an entry is missing"));
            }
            let before = (start.version > 0).then(|| start.clone());
            let after = diff.apply(start, entry.version, entry.at, lifecycles);
            let after = after.ok_or_else(|| bad("an entry does not fit"))?;
            for link in link_changes(before.as_ref(), &after) {
                if !self.gone.contains(&link.key.target) {
                    *self.links.entry(link.key.target).or_default() += 1;
                }
            }
            self.said(id, entry, &body)?;
            known = Some(after);
        }
        let known = known.ok_or_else(|| bad("it has no entries"))?;
        let same = known.version == one.record.version
            && known.lifecycle.hash == one.record.lifecycle.hash
            && known.state == one.record.state
            && known.fields == one.record.fields
            && known.hold == one.record.hold
            && known.finished_at == one.record.finished_at;
        if !same || head != one.stored.head {
            return Err(bad("its entries come to something else than what is kept"));
        }
        Ok(())
    }

    /// What an entry has done beyond its own record.
    fn said(&mut self, id: RecordId, entry: &Entry, body: &Body) -> Result<(), Unsound> {
        let too_much = || Unsound::new(id, "its entries move more than can be counted");
        self.whose.insert(entry.seq, id);
        if body.back > 0 && !self.places.contains(entry.seq.saturating_sub(u64::from(body.back))) {
            self.told_elsewhere.insert(id);
        }
        if body.back == 0 {
            self.more.insert(entry.seq, u64::from(body.more));
        }
        for (key, holder) in body.uniques.iter() {
            self.words.entry(key.clone()).or_default().push(Word { place: entry.seq, holder: *holder });
        }
        for (key, delta) in body.counts.iter() {
            let sum = self.counts.entry(key.clone()).or_default();
            *sum = sum.checked_add(*delta).ok_or_else(too_much)?;
        }
        let accounts = named(body.moves.iter().map(AsRef::as_ref));
        self.moved.extend(accounts.into_iter().map(|account| (account, entry.seq)));
        for moved in &body.moves {
            let back = moved.amount.checked_neg().ok_or_else(too_much)?;
            for (account, delta) in [(&moved.from, back), (&moved.to, moved.amount)] {
                let sum = match account {
                    Account::Named { asset, name } => {
                        self.accounts.entry((Arc::clone(asset), Arc::clone(name))).or_default()
                    }
                    Account::Hold { record, .. } if self.gone.contains(record) => continue,
                    Account::Hold { record, .. } => self.holds.entry(*record).or_default(),
                };
                *sum = sum.checked_add(delta).ok_or_else(too_much)?;
            }
        }
        Ok(())
    }

    /// What goes with the records themselves: their links to others, and the keys and counts that they held by their state.
    fn let_go(&mut self, taken: &[Taken]) -> (Vec<(LinkKey, RecordId)>, Vec<RecordId>, Freed) {
        let mut unlinked = Vec::new();
        let mut uniques: BTreeMap<UniqueKey, RecordId> = BTreeMap::new();
        let mut counts: BTreeMap<CountKey, i64> = BTreeMap::new();
        for one in taken {
            let record = &*one.record;
            for link in link_changes(None, record) {
                if !self.gone.contains(&link.key.target) {
                    *self.links.entry(link.key.target).or_default() += 1;
                    unlinked.push((link.key, record.id));
                }
            }
            let lifecycle = &record.lifecycle.name;
            for unique in record.lifecycle.uniques.iter().filter(|unique| unique.within.is_some()) {
                if let Some(parts) = held(record, &unique.on, unique.within) {
                    let (lifecycle, name) = (Arc::clone(lifecycle), Arc::clone(&unique.name));
                    uniques.insert(UniqueKey { lifecycle, unique: name, parts }, record.id);
                }
            }
            let now = |limit: &&onceward_core::model::Limit| limit.within.is_some() && limit.per.is_none();
            for limit in record.lifecycle.limits.iter().filter(now) {
                if let Some(parts) = held(record, &limit.on, limit.within) {
                    let (lifecycle, limit) = (Arc::clone(lifecycle), Arc::clone(&limit.name));
                    *counts.entry(CountKey { lifecycle, limit, parts, window: None }).or_default() -= 1;
                }
            }
        }
        let (uniques, holders) = uniques.into_iter().unzip();
        (unlinked, holders, Freed { uniques, counts: counts.into_iter().collect() })
    }

    /// The last word on each key, but for keys of which all was said here, from their being taken to their being let go of.
    fn last_words(&mut self, freed: &Freed) -> Vec<(u64, UniqueKey, Option<RecordId>)> {
        let mut last = Vec::new();
        for (key, mut words) in std::mem::take(&mut self.words) {
            words.sort_by_key(|word| word.place);
            let free_now = freed.uniques.contains(&key) || words.last().is_some_and(|word| word.holder.is_none());
            let taken_first = words.first().is_some_and(|word| word.holder.is_some());
            let all_here = words.iter().all(|word| {
                self.is_all_here(word.place)
                    && word.holder.is_none_or(|id| self.gone.contains(&id) && !self.told_elsewhere.contains(&id))
            });
            if let (false, Some(word)) = (free_now && taken_first && all_here, words.last()) {
                last.push((word.place, key, word.holder));
            }
        }
        last.sort();
        last
    }

    /// Whether an operation is gone as a whole, and its records have said nothing of keys in operations that are not.
    fn is_all_here(&self, first: u64) -> bool {
        let Some(more) = self.more.get(&first) else { return false };
        (first..=first.saturating_add(*more))
            .all(|place| self.whose.get(&place).is_some_and(|id| !self.told_elsewhere.contains(id)))
    }
}

fn held(record: &Record, on: &[KeyPart], within: Option<StateSet>) -> Option<Vec<Arc<str>>> {
    within.is_none_or(|states| states.contains(record.state)).then(|| key_parts(record, on)).flatten()
}
