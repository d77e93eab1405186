//! Named accounts in the reference model. It finds an account's transfers by scanning the whole log.

use std::collections::BTreeMap;

use super::state::MemoryState;
use crate::account::{AccountBalance, AccountName, AccountsQuery, StatementPage, StatementQuery, named_accounts};
use crate::error::StoreError;

impl MemoryState {
    /// Returns all accounts with a transfer, and all outside accounts.
    pub(super) fn balances(&self) -> BTreeMap<AccountName, i64> {
        let mut balances = BTreeMap::new();
        for lifecycle in self.catalog.versions_since(0) {
            let Some(asset) = &lifecycle.asset else { continue };
            balances.extend(lifecycle.outside_accounts.iter().map(|name| (AccountName::new(asset, name), 0)));
        }
        let stored = self.snapshot.accounts.iter();
        balances.extend(stored.filter_map(|(account, balance)| Some((AccountName::from_account(account)?, *balance))));
        balances
    }

    fn balance(&self, account: AccountName, balance: i64) -> AccountBalance {
        let outside = self.catalog.is_outside_account(&account.asset, &account.name);
        AccountBalance { account, is_outside: outside, balance }
    }

    pub(super) fn accounts(&self, query: &AccountsQuery) -> Vec<AccountBalance> {
        let after = |name: &AccountName| query.after.as_ref().is_none_or(|after| name > after);
        let all = self.balances().into_iter().filter(|(name, _)| after(name)).take(query.limit);
        all.map(|(name, balance)| self.balance(name, balance)).collect()
    }

    pub(super) fn account(&self, account: &AccountName) -> Option<AccountBalance> {
        let balance = *self.balances().get(account)?;
        Some(self.balance(account.clone(), balance))
    }

    pub(super) fn statement(&self, query: &StatementQuery) -> Result<Option<StatementPage>, StoreError> {
        let Some(now) = self.account(&query.account) else { return Ok(None) };
        let mut entries = Vec::new();
        for entry in self.log.iter().rev().filter(|entry| query.before_seq.is_none_or(|before| entry.seq < before)) {
            if entries.len() == query.limit {
                break;
            }
            if named_accounts(entry.body()?.transfers.iter().map(std::convert::AsRef::as_ref)).contains(&query.account)
            {
                entries.push(entry.clone());
            }
        }
        Ok(Some(StatementPage { balance: now, entries }))
    }
}
