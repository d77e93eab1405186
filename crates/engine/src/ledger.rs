//! Balances and statements of named accounts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use onceward_core::decide::Account;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{AccountBalance, AccountName, AccountsQuery, LogEntry, StatementQuery, Store};

use crate::api_keys::require_operator;
use crate::engine::Engine;
use crate::error::EngineError;

/// A transfer to or from an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementLine {
    /// Seq of its log entry.
    pub seq: u64,
    pub logged_at: Time,
    /// The record whose transition made the transfer, and the event.
    pub record: RecordId,
    pub event: Arc<str>,
    /// Positive for incoming, negative for outgoing.
    pub amount: i64,
    /// Balance after the transfer.
    pub balance: i64,
    pub counterparty: Account,
}

/// A page of an account's statement, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountStatement {
    /// The current balance.
    pub current: AccountBalance,
    pub lines: Vec<StatementLine>,
    /// Cursor of the older lines; `None` on the last page.
    pub next: Option<StatementCursor>,
    /// On the last page: the balance before the oldest line. It is zero, or the sum of transfers of pruned records.
    pub opening_balance: Option<i64>,
}

/// Continues a statement before this seq, with the balance at that point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementCursor {
    pub before_seq: u64,
    pub balance: i64,
}

impl fmt::Display for StatementCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.before_seq, self.balance)
    }
}

impl FromStr for StatementCursor {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (before, balance) = text.split_once('.').unwrap_or((text, ""));
        Ok(Self { before_seq: before.parse()?, balance: balance.parse()? })
    }
}

impl<S: Store + 'static> Engine<S> {
    /// Lists named accounts by asset and name. Requires an operator.
    pub async fn accounts(&self, actor: &Actor, query: &AccountsQuery) -> Result<Vec<AccountBalance>, EngineError> {
        require_operator(actor)?;
        let query = AccountsQuery { limit: self.shared.clamp_page_items(query.limit), ..query.clone() };
        Ok(self.shared.store.accounts(&query).await?)
    }

    /// Returns the balance of a named account; `None` if it never had a transfer. Requires an operator; a program that
    /// shows it to others must check their permission itself.
    pub async fn account(&self, actor: &Actor, account: &AccountName) -> Result<Option<AccountBalance>, EngineError> {
        require_operator(actor)?;
        Ok(self.shared.store.account(account).await?)
    }

    /// Returns a page of an account's statement, newest first. `limit` counts log entries; an entry may have several
    /// lines. Requires an operator.
    pub async fn statement(
        &self,
        actor: &Actor,
        account: &AccountName,
        cursor: Option<StatementCursor>,
        limit: usize,
    ) -> Result<Option<AccountStatement>, EngineError> {
        require_operator(actor)?;
        let limit = self.shared.clamp_page_items(limit);
        let before = cursor.map(|from| from.before_seq);
        // One more, to learn whether there is a next page.
        let query = StatementQuery { account: account.clone(), before_seq: before, limit: limit + 1 };
        let Some(statement) = self.shared.store.statement(&query).await? else { return Ok(None) };
        let mut balance = cursor.map_or(statement.balance.balance, |from| from.balance);
        let mut lines = Vec::new();
        for entry in statement.entries.iter().take(limit) {
            balance = append_lines(entry, account, balance, &mut lines)?;
        }
        let last = statement.entries.get(limit - 1).filter(|_| statement.entries.len() > limit);
        let next = last.map(|entry| StatementCursor { before_seq: entry.seq, balance });
        let carried = next.is_none().then_some(balance);
        Ok(Some(AccountStatement { current: statement.balance, lines, next, opening_balance: carried }))
    }
}

/// Appends the lines of one entry, last transfer first; returns the balance before them.
fn append_lines(
    entry: &LogEntry,
    account: &AccountName,
    balance_after: i64,
    lines: &mut Vec<StatementLine>,
) -> Result<i64, EngineError> {
    let body = entry.body()?;
    let mut balance = balance_after;
    for transfer in body.transfers.iter().rev() {
        let (amount, other) = match (account.matches(&transfer.from), account.matches(&transfer.to)) {
            (false, true) => (transfer.amount, &transfer.from),
            (true, false) => (transfer.amount.saturating_neg(), &transfer.to),
            _ => continue,
        };
        let event = body.transitions.first().map_or_else(|| Arc::from(""), |(event, _)| Arc::clone(event));
        let (seq, at, other) = (entry.seq, entry.at, other.clone());
        lines.push(StatementLine {
            seq,
            logged_at: at,
            record: transfer.caused_by,
            event,
            amount,
            balance,
            counterparty: other,
        });
        balance = balance.saturating_sub(amount);
    }
    Ok(balance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_cursor_round_trips_and_rejects_malformed_text() {
        for cursor in [
            StatementCursor { before_seq: 7, balance: -3 },
            StatementCursor { before_seq: u64::MAX, balance: i64::MIN },
        ] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "7", "7.", ".3", "-7.3", "7.3.1", "x.1"] {
            assert!(text.parse::<StatementCursor>().is_err(), "{text}");
        }
    }
}
