//! Statements that are sent together and answered together: one round trip, however many they are.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::client::Client;
use super::errors::Failed;
use crate::error::StoreError;

pub(super) type Parameter<'a> = Box<dyn ToSql + Sync + Send + 'a>;
type Pending<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

/// Statements in the order in which they are carried out.
#[derive(Default)]
pub(super) struct Pipeline<'a> {
    calls: Vec<Call<'a>>,
}

/// What goes before and after statements that read, so that all of them see the database as it was at one moment. It goes with them: no
/// round trip more.
const MOMENT: [Call<'static>; 2] =
    [Call::Plain("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"), Call::Plain("COMMIT")];

enum Call<'a> {
    /// Without parameters or answer.
    Plain(&'static str),
    Prepared(&'static str, Vec<Parameter<'a>>),
}

impl<'a> Pipeline<'a> {
    pub(super) fn plain(&mut self, sql: &'static str) {
        self.calls.push(Call::Plain(sql));
    }

    /// Add a statement; the number under which [`run`](Self::run) gives its rows.
    pub(super) fn add(&mut self, sql: &'static str, parameters: Vec<Parameter<'a>>) -> usize {
        self.calls.push(Call::Prepared(sql, parameters));
        self.calls.len() - 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Carry all of them out.
    pub(super) async fn run(&self, client: &Client) -> Result<Vec<Vec<Row>>, StoreError> {
        Ok(self.attempt(client).await?)
    }

    /// The same, and how long the last of them took after those before it were answered: a commit, all of it.
    pub(super) async fn attempt_and_time(&self, client: &Client) -> Result<(Vec<Vec<Row>>, Duration), Failed> {
        let calls: Vec<&Call<'_>> = self.calls.iter().collect();
        client.ask(|client| attempt(&calls, client)).await
    }

    /// The same for statements that read, at one moment. Where it fails, the transaction may still be open.
    pub(super) async fn read_at_once(&self, client: &Client) -> Result<Vec<Vec<Row>>, StoreError> {
        let [begin, end] = &MOMENT;
        let mut calls: Vec<&Call<'_>> = vec![begin];
        calls.extend(&self.calls);
        calls.push(end);
        let (mut answers, _) = client.ask(|client| attempt(&calls, client)).await?;
        answers.pop();
        answers.remove(0);
        Ok(answers)
    }

    /// The same, with the database's own words for what went wrong. Where one fails inside a transaction the database refuses the rest, a commit too: the first
    /// error is the one that matters.
    pub(super) async fn attempt(&self, client: &Client) -> Result<Vec<Vec<Row>>, Failed> {
        Ok(self.attempt_and_time(client).await?.0)
    }
}

async fn attempt(
    calls: &[&Call<'_>],
    client: &ClientWrapper,
) -> Result<(Vec<Vec<Row>>, Duration), tokio_postgres::Error> {
    // All that is new to this connection is prepared first, so that what follows is sent in order and at once.
    let mut statements: Vec<Option<Statement>> = Vec::with_capacity(calls.len());
    for call in calls {
        statements.push(match call {
            Call::Plain(_) => None,
            Call::Prepared(sql, _) => Some(client.prepare_cached(sql).await?),
        });
    }
    let mut pending: Vec<(Option<Pending<'_>>, Vec<Row>)> = Vec::with_capacity(calls.len());
    for (call, statement) in calls.iter().zip(&statements) {
        let future: Pending<'_> = match (call, statement) {
            (Call::Prepared(_, parameters), Some(statement)) => Box::pin(async move {
                let parameters: Vec<&(dyn ToSql + Sync)> =
                    parameters.iter().map(|one| &**one as &(dyn ToSql + Sync)).collect();
                client.query(statement, &parameters).await
            }),
            (Call::Plain(sql) | Call::Prepared(sql, _), _) => {
                Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
            }
        };
        pending.push((Some(future), Vec::new()));
    }
    let mut failed = None;
    let (last, mut before_last) = (pending.len().saturating_sub(1), Instant::now());
    // A statement is sent when it is first asked for its answer: in order. One that fails before it is sent, the server knows
    // nothing of; so nothing that comes after it may be sent either, a commit least of all.
    let (mut all_sent, mut sent) = (false, pending.len());
    poll_fn(|context| {
        let mut open = false;
        for (number, (future, rows)) in pending.iter_mut().take(sent).enumerate() {
            let Some(waiting) = future else { continue };
            match waiting.as_mut().poll(context) {
                Poll::Pending => open = true,
                Poll::Ready(answer) => {
                    *future = None;
                    if number < last {
                        before_last = Instant::now();
                    }
                    match answer {
                        Ok(answer) => *rows = answer,
                        Err(error) => {
                            failed.get_or_insert(error);
                        }
                    }
                }
            }
            if !all_sent && failed.is_some() {
                sent = number + 1;
                break;
            }
        }
        all_sent = true;
        if open { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    match failed {
        Some(error) => Err(error),
        None => Ok((pending.into_iter().map(|(_, rows)| rows).collect(), before_last.elapsed())),
    }
}

/// A parameter of a statement.
pub(super) fn arg<'a>(value: impl ToSql + Sync + Send + 'a) -> Parameter<'a> {
    Box::new(value)
}

#[cfg(test)]
mod tests {
    use onceward_testkit::postgres::Server;

    use super::*;
    use crate::postgres::connect;

    /// A statement whose parameters do not fit is never sent: what was to follow it must not be either.
    #[test]
    fn no_commit_follows_a_statement_that_was_not_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let url = Server::shared().database();
            let pool = connect::pool(&url).expect("a pool");
            let client = pool.get().await.expect("a connection");
            client.batch_execute("CREATE TABLE kept (x bigint)").await.expect("a table");
            let mut pipeline = Pipeline::default();
            pipeline.plain("BEGIN");
            pipeline.add("INSERT INTO kept VALUES ($1)", vec![arg(1_i64)]);
            pipeline.add("INSERT INTO kept VALUES ($1)", vec![arg("no number")]);
            pipeline.plain("COMMIT");
            pipeline.run(&client).await.expect_err("it does not fit");
            client.batch_execute("ROLLBACK").await.expect("it is still open");
            let kept: i64 = client.query_one("SELECT count(*) FROM kept", &[]).await.expect("a count").get(0);
            assert_eq!(kept, 0);
        });
    }
}
