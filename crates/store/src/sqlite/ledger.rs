//! Named accounts and statements in SQLite.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::read::read_entry;
use crate::account::{AccountBalance, AccountName, AccountsQuery, StatementPage, StatementQuery};
use crate::error::StoreError;

fn read_balance(row: &Row) -> rusqlite::Result<AccountBalance> {
    let account = AccountName { asset: row.get(0)?, name: row.get(1)? };
    Ok(AccountBalance { account, is_outside: row.get(2)?, balance: row.get(3)? })
}

pub(super) fn accounts(connection: &Connection, query: &AccountsQuery) -> Result<Vec<AccountBalance>, StoreError> {
    let (asset, name) = query.after.as_ref().map_or(("", ""), |after| (&after.asset, &after.name));
    let sql = "SELECT asset, name, outside, balance FROM accounts WHERE (asset, name) > (?1, ?2) \
               ORDER BY asset, name LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map(params![asset, name, query.limit], read_balance)?;
    Ok(found.collect::<Result<_, _>>()?)
}

pub(super) fn account(connection: &Connection, account: &AccountName) -> Result<Option<AccountBalance>, StoreError> {
    let sql = "SELECT asset, name, outside, balance FROM accounts WHERE asset = ?1 AND name = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row([&account.asset, &account.name], read_balance).optional()?)
}

/// Must run in a transaction, so that balance and entries match.
pub(super) fn statement(connection: &Connection, query: &StatementQuery) -> Result<Option<StatementPage>, StoreError> {
    let Some(balance) = account(connection, &query.account)? else { return Ok(None) };
    let sql = "SELECT e.seq, r.id, h.version, h.at, h.text, h.hash FROM account_entries e LEFT JOIN history h ON h.seq = e.seq \
               LEFT JOIN records r ON r.row = h.record \
               WHERE e.asset = ?1 AND e.name = ?2 AND e.seq < ?3 ORDER BY e.seq DESC LIMIT ?4";
    let before_seq = query.before_seq.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![query.account.asset, query.account.name, before_seq, query.limit])?;
    let mut entries = Vec::new();
    while let Some(row) = found.next()? {
        if row.get_ref(5)? == rusqlite::types::ValueRef::Null {
            let seq: u64 = row.get(0)?;
            return Err(StoreError::corrupt(format!("log entry {seq} with a transfer is missing")));
        }
        entries.push(read_entry(row)?);
    }
    Ok(Some(StatementPage { balance, entries }))
}
