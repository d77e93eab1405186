//! Group commit: takes the queued operations, decides them, saves them in one transaction, and replies.

pub(crate) mod decide_batch;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use onceward_core::decide::{Call, CheckQuery};
use onceward_store::{Batch, DecidedOperation, OperationOutcome, SaveResult, Store};
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::{debug, trace, warn};

use crate::checks;
use crate::dispatch::{self, SyncMatches};
use crate::error::EngineError;
use crate::group_commit::decide_batch::{DecidedBatch, RetryHints, decide_batch};
use crate::metrics::{CALL_KINDS, call_kind_index};
use crate::shared::Shared;
use crate::spans::{self, OperationSpan};
use crate::submission::queue::{IncomingOperations, QueuedOperation, Reply, random_seed};

/// A smaller batch finishes sooner and reads less, so it conflicts less often.
const MAX_CONFLICTS_BEFORE_SPLIT: usize = 3;

/// Each conflict means that another writer made progress, so a high count is rare.
const MAX_CONFLICT_RETRIES: usize = 1_000;

/// While one batch is being written, the next is loaded and decided. The save validates each batch's read set, so the
/// batches need no coordination.
const MAX_IN_FLIGHT_BATCHES: usize = 2;

/// Lifecycle uploads during a batch are rare, so a few refreshes are enough.
const MAX_CATALOG_REFRESHES: usize = 3;

/// While a batch is in flight, the next one is sent when it is as large, or a full batch divided by this.
const EARLY_SEND_DIVISOR: usize = 4;

/// Each batch costs an fsync. A smaller one waits for the batch before it and collects more operations.
const MIN_PIPELINED_OPERATIONS: usize = 32;

/// Longest wait for the batch before. Bounds heartbeat latency while a save is blocked on a lock.
const MAX_BATCH_LINGER: Duration = Duration::from_millis(5);

pub(crate) async fn run<S: Store + 'static>(shared: Arc<Shared<S>>, mut incoming: IncomingOperations) {
    let max_operations = shared.config.max_batch_operations;
    let (mut in_flight, mut pending, mut closed) =
        (InFlightBatches::default(), PendingBatch::new(max_operations), false);
    while !closed || !in_flight.0.is_empty() || !pending.requests.is_empty() {
        // If no batch is in flight, the queued operations are sent without waiting for more.
        while pending.can_accept()
            && let Ok(more) = incoming.try_recv()
        {
            pending.push(more);
        }
        let min_operations = in_flight
            .largest_batch()
            .map_or(1, |largest| largest.max(MIN_PIPELINED_OPERATIONS).min(max_operations / EARLY_SEND_DIVISOR + 1));
        if pending.is_ready(min_operations) && in_flight.0.len() < MAX_IN_FLIGHT_BATCHES {
            let (shared, requests) = (Arc::clone(&shared), pending.take_batch());
            let size = requests.len();
            in_flight.0.push((size, Box::pin(async move { commit_with_retries(&shared, requests).await })));
        } else {
            match next_event(&mut in_flight, &mut pending, &mut incoming, closed).await {
                // Lets the answered callers run first: the next save may block this thread.
                LoopEvent::BatchDone => tokio::task::yield_now().await,
                LoopEvent::DeadlinePassed => {}
                LoopEvent::Received(more) => pending.push(more),
                LoopEvent::Closed => closed = true,
            }
        }
    }
}

/// Operations that the loop collects for the next batch.
struct PendingBatch {
    max_operations: usize,
    requests: Vec<QueuedOperation>,
    /// The next call, if its operations do not fit: the operations of one call stay in one batch.
    overflow: Vec<QueuedOperation>,
    /// When to send the pending batch: its first operation's arrival, or the previous send, plus the linger.
    deadline: Instant,
    /// Reset only when it fires; a reset per batch costs more on a busy engine.
    timer: Pin<Box<Sleep>>,
}

impl PendingBatch {
    fn new(max_operations: usize) -> Self {
        let deadline = Instant::now();
        Self {
            max_operations,
            requests: Vec::new(),
            overflow: Vec::new(),
            deadline,
            timer: Box::pin(sleep_until(deadline)),
        }
    }

    fn can_accept(&self) -> bool {
        self.overflow.is_empty() && self.requests.len() < self.max_operations
    }

    fn push(&mut self, more: Vec<QueuedOperation>) {
        if self.requests.is_empty() {
            self.deadline = Instant::now() + MAX_BATCH_LINGER;
        }
        if !self.requests.is_empty() && self.requests.len() + more.len() > self.max_operations {
            self.overflow = more;
        } else {
            self.requests.extend(more);
        }
    }

    fn is_ready(&self, min_operations: usize) -> bool {
        let must_send = || !self.overflow.is_empty() || self.deadline <= Instant::now();
        self.requests.len() >= min_operations || !self.requests.is_empty() && must_send()
    }

    fn take_batch(&mut self) -> Vec<QueuedOperation> {
        if !self.overflow.is_empty() {
            self.deadline = Instant::now() + MAX_BATCH_LINGER;
        }
        std::mem::replace(&mut self.requests, std::mem::take(&mut self.overflow))
    }

    /// Returns whether the deadline has passed. If not, registers a wakeup for it.
    fn poll_deadline(&mut self, context: &mut Context) -> bool {
        while self.timer.as_mut().poll(context).is_ready() {
            if self.deadline <= Instant::now() {
                return true;
            }
            self.timer.as_mut().reset(self.deadline);
        }
        false
    }
}

enum LoopEvent {
    BatchDone,
    /// The pending batch need not wait any longer.
    DeadlinePassed,
    Received(Vec<QueuedOperation>),
    Closed,
}

/// Waits until a batch is done, the pending batch reaches its deadline, or, if it has capacity, more operations arrive.
async fn next_event(
    in_flight: &mut InFlightBatches,
    pending: &mut PendingBatch,
    incoming: &mut IncomingOperations,
    closed: bool,
) -> LoopEvent {
    poll_fn(|context| {
        if in_flight.poll_all(context) {
            return Poll::Ready(LoopEvent::BatchDone);
        }
        // If the maximum is in flight, no batch can be sent, even after its deadline.
        if !pending.requests.is_empty() && in_flight.0.len() < MAX_IN_FLIGHT_BATCHES && pending.poll_deadline(context) {
            return Poll::Ready(LoopEvent::DeadlinePassed);
        }
        if closed || !pending.can_accept() {
            return Poll::Pending;
        }
        incoming.poll_recv(context).map(|more| more.map_or(LoopEvent::Closed, LoopEvent::Received))
    })
    .await
}

/// In-flight batches with their sizes. They run in the loop's own task, so that none outlives it.
#[derive(Default)]
struct InFlightBatches(Vec<(usize, BatchFuture)>);

type BatchFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

impl InFlightBatches {
    fn largest_batch(&self) -> Option<usize> {
        self.0.iter().map(|(size, _)| *size).max()
    }

    /// Polls all batches; returns whether one is done.
    fn poll_all(&mut self, context: &mut Context) -> bool {
        let before = self.0.len();
        self.0.retain_mut(|(_, batch)| batch.as_mut().poll(context).is_pending());
        self.0.len() < before
    }
}

/// Operations that are decided and saved together.
struct RequestBatch {
    requests: Vec<QueuedOperation>,
    conflicts: usize,
    /// Results of the last attempt.
    hints: RetryHints,
    /// Whether it may lease new jobs to parked pollers. Only the first attempt may: a sync match must not make an
    /// operation fail.
    allows_sync_match: bool,
}

impl RequestBatch {
    fn new(requests: Vec<QueuedOperation>, allows_sync_match: bool) -> Self {
        Self { requests, conflicts: 0, hints: RetryHints::default(), allows_sync_match }
    }

    fn split_in_half(mut self) -> [Self; 2] {
        let second = self.requests.split_off(self.requests.len() / 2);
        [Self::new(self.requests, false), Self::new(second, false)]
    }

    /// Answers every operation with this error.
    fn fail<S>(self, shared: &Shared<S>, error: &EngineError) {
        let operations = self.requests.len();
        warn!(code = error.code(), operations, "batch failed");
        for request in self.requests {
            send_reply(shared, request, Err(error.clone()), Instant::now());
        }
    }
}

/// Commits the operations, with retries and splits, and answers each one after it is durable.
async fn commit_with_retries<S: Store + 'static>(shared: &Arc<Shared<S>>, requests: Vec<QueuedOperation>) {
    // A stack: the last batch is next.
    let mut batches = vec![RequestBatch::new(requests, true)];
    while let Some(mut batch) = batches.pop() {
        let outcome = try_commit(shared, &mut batch).await;
        batch.allows_sync_match = false;
        let is_single = batch.requests.len() < 2;
        match outcome {
            Ok((replies, SaveResult::Saved { .. }, _)) => {
                let now = Instant::now();
                for (request, reply) in batch.requests.into_iter().zip(replies) {
                    send_reply(shared, request, reply, now);
                }
            }
            Ok((_, SaveResult::Conflict(_), _)) if is_single && batch.conflicts >= MAX_CONFLICT_RETRIES => {
                batch.fail(shared, &EngineError::TooManyConflicts);
            }
            Ok((_, SaveResult::Conflict(_), hints)) if is_single || batch.conflicts < MAX_CONFLICTS_BEFORE_SPLIT => {
                let conflicts = batch.conflicts + 1;
                batches.push(RequestBatch { conflicts, hints, ..batch });
            }
            Err(AttemptError { caused_by_sync_match: true, .. }) => batches.push(batch),
            // If one operation cannot be read, or the database rejects it, splitting isolates it, and only that one
            // fails.
            Err(AttemptError { error, .. }) if is_single || !error.is_single_operation_fault() => {
                batch.fail(shared, &error);
            }
            Ok((_, SaveResult::Conflict(_), _)) | Err(_) => {
                let [first, second] = batch.split_in_half();
                batches.extend([second, first]);
            }
        }
    }
}

/// Replies to one operation, and records its latency, span and errors.
pub(crate) fn send_reply<S>(shared: &Shared<S>, request: QueuedOperation, reply: Reply, now: Instant) {
    let elapsed = now.saturating_duration_since(request.received_at);
    shared.metrics.record_latency(&request.operation.call, elapsed);
    if let (Some(spans), Some(parent)) = (&shared.config.span_sink, request.operation.trace)
        && parent.is_sampled()
        && request.has_span
    {
        let code = reply.as_ref().err().map(|error| error.code().into());
        spans.record_operation(OperationSpan {
            parent,
            kind: CALL_KINDS[call_kind_index(&request.operation.call)],
            duration: elapsed,
            code,
        });
    }
    if let Err(error) = &reply
        && error.refusal().is_none()
    {
        shared.metrics.record_failures(error, 1);
    }
    let record = reply.as_ref().ok().and_then(|answer| answer.record.clone());
    let count_replayed = |times: u64| {
        let unknown_lifecycle = Arc::default();
        shared
            .metrics
            .record_replays(record.as_ref().map_or(&unknown_lifecycle, |record| &record.lifecycle.name), times);
    };
    if reply.as_ref().is_ok_and(|answer| answer.replayed) {
        count_replayed(1);
    }
    let followers = request.reply(reply);
    if followers > 0 {
        count_replayed(followers);
    }
}

type AttemptOutcome = (Vec<Reply>, SaveResult, RetryHints);

/// Nothing of a batch was saved, or the outcome is unknown.
struct AttemptError {
    error: EngineError,
    /// A sync match may be the cause. Nothing was saved; the batch is tried again without sync matches.
    caused_by_sync_match: bool,
}

impl<E: Into<EngineError>> From<E> for AttemptError {
    fn from(error: E) -> Self {
        Self { error: error.into(), caused_by_sync_match: false }
    }
}

/// Decides and saves once. Operations that need external checks leave the batch.
async fn try_commit<S: Store + 'static>(
    shared: &Arc<Shared<S>>,
    request_batch: &mut RequestBatch,
) -> Result<AttemptOutcome, AttemptError> {
    let store = &shared.store;
    let started_at = Instant::now();
    let mut catalog = store.catalog().await?;
    let now = store.now().await?;
    let hints = std::mem::take(&mut request_batch.hints);
    let used_ids = hints.used_idempotency_ids.clone();
    assign_ordered_seeds(&mut request_batch.requests);
    let mut decided =
        decide_batch(store, &catalog.definitions, &request_batch.requests, hints, now, random_seed).await?;
    // Loading may have refreshed the catalog after an upload by another process. New records must use the current
    // version.
    for _ in 0..MAX_CATALOG_REFRESHES {
        // If nothing was loaded, the catalog was not refreshed either. A refusal is not validated by the save, so an
        // "unknown lifecycle" refusal needs the newest catalog.
        let has_unverified_refusal = decided.load_rounds == 0 && decided.has_refusal();
        let newest_catalog =
            if has_unverified_refusal { store.refresh_catalog().await? } else { store.catalog().await? };
        if newest_catalog.revision() == catalog.revision() {
            break;
        }
        catalog = newest_catalog;
        let hints = RetryHints { read_keys: decided.read_set.loaded_keys(), used_idempotency_ids: used_ids.clone() };
        decided = decide_batch(store, &catalog.definitions, &request_batch.requests, hints, now, random_seed).await?;
    }
    let mut sync_matches = SyncMatches::default();
    if request_batch.allows_sync_match {
        let matched = dispatch::match_pollers(shared, &catalog.definitions, &mut decided, now).await;
        sync_matches = matched.map_err(|error| AttemptError { error, caused_by_sync_match: true })?;
    }
    let DecidedBatch { read_set, mut writes, replies, checks: checks_needed, .. } = decided;
    // Only the scheduler gets this reply, and it polls again. It needs no validating save, unless the read came from
    // the cache.
    if !read_set.used_cache() {
        writes.retain(|write| !is_due_no_op(write));
    }
    let limiter_charge = shared.refusal_limiter.limit_entries(&mut writes, now);
    detach_for_checks(shared, request_batch, checks_needed);
    let replies: Vec<Reply> = replies.into_iter().flatten().collect();
    let (base, batch) = (
        Arc::new(read_set),
        Arc::new(Batch { operations: writes, decided_at: now, catalog_revision: catalog.revision() }),
    );
    if writes_nothing(&batch.operations) {
        shared.metrics.record_decisions(&batch.operations, &base);
        shared.metrics.record_unlogged_refusals(limiter_charge.unlogged_refusals);
        return Ok((replies, SaveResult::Saved { first_seq: 1, last_seq: 0 }, RetryHints::default()));
    }
    let save_started_at = Instant::now();
    let save_result = match store.save(&base, &batch).await {
        Ok(save) => save,
        Err(error) => {
            shared.refusal_limiter.refund(limiter_charge);
            let error = EngineError::from(error);
            let granted = !sync_matches.is_empty() && (error.is_single_operation_fault() || error.is_store_busy());
            if !sync_matches.is_empty() {
                // The failed save may have left jobs that the cached empty scans do not know.
                shared.notifier.pollers.invalidate_empty_scans();
            }
            return Err(AttemptError { error, caused_by_sync_match: granted });
        }
    };
    let hints = match &save_result {
        SaveResult::Saved { last_seq: last, .. } => {
            shared.metrics.record_batch(batch.operations.len(), save_started_at.elapsed());
            shared.metrics.record_decisions(&batch.operations, &base);
            trace!(operations = batch.operations.len(), last, "batch saved");
            shared.metrics.record_unlogged_refusals(limiter_charge.unlogged_refusals);
            if let Some(spans) = &shared.config.span_sink {
                spans::emit_execution_spans(&**spans, &batch.operations);
            }
            shared.notifier.on_saved(&batch.operations, *last, now, &sync_matches.leased_records());
            let is_single = request_batch.requests.len() == 1 && !sync_matches.is_empty();
            sync_matches.deliver(shared, started_at.elapsed());
            if is_single {
                // Runs the matched poller before the creator on this thread: waking another thread takes longer than
                // either of them (0020).
                tokio::task::yield_now().await;
            }
            RetryHints::default()
        }
        SaveResult::Conflict(conflict) => {
            shared.metrics.record_conflict();
            debug!(operations = batch.operations.len(), "batch conflicted with another write and is decided again");
            shared.refusal_limiter.refund(limiter_charge);
            RetryHints { read_keys: base.loaded_keys(), used_idempotency_ids: conflict.answered_ids.clone() }
        }
    };
    Ok((replies, save_result, hints))
}

/// Returns whether another writer had already fired what was due.
fn is_due_no_op(write: &DecidedOperation) -> bool {
    matches!(write.operation.call, Call::FireDue { .. }) && matches!(write.outcome, OperationOutcome::NoOp(_))
}

/// Returns whether no operation writes anything, so that no transaction is needed. A no-op does need one: its save
/// validates what was read.
fn writes_nothing(writes: &[DecidedOperation]) -> bool {
    writes.iter().all(|write| match &write.outcome {
        OperationOutcome::Refusal(refusal) => !refusal.is_denial && refusal.audit.is_none(),
        OperationOutcome::Changes(_) | OperationOutcome::NoOp(_) => false,
    })
}

/// Bits of a seed that form an id, and the random ones among them.
const ID_BITS: u32 = 74;
const RANDOM_BITS: u32 = 54;

/// Makes the ids of later operations larger. A batch has one time, and records of the same time are ordered by id; so
/// jobs keep the order in which callers created them. An operation with check answers keeps its seed: the queries may
/// contain an id. Deliveries do not need this: core orders them by record version.
fn assign_ordered_seeds(requests: &mut [QueuedOperation]) {
    for (index, request) in
        requests.iter_mut().enumerate().filter(|(_, request)| request.operation.check_answers.is_empty())
    {
        request.operation.seed = ordered_seed(request.operation.seed, index);
    }
}

/// Returns a seed for the operation at `index` of a batch.
pub(crate) fn ordered_seed(seed: u128, index: usize) -> u128 {
    let offset = u128::try_from(index).unwrap_or(u128::MAX) << RANDOM_BITS & ((1 << ID_BITS) - 1);
    seed & ((1 << RANDOM_BITS) - 1) | offset
}

fn detach_for_checks<S: Store + 'static>(
    shared: &Arc<Shared<S>>,
    batch: &mut RequestBatch,
    mut checks_needed: Vec<(usize, Vec<CheckQuery>)>,
) {
    if checks_needed.is_empty() {
        return;
    }
    checks_needed.sort_unstable_by_key(|(at, _)| *at);
    let mut checks = checks_needed.into_iter().peekable();
    let mut remaining = Vec::with_capacity(batch.requests.len());
    for (index, request) in std::mem::take(&mut batch.requests).into_iter().enumerate() {
        match checks.next_if(|(asking, _)| *asking == index) {
            Some((_, questions)) => checks::spawn_checks(Arc::clone(shared), request, questions),
            None => remaining.push(request),
        }
    }
    batch.requests = remaining;
}
