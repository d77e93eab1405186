//! Property: the ledger sums to zero, no balance is negative, and no final record has money in its hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::decide::{Account, Changes, Snapshot};
use onceward_core::model::Definitions;

use super::{Property, PropertyViolation, ensure};

#[derive(Debug, Default)]
pub struct LedgerProperty;

impl Property for LedgerProperty {
    fn on_applied(
        &mut self,
        definitions: &Definitions,
        _: bool,
        world: &Snapshot,
        changes: &Changes,
    ) -> Result<(), PropertyViolation> {
        let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
        for (account, balance) in &world.accounts {
            let (asset, may_be_negative) = match account {
                Account::Named { asset, name } => (asset, definitions.is_outside_account(asset, name)),
                Account::Hold { asset, .. } => (asset, false),
            };
            ensure(may_be_negative || *balance >= 0, "only outside accounts are negative", || {
                format!("{account:?} {balance}")
            })?;
            *sums.entry(asset).or_default() += balance;
        }
        for (asset, sum) in sums {
            ensure(sum == 0, "the ledger sums to zero", || format!("{asset} sums to {sum}"))?;
        }
        for entry in &changes.transfers {
            ensure(entry.amount > 0, "amounts are positive", || format!("{entry:?}"))?;
            let explained = changes.records.iter().any(|change| change.after.id == entry.caused_by);
            ensure(explained, "every transfer is logged with its record", || format!("{entry:?}"))?;
        }
        for record in world.records.values().flatten() {
            let describe = || format!("{} {} in {}", record.lifecycle.name, record.id, record.state_name());
            ensure(record.hold >= 0, "holds are never negative", describe)?;
            ensure(record.hold == 0 || !record.is_final(), "a final record has an empty hold", describe)?;
            let Some(asset) = &record.lifecycle.asset else { continue };
            let own = Account::Hold { asset: Arc::clone(asset), record: record.id };
            let stored = world.accounts.get(&own).copied().unwrap_or(0);
            ensure(stored == record.hold, "the record has the balance of its hold", describe)?;
        }
        Ok(())
    }
}
