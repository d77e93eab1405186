//! The world as an operation has left it so far: changes over a snapshot, with marks to go back to.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::changes::{Account, AuditEntry, Effect, LedgerMove, NewPayload};
use super::halt::{Halt, Step};
use super::operation::Operation;
use super::snapshot::{CountKey, Key, LinkKey, RefChange, Snapshot, UniqueKey, ref_changes};
use super::timers::next_due;
use crate::diagnostic::Span;
use crate::expr::{Fault, FaultKind};
use crate::model::Definitions;
use crate::record::Record;
use crate::time::Time;
use crate::trace::Trace;
use crate::value::RecordId;

/// A record that the operation has touched.
pub(super) struct Entry {
    pub(super) before: Option<Arc<Record>>,
    pub(super) after: Arc<Record>,
    pub(super) rows: Vec<(Arc<str>, u16)>,
}

/// Entries that are looked through one by one. Most operations touch one record or two, for which an index would cost more
/// than all else that is kept of them.
const SCANNED: usize = 8;

/// What a `UUIDv7` has beside its time.
const ID_BITS: u32 = 74;

/// Of these, what tells the version of a message's sender. Sixteen million operations of one microsecond are more than there are; and as
/// much chance is left that no two messages of a millisecond meet.
const VERSION_BITS: u32 = 24;

pub(super) struct Draft<'a> {
    pub(super) definitions: &'a Definitions,
    pub(super) snapshot: &'a Snapshot,
    pub(super) operation: &'a Operation,
    pub(super) now: Time,
    pub(super) entries: Vec<Entry>,
    /// Where the entries stand, once there are more than [`SCANNED`].
    index: BTreeMap<RecordId, usize>,
    // Ordered, because the same operation must give the same changes; and an empty or small one costs next to nothing.
    uniques: BTreeMap<UniqueKey, Option<RecordId>>,
    counts: BTreeMap<CountKey, i64>,
    balances: BTreeMap<Account, i64>,
    pub(super) links: BTreeMap<LinkKey, Vec<(RecordId, bool)>>,
    /// Cascaded events that a record has taken: each once per operation, so cascades end.
    taken: BTreeSet<(RecordId, Arc<str>)>,
    pub(super) moves: Vec<LedgerMove>,
    pub(super) effects: Vec<Effect>,
    pub(super) payloads: Vec<NewPayload>,
    pub(super) audit: Vec<AuditEntry>,
    /// Records that send a message outside.
    pub(super) senders: Vec<RecordId>,
    /// Records that serve in place of ones that would have been spawned: they hold the keys of these.
    pub(super) met: Vec<RecordId>,
    /// Ids made so far; never goes back, so that an undone row's ids are not used again.
    made: u64,
    undo: Vec<Undo>,
    reads: RefCell<Vec<Key>>,
    /// In an operation of the engine's for a record that is due: since when, and which. Only what was due before it goes
    /// first, so that no two records wait for each other and what was late happens in the order it should have had.
    pub(super) turn: Option<(Time, RecordId)>,
}

/// How to take one step back.
enum Undo {
    Inserted,
    Replaced { at: usize, old: Arc<Record>, rows: usize },
    Unique { key: UniqueKey, old: Previous },
    Count { key: CountKey, delta: i64 },
    Balance { account: Account, delta: i64 },
    Link { key: LinkKey },
    Taken { record: RecordId, event: Arc<str> },
}

/// What the draft said of a key before: nothing, or who holds it.
enum Previous {
    Unsaid,
    Said(Option<RecordId>),
}

/// A place to go back to when a `require` is not taken.
pub(super) struct Mark {
    undo: usize,
    moves: usize,
    effects: usize,
    payloads: usize,
    audit: usize,
    senders: usize,
    met: usize,
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
            entries: Vec::new(),
            index: BTreeMap::new(),
            uniques: BTreeMap::new(),
            counts: BTreeMap::new(),
            balances: BTreeMap::new(),
            links: BTreeMap::new(),
            taken: BTreeSet::new(),
            moves: Vec::new(),
            effects: Vec::new(),
            payloads: Vec::new(),
            audit: Vec::new(),
            senders: Vec::new(),
            met: Vec::new(),
            made: 0,
            undo: Vec::new(),
            reads: RefCell::new(Vec::new()),
            turn: None,
        }
    }

    /// Where what this operation makes stands in a trace: with the request, or, where nobody asked, with the record that moves.
    pub(super) fn trace(&self) -> Option<Trace> {
        let moved = || self.snapshot.record(self.operation.call.record()?)?.trace;
        self.operation.trace.or_else(moved)
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            undo: self.undo.len(),
            moves: self.moves.len(),
            effects: self.effects.len(),
            payloads: self.payloads.len(),
            audit: self.audit.len(),
            senders: self.senders.len(),
            met: self.met.len(),
        }
    }

    pub(super) fn back_to(&mut self, mark: &Mark) {
        while self.undo.len() > mark.undo {
            match self.undo.pop() {
                Some(Undo::Inserted) => {
                    if let Some(entry) = self.entries.pop() {
                        self.index.remove(&entry.after.id);
                    }
                    if self.entries.len() <= SCANNED {
                        self.index.clear();
                    }
                }
                Some(Undo::Replaced { at, old, rows }) => {
                    self.entries[at].after = old;
                    self.entries[at].rows.truncate(rows);
                }
                Some(Undo::Unique { key, old: Previous::Said(old) }) => {
                    self.uniques.insert(key, old);
                }
                Some(Undo::Unique { key, old: Previous::Unsaid }) => {
                    self.uniques.remove(&key);
                }
                Some(Undo::Count { key, delta }) => *self.counts.entry(key).or_default() -= delta,
                Some(Undo::Balance { account, delta }) => *self.balances.entry(account).or_default() -= delta,
                Some(Undo::Link { key }) => {
                    if let Some(changes) = self.links.get_mut(&key) {
                        changes.pop();
                    }
                }
                Some(Undo::Taken { record, event }) => {
                    self.taken.remove(&(record, event));
                }
                None => break,
            }
        }
        self.moves.truncate(mark.moves);
        self.effects.truncate(mark.effects);
        self.payloads.truncate(mark.payloads);
        self.audit.truncate(mark.audit);
        self.senders.truncate(mark.senders);
        self.met.truncate(mark.met);
    }

    /// A record as the snapshot has it, whether or not it is due; `None` where there is none.
    pub(super) fn stored(&self, id: RecordId) -> Step<Option<&Arc<Record>>> {
        self.reads.borrow_mut().push(Key::Record(id));
        match self.snapshot.records.get(&id) {
            Some(record) => Ok(record.as_ref()),
            None if self.snapshot.complete => Ok(None),
            None => Err(Halt::Missing(vec![Key::Record(id)])),
        }
    }

    /// Whether the snapshot has a record with an id that was made here. Nobody is asked for it: chance stands behind such an id, and a store
    /// takes no second record under one.
    pub(super) fn is_known(&self, id: RecordId) -> bool {
        self.snapshot.records.get(&id).is_some_and(Option::is_some)
    }

    /// Where the record stands among those that the operation has touched.
    fn place_of(&self, id: RecordId) -> Option<usize> {
        if self.entries.len() <= SCANNED {
            return self.entries.iter().position(|entry| entry.after.id == id);
        }
        self.index.get(&id).copied()
    }

    /// A record as the operation has left it so far, brought up to date by its timers; `None` where there is none.
    pub(super) fn find(&self, id: RecordId) -> Step<Option<&Arc<Record>>> {
        if let Some(at) = self.place_of(id) {
            return Ok(Some(&self.entries[at].after));
        }
        let Some(record) = self.stored(id)? else { return Ok(None) };
        // FM-7, INV-3: time does not run backwards in a record's log, whatever the clock says.
        if record.updated_at > self.now {
            return Err(Halt::Later(record.updated_at));
        }
        if next_due(record).is_some_and(|due| due <= self.now && self.turn.is_none_or(|turn| (due, id) < turn)) {
            return Err(Halt::Due(vec![id]));
        }
        Ok(Some(record))
    }

    /// A record that must be there, since a record of ours points to it.
    pub(super) fn expect(&self, id: RecordId) -> Step<Arc<Record>> {
        self.find(id)?.cloned().ok_or_else(dangling)
    }

    /// Make sure that all of these are loaded and up to date, asking for all that is missing at once.
    pub(super) fn gather(&self, ids: &[RecordId]) -> Step<()> {
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
    pub(super) fn put(&mut self, record: Record) -> Step<()> {
        let id = record.id;
        if let Some(at) = self.place_of(id) {
            let changes = ref_changes(Some(&self.entries[at].after), &record);
            self.note_links(changes, &record);
            let entry = &mut self.entries[at];
            let rows = entry.rows.len();
            let old = std::mem::replace(&mut entry.after, Arc::new(record));
            self.undo.push(Undo::Replaced { at, old, rows });
            return Ok(());
        }
        let before = self.stored(id)?.cloned();
        self.note_links(ref_changes(before.as_deref(), &record), &record);
        self.add(before, record);
        Ok(())
    }

    /// A record that did not exist. Nothing is looked up: an id that a caller gave was looked for before, and one made from
    /// the operation's seed is new, or the store's primary key says otherwise.
    pub(super) fn put_new(&mut self, record: Record) {
        self.note_links(ref_changes(None, &record), &record);
        self.add(None, record);
    }

    fn add(&mut self, before: Option<Arc<Record>>, record: Record) {
        let id = record.id;
        self.entries.push(Entry { before, after: Arc::new(record), rows: Vec::new() });
        if self.entries.len() == SCANNED + 1 {
            self.index = self.entries.iter().enumerate().map(|(at, entry)| (entry.after.id, at)).collect();
        } else if self.entries.len() > SCANNED {
            self.index.insert(id, self.entries.len() - 1);
        }
        self.undo.push(Undo::Inserted);
    }

    /// Change a record's execution in place: only between rows, where nothing is gone back behind.
    pub(super) fn amend(&mut self, id: RecordId, change: impl FnOnce(&mut Record)) -> Step<()> {
        if self.place_of(id).is_none() {
            let record = self.expect(id)?;
            self.put((*record).clone())?;
        }
        if let Some(at) = self.place_of(id) {
            change(Arc::make_mut(&mut self.entries[at].after));
        }
        Ok(())
    }

    /// Note that a row was taken; the record was put before. The row's place among those that the record has taken.
    pub(super) fn note_row(&mut self, id: RecordId, event: &Arc<str>, row: usize) -> usize {
        let Some(at) = self.place_of(id) else { return 0 };
        let rows = &mut self.entries[at].rows;
        // A row's number fits: bounds::ROWS.
        rows.push((Arc::clone(event), u16::try_from(row).unwrap_or(u16::MAX)));
        rows.len() - 1
    }

    /// Whether a row after that place has brought the record into another state, or into the same one again.
    pub(super) fn has_moved_since(&self, id: RecordId, place: usize) -> bool {
        let Some(at) = self.place_of(id) else { return false };
        let entry = &self.entries[at];
        entry.rows[place + 1..].iter().any(|(event, row)| {
            let rows = entry.after.lifecycle.event(event).map_or(&[][..], |event| &event.rows);
            rows.get(usize::from(*row)).is_some_and(|row| row.to.is_some())
        })
    }

    fn note_links(&mut self, changes: Vec<RefChange>, after: &Record) {
        for change in changes {
            let key =
                LinkKey { target: change.target, lifecycle: Arc::clone(&after.lifecycle.name), field: change.field };
            self.links.entry(key.clone()).or_default().push((after.id, change.added));
            self.undo.push(Undo::Link { key });
        }
    }

    pub(super) fn holder(&self, key: &UniqueKey) -> Step<Option<RecordId>> {
        if let Some(holder) = self.uniques.get(key) {
            return Ok(*holder);
        }
        self.reads.borrow_mut().push(Key::Unique(key.clone()));
        match self.snapshot.uniques.get(key) {
            Some(holder) => Ok(*holder),
            None if self.snapshot.complete => Ok(None),
            None => Err(Halt::Missing(vec![Key::Unique(key.clone())])),
        }
    }

    pub(super) fn set_holder(&mut self, key: UniqueKey, holder: Option<RecordId>) {
        let old = self.uniques.insert(key.clone(), holder).map_or(Previous::Unsaid, Previous::Said);
        self.undo.push(Undo::Unique { key, old });
    }

    pub(super) fn count(&self, key: &CountKey) -> Step<u64> {
        let delta = self.counts.get(key).copied().unwrap_or(0);
        self.reads.borrow_mut().push(Key::Count(key.clone()));
        let stored = match self.snapshot.counts.get(key) {
            Some(count) => *count,
            None if self.snapshot.complete => 0,
            None => return Err(Halt::Missing(vec![Key::Count(key.clone())])),
        };
        Ok(stored.saturating_add_signed(delta))
    }

    pub(super) fn add_count(&mut self, key: CountKey, delta: i64) {
        *self.counts.entry(key.clone()).or_default() += delta;
        self.undo.push(Undo::Count { key, delta });
    }

    /// The balance of a named account that can run short.
    pub(super) fn balance(&self, account: &Account) -> Step<i64> {
        let delta = self.balances.get(account).copied().unwrap_or(0);
        self.reads.borrow_mut().push(Key::Account(account.clone()));
        let stored = match self.snapshot.accounts.get(account) {
            Some(balance) => *balance,
            None if self.snapshot.complete => 0,
            None => return Err(Halt::Missing(vec![Key::Account(account.clone())])),
        };
        stored.checked_add(delta).ok_or_else(|| fault(FaultKind::Overflow))
    }

    pub(super) fn add_balance(&mut self, account: Account, delta: i64) -> Step<()> {
        let overflow = || fault(FaultKind::Overflow);
        let balance = self.balances.entry(account.clone()).or_default();
        let changed = balance.checked_add(delta).ok_or_else(overflow)?;
        // Where the account is known its sum must fit too; where it is not, the store holds the same constraint.
        self.snapshot
            .accounts
            .get(&account)
            .map_or(Some(0), |stored| stored.checked_add(changed))
            .ok_or_else(overflow)?;
        *balance = changed;
        self.undo.push(Undo::Balance { account, delta });
        Ok(())
    }

    /// Whether the record has taken this cascaded event already.
    pub(super) fn has_taken(&self, record: RecordId, event: &Arc<str>) -> bool {
        !self.taken.is_empty() && self.taken.contains(&(record, Arc::clone(event)))
    }

    pub(super) fn note_taken(&mut self, record: RecordId, event: &Arc<str>) {
        if self.taken.insert((record, Arc::clone(event))) {
            self.undo.push(Undo::Taken { record, event: Arc::clone(event) });
        }
    }

    /// The event was offered and not taken: it may be offered again.
    pub(super) fn forget_taken(&mut self, record: RecordId, event: &Arc<str>) {
        self.taken.remove(&(record, Arc::clone(event)));
    }

    pub(super) fn note_read(&self, key: Key) {
        self.reads.borrow_mut().push(key);
    }

    /// A fresh id: a `UUIDv7` of the operation's time, its seed and a counter.
    pub(super) fn new_id(&mut self) -> RecordId {
        let random = self.operation.seed.wrapping_add(u128::from(self.made));
        self.made += 1;
        self.id_of(random)
    }

    /// A fresh id for a message of a record that will have this version. A record's messages go by their time, then by their
    /// id; their times never fall, and each operation that sends one raises the version: so they go in the order of its log.
    pub(super) fn message_id(&mut self, version: u64) -> RecordId {
        let versions = u128::from(version) & ((1 << VERSION_BITS) - 1);
        // One bit of room, so that messages of one operation, too, go as they were made.
        let chance = self.operation.seed & ((1 << (ID_BITS - VERSION_BITS - 1)) - 1);
        let random = versions << (ID_BITS - VERSION_BITS) | (chance + u128::from(self.made));
        self.made += 1;
        self.id_of(random)
    }

    fn id_of(&self, random: u128) -> RecordId {
        let millis = u128::from(self.now.micros().max(0).unsigned_abs() / 1_000) & 0xffff_ffff_ffff;
        let bits = millis << 80 | 7 << 76 | (random >> 62 & 0xfff) << 64 | 0b10 << 62 | (random & ((1 << 62) - 1));
        RecordId(uuid::Uuid::from_u128(bits))
    }

    pub(super) fn into_parts(self) -> Parts {
        let mut reads = self.reads.into_inner();
        reads.sort_unstable();
        reads.dedup();
        let uniques = self.uniques.into_iter().collect();
        let counts = self.counts.into_iter().filter(|(_, delta)| *delta != 0).collect();
        Parts {
            entries: self.entries,
            uniques,
            counts,
            moves: self.moves,
            effects: self.effects,
            payloads: self.payloads,
            audit: self.audit,
            senders: self.senders,
            met: self.met,
            reads,
        }
    }
}

/// What is left of a draft when it is done.
pub(super) struct Parts {
    pub(super) entries: Vec<Entry>,
    pub(super) uniques: Vec<(UniqueKey, Option<RecordId>)>,
    pub(super) counts: Vec<(CountKey, i64)>,
    pub(super) moves: Vec<LedgerMove>,
    pub(super) effects: Vec<Effect>,
    pub(super) payloads: Vec<NewPayload>,
    pub(super) audit: Vec<AuditEntry>,
    pub(super) senders: Vec<RecordId>,
    pub(super) met: Vec<RecordId>,
    pub(super) reads: Vec<Key>,
}

pub(super) fn fault(kind: FaultKind) -> Halt {
    Halt::Fault(Fault { kind, at: Span::default() })
}

pub(super) fn dangling() -> Halt {
    fault(FaultKind::Dangling)
}
