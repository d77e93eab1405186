//! What must hold after every operation, whatever the lifecycle: looked at by every test that plays on the stage.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onceward_core::decide::{Account, Changes, CountKey, Decision, Effect, Snapshot, UniqueKey, key_parts};
use onceward_core::model::{Definitions, StateSet};
use onceward_core::record::{ExecutionStatus, Record};
use onceward_core::value::RecordId;

/// The same operation on the same world gives the same answer.
pub(super) fn same_again(first: &Decision, second: &Decision) {
    assert_eq!(outline(first), outline(second), "decide answers one question in two ways");
}

/// The parts of a decision that a difference would show in, without the whole lifecycles that records carry.
fn outline(decision: &Decision) -> String {
    match decision {
        Decision::Changes(changes) => {
            let records: Vec<_> = changes
                .records
                .iter()
                .map(|change| {
                    let after = &change.after;
                    (after.id, after.state, after.version, &after.fields, after.hold, &after.timers, &after.execution)
                })
                .collect();
            format!(
                "{:?} {records:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                changes.now,
                changes.uniques,
                changes.counts,
                changes.moves,
                changes.executions,
                changes.effects,
                changes.audit,
                changes.subject
            )
        }
        other => format!("{other:?}"),
    }
}

/// What can be said of changes beside the world they are about to change.
pub(super) fn before_apply(world: &Snapshot, effects: &HashMap<RecordId, Vec<Effect>>, changes: &Changes) {
    let mut seen = Vec::new();
    for change in &changes.records {
        let after = &change.after;
        assert!(!seen.contains(&after.id), "{} is changed twice in one operation", after.id);
        seen.push(after.id);
        match &change.before {
            None => {
                assert!(world.record(after.id).is_none(), "{} is made although it is there", after.id);
                assert_eq!(after.version, 1, "a new record has version 1");
                assert_eq!(after.attempt, 0, "a new record has not been leased");
            }
            Some(before) => {
                let kept = world.record(after.id).unwrap_or_else(|| panic!("{} is changed but not there", after.id));
                assert_eq!(kept.version, before.version, "{} is changed from a version that is not the last", after.id);
                onward(before, after);
            }
        }
        if after.is_final() {
            assert_eq!(after.hold, 0, "{} {} is final with money in its hold", after.lifecycle.name, after.id);
            assert!(after.timers.is_empty(), "{} is final with timers", after.id);
            assert!(after.finished_at.is_some(), "{} is final without the time of it", after.id);
        }
        assert!(after.hold >= 0, "{} holds less than nothing", after.id);
        assert!(after.updated_at <= changes.now, "{} was changed after now", after.id);
    }
    for effect in &changes.effects {
        assert!(!effects.contains_key(&effect.record), "{} would leave a second effect", effect.record);
    }
    for (record, execution) in &changes.executions {
        if let Some(Some(before)) = world.executions.get(&(*record, execution.token)) {
            let (from, to) = (before.status, execution.status);
            assert!(from == to || forward(from, to), "an execution goes from {from:?} to {to:?}");
            assert_eq!(before.holder, execution.holder, "an execution changes hands");
        }
    }
}

/// A record only goes forward.
fn onward(before: &Record, after: &Record) {
    let who = format!("{} {}", after.lifecycle.name, after.id);
    assert_eq!(after.version, before.version + 1, "{who}: one version per operation");
    assert!((before.attempt..=before.attempt + 1).contains(&after.attempt), "{who}: attempts grow by one");
    assert_eq!(after.created_at, before.created_at, "{who}: when it was made never changes");
    assert_eq!(after.owner, before.owner, "{who}: whose it is never changes");
    assert_eq!(after.payload, before.payload, "{who}: its payload never changes");
    assert!(after.updated_at >= before.updated_at, "{who}: its times go backward");
    if before.is_final() {
        assert_eq!(after.state, before.state, "{who}: a final state is left");
        assert_eq!(after.finished_at, before.finished_at, "{who}: it ends twice");
    }
    if before.started_at.is_some() {
        assert_eq!(after.started_at, before.started_at, "{who}: it starts twice");
    }
    if before.committed.is_some() {
        assert_eq!(after.committed, before.committed, "{who}: the execution that won is another one");
    }
    for (field, (old, new)) in after.lifecycle.fields.iter().zip(before.fields.iter().zip(&after.fields)) {
        assert!(!field.constant || old == new, "{who}: the constant {} changes", field.name);
    }
}

/// The execution machine. A report on LEASED implies the start, so it may pass through.
const fn forward(from: ExecutionStatus, to: ExecutionStatus) -> bool {
    use ExecutionStatus::{Aborted, Committed, Done, InProgress, Leased};
    matches!(
        (from, to),
        (Leased, InProgress | Committed | Done | Aborted)
            | (InProgress, Committed | Done | Aborted)
            | (Committed, Done)
    )
}

/// What can be said of the world afterwards.
pub(super) fn after_apply(definitions: &Definitions, world: &Snapshot, changes: &Changes) {
    ledger(definitions, world);
    for change in &changes.records {
        let after = &change.after;
        let Some(asset) = &after.lifecycle.asset else { continue };
        let own = Account::Hold { asset: Arc::clone(asset), record: after.id };
        let kept = world.accounts.get(&own).copied().unwrap_or(0);
        assert_eq!(after.hold, kept, "{}: the record and the ledger disagree about its hold", after.id);
    }
    uniques(definitions, world);
    counts(definitions, world);
}

/// Double entry: nothing comes from nowhere, and only the world's own accounts go below zero.
fn ledger(definitions: &Definitions, world: &Snapshot) {
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for (account, balance) in &world.accounts {
        let asset = match account {
            Account::Named { asset, name } => {
                assert!(*balance >= 0 || definitions.is_outside(asset, name), "{asset} account {name} is at {balance}");
                asset
            }
            Account::Hold { asset, record } => {
                assert!(*balance >= 0, "the hold of {record} is at {balance}");
                asset
            }
        };
        *sums.entry(asset).or_default() += balance;
    }
    for (asset, sum) in sums {
        assert_eq!(sum, 0, "the accounts of {asset} do not sum to zero");
    }
}

/// Every key is held by exactly the record whose fields and state say so.
fn uniques(definitions: &Definitions, world: &Snapshot) {
    for lifecycle in definitions.lifecycles.values() {
        for unique in &lifecycle.uniques {
            for record in records_of(world, &lifecycle.name) {
                let Some(parts) = key_parts(record, &unique.on) else { continue };
                let key = UniqueKey { lifecycle: Arc::clone(&lifecycle.name), unique: Arc::clone(&unique.name), parts };
                let holder = world.uniques.get(&key).copied().flatten();
                if unique.within.is_none_or(|states: StateSet| states.contains(record.state)) {
                    assert_eq!(holder, Some(record.id), "{key:?} is not held by the record it belongs to");
                } else {
                    assert_ne!(holder, Some(record.id), "{key:?} is held from a state that does not count");
                }
            }
        }
    }
}

/// Every count of records in states is what counting gives.
fn counts(definitions: &Definitions, world: &Snapshot) {
    for lifecycle in definitions.lifecycles.values() {
        for limit in lifecycle.limits.iter().filter(|limit| limit.per.is_none()) {
            let mut counted: HashMap<CountKey, u64> = HashMap::new();
            for record in records_of(world, &lifecycle.name) {
                let Some(parts) = key_parts(record, &limit.on) else { continue };
                if limit.within.is_none_or(|states| states.contains(record.state)) {
                    let (lifecycle, limit) = (Arc::clone(&lifecycle.name), Arc::clone(&limit.name));
                    *counted.entry(CountKey { lifecycle, limit, parts, window: None }).or_default() += 1;
                }
            }
            let kept = world
                .counts
                .iter()
                .filter(|(key, count)| *key.lifecycle == *lifecycle.name && *key.limit == *limit.name && **count > 0);
            let kept: HashMap<_, _> = kept.map(|(key, count)| (key.clone(), *count)).collect();
            assert_eq!(kept, counted, "the limit {} counts wrongly", limit.name);
        }
    }
}

fn records_of<'w>(world: &'w Snapshot, lifecycle: &'w str) -> impl Iterator<Item = &'w Arc<Record>> {
    world.records.values().flatten().filter(move |record| *record.lifecycle.name == *lifecycle)
}
