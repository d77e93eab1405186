//! Named accounts and what moved on them.
//!
//! A move stands in the log, with the record whose row moved it. To find an account's own, every store keeps beside each
//! account the places of the entries that moved something there, and nothing else: what they moved, when and why is said in
//! the log alone, and what an account held after each follows from what it holds now. When an entry is pruned, so is its place;
//! its amount stays in the balance, and so stands at the beginning of what is left.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::decide::{Account, Transfer};

use crate::log::LogEntry;

/// A named account's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountName {
    pub asset: Arc<str>,
    pub name: Arc<str>,
}

impl AccountName {
    pub fn new(asset: &str, name: &str) -> Self {
        Self { asset: asset.into(), name: name.into() }
    }

    /// `None` of what a record holds: nobody can name that.
    pub(crate) fn from_account(account: &Account) -> Option<Self> {
        match account {
            Account::Named { asset, name } => Some(Self { asset: Arc::clone(asset), name: Arc::clone(name) }),
            Account::Hold { .. } => None,
        }
    }

    /// Whether this is it.
    pub fn matches(&self, account: &Account) -> bool {
        matches!(account, Account::Named { asset, name } if (asset, name) == (&self.asset, &self.name))
    }
}

/// What a named account holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountBalance {
    pub account: AccountName,
    /// It stands for the world outside, and may hold less than nothing.
    pub is_outside: bool,
    pub balance: i64,
}

/// Which accounts to list, in the order of asset and name.
#[derive(Clone, Debug, Default)]
pub struct AccountsQuery {
    pub after: Option<AccountName>,
    pub limit: usize,
}

/// Which part of an account's statement.
#[derive(Clone, Debug)]
pub struct StatementQuery {
    pub account: AccountName,
    /// Entries before this place of the log only.
    pub before_seq: Option<u64>,
    /// How many entries at most.
    pub limit: usize,
}

/// A part of an account's statement, and what the account held in that very moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementPage {
    pub balance: AccountBalance,
    /// The newest first: entries of the log with a move to or from the account.
    pub entries: Vec<LogEntry>,
}

/// The named accounts that moves go to or come from, each once.
pub(crate) fn named_accounts<'a>(transfers: impl IntoIterator<Item = &'a Transfer>) -> BTreeSet<AccountName> {
    transfers
        .into_iter()
        .flat_map(|transfer| [&transfer.from, &transfer.to])
        .filter_map(AccountName::from_account)
        .collect()
}
