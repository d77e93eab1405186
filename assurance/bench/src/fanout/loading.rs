//! Simulates a store that loads only what `decide` requests.

use std::collections::BTreeSet;

use onceward_core::decide::{Changes, Decision, ReadKey, Snapshot, decide};

use crate::worlds::{FanoutWorld, NOW, expect_changes};

/// Decides and loads what is missing until nothing is. Returns the changes and the number of rounds.
pub(crate) fn decide_with_loads(world: &FanoutWorld) -> (Box<Changes>, usize) {
    let mut partial = Snapshot::default();
    for rounds in 1.. {
        match decide(&world.definitions, &partial, &world.operation, NOW) {
            Decision::Missing(keys) => keys.into_iter().for_each(|key| load_key(&world.snapshot, &mut partial, key)),
            done => return (expect_changes(done), rounds),
        }
    }
    unreachable!("loading ends before the limit")
}

fn load_key(complete: &Snapshot, partial: &mut Snapshot, key: ReadKey) {
    match key {
        ReadKey::Record(id) => {
            partial.records.insert(id, complete.records.get(&id).cloned().flatten());
        }
        ReadKey::Unique(key) => {
            let holder = complete.unique_holders.get(&key).copied().flatten();
            partial.unique_holders.insert(key, holder);
        }
        ReadKey::Counter(key) => {
            let count = complete.counters.get(&key).copied().unwrap_or(0);
            partial.counters.insert(key, count);
        }
        ReadKey::Account(account) => {
            let balance = complete.accounts.get(&account).copied().unwrap_or(0);
            partial.accounts.insert(account, balance);
        }
        ReadKey::Links(key) => {
            let linked = complete.links.get(&key).cloned().unwrap_or_default();
            partial.links.insert(key, linked);
        }
        ReadKey::Execution(record, token) => {
            partial.executions.insert((record, token), None);
        }
        ReadKey::ConcurrencyQueue(key) => {
            partial.concurrency_queues.insert(key, BTreeSet::new());
        }
    }
}
