//! Money: nothing from nowhere, nothing below zero, nothing left behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::decide::{Account, Changes, Snapshot};
use onceward_core::model::Definitions;

use super::{Broken, Property, ensure};

#[derive(Debug, Default)]
pub struct Ledger;

impl Property for Ledger {
    fn after(&mut self, definitions: &Definitions, _: bool, world: &Snapshot, changes: &Changes) -> Result<(), Broken> {
        let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
        for (account, balance) in &world.accounts {
            let (asset, may_owe) = match account {
                Account::Named { asset, name } => (asset, definitions.is_outside(asset, name)),
                Account::Hold { asset, .. } => (asset, false),
            };
            ensure(may_owe || *balance >= 0, "no account below zero but the world's", || {
                format!("{account:?} {balance}")
            })?;
            *sums.entry(asset).or_default() += balance;
        }
        for (asset, sum) in sums {
            ensure(sum == 0, "the ledger sums to zero", || format!("{asset} sums to {sum}"))?;
        }
        for entry in &changes.moves {
            ensure(entry.amount > 0, "money moves forward", || format!("{entry:?}"))?;
            let explained = changes.records.iter().any(|change| change.after.id == entry.cause);
            ensure(explained, "a move of money is in the log of its record", || format!("{entry:?}"))?;
        }
        for record in world.records.values().flatten() {
            let who = || format!("{} {} in {}", record.lifecycle.name, record.id, record.state_name());
            ensure(record.hold >= 0, "holds are never negative", who)?;
            ensure(record.hold == 0 || !record.is_final(), "no hold is filled in a final state", who)?;
            let Some(asset) = &record.lifecycle.asset else { continue };
            let own = Account::Hold { asset: Arc::clone(asset), record: record.id };
            let kept = world.accounts.get(&own).copied().unwrap_or(0);
            ensure(kept == record.hold, "a record knows its hold", who)?;
        }
        Ok(())
    }
}
