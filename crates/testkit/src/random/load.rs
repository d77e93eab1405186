//! A store in miniature: a partial snapshot, filled from a whole world with what `decide` asks for.

use std::sync::Arc;

use onceward_core::decide::{Decision, Key, Operation, Snapshot, decide};
use onceward_core::model::Definitions;
use onceward_core::time::Time;

/// Rounds of loading after which something must be wrong: no operation on a small world needs so many.
const ROUNDS: usize = 500;

/// Puts one key's worth of the world into a partial snapshot.
pub struct Loader<'a> {
    pub world: &'a Snapshot,
}

impl Loader<'_> {
    pub fn load(&self, into: &mut Snapshot, key: &Key) {
        match key {
            Key::Record(id) => {
                into.records.insert(*id, self.world.record(*id).map(Arc::clone));
            }
            Key::Unique(key) => {
                into.uniques.insert(key.clone(), self.world.uniques.get(key).copied().flatten());
            }
            Key::Count(key) => {
                into.counts.insert(key.clone(), self.world.counts.get(key).copied().unwrap_or(0));
            }
            Key::Account(account) => {
                into.accounts.insert(account.clone(), self.world.accounts.get(account).copied().unwrap_or(0));
            }
            Key::Links(key) => {
                into.links.insert(key.clone(), self.world.links.get(key).cloned().unwrap_or_default());
            }
            Key::Execution(record, token) => {
                let found = self.world.executions.get(&(*record, *token)).cloned().flatten();
                into.executions.insert((*record, *token), found);
            }
            Key::Queue(key) => {
                let first = self.world.queues.get(key).and_then(|queue| queue.first().copied());
                into.queues.insert(key.clone(), first.into_iter().collect());
            }
        }
    }
}

/// Decide on a partial snapshot, loading what is missing until there is an answer.
pub fn answer_missing(
    definitions: &Definitions,
    partial: &mut Snapshot,
    loader: &Loader,
    operation: &Operation,
    now: Time,
) -> Decision {
    for _ in 0..ROUNDS {
        match decide(definitions, partial, operation, now) {
            Decision::Missing(keys) => keys.iter().for_each(|key| loader.load(partial, key)),
            answered => return answered,
        }
    }
    panic!("decide keeps asking for what it was given: {:?}", operation.call)
}

/// A snapshot with these keys and no others.
pub fn only(world: &Snapshot, keys: &[Key]) -> Snapshot {
    let (loader, mut partial) = (Loader { world }, Snapshot::default());
    for key in keys {
        loader.load(&mut partial, key);
    }
    partial
}

/// The same world in hash maps of another order: each new map hashes by a key of its own.
pub fn reshuffled(world: &Snapshot) -> Snapshot {
    Snapshot {
        complete: world.complete,
        records: world.records.iter().map(|(id, record)| (*id, record.clone())).collect(),
        uniques: world.uniques.iter().map(|(key, holder)| (key.clone(), *holder)).collect(),
        counts: world.counts.iter().map(|(key, count)| (key.clone(), *count)).collect(),
        accounts: world.accounts.iter().map(|(account, balance)| (account.clone(), *balance)).collect(),
        links: world.links.iter().map(|(key, linked)| (key.clone(), linked.clone())).collect(),
        executions: world.executions.iter().map(|(key, execution)| (*key, execution.clone())).collect(),
        queues: world.queues.iter().map(|(key, queue)| (key.clone(), queue.clone())).collect(),
    }
}
