//! The draft of an operation: its changes on top of the snapshot, with savepoints.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::changes::{Account, AuditEntry, Effect, NewPayload, Transfer};
use super::halt::{DecideResult, Halt};
use super::operation::Operation;
use super::snapshot::{CounterKey, LinkKey, ReadKey, RefChange, Snapshot, UniqueKey, ref_changes};
use super::timers::next_due;
use crate::diagnostic::Span;
use crate::expr::{EvalFault, FaultKind};
use crate::model::Definitions;
use crate::record::Record;
use crate::time::Time;
use crate::trace::TraceContext;
use crate::value::RecordId;

/// A record that the operation has touched.
pub(super) struct DraftRecord {
    pub(super) before: Option<Arc<Record>>,
    pub(super) after: Arc<Record>,
    pub(super) transitions: Vec<(Arc<str>, u16)>,
}

/// Up to this many records, `index_of` scans. Most operations touch one or two records, for which an index costs more
/// than the scan.
const MAX_UNINDEXED_RECORDS: usize = 8;

/// Bits of a `UUIDv7` that are neither time, version nor variant.
const UUID_RANDOM_BITS: u32 = 74;

/// Bits of a delivery id that hold the sender's record version. 2^24 versions cannot wrap within one microsecond, and
/// the remaining 50 random bits avoid collisions within one millisecond.
const DELIVERY_ID_VERSION_BITS: u32 = 24;

pub(super) struct Draft<'a> {
    pub(super) definitions: &'a Definitions,
    pub(super) snapshot: &'a Snapshot,
    pub(super) operation: &'a Operation,
    pub(super) now: Time,
    pub(super) records: Vec<DraftRecord>,
    /// Indexes into `records`, once there are more than [`MAX_UNINDEXED_RECORDS`].
    record_index: BTreeMap<RecordId, usize>,
    // Ordered maps, because the same operation must give the same changes. Empty and small ones cost little.
    unique_claims: BTreeMap<UniqueKey, Option<RecordId>>,
    counter_deltas: BTreeMap<CounterKey, i64>,
    balance_deltas: BTreeMap<Account, i64>,
    pub(super) link_changes: BTreeMap<LinkKey, Vec<(RecordId, bool)>>,
    /// Cascaded events that a record has taken. A record takes each only once per operation, so cascades end.
    taken_cascades: BTreeSet<(RecordId, Arc<str>)>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) effects: Vec<Effect>,
    pub(super) payloads: Vec<NewPayload>,
    pub(super) audit_entries: Vec<AuditEntry>,
    /// Records that send a delivery.
    pub(super) delivery_senders: Vec<RecordId>,
    /// Existing records that hold the unique keys of records that would have been spawned.
    pub(super) existing: Vec<RecordId>,
    /// Never rolled back, so that ids of undone transitions are not reused.
    generated_ids: u64,
    undo_log: Vec<UndoStep>,
    read_keys: RefCell<Vec<ReadKey>>,
    /// While the engine fires a due record: its due time and id. Only records with an earlier due time fire first, so
    /// that no two records wait for each other and overdue events happen in the order of their due times.
    pub(super) firing_due: Option<(Time, RecordId)>,
}

/// Reverts one change.
enum UndoStep {
    Inserted,
    Replaced { index: usize, old: Arc<Record>, transition_count: usize },
    Unique { key: UniqueKey, old: PreviousClaim },
    Counter { key: CounterKey, delta: i64 },
    Balance { account: Account, delta: i64 },
    Link { key: LinkKey },
    CascadeTaken { record: RecordId, event: Arc<str> },
}

/// The draft's entry for a unique key before a change.
enum PreviousClaim {
    Unclaimed,
    Claimed(Option<RecordId>),
}

/// State to return to if a `require` is not taken.
pub(super) struct Savepoint {
    undo_len: usize,
    transfer_count: usize,
    effect_count: usize,
    payload_count: usize,
    audit_count: usize,
    sender_count: usize,
    existing_count: usize,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        definitions: &'a Definitions,
        snapshot: &'a Snapshot,
        operation: &'a Operation,
        now: Time,
    ) -> Self {
        Self {
            definitions,
            snapshot,
            operation,
            now,
            records: Vec::new(),
            record_index: BTreeMap::new(),
            unique_claims: BTreeMap::new(),
            counter_deltas: BTreeMap::new(),
            balance_deltas: BTreeMap::new(),
            link_changes: BTreeMap::new(),
            taken_cascades: BTreeSet::new(),
            transfers: Vec::new(),
            effects: Vec::new(),
            payloads: Vec::new(),
            audit_entries: Vec::new(),
            delivery_senders: Vec::new(),
            existing: Vec::new(),
            generated_ids: 0,
            undo_log: Vec::new(),
            read_keys: RefCell::new(Vec::new()),
            firing_due: None,
        }
    }

    /// Trace context for new records: that of the request, or else that of the record that the engine acts on.
    pub(super) fn trace_context(&self) -> Option<TraceContext> {
        let trace_of_record = || self.snapshot.record(self.operation.call.record()?)?.trace;
        self.operation.trace.or_else(trace_of_record)
    }

    pub(super) fn savepoint(&self) -> Savepoint {
        Savepoint {
            undo_len: self.undo_log.len(),
            transfer_count: self.transfers.len(),
            effect_count: self.effects.len(),
            payload_count: self.payloads.len(),
            audit_count: self.audit_entries.len(),
            sender_count: self.delivery_senders.len(),
            existing_count: self.existing.len(),
        }
    }

    pub(super) fn rollback_to(&mut self, savepoint: &Savepoint) {
        while self.undo_log.len() > savepoint.undo_len {
            match self.undo_log.pop() {
                Some(UndoStep::Inserted) => {
                    if let Some(entry) = self.records.pop() {
                        self.record_index.remove(&entry.after.id);
                    }
                    if self.records.len() <= MAX_UNINDEXED_RECORDS {
                        self.record_index.clear();
                    }
                }
                Some(UndoStep::Replaced { index: at, old, transition_count }) => {
                    self.records[at].after = old;
                    self.records[at].transitions.truncate(transition_count);
                }
                Some(UndoStep::Unique { key, old: PreviousClaim::Claimed(old) }) => {
                    self.unique_claims.insert(key, old);
                }
                Some(UndoStep::Unique { key, old: PreviousClaim::Unclaimed }) => {
                    self.unique_claims.remove(&key);
                }
                Some(UndoStep::Counter { key, delta }) => *self.counter_deltas.entry(key).or_default() -= delta,
                Some(UndoStep::Balance { account, delta }) => *self.balance_deltas.entry(account).or_default() -= delta,
                Some(UndoStep::Link { key }) => {
                    if let Some(changes) = self.link_changes.get_mut(&key) {
                        changes.pop();
                    }
                }
                Some(UndoStep::CascadeTaken { record, event }) => {
                    self.taken_cascades.remove(&(record, event));
                }
                None => break,
            }
        }
        self.transfers.truncate(savepoint.transfer_count);
        self.effects.truncate(savepoint.effect_count);
        self.payloads.truncate(savepoint.payload_count);
        self.audit_entries.truncate(savepoint.audit_count);
        self.delivery_senders.truncate(savepoint.sender_count);
        self.existing.truncate(savepoint.existing_count);
    }

    /// Returns the record from the snapshot, even if it is due.
    pub(super) fn stored_record(&self, id: RecordId) -> DecideResult<Option<&Arc<Record>>> {
        self.read_keys.borrow_mut().push(ReadKey::Record(id));
        match self.snapshot.records.get(&id) {
            Some(record) => Ok(record.as_ref()),
            None if self.snapshot.is_complete => Ok(None),
            None => Err(Halt::Missing(vec![ReadKey::Record(id)])),
        }
    }

    /// Whether the snapshot contains a generated id. The store is not queried: generated ids are random, and the
    /// store's primary key rejects a second record with the same id.
    pub(super) fn is_loaded(&self, id: RecordId) -> bool {
        self.snapshot.records.get(&id).is_some_and(Option::is_some)
    }

    /// Returns the record's index in `records`.
    fn index_of(&self, id: RecordId) -> Option<usize> {
        if self.records.len() <= MAX_UNINDEXED_RECORDS {
            return self.records.iter().position(|entry| entry.after.id == id);
        }
        self.record_index.get(&id).copied()
    }

    /// Returns the record with the operation's changes so far. Halts if the record is due, or was updated after `now`.
    pub(super) fn find(&self, id: RecordId) -> DecideResult<Option<&Arc<Record>>> {
        if let Some(at) = self.index_of(id) {
            return Ok(Some(&self.records[at].after));
        }
        let Some(record) = self.stored_record(id)? else { return Ok(None) };
        // FM-7, INV-3: the times in a record's log never decrease, even if the clock goes back.
        if record.updated_at > self.now {
            return Err(Halt::ClockBehind(record.updated_at));
        }
        if next_due(record)
            .is_some_and(|due| due <= self.now && self.firing_due.is_none_or(|current| (due, id) < current))
        {
            return Err(Halt::Due(vec![id]));
        }
        Ok(Some(record))
    }

    /// Returns a record that must exist because another record refers to it.
    pub(super) fn expect_record(&self, id: RecordId) -> DecideResult<Arc<Record>> {
        self.find(id)?.cloned().ok_or_else(dangling_ref_halt)
    }

    /// Ensures that all records are loaded and not due. Requests everything that is missing at once.
    pub(super) fn require_loaded(&self, ids: &[RecordId]) -> DecideResult<()> {
        let (mut missing, mut due) = (Vec::new(), Vec::new());
        for id in ids {
            match self.find(*id) {
                Err(Halt::Missing(mut keys)) => missing.append(&mut keys),
                Err(Halt::Due(mut records)) => due.append(&mut records),
                Err(other) => return Err(other),
                Ok(_) => {}
            }
        }
        if !missing.is_empty() {
            return Err(Halt::Missing(missing));
        }
        if due.is_empty() { Ok(()) } else { Err(Halt::Due(due)) }
    }

    /// Adds a record, or replaces it with a new version.
    pub(super) fn put_record(&mut self, record: Record) -> DecideResult<()> {
        let id = record.id;
        if let Some(at) = self.index_of(id) {
            let changes = ref_changes(Some(&self.records[at].after), &record);
            self.record_link_changes(changes, &record);
            let entry = &mut self.records[at];
            let transitions = entry.transitions.len();
            let old = std::mem::replace(&mut entry.after, Arc::new(record));
            self.undo_log.push(UndoStep::Replaced { index: at, old, transition_count: transitions });
            return Ok(());
        }
        let before = self.stored_record(id)?.cloned();
        self.record_link_changes(ref_changes(before.as_deref(), &record), &record);
        self.push_record(before, record);
        Ok(())
    }

    /// Adds a new record without a lookup: an id from the caller was looked up before, and the store's primary key
    /// rejects a duplicate generated id.
    pub(super) fn put_new_record(&mut self, record: Record) {
        self.record_link_changes(ref_changes(None, &record), &record);
        self.push_record(None, record);
    }

    fn push_record(&mut self, before: Option<Arc<Record>>, record: Record) {
        let id = record.id;
        self.records.push(DraftRecord { before, after: Arc::new(record), transitions: Vec::new() });
        if self.records.len() == MAX_UNINDEXED_RECORDS + 1 {
            self.record_index = self.records.iter().enumerate().map(|(at, entry)| (entry.after.id, at)).collect();
        } else if self.records.len() > MAX_UNINDEXED_RECORDS {
            self.record_index.insert(id, self.records.len() - 1);
        }
        self.undo_log.push(UndoStep::Inserted);
    }

    /// Changes a record's execution in place. Not undoable, so only valid between transitions.
    pub(super) fn update_in_place(&mut self, id: RecordId, change: impl FnOnce(&mut Record)) -> DecideResult<()> {
        if self.index_of(id).is_none() {
            let record = self.expect_record(id)?;
            self.put_record((*record).clone())?;
        }
        if let Some(at) = self.index_of(id) {
            change(Arc::make_mut(&mut self.records[at].after));
        }
        Ok(())
    }

    /// Records that a transition was taken, after the record was put. Returns its index among the record's transitions.
    pub(super) fn record_transition(&mut self, id: RecordId, event: &Arc<str>, transition: usize) -> usize {
        let Some(at) = self.index_of(id) else { return 0 };
        let transitions = &mut self.records[at].transitions;
        // `bounds::MAX_TRANSITIONS` fits a `u16`.
        transitions.push((Arc::clone(event), u16::try_from(transition).unwrap_or(u16::MAX)));
        transitions.len() - 1
    }

    /// Whether a later transition entered a state, including the same state again.
    pub(super) fn has_entered_state_since(&self, id: RecordId, transition_index: usize) -> bool {
        let Some(at) = self.index_of(id) else { return false };
        let entry = &self.records[at];
        entry.transitions[transition_index + 1..].iter().any(|(event, transition)| {
            let transitions = entry.after.lifecycle.event(event).map_or(&[][..], |event| &event.transitions);
            transitions.get(usize::from(*transition)).is_some_and(|transition| transition.to.is_some())
        })
    }

    fn record_link_changes(&mut self, changes: Vec<RefChange>, after: &Record) {
        for change in changes {
            let key =
                LinkKey { target: change.target, lifecycle: Arc::clone(&after.lifecycle.name), field: change.field };
            self.link_changes.entry(key.clone()).or_default().push((after.id, change.is_added));
            self.undo_log.push(UndoStep::Link { key });
        }
    }

    pub(super) fn unique_holder(&self, key: &UniqueKey) -> DecideResult<Option<RecordId>> {
        if let Some(holder) = self.unique_claims.get(key) {
            return Ok(*holder);
        }
        self.read_keys.borrow_mut().push(ReadKey::Unique(key.clone()));
        match self.snapshot.unique_holders.get(key) {
            Some(holder) => Ok(*holder),
            None if self.snapshot.is_complete => Ok(None),
            None => Err(Halt::Missing(vec![ReadKey::Unique(key.clone())])),
        }
    }

    pub(super) fn set_unique_holder(&mut self, key: UniqueKey, holder: Option<RecordId>) {
        let old =
            self.unique_claims.insert(key.clone(), holder).map_or(PreviousClaim::Unclaimed, PreviousClaim::Claimed);
        self.undo_log.push(UndoStep::Unique { key, old });
    }

    pub(super) fn counter_value(&self, key: &CounterKey) -> DecideResult<u64> {
        let delta = self.counter_deltas.get(key).copied().unwrap_or(0);
        self.read_keys.borrow_mut().push(ReadKey::Counter(key.clone()));
        let stored = match self.snapshot.counters.get(key) {
            Some(count) => *count,
            None if self.snapshot.is_complete => 0,
            None => return Err(Halt::Missing(vec![ReadKey::Counter(key.clone())])),
        };
        Ok(stored.saturating_add_signed(delta))
    }

    pub(super) fn add_to_counter(&mut self, key: CounterKey, delta: i64) {
        *self.counter_deltas.entry(key.clone()).or_default() += delta;
        self.undo_log.push(UndoStep::Counter { key, delta });
    }

    /// Returns the balance of a named account that must not become negative.
    pub(super) fn balance(&self, account: &Account) -> DecideResult<i64> {
        let delta = self.balance_deltas.get(account).copied().unwrap_or(0);
        self.read_keys.borrow_mut().push(ReadKey::Account(account.clone()));
        let stored = match self.snapshot.accounts.get(account) {
            Some(balance) => *balance,
            None if self.snapshot.is_complete => 0,
            None => return Err(Halt::Missing(vec![ReadKey::Account(account.clone())])),
        };
        stored.checked_add(delta).ok_or_else(|| fault_halt(FaultKind::Overflow))
    }

    pub(super) fn add_to_balance(&mut self, account: Account, delta: i64) -> DecideResult<()> {
        let overflow = || fault_halt(FaultKind::Overflow);
        let balance = self.balance_deltas.entry(account.clone()).or_default();
        let new_delta = balance.checked_add(delta).ok_or_else(overflow)?;
        // If the balance is loaded, it must not overflow. If not, the store enforces the same constraint.
        self.snapshot
            .accounts
            .get(&account)
            .map_or(Some(0), |stored| stored.checked_add(new_delta))
            .ok_or_else(overflow)?;
        *balance = new_delta;
        self.undo_log.push(UndoStep::Balance { account, delta });
        Ok(())
    }

    /// Whether the record has taken this cascaded event.
    pub(super) fn has_taken_cascade(&self, record: RecordId, event: &Arc<str>) -> bool {
        !self.taken_cascades.is_empty() && self.taken_cascades.contains(&(record, Arc::clone(event)))
    }

    pub(super) fn mark_cascade_taken(&mut self, record: RecordId, event: &Arc<str>) {
        if self.taken_cascades.insert((record, Arc::clone(event))) {
            self.undo_log.push(UndoStep::CascadeTaken { record, event: Arc::clone(event) });
        }
    }

    /// Allows the event to be offered again, because the record did not take it.
    pub(super) fn unmark_cascade_taken(&mut self, record: RecordId, event: &Arc<str>) {
        self.taken_cascades.remove(&(record, Arc::clone(event)));
    }

    pub(super) fn record_read(&self, key: ReadKey) {
        self.read_keys.borrow_mut().push(key);
    }

    /// Generates a `UUIDv7` from the operation's time, its seed and a counter.
    pub(super) fn generate_id(&mut self) -> RecordId {
        let random = self.operation.seed.wrapping_add(u128::from(self.generated_ids));
        self.generated_ids += 1;
        self.build_uuid_v7(random)
    }

    /// Generates an id for a delivery of a record that gets this version. Deliveries of a record are ordered by
    /// creation time, then by id. Creation times never decrease and each sending operation raises the version, so the
    /// order is that of the record's log.
    pub(super) fn generate_delivery_id(&mut self, version: u64) -> RecordId {
        let version_bits = u128::from(version) & ((1 << DELIVERY_ID_VERSION_BITS) - 1);
        // One spare bit, so that adding the counter keeps the deliveries of one operation in order.
        let random_bits = self.operation.seed & ((1 << (UUID_RANDOM_BITS - DELIVERY_ID_VERSION_BITS - 1)) - 1);
        let random = version_bits << (UUID_RANDOM_BITS - DELIVERY_ID_VERSION_BITS)
            | (random_bits + u128::from(self.generated_ids));
        self.generated_ids += 1;
        self.build_uuid_v7(random)
    }

    fn build_uuid_v7(&self, random: u128) -> RecordId {
        let millis = u128::from(self.now.micros().max(0).unsigned_abs() / 1_000) & 0xffff_ffff_ffff;
        let bits = millis << 80 | 7 << 76 | (random >> 62 & 0xfff) << 64 | 0b10 << 62 | (random & ((1 << 62) - 1));
        RecordId(uuid::Uuid::from_u128(bits))
    }

    pub(super) fn into_parts(self) -> DraftParts {
        let mut read_keys = self.read_keys.into_inner();
        read_keys.sort_unstable();
        read_keys.dedup();
        let unique_claims = self.unique_claims.into_iter().collect();
        let counter_deltas = self.counter_deltas.into_iter().filter(|(_, delta)| *delta != 0).collect();
        DraftParts {
            records: self.records,
            unique_claims,
            counter_deltas,
            transfers: self.transfers,
            effects: self.effects,
            payloads: self.payloads,
            audit_entries: self.audit_entries,
            delivery_senders: self.delivery_senders,
            existing: self.existing,
            read_keys,
        }
    }
}

/// The contents of a finished draft.
pub(super) struct DraftParts {
    pub(super) records: Vec<DraftRecord>,
    pub(super) unique_claims: Vec<(UniqueKey, Option<RecordId>)>,
    pub(super) counter_deltas: Vec<(CounterKey, i64)>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) effects: Vec<Effect>,
    pub(super) payloads: Vec<NewPayload>,
    pub(super) audit_entries: Vec<AuditEntry>,
    pub(super) delivery_senders: Vec<RecordId>,
    pub(super) existing: Vec<RecordId>,
    pub(super) read_keys: Vec<ReadKey>,
}

pub(super) fn fault_halt(kind: FaultKind) -> Halt {
    Halt::Fault(EvalFault { kind, span: Span::default() })
}

pub(super) fn dangling_ref_halt() -> Halt {
    fault_halt(FaultKind::DanglingRef)
}
