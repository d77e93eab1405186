//! Before-images: what an operation overwrote, so that the fold can roll it back.
//!
//! The fold restores images in reverse order. Each restores exactly the state before its operation, including the order
//! of links.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decide::{Account, Changes, CounterKey, LinkKey, Snapshot, UniqueKey, ref_changes};
use crate::record::Record;
use crate::value::RecordId;

#[derive(Debug)]
pub(super) struct BeforeImage {
    prior_records: Vec<(RecordId, Option<Arc<Record>>)>,
    prior_links: BTreeMap<LinkKey, PriorLinks>,
    prior_unique_holders: Vec<(UniqueKey, Option<RecordId>)>,
    prior_counters: Vec<(CounterKey, Option<u64>)>,
    prior_balances: BTreeMap<Account, Option<i64>>,
}

/// The members of a link before the operation.
#[derive(Debug)]
enum PriorLinks {
    /// Only appended to. Storing the length instead of a copy keeps images of long links small.
    Appended {
        old_len: usize,
    },
    Replaced(Vec<RecordId>),
}

impl BeforeImage {
    /// Captures a complete snapshot's values that these changes will overwrite.
    pub(super) fn capture(world: &Snapshot, changes: &Changes) -> Self {
        let mut links = BTreeMap::new();
        for change in &changes.records {
            let after = &change.after;
            for ref_change in ref_changes(change.before.as_deref(), after) {
                let key = LinkKey {
                    target: ref_change.target,
                    lifecycle: Arc::clone(&after.lifecycle.name),
                    field: ref_change.field,
                };
                let members = world.links.get(&key).map_or(&[][..], Vec::as_slice);
                if ref_change.is_added {
                    links.entry(key).or_insert(PriorLinks::Appended { old_len: members.len() });
                } else {
                    links.insert(key, PriorLinks::Replaced(members.to_vec()));
                }
            }
        }
        let accounts = changes.transfers.iter().flat_map(|transfer| [&transfer.from, &transfer.to]);
        Self {
            prior_records: changes.records.iter().map(|change| (change.after.id, change.before.clone())).collect(),
            prior_links: links,
            prior_unique_holders: changes
                .unique_claims
                .iter()
                .map(|(key, _)| (key.clone(), world.unique_holders.get(key).copied().flatten()))
                .collect(),
            prior_counters: changes
                .counter_deltas
                .iter()
                .map(|(key, _)| (key.clone(), world.counters.get(key).copied()))
                .collect(),
            prior_balances: accounts.map(|account| (account.clone(), world.accounts.get(account).copied())).collect(),
        }
    }

    /// Number of stored records, as a measure of size.
    pub(super) fn record_count(&self) -> usize {
        self.prior_records.len()
    }

    pub(super) fn restore(self, world: &mut Snapshot) {
        for (id, before) in self.prior_records {
            match before {
                Some(record) => world.records.insert(id, Some(record)),
                None => world.records.remove(&id),
            };
        }
        for (key, links) in self.prior_links {
            let members = match links {
                PriorLinks::Replaced(members) => members,
                PriorLinks::Appended { old_len: from } => {
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
        for (key, before) in self.prior_unique_holders {
            match before {
                Some(holder) => world.unique_holders.insert(key, Some(holder)),
                None => world.unique_holders.remove(&key),
            };
        }
        for (key, before) in self.prior_counters {
            match before {
                Some(count) => world.counters.insert(key, count),
                None => world.counters.remove(&key),
            };
        }
        for (account, before) in self.prior_balances {
            match before {
                Some(balance) => world.accounts.insert(account, balance),
                None => world.accounts.remove(&account),
            };
        }
    }
}
