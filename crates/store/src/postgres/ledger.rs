//! Named accounts, and the entries of the log that moved something there.

use tokio_postgres::Row;

use super::Inner;
use super::pipeline::{Pipeline, arg};
use super::read::entry;
use super::rows::{self, signed, size};
use crate::account::{AccountName, AccountsQuery, Balance, Statement, StatementQuery};
use crate::error::StoreError;

const ACCOUNTS: &str = "SELECT asset, name, outside, balance FROM onceward.accounts \
     WHERE (asset, name) > ($1, $2) ORDER BY asset, name LIMIT $3";

const ACCOUNT: &str = "SELECT asset, name, outside, balance FROM onceward.accounts WHERE asset = $1 AND name = $2";

/// One statement, so that it sees one moment. An entry's place follows from its number and the batch that has it.
const STATEMENT: &str = "SELECT e.seq, r.id, h.version, h.at, h.text, h.hash, a.asset, a.name, a.outside, a.balance \
     FROM onceward.accounts a \
     LEFT JOIN LATERAL (SELECT seq FROM onceward.entries WHERE asset = a.asset AND name = a.name AND seq < $3 \
     ORDER BY seq DESC LIMIT $4) e ON true \
     LEFT JOIN LATERAL (SELECT first, batch FROM onceward.batches WHERE last >= e.seq ORDER BY last LIMIT 1) b ON true \
     LEFT JOIN onceward.history h ON h.place = (b.batch << 20) + (e.seq - b.first) \
     LEFT JOIN onceward.records r ON r.row = h.record \
     WHERE a.asset = $1 AND a.name = $2 ORDER BY e.seq DESC";

fn balance(row: &Row, at: usize) -> Result<Balance, StoreError> {
    let account = AccountName { asset: rows::text(row, at)?, name: rows::text(row, at + 1)? };
    Ok(Balance { account, outside: row.try_get(at + 2)?, balance: row.try_get(at + 3)? })
}

pub(super) async fn accounts(inner: &Inner, query: &AccountsQuery) -> Result<Vec<Balance>, StoreError> {
    let (asset, name) = query.after.as_ref().map_or(("", ""), |after| (&*after.asset, &*after.name));
    let mut pipeline = Pipeline::default();
    pipeline.add(ACCOUNTS, vec![arg(asset), arg(name), arg(size(query.limit))]);
    inner.run(&pipeline).await?.iter().flatten().map(|row| balance(row, 0)).collect()
}

pub(super) async fn account(inner: &Inner, account: &AccountName) -> Result<Option<Balance>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(ACCOUNT, vec![arg(&*account.asset), arg(&*account.name)]);
    inner.run(&pipeline).await?.iter().flatten().next().map(|row| balance(row, 0)).transpose()
}

pub(super) async fn statement(inner: &Inner, query: &StatementQuery) -> Result<Option<Statement>, StoreError> {
    let (asset, name) = (&*query.account.asset, &*query.account.name);
    let before = query.before.map_or(i64::MAX, signed);
    let mut pipeline = Pipeline::default();
    pipeline.add(STATEMENT, vec![arg(asset), arg(name), arg(before), arg(size(query.limit))]);
    let answers = inner.run(&pipeline).await?;
    let Some(first) = answers[0].first() else { return Ok(None) };
    let mut entries = Vec::new();
    for row in &answers[0] {
        // Where nothing moved, the one row has no entry in it.
        let Some(seq) = rows::some_unsigned(row, 0)? else { continue };
        if rows::some::<i64>(row, 2)?.is_none() {
            return Err(StoreError::corrupt(format!("log entry {seq}, which moved something, is missing")));
        }
        entries.push(entry(row)?);
    }
    Ok(Some(Statement { now: balance(first, 6)?, entries }))
}
