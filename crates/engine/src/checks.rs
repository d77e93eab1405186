//! External checks: queries to registered handlers outside the engine.
//!
//! If `decide` needs answers for an operation, the engine takes it out of its batch, runs the checks in a task, and
//! queues the operation again with the answers. At most `max_concurrent_checks` run at once, each for at most
//! `check_timeout`. If a check fails, the caller gets the refusal `check_unavailable`.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use onceward_core::decide::{CheckAnswer, CheckQuery, Refusal};
use onceward_store::Store;
use serde_json::{Map, Value as Json};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::error::EngineError;
use crate::log_on_change::LogOnChange;
use crate::shared::Shared;
use crate::submission::queue::QueuedOperation;
use crate::submission::reply::send_reply;

/// A lifecycle file cannot declare more checks, and each pass answers at least one.
const MAX_CHECK_ANSWERS: usize = 100;

/// A check query with the payload it is about.
#[derive(Clone, Debug)]
pub struct CheckRequest {
    pub query: CheckQuery,
    /// The record's payload, if the check asks for it.
    pub payload: Option<Arc<[u8]>>,
}

/// Why a check failed, for the operator. It is logged, so it must not contain caller data.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CheckError(pub String);

type CheckResult = Result<Map<String, Json>, CheckError>;
type CheckHandler = Arc<dyn Fn(CheckRequest) -> Pin<Box<dyn Future<Output = CheckResult> + Send>> + Send + Sync>;

/// Handlers of external checks by lifecycle and check.
#[derive(Clone, Default)]
pub struct CheckRegistry {
    handlers: HashMap<CheckName, CheckHandler>,
}

impl fmt::Debug for CheckRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl CheckRegistry {
    /// Returns whether the check has a handler.
    pub fn contains(&self, lifecycle: &str, check: &str) -> bool {
        self.handlers.contains_key(&(lifecycle.into(), check.into()))
    }

    /// Registers the handler of a check. The engine may call it several times for one operation, because the record can
    /// change in between.
    pub fn register<F>(
        mut self,
        lifecycle: &str,
        check: &str,
        handler: impl Fn(CheckRequest) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = CheckResult> + Send + 'static,
    {
        let handler_fn: CheckHandler = Arc::new(move |request| Box::pin(handler(request)));
        self.handlers.insert((lifecycle.into(), check.into()), handler_fn);
        self
    }
}

/// Runs the checks, then queues the operation again with the answers. It keeps its queue permit.
pub(crate) fn spawn_checks<S: Store + 'static>(
    shared: Arc<Shared<S>>,
    mut request: QueuedOperation,
    queries: Vec<CheckQuery>,
) {
    tokio::spawn(async move {
        for query in queries {
            if request.operation.check_answers.len() >= MAX_CHECK_ANSWERS {
                return send_reply(&shared, request, Err(EngineError::Undecided), Instant::now());
            }
            match run_check(&shared, &request, &query).await {
                Ok(Ok(answer)) => {
                    shared.check_failures.reset(&query);
                    let CheckQuery { lifecycle, check, arguments, payload } = query;
                    request.operation.check_answers.push(CheckAnswer { lifecycle, check, arguments, payload, answer });
                }
                Err(error) => return send_reply(&shared, request, Err(error), Instant::now()),
                Ok(Err(failure)) => {
                    shared.check_failures.log(&query, &failure);
                    let refusal = unavailable_refusal(&query);
                    shared.metrics.record_refusal(refusal.lifecycle.as_ref(), &refusal.code);
                    let refused = Err(EngineError::Refused(Box::new(refusal)));
                    return send_reply(&shared, request, refused, Instant::now());
                }
            }
        }
        shared.queue.requeue(request);
    });
}

enum CheckFailure {
    NoHandler,
    NoPermit,
    TimedOut,
    Panicked,
    HandlerError(CheckError),
}

impl CheckFailure {
    fn code(&self) -> &'static str {
        match self {
            Self::NoHandler => "no_handler",
            Self::NoPermit => "no_permit",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
            Self::HandlerError(_) => "handler_error",
        }
    }

    /// DOC-15: a panic message may contain payload data, so it is not logged.
    fn message(&self) -> &str {
        match self {
            Self::NoHandler => "no handler is registered in `EngineConfig::checks`",
            Self::NoPermit => "no slot for a check became free in time",
            Self::TimedOut => "the handler took too long",
            Self::Panicked => "the handler panicked",
            Self::HandlerError(CheckError(why)) => why,
        }
    }
}

/// Lifecycle and check.
type CheckName = (Arc<str>, Arc<str>);

/// Logs a failing check once, until it succeeds or fails differently.
#[derive(Debug, Default)]
pub(crate) struct CheckFailureLog(Mutex<HashMap<CheckName, LogOnChange>>);

impl CheckFailureLog {
    fn log(&self, CheckQuery { lifecycle, check, .. }: &CheckQuery, failure: &CheckFailure) {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let log_state = logs.entry((Arc::clone(lifecycle), Arc::clone(check))).or_default();
        if log_state.should_log(failure.code()) {
            warn!(%lifecycle, %check, code = failure.code(), reason = failure.message(), "external check failed");
        }
    }

    fn reset(&self, CheckQuery { lifecycle, check, .. }: &CheckQuery) {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !logs.is_empty() {
            logs.remove(&(Arc::clone(lifecycle), Arc::clone(check)));
        }
    }
}

type CheckOutcome = Result<Map<String, Json>, CheckFailure>;

async fn run_check<S: Store>(
    shared: &Shared<S>,
    request: &QueuedOperation,
    query: &CheckQuery,
) -> Result<CheckOutcome, EngineError> {
    let name = (Arc::clone(&query.lifecycle), Arc::clone(&query.check));
    let Some(handler) = shared.config.checks.handlers.get(&name) else {
        return Ok(Err(CheckFailure::NoHandler));
    };
    let timed_out = |_| Ok(Err(CheckFailure::TimedOut));
    let permit = timeout(shared.config.check_timeout, shared.check_permits.acquire(&request.operation.actor.id)).await;
    let Ok(_permit) = permit else { return Ok(Err(CheckFailure::NoPermit)) };
    timeout(shared.config.check_timeout, call_handler(shared, handler, request, query)).await.unwrap_or_else(timed_out)
}

async fn call_handler<S: Store>(
    shared: &Shared<S>,
    handler: &CheckHandler,
    request: &QueuedOperation,
    query: &CheckQuery,
) -> Result<CheckOutcome, EngineError> {
    let payload = match query.payload {
        None => None,
        Some(payload) => match request.payloads.iter().find(|content| content.payload == payload) {
            Some(content) => Some(Arc::clone(&content.bytes)),
            None => shared.read_payload(payload).await?,
        },
    };
    let check_request = CheckRequest { query: query.clone(), payload };
    // In its own task, so that a panic becomes an error.
    let handler_clone = Arc::clone(handler);
    let task = AbortOnDrop(tokio::spawn(async move { handler_clone(check_request).await }));
    Ok(task.await.map_or(Err(CheckFailure::Panicked), |given| given.map_err(CheckFailure::HandlerError)))
}

/// A task that is aborted when its waiter is dropped.
pub(crate) struct AbortOnDrop<T>(pub(crate) tokio::task::JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn unavailable_refusal(query: &CheckQuery) -> Refusal {
    Refusal {
        status: 503,
        code: "check_unavailable".into(),
        record: None,
        lifecycle: Some(Arc::clone(&query.lifecycle)),
        state: None,
        event: "check".into(),
        reason: format!("the external check `{}` gave no answer; retry", query.check),
        audit: None,
        committed_token: None,
        retry_after: None,
        is_denial: false,
    }
}
