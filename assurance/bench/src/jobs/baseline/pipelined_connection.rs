//! Sends a batch of statements in one round trip, as the store does.

use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

type SqlParameter<'a> = Box<dyn ToSql + Sync + 'a>;
type PendingQuery<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + 'a>>;

/// A connection with its prepared statements.
pub(super) struct PipelinedConnection {
    client: Client,
    prepared: HashMap<&'static str, Statement>,
    pub(super) statements: u64,
    pub(super) round_trips: u64,
}

#[derive(Default)]
pub(super) struct StatementBatch<'a>(Vec<(&'static str, Option<Vec<SqlParameter<'a>>>)>);

impl<'a> StatementBatch<'a> {
    pub(super) fn add_unprepared(&mut self, sql: &'static str) {
        self.0.push((sql, None));
    }

    pub(super) fn add(&mut self, sql: &'static str, parameters: Vec<SqlParameter<'a>>) {
        self.0.push((sql, Some(parameters)));
    }
}

impl PipelinedConnection {
    pub(super) fn new(client: Client) -> Self {
        Self { client, prepared: HashMap::new(), statements: 0, round_trips: 0 }
    }

    /// Runs a batch in one round trip.
    pub(super) async fn run(&mut self, batch: &StatementBatch<'_>) -> Result<Vec<Vec<Row>>, Box<dyn Error>> {
        for (sql, parameters) in &batch.0 {
            if parameters.is_some() && !self.prepared.contains_key(sql) {
                self.prepared.insert(sql, self.client.prepare(sql).await?);
            }
        }
        self.statements += u64::try_from(batch.0.len())?;
        self.round_trips += 1;
        let client = &self.client;
        let mut pending: Vec<(Option<PendingQuery<'_>>, Vec<Row>)> = Vec::with_capacity(batch.0.len());
        for (sql, parameters) in &batch.0 {
            let future: PendingQuery<'_> = match (parameters, self.prepared.get(sql)) {
                (Some(parameters), Some(statement)) => Box::pin(async move {
                    let parameters: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|one| &**one).collect();
                    client.query(statement, &parameters).await
                }),
                _ => Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) }),
            };
            pending.push((Some(future), Vec::new()));
        }
        let mut first_error = None;
        poll_fn(|context| {
            let mut open = false;
            for (future, rows) in &mut pending {
                let Some(waiting) = future else { continue };
                match waiting.as_mut().poll(context) {
                    Poll::Pending => open = true,
                    Poll::Ready(answer) => {
                        *future = None;
                        match answer {
                            Ok(answer) => *rows = answer,
                            Err(error) => {
                                first_error.get_or_insert(error);
                            }
                        }
                    }
                }
            }
            if open { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        match first_error {
            Some(error) => Err(error.into()),
            None => Ok(pending.into_iter().map(|(_, rows)| rows).collect()),
        }
    }
}

pub(super) fn sql_parameter<'a>(value: impl ToSql + Sync + 'a) -> SqlParameter<'a> {
    Box::new(value)
}
