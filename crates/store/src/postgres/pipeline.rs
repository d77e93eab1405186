//! Pipelines: statements that are sent together and need one round trip.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::client::PooledClient;
use super::errors::StatementError;
use crate::error::StoreError;

pub(super) type SqlParameter<'a> = Box<dyn ToSql + Sync + Send + 'a>;
type PendingQuery<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

/// Statements in execution order.
#[derive(Default)]
pub(super) struct Pipeline<'a> {
    statements: Vec<PipelineStatement<'a>>,
}

/// Wraps read-only statements in one snapshot. Sent with them, so it costs no extra round trip.
const SNAPSHOT_TRANSACTION: [PipelineStatement<'static>; 2] =
    [PipelineStatement::Plain("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"), PipelineStatement::Plain("COMMIT")];

enum PipelineStatement<'a> {
    /// A statement without parameters and rows.
    Plain(&'static str),
    Prepared(&'static str, Vec<SqlParameter<'a>>),
}

impl<'a> Pipeline<'a> {
    pub(super) fn add_plain(&mut self, sql: &'static str) {
        self.statements.push(PipelineStatement::Plain(sql));
    }

    /// Adds a statement and returns the index of its rows in the result of [`run`](Self::run).
    pub(super) fn add(&mut self, sql: &'static str, parameters: Vec<SqlParameter<'a>>) -> usize {
        self.statements.push(PipelineStatement::Prepared(sql, parameters));
        self.statements.len() - 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Executes all statements.
    pub(super) async fn run(&self, client: &PooledClient) -> Result<Vec<Vec<Row>>, StoreError> {
        Ok(self.try_run(client).await?)
    }

    /// Like [`try_run`](Self::try_run), but also returns the time between the last two answers, which is the duration
    /// of a final commit.
    pub(super) async fn try_run_timed(
        &self,
        client: &PooledClient,
    ) -> Result<(Vec<Vec<Row>>, Duration), StatementError> {
        let calls: Vec<&PipelineStatement<'_>> = self.statements.iter().collect();
        client.call(|client| run_statements(&calls, client)).await
    }

    /// Runs read-only statements in one snapshot. After an error the transaction may still be open.
    pub(super) async fn run_in_snapshot(&self, client: &PooledClient) -> Result<Vec<Vec<Row>>, StoreError> {
        let [begin, end] = &SNAPSHOT_TRANSACTION;
        let mut calls: Vec<&PipelineStatement<'_>> = vec![begin];
        calls.extend(&self.statements);
        calls.push(end);
        let (mut answers, _) = client.call(|client| run_statements(&calls, client)).await?;
        answers.pop();
        answers.remove(0);
        Ok(answers)
    }

    /// Like [`run`](Self::run), but returns the database's own error. If a statement fails inside a transaction, the
    /// server rejects the rest, including the commit, so the first error is the relevant one.
    pub(super) async fn try_run(&self, client: &PooledClient) -> Result<Vec<Vec<Row>>, StatementError> {
        Ok(self.try_run_timed(client).await?.0)
    }
}

async fn run_statements(
    calls: &[&PipelineStatement<'_>],
    client: &ClientWrapper,
) -> Result<(Vec<Vec<Row>>, Duration), tokio_postgres::Error> {
    // Prepare new statements first, so that the rest is sent in order without waiting.
    let mut statements: Vec<Option<Statement>> = Vec::with_capacity(calls.len());
    for call in calls {
        statements.push(match call {
            PipelineStatement::Plain(_) => None,
            PipelineStatement::Prepared(sql, _) => Some(client.prepare_cached(sql).await?),
        });
    }
    let mut pending: Vec<(Option<PendingQuery<'_>>, Vec<Row>)> = Vec::with_capacity(calls.len());
    for (call, statement) in calls.iter().zip(&statements) {
        let future: PendingQuery<'_> = match (call, statement) {
            (PipelineStatement::Prepared(_, parameters), Some(statement)) => Box::pin(async move {
                let parameters: Vec<&(dyn ToSql + Sync)> =
                    parameters.iter().map(|one| &**one as &(dyn ToSql + Sync)).collect();
                client.query(statement, &parameters).await
            }),
            (PipelineStatement::Plain(sql) | PipelineStatement::Prepared(sql, _), _) => {
                Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
            }
        };
        pending.push((Some(future), Vec::new()));
    }
    let mut first_error = None;
    let (last, mut before_last) = (pending.len().saturating_sub(1), Instant::now());
    // Polling a statement's future sends it, so they are sent in order. If a statement fails before it is sent, the
    // server does not know of the failure. So nothing after it may be sent, in particular no commit.
    let (mut all_sent, mut sent_limit) = (false, pending.len());
    poll_fn(|context| {
        let mut has_pending = false;
        for (number, (future, rows)) in pending.iter_mut().take(sent_limit).enumerate() {
            let Some(waiting) = future else { continue };
            match waiting.as_mut().poll(context) {
                Poll::Pending => has_pending = true,
                Poll::Ready(answer) => {
                    *future = None;
                    if number < last {
                        before_last = Instant::now();
                    }
                    match answer {
                        Ok(answer) => *rows = answer,
                        Err(error) => {
                            first_error.get_or_insert(error);
                        }
                    }
                }
            }
            if !all_sent && first_error.is_some() {
                sent_limit = number + 1;
                break;
            }
        }
        all_sent = true;
        if has_pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    match first_error {
        Some(error) => Err(error),
        None => Ok((pending.into_iter().map(|(_, rows)| rows).collect(), before_last.elapsed())),
    }
}

/// Boxes a statement parameter.
pub(super) fn param<'a>(value: impl ToSql + Sync + Send + 'a) -> SqlParameter<'a> {
    Box::new(value)
}

#[cfg(test)]
mod tests {
    use onceward_testkit::postgres::PostgresServer;

    use super::*;
    use crate::postgres::pool;

    /// The parameters do not match the statement, so the driver never sends it.
    #[test]
    fn commit_is_not_sent_after_statement_that_failed_to_send() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let url = PostgresServer::shared().create_database();
            let pool = pool::build_pool(&url).expect("a pool");
            let client = pool.get().await.expect("a connection");
            client.batch_execute("CREATE TABLE numbers (x bigint)").await.expect("a table");
            let mut pipeline = Pipeline::default();
            pipeline.add_plain("BEGIN");
            pipeline.add("INSERT INTO numbers VALUES ($1)", vec![param(1_i64)]);
            pipeline.add("INSERT INTO numbers VALUES ($1)", vec![param("no number")]);
            pipeline.add_plain("COMMIT");
            pipeline.run(&client).await.expect_err("the parameter has the wrong type");
            client.batch_execute("ROLLBACK").await.expect("the connection is still open");
            let stored_rows: i64 = client.query_one("SELECT count(*) FROM numbers", &[]).await.expect("a count").get(0);
            assert_eq!(stored_rows, 0);
        });
    }
}
