//! Queries and results for named accounts and their statements.
//!
//! Transfers are stored only in the log, in the entry of the record whose transition made them. For each account, every
//! store also keeps an index: the seqs of the entries with a transfer to or from it. The balance after each transfer is
//! computed backwards from the current balance. Pruning an entry removes its seq from the index. Its amount stays in
//! the balance and becomes part of the opening balance of the remaining statement.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::decide::{Account, Transfer};

use crate::log::LogEntry;

/// The asset and name that identify a named account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountName {
    pub asset: Arc<str>,
    pub name: Arc<str>,
}

impl AccountName {
    pub fn new(asset: &str, name: &str) -> Self {
        Self { asset: asset.into(), name: name.into() }
    }

    /// Returns `None` for a hold: it belongs to a record and has no name.
    pub(crate) fn from_account(account: &Account) -> Option<Self> {
        match account {
            Account::Named { asset, name } => Some(Self { asset: Arc::clone(asset), name: Arc::clone(name) }),
            Account::Hold { .. } => None,
        }
    }

    pub fn matches(&self, account: &Account) -> bool {
        matches!(account, Account::Named { asset, name } if (asset, name) == (&self.asset, &self.name))
    }
}

/// A named account with its current balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountBalance {
    pub account: AccountName,
    /// Whether the account represents the outside world. Only such an account can have a negative balance.
    pub is_outside: bool,
    pub balance: i64,
}

/// Selects a page of accounts, ordered by asset and name.
#[derive(Clone, Debug, Default)]
pub struct AccountsQuery {
    pub after: Option<AccountName>,
    pub limit: usize,
}

/// Selects a page of an account's statement.
#[derive(Clone, Debug)]
pub struct StatementQuery {
    pub account: AccountName,
    /// Returns only entries with a smaller seq.
    pub before_seq: Option<u64>,
    /// Maximum number of entries.
    pub limit: usize,
}

/// A page of an account's statement, with the balance read in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementPage {
    pub balance: AccountBalance,
    /// Log entries with a transfer to or from the account, newest first.
    pub entries: Vec<LogEntry>,
}

/// Returns the named accounts that the transfers touch.
pub(crate) fn named_accounts<'a>(transfers: impl IntoIterator<Item = &'a Transfer>) -> BTreeSet<AccountName> {
    transfers
        .into_iter()
        .flat_map(|transfer| [&transfer.from, &transfer.to])
        .filter_map(AccountName::from_account)
        .collect()
}
