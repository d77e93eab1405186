//! A store in small: nothing is loaded before it is asked for.

use std::collections::BTreeSet;

use onceward_core::decide::{Changes, Decision, Key, Snapshot, decide};

use crate::worlds::{NOW, World, changes};

/// Load what is missing until nothing is: what comes of it, and how often it was asked.
pub(crate) fn decide_with_loads(world: &World) -> (Box<Changes>, usize) {
    let mut part = Snapshot::default();
    for rounds in 1.. {
        match decide(&world.definitions, &part, &world.operation, NOW) {
            Decision::Missing(keys) => keys.into_iter().for_each(|key| load(&world.snapshot, &mut part, key)),
            done => return (changes(done), rounds),
        }
    }
    unreachable!("the loop ends by itself")
}

fn load(all: &Snapshot, part: &mut Snapshot, key: Key) {
    match key {
        Key::Record(id) => {
            part.records.insert(id, all.records.get(&id).cloned().flatten());
        }
        Key::Unique(key) => {
            let holder = all.uniques.get(&key).copied().flatten();
            part.uniques.insert(key, holder);
        }
        Key::Count(key) => {
            let count = all.counts.get(&key).copied().unwrap_or(0);
            part.counts.insert(key, count);
        }
        Key::Account(account) => {
            let balance = all.accounts.get(&account).copied().unwrap_or(0);
            part.accounts.insert(account, balance);
        }
        Key::Links(key) => {
            let linked = all.links.get(&key).cloned().unwrap_or_default();
            part.links.insert(key, linked);
        }
        Key::Execution(record, token) => {
            part.executions.insert((record, token), None);
        }
        Key::Queue(key) => {
            part.queues.insert(key, BTreeSet::new());
        }
    }
}
