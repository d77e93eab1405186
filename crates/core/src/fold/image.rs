//! What an operation overwrote, so that it can be taken back.
//!
//! Images are laid and taken back last first; each restores exactly the world before its operation, down to the order of
//! links.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decide::{Account, Changes, CountKey, LinkKey, Snapshot, UniqueKey, ref_changes};
use crate::record::Record;
use crate::value::RecordId;

#[derive(Debug)]
pub(super) struct Image {
    records: Vec<(RecordId, Option<Arc<Record>>)>,
    links: BTreeMap<LinkKey, Links>,
    uniques: Vec<(UniqueKey, Option<RecordId>)>,
    counts: Vec<(CountKey, Option<u64>)>,
    accounts: BTreeMap<Account, Option<i64>>,
}

/// The members of a link before the operation.
#[derive(Debug)]
enum Links {
    /// Some came to the end: a claim with thousands of dependents costs a number, not a copy.
    Grew {
        from: usize,
    },
    Changed(Vec<RecordId>),
}

impl Image {
    /// Of a whole world, before these changes are applied to it.
    pub(super) fn take(world: &Snapshot, changes: &Changes) -> Self {
        let mut links = BTreeMap::new();
        for change in &changes.records {
            let after = &change.after;
            for found in ref_changes(change.before.as_deref(), after) {
                let key =
                    LinkKey { target: found.target, lifecycle: Arc::clone(&after.lifecycle.name), field: found.field };
                let members = world.links.get(&key).map_or(&[][..], Vec::as_slice);
                if found.added {
                    links.entry(key).or_insert(Links::Grew { from: members.len() });
                } else {
                    links.insert(key, Links::Changed(members.to_vec()));
                }
            }
        }
        let accounts = changes.moves.iter().flat_map(|paid| [&paid.from, &paid.to]);
        Self {
            records: changes.records.iter().map(|change| (change.after.id, change.before.clone())).collect(),
            links,
            uniques: changes
                .uniques
                .iter()
                .map(|(key, _)| (key.clone(), world.uniques.get(key).copied().flatten()))
                .collect(),
            counts: changes.counts.iter().map(|(key, _)| (key.clone(), world.counts.get(key).copied())).collect(),
            accounts: accounts.map(|account| (account.clone(), world.accounts.get(account).copied())).collect(),
        }
    }

    /// How much is kept.
    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    pub(super) fn restore(self, world: &mut Snapshot) {
        for (id, before) in self.records {
            match before {
                Some(record) => world.records.insert(id, Some(record)),
                None => world.records.remove(&id),
            };
        }
        for (key, links) in self.links {
            let members = match links {
                Links::Changed(members) => members,
                Links::Grew { from } => {
                    let mut members = world.links.remove(&key).unwrap_or_default();
                    members.truncate(from);
                    members
                }
            };
            if members.is_empty() {
                world.links.remove(&key);
            } else {
                world.links.insert(key, members);
            }
        }
        for (key, before) in self.uniques {
            match before {
                Some(holder) => world.uniques.insert(key, Some(holder)),
                None => world.uniques.remove(&key),
            };
        }
        for (key, before) in self.counts {
            match before {
                Some(count) => world.counts.insert(key, count),
                None => world.counts.remove(&key),
            };
        }
        for (account, before) in self.accounts {
            match before {
                Some(balance) => world.accounts.insert(account, balance),
                None => world.accounts.remove(&account),
            };
        }
    }
}
