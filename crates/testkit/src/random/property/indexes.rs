//! Property: unique keys, links and queues match the records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceward_core::decide::{Changes, LinkKey, Snapshot, UniqueKey, canonical_key_parts, concurrency_key};
use onceward_core::model::Definitions;
use onceward_core::value::{RecordId, Value};

use super::{Property, PropertyViolation, ensure};

#[derive(Debug, Default)]
pub struct IndexProperty {
    /// Permanent unique keys with their holders.
    permanent_holders: BTreeMap<UniqueKey, RecordId>,
}

impl Property for IndexProperty {
    fn on_applied(
        &mut self,
        definitions: &Definitions,
        _: bool,
        world: &Snapshot,
        changes: &Changes,
    ) -> Result<(), PropertyViolation> {
        self.ensure_uniques(definitions, world)?;
        for (key, holder) in &changes.unique_claims {
            if let Some(first) = self.permanent_holders.get(key) {
                ensure(*holder == Some(*first), "a permanent key stays with its first holder", || format!("{key:?}"))?;
            }
        }
        ensure_links(world)?;
        ensure_queues(world)
    }
}

impl IndexProperty {
    fn ensure_uniques(&mut self, definitions: &Definitions, world: &Snapshot) -> Result<(), PropertyViolation> {
        let mut claimed: BTreeMap<UniqueKey, RecordId> = BTreeMap::new();
        for record in world.records.values().flatten() {
            for unique in &record.lifecycle.unique_constraints {
                if unique.in_states.is_some_and(|states| !states.contains(record.state)) {
                    continue;
                }
                let Some(parts) = canonical_key_parts(record, &unique.on) else { continue };
                let key = UniqueKey {
                    lifecycle: Arc::clone(&record.lifecycle.name),
                    unique: Arc::clone(&unique.name),
                    parts,
                };
                let other = claimed.insert(key.clone(), record.id);
                ensure(other.is_none(), "at most one holder of a key", || {
                    format!("{key:?}: {other:?} and {}", record.id)
                })?;
                let holder = world.unique_holders.get(&key).copied().flatten();
                ensure(holder == Some(record.id), "a key is held by the record it belongs to", || {
                    format!("{key:?} is held by {holder:?}, belongs to {}", record.id)
                })?;
                if unique.in_states.is_none() {
                    self.permanent_holders.insert(key, record.id);
                }
            }
        }
        for (key, holder) in &world.unique_holders {
            let permanent = definitions
                .get(&key.lifecycle)
                .and_then(|lifecycle| lifecycle.unique_constraints.iter().find(|unique| unique.name == key.unique))
                .is_some_and(|unique| unique.in_states.is_none());
            ensure(
                holder.is_none() || permanent || claimed.contains_key(key),
                "every key in its states has a holder",
                || format!("{key:?} {holder:?}"),
            )?;
        }
        Ok(())
    }
}

fn ensure_links(world: &Snapshot) -> Result<(), PropertyViolation> {
    let mut expected: BTreeMap<LinkKey, BTreeSet<RecordId>> = BTreeMap::new();
    for record in world.records.values().flatten() {
        for (field, value) in record.lifecycle.fields.iter().zip(&record.fields) {
            let targets: Vec<RecordId> = match value {
                Value::Ref(id) => vec![*id],
                Value::List(items) => {
                    items.iter().filter_map(|item| if let Value::Ref(id) = item { Some(*id) } else { None }).collect()
                }
                _ => continue,
            };
            for target in targets {
                let key =
                    LinkKey { target, lifecycle: Arc::clone(&record.lifecycle.name), field: Arc::clone(&field.name) };
                expected.entry(key).or_default().insert(record.id);
            }
        }
    }
    let stored: BTreeMap<LinkKey, BTreeSet<RecordId>> = world
        .links
        .iter()
        .filter(|(_, linked)| !linked.is_empty())
        .map(|(key, linked)| (key.clone(), linked.iter().copied().collect()))
        .collect();
    ensure(stored == expected, "links match the references", || {
        format!("{stored:?}\nexpected from the references\n{expected:?}")
    })
}

fn ensure_queues(world: &Snapshot) -> Result<(), PropertyViolation> {
    let mut expected: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for record in world.records.values().flatten() {
        let ordered =
            record.lifecycle.work.as_ref().and_then(|work| work.concurrency.as_ref()).is_some_and(|key| key.ordered);
        if let (true, false, Some(queue)) = (ordered, record.is_final(), concurrency_key(record)) {
            expected.entry(queue).or_default().insert((record.created_at, record.id));
        }
    }
    let stored: BTreeMap<_, _> = world
        .concurrency_queues
        .iter()
        .filter(|(_, queue)| !queue.is_empty())
        .map(|(key, queue)| (key.clone(), queue.clone()))
        .collect();
    ensure(stored == expected, "a queue contains the unfinished jobs of its key", || {
        format!("{stored:?}\n{expected:?}")
    })
}
