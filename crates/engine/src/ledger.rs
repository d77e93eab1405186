//! What named accounts hold, and what moved there.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use onceward_core::decide::Account;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{AccountName, AccountsQuery, Balance, Entry, StatementQuery, Store};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::keys::must_be_operator;

/// A move on an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The place of its entry in the log.
    pub seq: u64,
    pub at: Time,
    /// The record whose row moved it, and on which event.
    pub record: RecordId,
    pub event: Arc<str>,
    /// What came; less than nothing where it went.
    pub amount: i64,
    /// What the account held then.
    pub balance: i64,
    /// Where it came from, or went to.
    pub other: Account,
}

/// A part of an account's statement, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountStatement {
    /// What it holds now.
    pub now: Balance,
    pub lines: Vec<Line>,
    /// Where the older ones begin; `None` on the last part.
    pub next: Option<Onward>,
    /// On the last part: what the account held before the oldest line. That is nothing, or what records moved there that have
    /// been pruned since.
    pub carried: Option<i64>,
}

/// Where a statement goes on: before this place of the log, and what the account held then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Onward {
    pub before: u64,
    pub balance: i64,
}

impl fmt::Display for Onward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.before, self.balance)
    }
}

impl FromStr for Onward {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (before, balance) = text.split_once('.').unwrap_or((text, ""));
        Ok(Self { before: before.parse()?, balance: balance.parse()? })
    }
}

impl<S: Store + 'static> Engine<S> {
    /// Named accounts in the order of asset and name, for an operator.
    pub async fn accounts(&self, actor: &Actor, query: &AccountsQuery) -> Result<Vec<Balance>, EngineError> {
        must_be_operator(actor)?;
        let query = AccountsQuery { limit: self.shared.page(query.limit), ..query.clone() };
        Ok(self.shared.store.accounts(&query).await?)
    }

    /// What a named account holds, for an operator; `None` where nothing ever moved there. Who else may look is for whoever
    /// asks in the engine's name to know.
    pub async fn account(&self, actor: &Actor, account: &AccountName) -> Result<Option<Balance>, EngineError> {
        must_be_operator(actor)?;
        Ok(self.shared.store.account(account).await?)
    }

    /// What moved on a named account, the newest first, for an operator. A part has so many log entries at most, of which each
    /// has as many lines as it has moves there.
    pub async fn statement(
        &self,
        actor: &Actor,
        account: &AccountName,
        from: Option<Onward>,
        limit: usize,
    ) -> Result<Option<AccountStatement>, EngineError> {
        must_be_operator(actor)?;
        let limit = self.shared.page(limit);
        let before = from.map(|from| from.before);
        // One more, to see whether there is one.
        let query = StatementQuery { account: account.clone(), before, limit: limit + 1 };
        let Some(found) = self.shared.store.statement(&query).await? else { return Ok(None) };
        let mut balance = from.map_or(found.now.balance, |from| from.balance);
        let mut lines = Vec::new();
        for entry in found.entries.iter().take(limit) {
            balance = told(entry, account, balance, &mut lines)?;
        }
        let last = found.entries.get(limit - 1).filter(|_| found.entries.len() > limit);
        let next = last.map(|entry| Onward { before: entry.seq, balance });
        let carried = next.is_none().then_some(balance);
        Ok(Some(AccountStatement { now: found.now, lines, next, carried }))
    }
}

/// The moves of one entry, the last first; what the account held before them.
fn told(entry: &Entry, account: &AccountName, after: i64, lines: &mut Vec<Line>) -> Result<i64, EngineError> {
    let body = entry.body()?;
    let mut balance = after;
    for moved in body.moves.iter().rev() {
        let (amount, other) = match (account.is(&moved.from), account.is(&moved.to)) {
            (false, true) => (moved.amount, &moved.from),
            (true, false) => (moved.amount.saturating_neg(), &moved.to),
            _ => continue,
        };
        let event = body.rows.first().map_or_else(|| Arc::from(""), |(event, _)| Arc::clone(event));
        let (seq, at, other) = (entry.seq, entry.at, other.clone());
        lines.push(Line { seq, at, record: moved.cause, event, amount, balance, other });
        balance = balance.saturating_sub(amount);
    }
    Ok(balance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_to_go_on_is_read_as_it_is_written() {
        for place in [Onward { before: 7, balance: -3 }, Onward { before: u64::MAX, balance: i64::MIN }] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for text in ["", "7", "7.", ".3", "-7.3", "7.3.1", "x.1"] {
            assert!(text.parse::<Onward>().is_err(), "{text}");
        }
    }
}
