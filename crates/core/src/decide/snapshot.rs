//! Snapshots: the part of the store that an operation is decided on.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::changes::{Account, Changes};
use crate::model::KeyPart;
use crate::record::{Execution, FencingToken, Record};
use crate::time::Time;
use crate::value::{RecordId, Value};

/// A key that `decide` may need loaded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReadKey {
    Record(RecordId),
    Unique(UniqueKey),
    Counter(CounterKey),
    Account(Account),
    Links(LinkKey),
    /// An execution older than the record's newest.
    Execution(RecordId, FencingToken),
    /// The oldest unfinished job of a concurrency key whose jobs run in order.
    ConcurrencyQueue(ConcurrencyKey),
}

/// A concurrency key: the value of `[work] key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConcurrencyKey {
    pub lifecycle: Arc<str>,
    pub parts: Vec<Arc<str>>,
}

/// A unique key. The natural key is the constraint named `key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UniqueKey {
    pub lifecycle: Arc<str>,
    pub unique: Arc<str>,
    /// Canonical text of each part, in order.
    pub parts: Vec<Arc<str>>,
}

/// Key of a limit's counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CounterKey {
    pub lifecycle: Arc<str>,
    pub limit: Arc<str>,
    pub parts: Vec<Arc<str>>,
    /// Start of the limit's window in microseconds since the epoch.
    pub window_start: Option<i64>,
}

/// The records of one lifecycle that refer to a target through one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkKey {
    pub target: RecordId,
    pub lifecycle: Arc<str>,
    pub field: Arc<str>,
}

/// Data loaded for a decision. An absent key was not loaded (`Missing`); an empty entry was loaded and does not exist.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Everything is loaded, so an absent key does not exist. For the reference model and simulations.
    pub is_complete: bool,
    pub records: HashMap<RecordId, Option<Arc<Record>>>,
    pub unique_holders: HashMap<UniqueKey, Option<RecordId>>,
    pub counters: HashMap<CounterKey, u64>,
    /// Needs only accounts that must not become negative.
    pub accounts: HashMap<Account, i64>,
    pub links: HashMap<LinkKey, Vec<RecordId>>,
    pub executions: HashMap<(RecordId, FencingToken), Option<Execution>>,
    /// Unfinished jobs by age. A partial snapshot needs only the first.
    pub concurrency_queues: HashMap<ConcurrencyKey, BTreeSet<(Time, RecordId)>>,
}

impl Snapshot {
    /// Returns a complete snapshot of an empty store.
    pub fn empty_complete() -> Self {
        Self { is_complete: true, ..Self::default() }
    }

    /// Returns a loaded record; `None` if it does not exist or is not loaded.
    pub fn record(&self, id: RecordId) -> Option<&Arc<Record>> {
        self.records.get(&id).and_then(Option::as_ref)
    }

    /// Applies changes, so that the next operation of a batch sees them. Keys that a partial snapshot has not loaded
    /// stay unknown.
    pub fn apply(&mut self, changes: &Changes) {
        for change in &changes.records {
            self.apply_links(change.before.as_deref(), &change.after);
            self.apply_concurrency_queue(change.before.as_deref(), &change.after);
            self.records.insert(change.after.id, Some(Arc::clone(&change.after)));
        }
        for (record, execution) in &changes.executions {
            self.executions.insert((*record, execution.token), Some(execution.clone()));
        }
        if let Some((id, execution)) = &changes.heartbeat {
            self.executions.insert((*id, execution.token), Some(execution.clone()));
            if let Some(Some(record)) = self.records.get_mut(id) {
                Arc::make_mut(record).execution = Some(execution.clone());
            }
        }
        for (key, holder) in &changes.unique_claims {
            self.unique_holders.insert(key.clone(), *holder);
        }
        for (key, delta) in &changes.counter_deltas {
            if self.is_complete {
                let count = self.counters.entry(key.clone()).or_default();
                *count = count.saturating_add_signed(*delta);
            } else if let Some(count) = self.counters.get_mut(key) {
                *count = count.saturating_add_signed(*delta);
            }
        }
        for transfer in &changes.transfers {
            for (account, delta) in [(&transfer.from, -transfer.amount), (&transfer.to, transfer.amount)] {
                if self.is_complete {
                    *self.accounts.entry(account.clone()).or_default() += delta;
                } else if let Some(balance) = self.accounts.get_mut(account) {
                    *balance += delta;
                }
            }
        }
    }

    fn apply_links(&mut self, before: Option<&Record>, after: &Record) {
        for change in ref_changes(before, after) {
            let key =
                LinkKey { target: change.target, lifecycle: Arc::clone(&after.lifecycle.name), field: change.field };
            let linked = if self.is_complete {
                self.links.entry(key).or_default()
            } else if let Some(linked) = self.links.get_mut(&key) {
                linked
            } else {
                continue;
            };
            if change.is_added {
                // A new record is in no list yet. Skipping the search matters for long lists.
                if before.is_none() || !linked.contains(&after.id) {
                    linked.push(after.id);
                }
            } else {
                linked.retain(|id| *id != after.id);
            }
        }
    }

    fn apply_concurrency_queue(&mut self, before: Option<&Record>, after: &Record) {
        let is_ordered = |record: &Record| {
            record.lifecycle.work.as_ref().and_then(|work| work.concurrency.as_ref()).is_some_and(|key| key.ordered)
        };
        let old = before.filter(|before| is_ordered(before)).and_then(concurrency_key);
        let new = Some(after).filter(|after| is_ordered(after) && !after.is_final()).and_then(concurrency_key);
        if old.is_none() && new.is_none() {
            return;
        }
        if self.is_complete {
            if let Some(key) = old {
                self.concurrency_queues.entry(key).or_default().remove(&(after.created_at, after.id));
            }
            if let Some(key) = new {
                self.concurrency_queues.entry(key).or_default().insert((after.created_at, after.id));
            }
        } else {
            // Only the store knows which job is now first.
            for key in [old, new].into_iter().flatten() {
                self.concurrency_queues.remove(&key);
            }
        }
    }
}

/// Returns the record's concurrency key; `None` if it has none.
pub fn concurrency_key(record: &Record) -> Option<ConcurrencyKey> {
    let key = record.lifecycle.work.as_ref()?.concurrency.as_ref()?;
    let parts = canonical_key_parts(record, &key.on)?;
    Some(ConcurrencyKey { lifecycle: Arc::clone(&record.lifecycle.name), parts })
}

/// A ref that a change of a record adds or removes.
pub(crate) struct RefChange {
    pub(crate) field: Arc<str>,
    pub(crate) target: RecordId,
    pub(crate) is_added: bool,
}

/// Returns the refs that differ between two versions of a record.
pub(crate) fn ref_changes(before: Option<&Record>, after: &Record) -> Vec<RefChange> {
    let may_refer = |record: &Record| record.fields.iter().any(|value| matches!(value, Value::Ref(_) | Value::List(_)));
    let mut changes = Vec::new();
    if !may_refer(after) && !before.is_some_and(may_refer) {
        return changes;
    }
    // After a version migration the record may have other fields at other indexes.
    let before_migration = before.filter(|before| before.lifecycle.hash != after.lifecycle.hash);
    for (slot, (new, field)) in after.fields.iter().zip(&after.lifecycle.fields).enumerate() {
        let old = match before_migration {
            Some(before) => before.field(&field.name),
            None => before.and_then(|record| record.fields.get(slot)),
        };
        push_ref_changes(&field.name, old.unwrap_or(&Value::Null), new, &mut changes);
    }
    if let Some(before) = before_migration {
        let old_fields = before.fields.iter().zip(&before.lifecycle.fields);
        for (old, field) in old_fields.filter(|(_, field)| after.lifecycle.field_index(&field.name).is_none()) {
            push_ref_changes(&field.name, old, &Value::Null, &mut changes);
        }
    }
    changes
}

fn push_ref_changes(field: &Arc<str>, old: &Value, new: &Value, changes: &mut Vec<RefChange>) {
    // Most transitions leave most refs unchanged, and a list of refs may be long.
    if old == new {
        return;
    }
    let (old, new) = (ref_targets(old), ref_targets(new));
    let change = |target: &RecordId, added| RefChange { field: Arc::clone(field), target: *target, is_added: added };
    changes.extend(old.difference(&new).map(|id| change(id, false)));
    changes.extend(new.difference(&old).map(|id| change(id, true)));
}

fn ref_targets(value: &Value) -> BTreeSet<RecordId> {
    match value {
        Value::Ref(id) => BTreeSet::from([*id]),
        Value::List(items) => {
            items.iter().filter_map(|item| if let Value::Ref(id) = item { Some(*id) } else { None }).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// A link that a change of a record adds or removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    pub key: LinkKey,
    pub is_added: bool,
}

/// Returns the links that differ between two versions of a record.
pub fn link_changes(before: Option<&Record>, after: &Record) -> Vec<LinkChange> {
    let changes = ref_changes(before, after).into_iter();
    changes
        .map(|change| LinkChange {
            key: LinkKey { target: change.target, lifecycle: Arc::clone(&after.lifecycle.name), field: change.field },
            is_added: change.is_added,
        })
        .collect()
}

/// Returns the parts of a record's key; `None` (no key) if a part is null.
pub fn canonical_key_parts(record: &Record, on: &[KeyPart]) -> Option<Vec<Arc<str>>> {
    on.iter()
        .map(|part| match part {
            KeyPart::Owner => Some(format!("s{}", record.owner).into()),
            KeyPart::Field(slot) => canonical_key_part(&record.fields[usize::from(*slot)]),
        })
        .collect()
}

/// Returns the canonical text of one part of a key: a letter for the type, then the value. No two values share a text.
pub(super) fn canonical_key_part(value: &Value) -> Option<Arc<str>> {
    let text = match value {
        Value::Null => return None,
        Value::Bool(b) => format!("b{b}"),
        Value::Int(i) => format!("i{i}"),
        // Maps -0.0 to 0.0, which are equal.
        Value::Double(d) => format!("d{}", d + 0.0),
        Value::Text(t) => format!("s{t}"),
        Value::Time(t) => format!("t{}", t.micros()),
        Value::Duration(d) => format!("p{}", d.micros()),
        Value::Ref(id) => format!("r{id}"),
        Value::Json(text) => format!("j{text}"),
        Value::List(items) => {
            let parts: Vec<_> =
                items.iter().map(|item| canonical_key_part(item).unwrap_or_else(|| "n".into())).collect();
            format!("l{}", serde_json::to_string(&parts).ok()?)
        }
    };
    Some(text.into())
}
