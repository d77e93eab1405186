//! A pooled connection with a time limit for answers.
//!
//! The operating system detects a dead peer. It does not detect a server that hangs, or a proxy that keeps accepting
//! data for a dead server. Therefore each answer has a time limit. A connection whose answer does not come in time is
//! closed as if it had broken: the server may still execute the request, so the outcome is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement, ToStatement};

use super::errors::StatementError;

/// Default time limit for an answer, if the URL sets none. Much longer than any normal statement: statements find rows
/// by key and read them in pages, and `lock_timeout` ends a wait for a lock after 5 seconds.
pub(super) const DEFAULT_ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for background statements, which process much data and delay no caller.
const BACKGROUND_ANSWER_TIMEOUT: Duration = Duration::from_hours(1);

type SqlParameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Returns the result of a future, or `None` after the timeout. Without a timeout, waits until the future completes.
pub(super) async fn timeout_if_set<T>(timeout: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match timeout {
        Some(limit) => tokio::time::timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

/// A connection that returns to the pool when dropped, unless an answer timed out. If the caller was cancelled before
/// its answer came, the connection returns to the pool after the answer.
#[derive(Debug)]
pub(super) struct PooledClient {
    /// `Some` until dropped.
    connection: Option<Object>,
    location: Arc<str>,
    answer_timeout: Option<Duration>,
    is_lost: AtomicBool,
    /// Number of answers that are still expected.
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

    /// Raises the time limit, for statements that no caller waits for.
    #[must_use]
    pub(super) fn with_background_timeout(mut self) -> Self {
        self.answer_timeout = self.answer_timeout.map(|limit| limit.max(BACKGROUND_ANSWER_TIMEOUT));
        self
    }

    /// Returns whether the connection was closed by the server or broke. False after a timed-out answer, which callers
    /// must not retry.
    pub(super) fn is_closed(&self) -> bool {
        !self.is_lost() && self.connection.as_ref().is_none_or(|lent| lent.is_closed())
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Sends a request and waits for its answer within the usual time limit.
    pub(super) async fn call<'a, T, F>(
        &'a self,
        request: impl FnOnce(&'a ClientWrapper) -> F,
    ) -> Result<T, StatementError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        self.call_with_timeout(self.answer_timeout, request).await
    }

    /// Like [`call`](Self::call), but with another time limit; `None` means no limit.
    async fn call_with_timeout<'a, T, F>(
        &'a self,
        timeout: Option<Duration>,
        request: impl FnOnce(&'a ClientWrapper) -> F,
    ) -> Result<T, StatementError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let open = self.connection.as_ref().filter(|_| !self.is_lost());
        let connection = open
            .ok_or_else(|| StatementError::TimedOut(format!("{} did not answer an earlier request", self.location)))?;
        self.pending_answers.fetch_add(1, Ordering::Relaxed);
        let answer = timeout_if_set(timeout, request(connection)).await;
        self.pending_answers.fetch_sub(1, Ordering::Relaxed);
        if let Some(answer) = answer {
            return Ok(answer?);
        }
        self.is_lost.store(true, Ordering::Relaxed);
        // Idle connections lead to the same server, so their next users would time out as well.
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

    /// Executes statements without a time limit.
    pub(super) async fn batch_execute_without_timeout(&self, sql: &str) -> Result<(), StatementError> {
        self.call_with_timeout(None, |client| client.batch_execute(sql)).await
    }

    pub(super) async fn prepare_cached(&self, sql: &str) -> Result<Statement, StatementError> {
        self.call(|client| client.prepare_cached(sql)).await
    }

    /// Closes the connection instead of returning it to the pool. The server ends its transaction.
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

/// Returns a connection to the pool once its pending answer has arrived. Otherwise the next user would wait for an
/// answer to another request. Closes it if no answer comes in time.
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
