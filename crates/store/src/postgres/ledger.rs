//! Named accounts and statements in PostgreSQL.

use tokio_postgres::Row;

use super::PostgresInner;
use super::pipeline::{Pipeline, param};
use super::read::read_entry;
use super::rows::{self, to_limit, to_signed};
use crate::account::{AccountBalance, AccountName, AccountsQuery, StatementPage, StatementQuery};
use crate::error::StoreError;

const SELECT_ACCOUNTS_SQL: &str = "SELECT asset, name, outside, balance FROM onceward.accounts \
     WHERE (asset, name) > ($1, $2) ORDER BY asset, name LIMIT $3";

const SELECT_ACCOUNT_SQL: &str =
    "SELECT asset, name, outside, balance FROM onceward.accounts WHERE asset = $1 AND name = $2";

/// One statement, so that balance and entries match. The entry's id follows from its seq and its batch.
const SELECT_STATEMENT_SQL: &str = "SELECT e.seq, r.id, h.version, h.at, h.text, h.hash, a.asset, a.name, a.outside, a.balance \
     FROM onceward.accounts a \
     LEFT JOIN LATERAL (SELECT seq FROM onceward.account_entries WHERE asset = a.asset AND name = a.name AND seq < $3 \
     ORDER BY seq DESC LIMIT $4) e ON true \
     LEFT JOIN LATERAL (SELECT first, batch FROM onceward.batches WHERE last >= e.seq ORDER BY last LIMIT 1) b ON true \
     LEFT JOIN onceward.history h ON h.entry_id = (b.batch << 20) + (e.seq - b.first) \
     LEFT JOIN onceward.records r ON r.row = h.record \
     WHERE a.asset = $1 AND a.name = $2 ORDER BY e.seq DESC";

fn read_balance(row: &Row, index: usize) -> Result<AccountBalance, StoreError> {
    let account = AccountName { asset: rows::text_column(row, index)?, name: rows::text_column(row, index + 1)? };
    Ok(AccountBalance { account, is_outside: row.try_get(index + 2)?, balance: row.try_get(index + 3)? })
}

pub(super) async fn accounts(inner: &PostgresInner, query: &AccountsQuery) -> Result<Vec<AccountBalance>, StoreError> {
    let (asset, name) = query.after.as_ref().map_or(("", ""), |after| (&*after.asset, &*after.name));
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_ACCOUNTS_SQL, vec![param(asset), param(name), param(to_limit(query.limit))]);
    inner.run_pipeline(&pipeline).await?.iter().flatten().map(|row| read_balance(row, 0)).collect()
}

pub(super) async fn account(
    inner: &PostgresInner,
    account: &AccountName,
) -> Result<Option<AccountBalance>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_ACCOUNT_SQL, vec![param(&*account.asset), param(&*account.name)]);
    inner.run_pipeline(&pipeline).await?.iter().flatten().next().map(|row| read_balance(row, 0)).transpose()
}

pub(super) async fn statement(
    inner: &PostgresInner,
    query: &StatementQuery,
) -> Result<Option<StatementPage>, StoreError> {
    let (asset, name) = (&*query.account.asset, &*query.account.name);
    let before_seq = query.before_seq.map_or(i64::MAX, to_signed);
    let mut pipeline = Pipeline::default();
    pipeline
        .add(SELECT_STATEMENT_SQL, vec![param(asset), param(name), param(before_seq), param(to_limit(query.limit))]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let Some(first) = answers[0].first() else { return Ok(None) };
    let mut entries = Vec::new();
    for row in &answers[0] {
        // For an account without transfers, the only row contains no entry.
        let Some(seq) = rows::optional_unsigned_column(row, 0)? else { continue };
        if rows::optional_column::<i64>(row, 2)?.is_none() {
            return Err(StoreError::corrupt(format!("log entry {seq} with a transfer is missing")));
        }
        entries.push(read_entry(row)?);
    }
    Ok(Some(StatementPage { balance: read_balance(first, 6)?, entries }))
}
