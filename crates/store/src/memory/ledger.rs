//! Named accounts in the reference model: their moves are looked for in the whole log.

use std::collections::BTreeMap;

use super::kept::Kept;
use crate::account::{AccountName, AccountsQuery, Balance, Statement, StatementQuery, named};
use crate::error::StoreError;

impl Kept {
    /// Those that something was moved to or from, and those that stand for the world.
    pub(super) fn balances(&self) -> BTreeMap<AccountName, i64> {
        let mut balances = BTreeMap::new();
        for lifecycle in self.catalog.since(0) {
            let Some(asset) = &lifecycle.asset else { continue };
            balances.extend(lifecycle.outside.iter().map(|name| (AccountName::new(asset, name), 0)));
        }
        let kept = self.world.accounts.iter();
        balances.extend(kept.filter_map(|(account, balance)| Some((AccountName::of(account)?, *balance))));
        balances
    }

    fn balance(&self, account: AccountName, balance: i64) -> Balance {
        let outside = self.catalog.ever_outside(&account.asset, &account.name);
        Balance { account, outside, balance }
    }

    pub(super) fn accounts(&self, query: &AccountsQuery) -> Vec<Balance> {
        let after = |name: &AccountName| query.after.as_ref().is_none_or(|after| name > after);
        let all = self.balances().into_iter().filter(|(name, _)| after(name)).take(query.limit);
        all.map(|(name, balance)| self.balance(name, balance)).collect()
    }

    pub(super) fn account(&self, account: &AccountName) -> Option<Balance> {
        let balance = *self.balances().get(account)?;
        Some(self.balance(account.clone(), balance))
    }

    pub(super) fn statement(&self, query: &StatementQuery) -> Result<Option<Statement>, StoreError> {
        let Some(now) = self.account(&query.account) else { return Ok(None) };
        let mut entries = Vec::new();
        for entry in self.log.iter().rev().filter(|entry| query.before.is_none_or(|before| entry.seq < before)) {
            if entries.len() == query.limit {
                break;
            }
            if named(entry.body()?.moves.iter().map(std::convert::AsRef::as_ref)).contains(&query.account) {
                entries.push(entry.clone());
            }
        }
        Ok(Some(Statement { now, entries }))
    }
}
