//! Unique keys, links and queues are what the records say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceward_core::decide::{Changes, LinkKey, Snapshot, UniqueKey, key_parts, queue_of};
use onceward_core::model::Definitions;
use onceward_core::value::{RecordId, Value};

use super::{Broken, Property, ensure};

#[derive(Debug, Default)]
pub struct Keys {
    /// Keys that are held for ever, and by whom.
    permanent: BTreeMap<UniqueKey, RecordId>,
}

impl Property for Keys {
    fn after(&mut self, definitions: &Definitions, _: bool, world: &Snapshot, changes: &Changes) -> Result<(), Broken> {
        self.uniques(definitions, world)?;
        for (key, holder) in &changes.uniques {
            if let Some(first) = self.permanent.get(key) {
                ensure(*holder == Some(*first), "a permanent key stays with whoever had it first", || {
                    format!("{key:?}")
                })?;
            }
        }
        links(world)?;
        queues(world)
    }
}

impl Keys {
    fn uniques(&mut self, definitions: &Definitions, world: &Snapshot) -> Result<(), Broken> {
        let mut claimed: BTreeMap<UniqueKey, RecordId> = BTreeMap::new();
        for record in world.records.values().flatten() {
            for unique in &record.lifecycle.uniques {
                if unique.within.is_some_and(|states| !states.contains(record.state)) {
                    continue;
                }
                let Some(parts) = key_parts(record, &unique.on) else { continue };
                let key = UniqueKey {
                    lifecycle: Arc::clone(&record.lifecycle.name),
                    unique: Arc::clone(&unique.name),
                    parts,
                };
                let other = claimed.insert(key.clone(), record.id);
                ensure(other.is_none(), "at most one holder of a key", || {
                    format!("{key:?}: {other:?} and {}", record.id)
                })?;
                let holder = world.uniques.get(&key).copied().flatten();
                ensure(holder == Some(record.id), "a key is held by the record it belongs to", || {
                    format!("{key:?} is held by {holder:?}, belongs to {}", record.id)
                })?;
                if unique.within.is_none() {
                    self.permanent.insert(key, record.id);
                }
            }
        }
        for (key, holder) in &world.uniques {
            let permanent = definitions
                .get(&key.lifecycle)
                .and_then(|lifecycle| lifecycle.uniques.iter().find(|unique| unique.name == key.unique))
                .is_some_and(|unique| unique.within.is_none());
            ensure(
                holder.is_none() || permanent || claimed.contains_key(key),
                "no key is held by nobody in its states",
                || format!("{key:?} {holder:?}"),
            )?;
        }
        Ok(())
    }
}

fn links(world: &Snapshot) -> Result<(), Broken> {
    let mut wanted: BTreeMap<LinkKey, BTreeSet<RecordId>> = BTreeMap::new();
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
                wanted.entry(key).or_default().insert(record.id);
            }
        }
    }
    let kept: BTreeMap<LinkKey, BTreeSet<RecordId>> = world
        .links
        .iter()
        .filter(|(_, linked)| !linked.is_empty())
        .map(|(key, linked)| (key.clone(), linked.iter().copied().collect()))
        .collect();
    ensure(kept == wanted, "links are what the refs say", || format!("{kept:?}\nwhere the refs say\n{wanted:?}"))
}

fn queues(world: &Snapshot) -> Result<(), Broken> {
    let mut wanted: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for record in world.records.values().flatten() {
        let ordered = record.lifecycle.work.as_ref().and_then(|work| work.key.as_ref()).is_some_and(|key| key.ordered);
        if let (true, false, Some(queue)) = (ordered, record.is_final(), queue_of(record)) {
            wanted.entry(queue).or_default().insert((record.created_at, record.id));
        }
    }
    let kept: BTreeMap<_, _> = world
        .queues
        .iter()
        .filter(|(_, queue)| !queue.is_empty())
        .map(|(key, queue)| (key.clone(), queue.clone()))
        .collect();
    ensure(kept == wanted, "a queue holds the unfinished jobs of its key", || format!("{kept:?}\n{wanted:?}"))
}
