//! A connection that is lent out, and how long its answers are waited for.
//!
//! A machine that is gone is noticed by the system. A proxy that goes on taking our words for a server that is gone, or a server that stands
//! still, is not: so an answer has a limit. A connection whose answer did not come is closed, as if it had been cut: what was asked for may
//! still be carried out, and nobody knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement, ToStatement};

use super::errors::StatementError;

/// How long an answer is waited for, where a URL does not say otherwise. Far longer than anything here takes that is no fault: statements find
/// their rows by keys and read them by pages, and who waits for another's lock is sent away after five seconds.
pub(super) const DEFAULT_ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The same for what goes through much at once and keeps no caller waiting.
const BACKGROUND_ANSWER_TIMEOUT: Duration = Duration::from_hours(1);

type SqlParameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What comes of something within a time; where there is no limit, whenever it comes.
pub(super) async fn timeout_if_set<T>(timeout: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match timeout {
        Some(limit) => tokio::time::timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

/// Given back when it is dropped, unless an answer did not come. Where whoever asked has gone away before it came, it is given back when it
/// has.
#[derive(Debug)]
pub(super) struct PooledClient {
    /// There until it is dropped.
    connection: Option<Object>,
    location: Arc<str>,
    answer_timeout: Option<Duration>,
    is_lost: AtomicBool,
    /// Answers that are waited for.
    pending_answers: AtomicUsize,
}

impl PooledClient {
    pub(super) fn new(connection: Object, location: Arc<str>, answer_timeout: Option<Duration>) -> Self {
        Self {
            connection: Some(connection),
            location,
            answer_timeout,
            is_lost: AtomicBool::new(false),
            pending_answers: AtomicUsize::new(0),
        }
    }

    /// For what may take longer than anything that callers wait for.
    #[must_use]
    pub(super) fn with_background_timeout(mut self) -> Self {
        self.answer_timeout = self.answer_timeout.map(|limit| limit.max(BACKGROUND_ANSWER_TIMEOUT));
        self
    }

    /// Whether it ended by itself, or by the server. One whose answer did not come is waited for no second time.
    pub(super) fn is_closed(&self) -> bool {
        !self.is_lost() && self.connection.as_ref().is_none_or(|lent| lent.is_closed())
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Ask for something, and wait for the answer as long as is usual.
    pub(super) async fn call<'a, T, F>(
        &'a self,
        request: impl FnOnce(&'a ClientWrapper) -> F,
    ) -> Result<T, StatementError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        self.call_with_timeout(self.answer_timeout, request).await
    }

    /// The same, as long as this; where there is no limit, for ever.
    async fn call_with_timeout<'a, T, F>(
        &'a self,
        timeout: Option<Duration>,
        request: impl FnOnce(&'a ClientWrapper) -> F,
    ) -> Result<T, StatementError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let open = self.connection.as_ref().filter(|_| !self.is_lost());
        let connection =
            open.ok_or_else(|| StatementError::TimedOut(format!("{} had not answered before", self.location)))?;
        self.pending_answers.fetch_add(1, Ordering::Relaxed);
        let answer = timeout_if_set(timeout, request(connection)).await;
        self.pending_answers.fetch_sub(1, Ordering::Relaxed);
        if let Some(answer) = answer {
            return Ok(answer?);
        }
        self.is_lost.store(true, Ordering::Relaxed);
        // Those that lie idle lead to the same place: whoever came next would wait as long.
        if let Some(pool) = Object::pool(connection) {
            pool.retain(|_, _| false);
        }
        let seconds = timeout.unwrap_or_default().as_secs();
        Err(StatementError::TimedOut(format!("{} did not answer within {seconds} s", self.location)))
    }

    pub(super) async fn query<T>(
        &self,
        statement: &T,
        parameters: SqlParameters<'_>,
    ) -> Result<Vec<Row>, StatementError>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.call(|client| client.query(statement, parameters)).await
    }

    pub(super) async fn query_one<T>(&self, statement: &T, parameters: SqlParameters<'_>) -> Result<Row, StatementError>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.call(|client| client.query_one(statement, parameters)).await
    }

    pub(super) async fn query_opt<T>(
        &self,
        statement: &T,
        parameters: SqlParameters<'_>,
    ) -> Result<Option<Row>, StatementError>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.call(|client| client.query_opt(statement, parameters)).await
    }

    pub(super) async fn execute<T>(&self, statement: &T, parameters: SqlParameters<'_>) -> Result<u64, StatementError>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.call(|client| client.execute(statement, parameters)).await
    }

    pub(super) async fn batch_execute(&self, sql: &str) -> Result<(), StatementError> {
        self.call(|client| client.batch_execute(sql)).await
    }

    /// The same for what takes as long as it takes.
    pub(super) async fn batch_execute_without_timeout(&self, sql: &str) -> Result<(), StatementError> {
        self.call_with_timeout(None, |client| client.batch_execute(sql)).await
    }

    pub(super) async fn prepare_cached(&self, sql: &str) -> Result<Statement, StatementError> {
        self.call(|client| client.prepare_cached(sql)).await
    }

    /// It is not given back, and whatever was under way on it ends.
    pub(super) fn close(mut self) {
        self.connection.take().map(Object::take);
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if self.is_lost() {
            drop(Object::take(connection));
        } else if self.pending_answers.load(Ordering::Relaxed) > 0 {
            return_after_answer(connection, self.answer_timeout);
        }
    }
}

/// Whoever has it next would wait for an answer that somebody else has asked for, and as long as it takes to learn that none comes.
fn return_after_answer(connection: Object, answer_timeout: Option<Duration>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        drop(Object::take(connection));
        return;
    };
    runtime.spawn(async move {
        if timeout_if_set(answer_timeout, connection.batch_execute("")).await.is_none() {
            drop(Object::take(connection));
        }
    });
}
