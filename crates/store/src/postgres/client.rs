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

use super::errors::Failed;

/// How long an answer is waited for, where a URL does not say otherwise. Far longer than anything here takes that is no fault: statements find
/// their rows by keys and read them by pages, and who waits for another's lock is sent away after five seconds.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// The same for what goes through much at once and keeps no caller waiting.
const LONGEST: Duration = Duration::from_hours(1);

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What comes of something within a time; where there is no limit, whenever it comes.
pub(super) async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

/// Given back when it is dropped, unless an answer did not come. Where whoever asked has gone away before it came, it is given back when it
/// has.
#[derive(Debug)]
pub(super) struct Client {
    /// There until it is dropped.
    lent: Option<Object>,
    place: Arc<str>,
    limit: Option<Duration>,
    is_lost: AtomicBool,
    /// Answers that are waited for.
    asking: AtomicUsize,
}

impl Client {
    pub(super) fn new(lent: Object, place: Arc<str>, limit: Option<Duration>) -> Self {
        Self { lent: Some(lent), place, limit, is_lost: AtomicBool::new(false), asking: AtomicUsize::new(0) }
    }

    /// For what may take longer than anything that callers wait for.
    #[must_use]
    pub(super) fn patient(mut self) -> Self {
        self.limit = self.limit.map(|limit| limit.max(LONGEST));
        self
    }

    /// Whether it ended by itself, or by the server. One whose answer did not come is waited for no second time.
    pub(super) fn is_closed(&self) -> bool {
        !self.is_lost() && self.lent.as_ref().is_none_or(|lent| lent.is_closed())
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Ask for something, and wait for the answer as long as is usual.
    pub(super) async fn ask<'a, T, F>(&'a self, ask: impl FnOnce(&'a ClientWrapper) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        self.ask_within(self.limit, ask).await
    }

    /// The same, as long as this; where there is no limit, for ever.
    async fn ask_within<'a, T, F>(
        &'a self,
        limit: Option<Duration>,
        ask: impl FnOnce(&'a ClientWrapper) -> F,
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let lent = self.lent.as_ref().filter(|_| !self.is_lost());
        let lent = lent.ok_or_else(|| Failed::Silent(format!("{} had not answered before", self.place)))?;
        self.asking.fetch_add(1, Ordering::Relaxed);
        let answer = within(limit, ask(lent)).await;
        self.asking.fetch_sub(1, Ordering::Relaxed);
        if let Some(answer) = answer {
            return Ok(answer?);
        }
        self.is_lost.store(true, Ordering::Relaxed);
        // Those that lie idle lead to the same place: whoever came next would wait as long.
        if let Some(pool) = Object::pool(lent) {
            pool.retain(|_, _| false);
        }
        let seconds = limit.unwrap_or_default().as_secs();
        Err(Failed::Silent(format!("{} did not answer within {seconds} s", self.place)))
    }

    pub(super) async fn query<T>(&self, statement: &T, parameters: Parameters<'_>) -> Result<Vec<Row>, Failed>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.ask(|client| client.query(statement, parameters)).await
    }

    pub(super) async fn query_one<T>(&self, statement: &T, parameters: Parameters<'_>) -> Result<Row, Failed>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.ask(|client| client.query_one(statement, parameters)).await
    }

    pub(super) async fn query_opt<T>(&self, statement: &T, parameters: Parameters<'_>) -> Result<Option<Row>, Failed>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.ask(|client| client.query_opt(statement, parameters)).await
    }

    pub(super) async fn execute<T>(&self, statement: &T, parameters: Parameters<'_>) -> Result<u64, Failed>
    where
        T: ?Sized + ToStatement + Sync,
    {
        self.ask(|client| client.execute(statement, parameters)).await
    }

    pub(super) async fn batch_execute(&self, sql: &str) -> Result<(), Failed> {
        self.ask(|client| client.batch_execute(sql)).await
    }

    /// The same for what takes as long as it takes.
    pub(super) async fn unhurried(&self, sql: &str) -> Result<(), Failed> {
        self.ask_within(None, |client| client.batch_execute(sql)).await
    }

    pub(super) async fn prepare_cached(&self, sql: &str) -> Result<Statement, Failed> {
        self.ask(|client| client.prepare_cached(sql)).await
    }

    /// It is not given back, and whatever was under way on it ends.
    pub(super) fn close(mut self) {
        self.lent.take().map(Object::take);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some(lent) = self.lent.take() else { return };
        if self.is_lost() {
            drop(Object::take(lent));
        } else if self.asking.load(Ordering::Relaxed) > 0 {
            give_back_answered(lent, self.limit);
        }
    }
}

/// Whoever has it next would wait for an answer that somebody else has asked for, and as long as it takes to learn that none comes.
fn give_back_answered(lent: Object, limit: Option<Duration>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        drop(Object::take(lent));
        return;
    };
    runtime.spawn(async move {
        if within(limit, lent.batch_execute("")).await.is_none() {
            drop(Object::take(lent));
        }
    });
}
