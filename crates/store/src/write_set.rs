//! The write set: a batch folded so that each row is written once, however many operations changed it. All stores write
//! from it, so they cannot differ in what they write.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use onceward_core::decide::{
    Account, Changes, ConcurrencyKey, CounterKey, Effect, LinkKey, ReadKey, Readiness, UniqueKey, link_changes,
    next_due, ordered_queue_key, readiness,
};
use onceward_core::record::{Execution, FencingToken, PayloadRef, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::StoreError;
use crate::batch::{Batch, DecidedOperation, IdempotencyId, IdempotencyRecord, OperationOutcome};
use crate::blocking::block_in_place_if_large;
use crate::log::{NewLogEntry, Sha256Hash, ZERO_HASH, operation_entries};
use crate::read_set::{QueuePosition, ReadSet};

/// Everything that a batch writes and validates.
#[derive(Debug, Default)]
pub(crate) struct WriteSet<'a> {
    /// In the order of their first change.
    pub(crate) records: Vec<RecordWrite>,
    record_index: HashMap<RecordId, usize>,
    pub(crate) executions: BTreeMap<(RecordId, FencingToken), Execution>,
    pub(crate) effects: Vec<&'a Effect>,
    pub(crate) uniques: BTreeMap<&'a UniqueKey, Option<RecordId>>,
    pub(crate) counts: BTreeMap<&'a CounterKey, i64>,
    /// Named accounts only; a hold is stored in its record.
    pub(crate) accounts: BTreeMap<&'a Account, i64>,
    pub(crate) payloads: Vec<(PayloadRef, &'a [u8])>,
    pub(crate) idempotency_records: Vec<&'a IdempotencyRecord>,
    pub(crate) entries: Cow<'a, [NewLogEntry]>,
    /// Every key that a decision read, without duplicates, sorted.
    pub(crate) read_keys: Vec<&'a ReadKey>,
    /// Latest operation time of the batch, which can be later than the clock.
    pub(crate) latest_at: Time,
    /// Idempotency keys that occur more than once in the batch.
    pub(crate) duplicate_ids: Vec<IdempotencyId>,
}

/// A record before and after the batch.
#[derive(Debug)]
pub(crate) struct RecordWrite {
    pub(crate) before: Option<Arc<Record>>,
    pub(crate) after: Arc<Record>,
    /// Hash of the record's last log entry. A heartbeat alone does not change it.
    pub(crate) head_hash: Sha256Hash,
}

/// Key of the counters of records by version, owner and state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StateCountKey {
    /// Hash of the version.
    pub(crate) definition: Arc<str>,
    pub(crate) owner: Arc<str>,
    pub(crate) state: Arc<str>,
}

impl StateCountKey {
    pub(crate) fn from_record(record: &Record) -> Self {
        let (definition, owner) = (Arc::clone(&record.lifecycle.hash), Arc::clone(&record.owner));
        Self { definition, owner, state: Arc::clone(record.state_name()) }
    }
}

impl RecordWrite {
    /// Returns whether the batch migrates the record to another version.
    pub(crate) fn is_version_migrated(&self) -> bool {
        let same = |before: &Arc<Record>| {
            Arc::ptr_eq(&before.lifecycle, &self.after.lifecycle) || before.lifecycle.hash == self.after.lifecycle.hash
        };
        self.before.as_ref().is_some_and(|before| !same(before))
    }

    /// Returns the readiness before and after the batch.
    pub(crate) fn readiness_change(&self) -> (Option<Readiness>, Option<Readiness>) {
        (self.before.as_deref().and_then(readiness), readiness(&self.after))
    }

    /// Returns when the engine must next process the record, before and after the batch.
    pub(crate) fn due_change(&self) -> (Option<Time>, Option<Time>) {
        (self.before.as_deref().and_then(next_due), next_due(&self.after))
    }

    /// Returns the ordered queue of the record, before and after the batch.
    pub(crate) fn queue_change(&self) -> (Option<ConcurrencyKey>, Option<ConcurrencyKey>) {
        (self.before.as_deref().and_then(ordered_queue_key), ordered_queue_key(&self.after))
    }

    pub(crate) fn queue_position(&self) -> QueuePosition {
        (self.after.created_at, self.after.id)
    }

    pub(crate) fn changed_links(&self) -> Vec<(LinkKey, bool)> {
        link_changes(self.before.as_deref(), &self.after).into_iter().map(|link| (link.key, link.is_added)).collect()
    }
}

/// The log entries of a batch. Separate from the write set, because encoding and hashing takes long and needs no
/// database: it can run while another batch is being written.
#[derive(Debug, Default)]
pub(crate) struct EncodedEntries {
    entries: Vec<NewLogEntry>,
    /// Hash of each record's last entry.
    heads: HashMap<RecordId, Sha256Hash>,
}

impl EncodedEntries {
    pub(crate) fn encode(read_set: &ReadSet, batch: &Batch) -> Result<Self, StoreError> {
        let records = |write: &DecidedOperation| match &write.outcome {
            OperationOutcome::Changes(changes) => changes.records.len(),
            OperationOutcome::NoOp(_) | OperationOutcome::Refusal(_) => 0,
        };
        block_in_place_if_large(batch.operations.iter().map(records).sum(), || Self::encode_inline(read_set, batch))
    }

    fn encode_inline(read_set: &ReadSet, batch: &Batch) -> Result<Self, StoreError> {
        let mut encoded = Self::default();
        let heads = &mut encoded.heads;
        let mut head = |id: RecordId, new: Option<Sha256Hash>| {
            let current = heads
                .entry(id)
                .or_insert_with(|| read_set.record_meta(id).map_or(ZERO_HASH, |stored| stored.head_hash));
            if let Some(new) = new {
                *current = new;
            }
            *current
        };
        for write in &batch.operations {
            operation_entries(write, batch.decided_at, batch.catalog_revision, &mut head, &mut encoded.entries)?;
        }
        Ok(encoded)
    }
}

impl<'a> WriteSet<'a> {
    pub(crate) fn build(read_set: &ReadSet, batch: &'a Batch) -> Result<Self, StoreError> {
        let EncodedEntries { entries, heads } = EncodedEntries::encode(read_set, batch)?;
        Self::fold_batch(read_set, batch, entries.into(), &heads)
    }

    /// Builds the write set with entries that are already encoded. These stay available for another attempt.
    pub(crate) fn from_encoded(
        read_set: &ReadSet,
        batch: &'a Batch,
        encoded: &'a EncodedEntries,
    ) -> Result<Self, StoreError> {
        Self::fold_batch(read_set, batch, (&*encoded.entries).into(), &encoded.heads)
    }

    fn fold_batch(
        read_set: &ReadSet,
        batch: &'a Batch,
        entries: Cow<'a, [NewLogEntry]>,
        heads: &HashMap<RecordId, Sha256Hash>,
    ) -> Result<Self, StoreError> {
        let mut write_set = Self { latest_at: batch.decided_at, entries, ..Self::default() };
        let mut seen_ids = HashSet::new();
        for write in &batch.operations {
            write_set.read_keys.extend(write.read_keys());
            write_set.payloads.extend(write.payloads.iter().map(|content| (content.payload, &*content.bytes)));
            if let Some(request) = &write.idempotency {
                if !seen_ids.insert(&request.id) {
                    write_set.duplicate_ids.push(request.id.clone());
                }
                write_set.idempotency_records.push(request);
            }
            if let OperationOutcome::Changes(changes) = &write.outcome {
                write_set.latest_at = write_set.latest_at.max(changes.now);
                write_set.fold_changes(read_set, changes)?;
            }
        }
        for record in &mut write_set.records {
            let before = || read_set.record_meta(record.after.id).map_or(ZERO_HASH, |stored| stored.head_hash);
            record.head_hash = heads.get(&record.after.id).copied().unwrap_or_else(before);
        }
        write_set.read_keys.sort_unstable();
        write_set.read_keys.dedup();
        Ok(write_set)
    }

    pub(crate) fn has_new_records(&self) -> bool {
        self.records.iter().any(|record| record.before.is_none())
    }

    fn fold_changes(&mut self, read_set: &ReadSet, changes: &'a Changes) -> Result<(), StoreError> {
        for change in &changes.records {
            self.put_record(change.before.as_ref(), Arc::clone(&change.after));
        }
        for (record, execution) in &changes.executions {
            self.executions.insert((*record, execution.token), execution.clone());
        }
        if let Some((id, execution)) = &changes.heartbeat {
            self.executions.insert((*id, execution.token), execution.clone());
            let changed = self.record_index.get(id).map(|at| &self.records[*at].after);
            let before = changed.or_else(|| read_set.original_record(*id)).cloned();
            let before =
                before.ok_or_else(|| StoreError::Rejected(format!("a heartbeat of {id}, which was not loaded")))?;
            let mut after = Record::clone(&before);
            after.execution = Some(execution.clone());
            self.put_record(Some(&before), Arc::new(after));
        }
        self.effects.extend(&changes.effects);
        for (key, holder) in &changes.unique_claims {
            self.uniques.insert(key, *holder);
        }
        for (key, delta) in &changes.counter_deltas {
            *self.counts.entry(key).or_default() += delta;
        }
        for entry in &changes.transfers {
            for (account, delta) in [(&entry.from, -entry.amount), (&entry.to, entry.amount)] {
                if matches!(account, Account::Named { .. }) {
                    let sum = self.accounts.entry(account).or_default();
                    let overflow = || StoreError::Rejected(format!("the balance of {account:?} would overflow"));
                    *sum = sum.checked_add(delta).ok_or_else(overflow)?;
                }
            }
        }
        self.payloads.extend(changes.payloads.iter().map(|new| (new.payload, new.bytes.as_bytes())));
        Ok(())
    }

    fn put_record(&mut self, before: Option<&Arc<Record>>, after: Arc<Record>) {
        if let Some(at) = self.record_index.get(&after.id) {
            self.records[*at].after = after;
            return;
        }
        self.record_index.insert(after.id, self.records.len());
        self.records.push(RecordWrite { before: before.cloned(), after, head_hash: ZERO_HASH });
    }

    /// Returns payload bytes by hash, with the number of new records that reference each. The bytes are empty if the
    /// batch does not contain them: a record can reference bytes that were saved earlier, or never.
    pub(crate) fn payloads_by_hash(&self) -> BTreeMap<[u8; 32], (&'a [u8], i64)> {
        let mut contents: BTreeMap<[u8; 32], (&[u8], i64)> = BTreeMap::new();
        contents.extend(self.payloads.iter().map(|(payload, bytes)| (payload.sha256, (*bytes, 0))));
        let new = self.records.iter().filter(|record| record.before.is_none());
        for payload in new.filter_map(|record| record.after.payload) {
            contents.entry(payload.sha256).or_default().1 += 1;
        }
        contents
    }

    /// Returns the keys that must still have their loaded values: all keys read, and all records overwritten. If the id
    /// of a new record was not read, the store's primary key ensures that it is free.
    pub(crate) fn keys_to_validate(&self, read_set: &ReadSet) -> Vec<ReadKey> {
        let mut keys: Vec<ReadKey> =
            self.read_keys.iter().filter(|key| read_set.needs_validation(key)).map(|key| (*key).clone()).collect();
        let written = self
            .records
            .iter()
            .filter(|record| record.before.is_some() || read_set.record_meta(record.after.id).is_some());
        keys.extend(written.map(|record| ReadKey::Record(record.after.id)));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the keys to validate that were never loaded. If the store knows that nothing changed, only these can be
    /// wrong.
    pub(crate) fn unobserved_keys(&self, read_set: &ReadSet) -> Vec<ReadKey> {
        let unobserved =
            self.read_keys.iter().filter(|key| read_set.needs_validation(key) && !read_set.has_observed(key));
        let mut keys: Vec<ReadKey> = unobserved.map(|key| (*key).clone()).collect();
        let written = self.records.iter().filter(|record| record.before.is_some());
        keys.extend(written.map(|record| ReadKey::Record(record.after.id)).filter(|key| !read_set.has_observed(key)));
        keys
    }

    /// Returns every key whose value changes with this batch.
    pub(crate) fn written_keys(&self) -> HashSet<ReadKey> {
        let mut keys: HashSet<ReadKey> = self.records.iter().map(|record| ReadKey::Record(record.after.id)).collect();
        keys.extend(self.uniques.keys().map(|key| ReadKey::Unique((*key).clone())));
        keys.extend(self.counts.keys().map(|key| ReadKey::Counter((*key).clone())));
        keys.extend(self.accounts.keys().map(|account| ReadKey::Account((*account).clone())));
        for record in &self.records {
            keys.extend(record.changed_links().into_iter().map(|(link, _)| ReadKey::Links(link)));
            let (old, new) = record.queue_change();
            if old != new {
                keys.extend([old, new].into_iter().flatten().map(ReadKey::ConcurrencyQueue));
            }
        }
        keys
    }

    /// Returns the changes of record counts by version, owner and state.
    pub(crate) fn state_count_deltas(&self) -> BTreeMap<StateCountKey, i64> {
        let mut deltas: BTreeMap<StateCountKey, i64> = BTreeMap::new();
        for record in &self.records {
            if !record.is_version_migrated()
                && record.before.as_ref().is_some_and(|before| before.state == record.after.state)
            {
                continue;
            }
            if let Some(before) = &record.before {
                *deltas.entry(StateCountKey::from_record(before)).or_default() -= 1;
            }
            *deltas.entry(StateCountKey::from_record(&record.after)).or_default() += 1;
        }
        deltas.retain(|_, delta| *delta != 0);
        deltas
    }
}
