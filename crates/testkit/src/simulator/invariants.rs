//! Invariants of every lifecycle, checked after every operation of a simulator.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onceward_core::decide::{Account, Changes, CounterKey, Decision, Effect, Snapshot, UniqueKey, canonical_key_parts};
use onceward_core::model::{Definitions, StateSet};
use onceward_core::record::{ExecutionStatus, Record};
use onceward_core::value::RecordId;

/// Asserts that the same operation on the same world gives the same decision.
pub(super) fn assert_deterministic(first: &Decision, second: &Decision) {
    assert_eq!(comparable_text(first), comparable_text(second), "decide is not deterministic");
}

/// Returns a decision as text, without the lifecycles of its records.
fn comparable_text(decision: &Decision) -> String {
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
                changes.unique_claims,
                changes.counter_deltas,
                changes.transfers,
                changes.executions,
                changes.effects,
                changes.audit_entries,
                changes.subject
            )
        }
        other => format!("{other:?}"),
    }
}

/// Checks changes against the world before they are applied.
pub(super) fn assert_before_apply(world: &Snapshot, effects: &HashMap<RecordId, Vec<Effect>>, changes: &Changes) {
    let mut seen = Vec::new();
    for change in &changes.records {
        let after = &change.after;
        assert!(!seen.contains(&after.id), "{} is changed twice in one operation", after.id);
        seen.push(after.id);
        match &change.before {
            None => {
                assert!(world.record(after.id).is_none(), "{} is created although it exists", after.id);
                assert_eq!(after.version, 1, "a new record has version 1");
                assert_eq!(after.attempt, 0, "a new record has not been leased");
            }
            Some(before) => {
                let stored =
                    world.record(after.id).unwrap_or_else(|| panic!("{} is changed but does not exist", after.id));
                assert_eq!(stored.version, before.version, "{} is changed from an old version", after.id);
                assert_moves_forward(before, after);
            }
        }
        if after.is_final() {
            assert_eq!(after.hold, 0, "{} {} is final with money in its hold", after.lifecycle.name, after.id);
            assert!(after.timers.is_empty(), "{} is final with timers", after.id);
            assert!(after.finished_at.is_some(), "{} is final without finished_at", after.id);
        }
        assert!(after.hold >= 0, "{} has a negative hold", after.id);
        assert!(after.updated_at <= changes.now, "{} was changed in the future", after.id);
    }
    for effect in &changes.effects {
        assert!(!effects.contains_key(&effect.record), "{} would get a second effect", effect.record);
    }
    for (record, execution) in &changes.executions {
        if let Some(Some(before)) = world.executions.get(&(*record, execution.token)) {
            let (from, to) = (before.status, execution.status);
            assert!(from == to || is_forward(from, to), "an execution goes from {from:?} to {to:?}");
            assert_eq!(before.holder, execution.holder, "the worker of an execution changes");
        }
    }
}

/// Asserts that version, attempt and times of a record do not go back.
fn assert_moves_forward(before: &Record, after: &Record) {
    let subject = format!("{} {}", after.lifecycle.name, after.id);
    assert_eq!(after.version, before.version + 1, "{subject}: one version per operation");
    assert!((before.attempt..=before.attempt + 1).contains(&after.attempt), "{subject}: attempts grow by one");
    assert_eq!(after.created_at, before.created_at, "{subject}: created_at changes");
    assert_eq!(after.owner, before.owner, "{subject}: the owner changes");
    assert_eq!(after.payload, before.payload, "{subject}: the payload changes");
    assert!(after.updated_at >= before.updated_at, "{subject}: times go back");
    if before.is_final() {
        assert_eq!(after.state, before.state, "{subject}: leaves a final state");
        assert_eq!(after.finished_at, before.finished_at, "{subject}: ends twice");
    }
    if before.started_at.is_some() {
        assert_eq!(after.started_at, before.started_at, "{subject}: starts twice");
    }
    if before.committed_token.is_some() {
        assert_eq!(after.committed_token, before.committed_token, "{subject}: the committed execution changes");
    }
    for (field, (old, new)) in after.lifecycle.fields.iter().zip(before.fields.iter().zip(&after.fields)) {
        assert!(!field.is_constant || old == new, "{subject}: the constant {} changes", field.name);
    }
}

/// Returns whether an execution may change its status this way. A report on LEASED implies the start.
const fn is_forward(from: ExecutionStatus, to: ExecutionStatus) -> bool {
    use ExecutionStatus::{Aborted, Committed, Done, InProgress, Leased};
    matches!(
        (from, to),
        (Leased, InProgress | Committed | Done | Aborted)
            | (InProgress, Committed | Done | Aborted)
            | (Committed, Done)
    )
}

/// Checks the world after changes were applied.
pub(super) fn assert_after_apply(definitions: &Definitions, world: &Snapshot, changes: &Changes) {
    assert_ledger_balances(definitions, world);
    for change in &changes.records {
        let after = &change.after;
        let Some(asset) = &after.lifecycle.asset else { continue };
        let own = Account::Hold { asset: Arc::clone(asset), record: after.id };
        let stored = world.accounts.get(&own).copied().unwrap_or(0);
        assert_eq!(after.hold, stored, "{}: the hold differs from the ledger", after.id);
    }
    assert_uniques(definitions, world);
    assert_counts(definitions, world);
}

/// Asserts that the ledger sums to zero, and that only outside accounts are negative.
fn assert_ledger_balances(definitions: &Definitions, world: &Snapshot) {
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for (account, balance) in &world.accounts {
        let asset = match account {
            Account::Named { asset, name } => {
                assert!(
                    *balance >= 0 || definitions.is_outside_account(asset, name),
                    "{asset} account {name} is at {balance}"
                );
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

/// Asserts that the holder of each unique key is the record whose fields and state require it.
fn assert_uniques(definitions: &Definitions, world: &Snapshot) {
    for lifecycle in definitions.lifecycles.values() {
        for unique in &lifecycle.unique_constraints {
            for record in records_of(world, &lifecycle.name) {
                let Some(parts) = canonical_key_parts(record, &unique.on) else { continue };
                let key = UniqueKey { lifecycle: Arc::clone(&lifecycle.name), unique: Arc::clone(&unique.name), parts };
                let holder = world.unique_holders.get(&key).copied().flatten();
                if unique.in_states.is_none_or(|states: StateSet| states.contains(record.state)) {
                    assert_eq!(holder, Some(record.id), "{key:?} has another holder");
                } else {
                    assert_ne!(holder, Some(record.id), "{key:?} is held from a state without it");
                }
            }
        }
    }
}

/// Asserts that each count of records in states is correct.
fn assert_counts(definitions: &Definitions, world: &Snapshot) {
    for lifecycle in definitions.lifecycles.values() {
        for limit in lifecycle.limits.iter().filter(|limit| limit.window.is_none()) {
            let mut counted: HashMap<CounterKey, u64> = HashMap::new();
            for record in records_of(world, &lifecycle.name) {
                let Some(parts) = canonical_key_parts(record, &limit.on) else { continue };
                if limit.in_states.is_none_or(|states| states.contains(record.state)) {
                    let (lifecycle, limit) = (Arc::clone(&lifecycle.name), Arc::clone(&limit.name));
                    *counted.entry(CounterKey { lifecycle, limit, parts, window_start: None }).or_default() += 1;
                }
            }
            let stored = world
                .counters
                .iter()
                .filter(|(key, count)| *key.lifecycle == *lifecycle.name && *key.limit == *limit.name && **count > 0);
            let stored: HashMap<_, _> = stored.map(|(key, count)| (key.clone(), *count)).collect();
            assert_eq!(stored, counted, "limit {} has a wrong count", limit.name);
        }
    }
}

fn records_of<'w>(world: &'w Snapshot, lifecycle: &'w str) -> impl Iterator<Item = &'w Arc<Record>> {
    world.records.values().flatten().filter(move |record| *record.lifecycle.name == *lifecycle)
}
