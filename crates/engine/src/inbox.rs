//! The inbox: executes calls that users' own SQL transactions inserted, once per idempotency key.
//!
//! A call is answered in the table after its operation is durable. If the process dies in between, the call is fetched
//! again, and its key finds the stored reply. Each reply is written when it arrives, so that a slow call delays no
//! other.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use onceward_core::value::RecordId;
use onceward_store::{InboxCall, InboxRefusal, InboxReply, Store, StoreError};
use tokio::sync::watch;
use tracing::warn;

use crate::error::EngineError;
use crate::log_on_change::LogOnChange;
use crate::shared::Shared;
use crate::submission::queue::{Reply, Submission};

/// Bounds the queue capacity that the inbox uses.
const MAX_IN_FLIGHT_CALLS: usize = 500;

/// Status of a refusal that may succeed later, such as an unavailable check.
const RETRYABLE_STATUS: u16 = 503;

pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>, mut changes: watch::Receiver<u64>) {
    let mut drain = InboxDrain::new(&shared);
    while !shared.queue.is_closed() {
        changes.borrow_and_update();
        let fetched = drain.fetch_calls().await;
        drain.log_result("reading the inbox failed", fetched);
        tokio::select! {
            replies = drain.next_replies(), if !drain.is_empty() => drain.write_replies(replies).await,
            // Also without free capacity: every check has a timeout, so replies will come.
            _ = tokio::time::timeout(shared.config.poll_interval, changes.changed()) => {}
        }
    }
    // Answers all fetched calls before the end.
    while !drain.is_empty() {
        let replies = drain.next_replies().await;
        drain.write_replies(replies).await;
    }
}

type PendingInboxReply<'a> = Pin<Box<dyn Future<Output = (i64, Reply)> + Send + 'a>>;

/// Calls that were fetched and are not answered.
struct InboxDrain<'a, S> {
    shared: &'a Shared<S>,
    in_flight_numbers: HashSet<i64>,
    replies: FuturesUnordered<PendingInboxReply<'a>>,
    error_log: LogOnChange,
}

impl<'a, S: Store> InboxDrain<'a, S> {
    fn new(shared: &'a Shared<S>) -> Self {
        let (numbers, answers) = (HashSet::new(), FuturesUnordered::new());
        Self { shared, in_flight_numbers: numbers, replies: answers, error_log: LogOnChange::default() }
    }

    fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Fetches as many calls as there is capacity for.
    async fn fetch_calls(&mut self) -> Result<(), EngineError> {
        let shared = self.shared;
        let limit = MAX_IN_FLIGHT_CALLS
            .min(shared.config.max_batch_operations)
            .min(shared.config.max_queued_operations)
            .saturating_sub(self.replies.len());
        if limit == 0 {
            return Ok(());
        }
        let mut calls = shared.store.inbox_calls(limit).await?;
        // A call whose claim expired while it is in flight is returned again; submitting it would only wait for itself.
        calls.retain(|call| !self.in_flight_numbers.contains(&call.id));
        if calls.is_empty() {
            return Ok(());
        }
        let numbers: Vec<i64> = calls.iter().map(|call| call.id).collect();
        let submissions = calls.into_iter().map(|InboxCall { actor, idempotency_key: key, call, .. }| {
            Submission::new(&actor, call).with_idempotency_key(&key)
        });
        for (number, receiver) in numbers.into_iter().zip(shared.queue.submit_internal(submissions.collect()).await?) {
            self.in_flight_numbers.insert(number);
            self.replies.push(Box::pin(async move { (number, shared.queue.wait_reply(receiver).await) }));
        }
        Ok(())
    }

    /// Waits for one reply, and takes all others that are ready.
    async fn next_replies(&mut self) -> Vec<(i64, Reply)> {
        let mut replies: Vec<(i64, Reply)> = self.replies.next().await.into_iter().collect();
        while let Some(Some(more)) = self.replies.next().now_or_never() {
            replies.push(more);
        }
        replies
    }

    async fn write_replies(&mut self, replies: Vec<(i64, Reply)>) {
        let mut answers = Vec::with_capacity(replies.len());
        for (number, reply) in replies {
            self.in_flight_numbers.remove(&number);
            // A call without an outcome is fetched again after its claim expires.
            answers.extend(inbox_outcome(reply).map(|outcome| InboxReply { call_id: number, outcome }));
        }
        if !answers.is_empty() {
            let written = self.shared.store.answer_inbox_calls(&answers).await.map_err(EngineError::from);
            self.log_result("writing replies to the inbox failed", written);
        }
    }

    fn log_result(&mut self, what: &'static str, done: Result<(), EngineError>) {
        match done {
            Ok(()) => self.error_log.reset(),
            Err(error) if error.is_engine_closed() => {}
            Err(error) => {
                if self.error_log.should_log(error.code()) {
                    warn!(code = error.code(), "{what}");
                }
            }
        }
    }
}

/// Returns the row to write; `None` if the call should be retried.
fn inbox_outcome(reply: Reply) -> Option<Result<RecordId, InboxRefusal>> {
    let error = match reply {
        Ok(answer) => return Some(Ok(answer.subject)),
        Err(error) => error,
    };
    // An inbox call waits longer than a caller: until the database is repaired or a lifecycle is uploaded.
    let is_repairable = matches!(&error, EngineError::Store(store) if !matches!(**store, StoreError::Rejected(_)));
    let is_retryable_refusal = error.refusal().is_some_and(|refusal| refusal.status == RETRYABLE_STATUS);
    let should_retry = error.is_retryable() || error.is_engine_closed() || is_repairable || is_retryable_refusal;
    if should_retry {
        return None;
    }
    let reason = error.refusal().map_or_else(|| error.to_string(), |refusal| refusal.reason.clone());
    Some(Err(InboxRefusal { status: error.status(), code: error.code().to_owned(), reason }))
}
