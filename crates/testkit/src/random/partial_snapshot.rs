//! A minimal store: fills a partial snapshot from a complete world with the keys that `decide` asks for.

use std::sync::Arc;

use onceward_core::decide::{Decision, Operation, ReadKey, Snapshot, decide};
use onceward_core::model::Definitions;
use onceward_core::time::Time;

/// No operation on a small world needs nearly as many load rounds.
const MAX_LOAD_ROUNDS: usize = 500;

/// Copies single keys of the world to a partial snapshot.
pub struct SnapshotLoader<'a> {
    pub world: &'a Snapshot,
}

impl SnapshotLoader<'_> {
    pub fn load(&self, into: &mut Snapshot, key: &ReadKey) {
        match key {
            ReadKey::Record(id) => {
                into.records.insert(*id, self.world.record(*id).map(Arc::clone));
            }
            ReadKey::Unique(key) => {
                into.unique_holders.insert(key.clone(), self.world.unique_holders.get(key).copied().flatten());
            }
            ReadKey::Counter(key) => {
                into.counters.insert(key.clone(), self.world.counters.get(key).copied().unwrap_or(0));
            }
            ReadKey::Account(account) => {
                into.accounts.insert(account.clone(), self.world.accounts.get(account).copied().unwrap_or(0));
            }
            ReadKey::Links(key) => {
                into.links.insert(key.clone(), self.world.links.get(key).cloned().unwrap_or_default());
            }
            ReadKey::Execution(record, token) => {
                let found = self.world.executions.get(&(*record, *token)).cloned().flatten();
                into.executions.insert((*record, *token), found);
            }
            ReadKey::ConcurrencyQueue(key) => {
                let first = self.world.concurrency_queues.get(key).and_then(|queue| queue.first().copied());
                into.concurrency_queues.insert(key.clone(), first.into_iter().collect());
            }
        }
    }
}

/// Decides on a partial snapshot, and loads missing keys until there is a decision.
pub fn decide_with_loader(
    definitions: &Definitions,
    partial: &mut Snapshot,
    loader: &SnapshotLoader,
    operation: &Operation,
    now: Time,
) -> Decision {
    for _ in 0..MAX_LOAD_ROUNDS {
        match decide(definitions, partial, operation, now) {
            Decision::Missing(keys) => keys.iter().for_each(|key| loader.load(partial, key)),
            answered => return answered,
        }
    }
    panic!("decide requests keys that are already loaded: {:?}", operation.call)
}

/// Returns a snapshot with only these keys.
pub fn snapshot_of_keys(world: &Snapshot, keys: &[ReadKey]) -> Snapshot {
    let (loader, mut partial) = (SnapshotLoader { world }, Snapshot::default());
    for key in keys {
        loader.load(&mut partial, key);
    }
    partial
}

/// Returns the same world with another hash map order, because each new map has its own hash key.
pub fn with_reshuffled_maps(world: &Snapshot) -> Snapshot {
    Snapshot {
        is_complete: world.is_complete,
        records: world.records.iter().map(|(id, record)| (*id, record.clone())).collect(),
        unique_holders: world.unique_holders.iter().map(|(key, holder)| (key.clone(), *holder)).collect(),
        counters: world.counters.iter().map(|(key, count)| (key.clone(), *count)).collect(),
        accounts: world.accounts.iter().map(|(account, balance)| (account.clone(), *balance)).collect(),
        links: world.links.iter().map(|(key, linked)| (key.clone(), linked.clone())).collect(),
        executions: world.executions.iter().map(|(key, execution)| (*key, execution.clone())).collect(),
        concurrency_queues: world.concurrency_queues.iter().map(|(key, queue)| (key.clone(), queue.clone())).collect(),
    }
}
