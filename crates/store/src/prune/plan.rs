//! Plans a prune: computes from the log entries of the pruned records what the checkpoint must carry forward.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::decide::{Account, CounterKey, LinkKey, UniqueKey, canonical_key_parts, link_changes};
use onceward_core::model::{KeyPart, Lifecycle, StateSet};
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use sha2::{Digest, Sha256};

use super::{PruneState, PrunedRecord};
use crate::StoreError;
use crate::account::{AccountName, named_accounts};
use crate::catalog::Catalog;
use crate::log::{
    Checkpoint, LogEntry, LogEntryBody, NewLogEntry, PrunedCount, ReleasedKeys, SeqRanges, ZERO_HASH, checkpoint_entry,
};
use crate::write_set::StateCountKey;

/// Records to prune together, and the checkpoint that replaces them.
#[derive(Clone, Debug)]
pub struct PrunePlan {
    /// In the order of their first entries.
    pub(crate) pruned: Vec<PrunedRecord>,
    pub(crate) checkpoint: Checkpoint,
    /// Links from pruned to remaining records: the key and the pruned source.
    pub(crate) removed_links: Vec<(LinkKey, RecordId)>,
    /// Holders of the released unique keys, in the same order.
    pub(crate) released_holders: Vec<RecordId>,
    /// Index rows of pruned entries with transfers: the account and the seq.
    pub(crate) account_entries: Vec<(AccountName, u64)>,
}

/// Why a record cannot be pruned. Either its log entries do not replay to its stored state, and pruning would delete
/// the evidence, or a remaining record links to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{record} cannot be pruned: {why}")]
pub struct PruneBlocked {
    pub record: RecordId,
    pub why: String,
}

impl PruneBlocked {
    fn new(record: RecordId, why: impl Into<String>) -> Self {
        Self { record, why: why.into() }
    }
}

/// A write of a unique key by one operation.
struct UniqueKeyWrite {
    seq: u64,
    holder: Option<RecordId>,
}

impl PrunePlan {
    /// Plans the prune of these records, which all ended at `cutoff` or earlier. The catalog must contain every version
    /// that they have used.
    pub fn build(mut pruned: Vec<PrunedRecord>, cutoff: Time, catalog: &Catalog) -> Result<Self, PruneBlocked> {
        let lifecycles = catalog.lifecycles();
        pruned.sort_by_key(|one| one.entries.first().map_or(0, |entry| entry.seq));
        let seqs = pruned.iter().flat_map(|one| &one.entries).map(|entry| entry.seq).collect();
        let mut totals = PruneTotals { seqs: SeqRanges::from_seqs(seqs), ..PruneTotals::default() };
        totals.pruned_ids = pruned.iter().map(|one| one.record.id).collect();
        let mut sha = Sha256::new();
        let mut pruned_counts: BTreeMap<PrunedCountKey, u64> = BTreeMap::new();
        for one in &pruned {
            totals.add_record(one, &lifecycles)?;
            sha.update(one.record.id.0.as_bytes());
            sha.update(one.meta.head_hash);
            *pruned_counts.entry(pruned_count_key(&one.record)).or_default() += 1;
        }
        let (unlinked, holders, released) = totals.release_held(&pruned);
        let account_entries = std::mem::take(&mut totals.account_entries);
        let to_count = |((lifecycle, owner, state), records)| PrunedCount { lifecycle, owner, state, records };
        let checkpoint = Checkpoint {
            previous_seq: None,
            cutoff,
            pruned: pruned_counts.into_iter().map(to_count).collect(),
            digest: sha.finalize().into(),
            uniques: totals.final_key_writes(&released),
            // Include accounts and counters whose sum is zero, because their rows remain.
            accounts: totals.accounts.into_iter().map(|((asset, name), sum)| (asset, name, sum)).collect(),
            holds: totals.holds.into_iter().filter(|(_, sum)| *sum != 0).collect(),
            counts: totals.counts.into_iter().collect(),
            links: totals.links.into_iter().collect(),
            seqs: totals.seqs,
            released,
        };
        Ok(Self { pruned, checkpoint, removed_links: unlinked, released_holders: holders, account_entries })
    }

    /// Returns the log entry that follows the checkpoint in `state`, and the new prune state without the seq of that
    /// entry.
    pub(crate) fn next_checkpoint_entry(
        &self,
        state: &PruneState,
        now: Time,
    ) -> Result<(NewLogEntry, PruneState), StoreError> {
        let before = (state.checkpoint_seq > 0).then_some(state.checkpoint_seq);
        let checkpoint = Checkpoint { previous_seq: before, ..self.checkpoint.clone() };
        let entry = checkpoint_entry(&checkpoint, now, &state.checkpoint_hash)?;
        let floor = checkpoint.last_pruned_seq().max(state.last_pruned_seq);
        let next_state = PruneState { checkpoint_seq: 0, checkpoint_hash: entry.hash, last_pruned_seq: floor };
        Ok((entry, next_state))
    }

    /// Returns the changes of record counts by version, owner and state.
    pub(crate) fn state_count_deltas(&self) -> BTreeMap<StateCountKey, i64> {
        let mut deltas = BTreeMap::new();
        for one in &self.pruned {
            *deltas.entry(StateCountKey::from_record(&one.record)).or_default() -= 1;
        }
        deltas
    }

    /// Returns by payload hash how many pruned records reference it.
    pub(crate) fn payload_references(&self) -> BTreeMap<[u8; 32], i64> {
        let mut references = BTreeMap::new();
        for payload in self.pruned.iter().filter_map(|one| one.record.payload) {
            *references.entry(payload.sha256).or_default() += 1;
        }
        references
    }

    /// Returns the released unique keys and their holders.
    pub(crate) fn released_unique_keys(&self) -> impl Iterator<Item = (&UniqueKey, RecordId)> {
        self.checkpoint.released.uniques.iter().zip(self.released_holders.iter().copied())
    }
}

/// Lifecycle, owner and state of pruned records.
type PrunedCountKey = (Arc<str>, Arc<str>, Arc<str>);

fn pruned_count_key(record: &Record) -> PrunedCountKey {
    (Arc::clone(&record.lifecycle.name), Arc::clone(&record.owner), Arc::clone(record.state_name()))
}

/// Sums over the pruned entries so far.
#[derive(Default)]
struct PruneTotals {
    seqs: SeqRanges,
    pruned_ids: BTreeSet<RecordId>,
    accounts: BTreeMap<(Arc<str>, Arc<str>), i64>,
    holds: BTreeMap<RecordId, i64>,
    counts: BTreeMap<CounterKey, i64>,
    links: BTreeMap<RecordId, u64>,
    key_writes: BTreeMap<UniqueKey, Vec<UniqueKeyWrite>>,
    /// Number of entries after the first one of an operation, by the seq of the first.
    following_entries: HashMap<u64, u64>,
    /// The record of each pruned entry, by seq.
    records_by_seq: HashMap<u64, RecordId>,
    /// Records with an entry of an operation whose first entry remains. That first entry still contains the operation's
    /// key writes.
    partly_kept_ids: BTreeSet<RecordId>,
    account_entries: Vec<(AccountName, u64)>,
}

impl PruneTotals {
    /// Replays a record from its first to its last entry and compares the result with the stored record.
    fn add_record(
        &mut self,
        pruned: &PrunedRecord,
        lifecycles: &HashMap<Arc<str>, Arc<Lifecycle>>,
    ) -> Result<(), PruneBlocked> {
        let id = pruned.record.id;
        let bad = |why: &str| PruneBlocked::new(id, why);
        if let Some(source) = pruned.referrers.iter().find(|source| !self.pruned_ids.contains(source)) {
            return Err(PruneBlocked::new(id, format!("{source} refers to it and is not pruned")));
        }
        let mut replayed: Option<Record> = None;
        let mut head = ZERO_HASH;
        for entry in &pruned.entries {
            if entry.record != Some(id) || entry.expected_hash(&head) != entry.hash {
                return Err(bad("the hash chain of its log entries is broken"));
            }
            head = entry.hash;
            let body = entry.body().map_err(|error| PruneBlocked::new(id, error.to_string()))?;
            let diff = body.change.as_ref().ok_or_else(|| bad("a log entry contains no change"))?;
            let start = match (replayed.take(), &diff.created) {
                (Some(replayed), None) => replayed,
                (None, Some(created)) => {
                    let lifecycle = lifecycles.get(&created.definition);
                    created.initial_record(
                        id,
                        lifecycle.ok_or_else(|| bad("its lifecycle version is unknown"))?,
                        entry.at,
                    )
                }
                _ => return Err(bad("its first log entry is missing")),
            };
            if entry.version != start.version + 1 {
                return Err(bad("a log entry is missing"));
            }
            let before = (start.version > 0).then(|| start.clone());
            let after = diff.apply(start, entry.version, entry.at, lifecycles);
            let after = after.ok_or_else(|| bad("a log entry does not match the record"))?;
            for link in link_changes(before.as_ref(), &after) {
                if !self.pruned_ids.contains(&link.key.target) {
                    *self.links.entry(link.key.target).or_default() += 1;
                }
            }
            self.add_entry(id, entry, &body)?;
            replayed = Some(after);
        }
        let replayed = replayed.ok_or_else(|| bad("it has no log entries"))?;
        let same = replayed.version == pruned.record.version
            && replayed.lifecycle.hash == pruned.record.lifecycle.hash
            && replayed.state == pruned.record.state
            && replayed.fields == pruned.record.fields
            && replayed.hold == pruned.record.hold
            && replayed.finished_at == pruned.record.finished_at;
        if !same || head != pruned.meta.head_hash {
            return Err(bad("its log entries replay to another state than the stored one"));
        }
        Ok(())
    }

    /// Adds the changes that an entry made outside its own record.
    fn add_entry(&mut self, id: RecordId, entry: &LogEntry, body: &LogEntryBody) -> Result<(), PruneBlocked> {
        let overflow = || PruneBlocked::new(id, "the sum of its transfers overflows");
        self.records_by_seq.insert(entry.seq, id);
        if body.back > 0 && !self.seqs.contains(entry.seq.saturating_sub(u64::from(body.back))) {
            self.partly_kept_ids.insert(id);
        }
        if body.back == 0 {
            self.following_entries.insert(entry.seq, u64::from(body.more));
        }
        for (key, holder) in body.uniques.iter() {
            self.key_writes.entry(key.clone()).or_default().push(UniqueKeyWrite { seq: entry.seq, holder: *holder });
        }
        for (key, delta) in body.counts.iter() {
            let sum = self.counts.entry(key.clone()).or_default();
            *sum = sum.checked_add(*delta).ok_or_else(overflow)?;
        }
        let accounts = named_accounts(body.transfers.iter().map(AsRef::as_ref));
        self.account_entries.extend(accounts.into_iter().map(|account| (account, entry.seq)));
        for moved in &body.transfers {
            let back = moved.amount.checked_neg().ok_or_else(overflow)?;
            for (account, delta) in [(&moved.from, back), (&moved.to, moved.amount)] {
                let sum = match account {
                    Account::Named { asset, name } => {
                        self.accounts.entry((Arc::clone(asset), Arc::clone(name))).or_default()
                    }
                    Account::Hold { record, .. } if self.pruned_ids.contains(record) => continue,
                    Account::Hold { record, .. } => self.holds.entry(*record).or_default(),
                };
                *sum = sum.checked_add(delta).ok_or_else(overflow)?;
            }
        }
        Ok(())
    }

    /// Collects the links, unique keys and counters that the records still hold and that pruning removes.
    fn release_held(&mut self, pruned: &[PrunedRecord]) -> (Vec<(LinkKey, RecordId)>, Vec<RecordId>, ReleasedKeys) {
        let mut unlinked = Vec::new();
        let mut uniques: BTreeMap<UniqueKey, RecordId> = BTreeMap::new();
        let mut counts: BTreeMap<CounterKey, i64> = BTreeMap::new();
        for one in pruned {
            let record = &*one.record;
            for link in link_changes(None, record) {
                if !self.pruned_ids.contains(&link.key.target) {
                    *self.links.entry(link.key.target).or_default() += 1;
                    unlinked.push((link.key, record.id));
                }
            }
            let lifecycle = &record.lifecycle.name;
            for unique in record.lifecycle.unique_constraints.iter().filter(|unique| unique.in_states.is_some()) {
                if let Some(parts) = held_key_parts(record, &unique.on, unique.in_states) {
                    let (lifecycle, name) = (Arc::clone(lifecycle), Arc::clone(&unique.name));
                    uniques.insert(UniqueKey { lifecycle, unique: name, parts }, record.id);
                }
            }
            let is_current_count =
                |limit: &&onceward_core::model::CountLimit| limit.in_states.is_some() && limit.window.is_none();
            for limit in record.lifecycle.limits.iter().filter(is_current_count) {
                if let Some(parts) = held_key_parts(record, &limit.on, limit.in_states) {
                    let (lifecycle, limit) = (Arc::clone(lifecycle), Arc::clone(&limit.name));
                    *counts.entry(CounterKey { lifecycle, limit, parts, window_start: None }).or_default() -= 1;
                }
            }
        }
        let (uniques, holders) = uniques.into_iter().unzip();
        (unlinked, holders, ReleasedKeys { uniques, counts: counts.into_iter().collect() })
    }

    /// Returns the last write to each unique key. Omits keys whose complete history, from claim to release, is pruned.
    fn final_key_writes(&mut self, released: &ReleasedKeys) -> Vec<(u64, UniqueKey, Option<RecordId>)> {
        let mut last = Vec::new();
        for (key, mut writes) in std::mem::take(&mut self.key_writes) {
            writes.sort_by_key(|word| word.seq);
            let free_now = released.uniques.contains(&key) || writes.last().is_some_and(|word| word.holder.is_none());
            let taken_first = writes.first().is_some_and(|word| word.holder.is_some());
            let all_here = writes.iter().all(|word| {
                self.is_operation_fully_pruned(word.seq)
                    && word.holder.is_none_or(|id| self.pruned_ids.contains(&id) && !self.partly_kept_ids.contains(&id))
            });
            if let (false, Some(word)) = (free_now && taken_first && all_here, writes.last()) {
                last.push((word.seq, key, word.holder));
            }
        }
        last.sort();
        last
    }

    /// Returns whether all entries of an operation are pruned, and none of its records wrote unique keys in an
    /// operation that remains.
    fn is_operation_fully_pruned(&self, first_seq: u64) -> bool {
        let Some(more) = self.following_entries.get(&first_seq) else { return false };
        (first_seq..=first_seq.saturating_add(*more))
            .all(|seq| self.records_by_seq.get(&seq).is_some_and(|id| !self.partly_kept_ids.contains(id)))
    }
}

fn held_key_parts(record: &Record, on: &[KeyPart], within: Option<StateSet>) -> Option<Vec<Arc<str>>> {
    within.is_none_or(|states| states.contains(record.state)).then(|| canonical_key_parts(record, on)).flatten()
}
