//! The world as an operation has left it so far: changes over a snapshot, with marks to go back to.

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

/// Entries that are looked through one by one. Most operations touch one record or two, for which an index would cost more
/// than all else that is kept of them.
const MAX_UNINDEXED_RECORDS: usize = 8;

/// What a `UUIDv7` has beside its time.
const UUID_RANDOM_BITS: u32 = 74;

/// Of these, what tells the version of a message's sender. Sixteen million operations of one microsecond are more than there are; and as
/// much chance is left that no two messages of a millisecond meet.
const DELIVERY_ID_VERSION_BITS: u32 = 24;

pub(super) struct Draft<'a> {
    pub(super) definitions: &'a Definitions,
    pub(super) snapshot: &'a Snapshot,
    pub(super) operation: &'a Operation,
    pub(super) now: Time,
    pub(super) records: Vec<DraftRecord>,
    /// Where the entries stand, once there are more than [`MAX_UNINDEXED_RECORDS`].
    record_index: BTreeMap<RecordId, usize>,
    // Ordered, because the same operation must give the same changes; and an empty or small one costs next to nothing.
    unique_claims: BTreeMap<UniqueKey, Option<RecordId>>,
    counter_deltas: BTreeMap<CounterKey, i64>,
    balance_deltas: BTreeMap<Account, i64>,
    pub(super) link_changes: BTreeMap<LinkKey, Vec<(RecordId, bool)>>,
    /// Cascaded events that a record has taken: each once per operation, so cascades end.
    taken_cascades: BTreeSet<(RecordId, Arc<str>)>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) effects: Vec<Effect>,
    pub(super) payloads: Vec<NewPayload>,
    pub(super) audit_entries: Vec<AuditEntry>,
    /// Records that send a message outside.
    pub(super) delivery_senders: Vec<RecordId>,
    /// Records that serve in place of ones that would have been spawned: they hold the keys of these.
    pub(super) existing: Vec<RecordId>,
    /// Ids made so far; never goes back, so that an undone row's ids are not used again.
    generated_ids: u64,
    undo_log: Vec<UndoStep>,
    read_keys: RefCell<Vec<ReadKey>>,
    /// In an operation of the engine's for a record that is due: since when, and which. Only what was due before it goes
    /// first, so that no two records wait for each other and what was late happens in the order it should have had.
    pub(super) due_turn: Option<(Time, RecordId)>,
}

/// How to take one step back.
enum UndoStep {
    Inserted,
    Replaced { index: usize, old: Arc<Record>, transition_count: usize },
    Unique { key: UniqueKey, old: PreviousClaim },
    Counter { key: CounterKey, delta: i64 },
    Balance { account: Account, delta: i64 },
    Link { key: LinkKey },
    CascadeTaken { record: RecordId, event: Arc<str> },
}

/// What the draft said of a key before: nothing, or who holds it.
enum PreviousClaim {
    Unclaimed,
    Claimed(Option<RecordId>),
}

/// A place to go back to when a `require_event` is not taken.
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
            due_turn: None,
        }
    }

    /// Where what this operation makes stands in a trace: with the request, or, where nobody asked, with the record that moves.
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
                Some(UndoStep::Replaced { index: at, old, transition_count: rows }) => {
                    self.records[at].after = old;
                    self.records[at].transitions.truncate(rows);
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

    /// A record as the snapshot has it, whether or not it is due; `None` where there is none.
    pub(super) fn stored_record(&self, id: RecordId) -> DecideResult<Option<&Arc<Record>>> {
        self.read_keys.borrow_mut().push(ReadKey::Record(id));
        match self.snapshot.records.get(&id) {
            Some(record) => Ok(record.as_ref()),
            None if self.snapshot.is_complete => Ok(None),
            None => Err(Halt::Missing(vec![ReadKey::Record(id)])),
        }
    }

    /// Whether the snapshot has a record with an id that was made here. Nobody is asked for it: chance stands behind such an id, and a store
    /// takes no second record under one.
    pub(super) fn is_loaded(&self, id: RecordId) -> bool {
        self.snapshot.records.get(&id).is_some_and(Option::is_some)
    }

    /// Where the record stands among those that the operation has touched.
    fn index_of(&self, id: RecordId) -> Option<usize> {
        if self.records.len() <= MAX_UNINDEXED_RECORDS {
            return self.records.iter().position(|entry| entry.after.id == id);
        }
        self.record_index.get(&id).copied()
    }

    /// A record as the operation has left it so far, brought up to date by its timers; `None` where there is none.
    pub(super) fn find(&self, id: RecordId) -> DecideResult<Option<&Arc<Record>>> {
        if let Some(at) = self.index_of(id) {
            return Ok(Some(&self.records[at].after));
        }
        let Some(record) = self.stored_record(id)? else { return Ok(None) };
        // FM-7, INV-3: time does not run backwards in a record's log, whatever the clock says.
        if record.updated_at > self.now {
            return Err(Halt::ClockBehind(record.updated_at));
        }
        if next_due(record).is_some_and(|due| due <= self.now && self.due_turn.is_none_or(|turn| (due, id) < turn)) {
            return Err(Halt::Due(vec![id]));
        }
        Ok(Some(record))
    }

    /// A record that must be there, since a record of ours points to it.
    pub(super) fn expect_record(&self, id: RecordId) -> DecideResult<Arc<Record>> {
        self.find(id)?.cloned().ok_or_else(dangling_ref_halt)
    }

    /// Make sure that all of these are loaded and up to date, asking for all that is missing at once.
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

    /// A new record, or a new version of one.
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

    /// A record that did not exist. Nothing is looked up: an id that a caller gave was looked for before, and one made from
    /// the operation's seed is new, or the store's primary key says otherwise.
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

    /// Change a record's execution in place: only between rows, where nothing is gone back behind.
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

    /// Note that a row was taken; the record was put before. The row's place among those that the record has taken.
    pub(super) fn record_transition(&mut self, id: RecordId, event: &Arc<str>, transition: usize) -> usize {
        let Some(at) = self.index_of(id) else { return 0 };
        let transitions = &mut self.records[at].transitions;
        // A row's number fits: bounds::ROWS.
        transitions.push((Arc::clone(event), u16::try_from(transition).unwrap_or(u16::MAX)));
        transitions.len() - 1
    }

    /// Whether a row after that place has brought the record into another state, or into the same one again.
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

    /// The balance of a named account that can run short.
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
        // Where the account is known its sum must fit too; where it is not, the store holds the same constraint.
        self.snapshot
            .accounts
            .get(&account)
            .map_or(Some(0), |stored| stored.checked_add(new_delta))
            .ok_or_else(overflow)?;
        *balance = new_delta;
        self.undo_log.push(UndoStep::Balance { account, delta });
        Ok(())
    }

    /// Whether the record has taken this cascaded event already.
    pub(super) fn has_taken_cascade(&self, record: RecordId, event: &Arc<str>) -> bool {
        !self.taken_cascades.is_empty() && self.taken_cascades.contains(&(record, Arc::clone(event)))
    }

    pub(super) fn mark_cascade_taken(&mut self, record: RecordId, event: &Arc<str>) {
        if self.taken_cascades.insert((record, Arc::clone(event))) {
            self.undo_log.push(UndoStep::CascadeTaken { record, event: Arc::clone(event) });
        }
    }

    /// The event was offered and not taken: it may be offered again.
    pub(super) fn unmark_cascade_taken(&mut self, record: RecordId, event: &Arc<str>) {
        self.taken_cascades.remove(&(record, Arc::clone(event)));
    }

    pub(super) fn record_read(&self, key: ReadKey) {
        self.read_keys.borrow_mut().push(key);
    }

    /// A fresh id: a `UUIDv7` of the operation's time, its seed and a counter.
    pub(super) fn generate_id(&mut self) -> RecordId {
        let random = self.operation.seed.wrapping_add(u128::from(self.generated_ids));
        self.generated_ids += 1;
        self.build_uuid_v7(random)
    }

    /// A fresh id for a message of a record that will have this version. A record's messages go by their time, then by their
    /// id; their times never fall, and each operation that sends one raises the version: so they go in the order of its log.
    pub(super) fn generate_delivery_id(&mut self, version: u64) -> RecordId {
        let version_bits = u128::from(version) & ((1 << DELIVERY_ID_VERSION_BITS) - 1);
        // One bit of room, so that messages of one operation, too, go as they were made.
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

/// What is left of a draft when it is done.
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
