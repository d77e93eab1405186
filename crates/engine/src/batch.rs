//! The loop that saves: takes what waits, decides it, saves it in one transaction, and answers.

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
use crate::deciding::{DecidedBatch, RetryHints, decide_batch};
use crate::error::EngineError;
use crate::leasing::{self, SyncMatches};
use crate::metrics::{CALL_KINDS, call_kind_index};
use crate::queue::{IncomingOperations, QueuedOperation, Reply, random_seed};
use crate::shared::Shared;
use crate::spans::{self, OperationSpan};

/// Conflicts after which a batch is halved: smaller ones are sooner done and touch less.
const MAX_CONFLICTS_BEFORE_SPLIT: usize = 3;

/// Conflicts after which a single operation is given up. Each one means that somebody else got on.
const MAX_CONFLICT_RETRIES: usize = 1_000;

/// Batches on their way at once: while one is being written, the next is loaded and decided. Each is compared with what the
/// store says when it is saved, so that they need not know of one another.
const MAX_IN_FLIGHT_BATCHES: usize = 2;

/// Times that a batch is decided again because others brought lifecycles meanwhile. Nobody does so all the time.
const MAX_CATALOG_REFRESHES: usize = 3;

/// With one on its way, the next sets out when it is as large, or has this part of a full one.
const EARLY_SEND_DIVISOR: usize = 4;

/// Smaller ones wait for the one before: each costs an fsync, and what comes meanwhile goes along.
const MIN_PIPELINED_OPERATIONS: usize = 32;

/// But none waits longer for it: it may be stuck behind somebody's lock, while heartbeats among these keep leases alive.
const MAX_BATCH_LINGER: Duration = Duration::from_millis(5);

pub(crate) async fn run<S: Store + 'static>(shared: Arc<Shared<S>>, mut incoming: IncomingOperations) {
    let max_operations = shared.config.max_batch_operations;
    let (mut in_flight, mut pending, mut closed) =
        (InFlightBatches::default(), PendingBatch::new(max_operations), false);
    while !closed || !in_flight.0.is_empty() || !pending.requests.is_empty() {
        // What is there goes along; where nothing is on its way, nobody is waited for.
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
                // Those who were answered go on first: the next batch may be written right here, and hold up this thread.
                LoopEvent::BatchDone => tokio::task::yield_now().await,
                LoopEvent::DeadlinePassed => {}
                LoopEvent::Received(more) => pending.push(more),
                LoopEvent::Closed => closed = true,
            }
        }
    }
}

/// Requests that wait to set out together.
struct PendingBatch {
    max_operations: usize,
    requests: Vec<QueuedOperation>,
    /// Those of one call that would have been too many: they go next, since those of one call go together.
    overflow: Vec<QueuedOperation>,
    /// When the first of them has waited long enough.
    deadline: Instant,
    /// Set anew only when it goes off, which costs a busy engine less than setting it for each batch.
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
        let is_full = || !self.overflow.is_empty() || self.deadline <= Instant::now();
        self.requests.len() >= min_operations || !self.requests.is_empty() && is_full()
    }

    fn take_batch(&mut self) -> Vec<QueuedOperation> {
        if !self.overflow.is_empty() {
            self.deadline = Instant::now() + MAX_BATCH_LINGER;
        }
        std::mem::replace(&mut self.requests, std::mem::take(&mut self.overflow))
    }

    /// Whether they have waited long enough; else whoever polls is woken when they have.
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
    /// Those that are held need not wait any longer.
    DeadlinePassed,
    Received(Vec<QueuedOperation>),
    Closed,
}

/// Wait until a batch is settled, until those that wait have waited long enough, or, where there is room, until more comes in.
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
        // With all on their way nobody can set out, however long it waits.
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

/// Batches on their way, each with its size. In one task, so that none outlives the loop.
#[derive(Default)]
struct InFlightBatches(Vec<(usize, BatchFuture)>);

type BatchFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

impl InFlightBatches {
    fn largest_batch(&self) -> Option<usize> {
        self.0.iter().map(|(size, _)| *size).max()
    }

    /// Get on with all of them; whether one has come to its end.
    fn poll_all(&mut self, context: &mut Context) -> bool {
        let before = self.0.len();
        self.0.retain_mut(|(_, batch)| batch.as_mut().poll(context).is_pending());
        self.0.len() < before
    }
}

/// Requests that are decided and saved together.
struct RequestBatch {
    requests: Vec<QueuedOperation>,
    conflicts: usize,
    /// What the last attempt has found out.
    hints: RetryHints,
    /// It may lease what it makes to those who wait: the first time only. Nobody's operation is lost for the sake of that.
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

    /// None of them goes unseen.
    fn fail<S>(self, shared: &Shared<S>, error: &EngineError) {
        let operations = self.requests.len();
        warn!(code = error.code(), operations, "a batch failed");
        for request in self.requests {
            send_reply(shared, request, Err(error.clone()), Instant::now());
        }
    }
}

/// Answer every one of these, after it is durable.
async fn commit_with_retries<S: Store + 'static>(shared: &Arc<Shared<S>>, requests: Vec<QueuedOperation>) {
    // The first to do stands last.
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
            // One that cannot be read, or that the database will not have, is found by halving too, and fails alone.
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

/// Answer one, and count it.
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

/// Nothing of a chunk was saved, or it is not known what was.
struct AttemptError {
    error: EngineError,
    /// What was leased to those who wait may be why: certainly nothing was saved, and it is tried again without.
    caused_by_sync_match: bool,
}

impl<E: Into<EngineError>> From<E> for AttemptError {
    fn from(error: E) -> Self {
        Self { error: error.into(), caused_by_sync_match: false }
    }
}

/// Decide and save once. Those that must ask the outside first leave the chunk.
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
    // Loading may have brought word of another process's lifecycles: new records are made by what is current now.
    for _ in 0..MAX_CATALOG_REFRESHES {
        // Where nothing was loaded no word can have come, and what is refused then, as an unknown lifecycle, is compared by nobody.
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
        let matched = leasing::match_pollers(shared, &catalog.definitions, &mut decided, now).await;
        sync_matches = matched.map_err(|error| AttemptError { error, caused_by_sync_match: true })?;
    }
    let DecidedBatch { read_set: base, mut writes, replies, checks: checks_needed, .. } = decided;
    // That nothing is due any more is told to nobody but the engine, which looks again: it needs no transaction to compare it,
    // unless it rests on memory.
    if !base.used_cache() {
        writes.retain(|write| !is_due_no_op(write));
    }
    let limiter_charge = shared.refusal_limiter.limit_entries(&mut writes, now);
    detach_for_checks(shared, request_batch, checks_needed);
    let replies: Vec<Reply> = replies.into_iter().flatten().collect();
    let (base, batch) =
        (Arc::new(base), Arc::new(Batch { operations: writes, decided_at: now, catalog_revision: catalog.revision() }));
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
                // What is there may be other than what they knew, who will look.
                shared.notifier.pollers.invalidate_empty_scans();
            }
            return Err(AttemptError { error, caused_by_sync_match: granted });
        }
    };
    let hints = match &save_result {
        SaveResult::Saved { last_seq: last, .. } => {
            shared.metrics.record_batch(batch.operations.len(), save_started_at.elapsed());
            shared.metrics.record_decisions(&batch.operations, &base);
            trace!(operations = batch.operations.len(), last, "a batch is saved");
            shared.metrics.record_unlogged_refusals(limiter_charge.unlogged_refusals);
            if let Some(spans) = &shared.config.span_sink {
                spans::emit_execution_spans(&**spans, &batch.operations);
            }
            shared.notifier.on_saved(&batch.operations, *last, now, &sync_matches.leased_records());
            let is_single = request_batch.requests.len() == 1 && !sync_matches.is_empty();
            sync_matches.deliver(shared, started_at.elapsed());
            if is_single {
                // One after the other, on this thread: to wake another thread for the second takes longer than either of them (0020).
                tokio::task::yield_now().await;
            }
            RetryHints::default()
        }
        SaveResult::Conflict(conflict) => {
            shared.metrics.record_conflict();
            debug!(operations = batch.operations.len(), "a batch found something changed and is decided again");
            shared.refusal_limiter.refund(limiter_charge);
            RetryHints { read_keys: base.loaded_keys(), used_idempotency_ids: conflict.answered_ids.clone() }
        }
    };
    Ok((replies, save_result, hints))
}

/// Whether somebody else has done what was due.
fn is_due_no_op(write: &DecidedOperation) -> bool {
    matches!(write.operation.call, Call::FireDue { .. }) && matches!(write.outcome, OperationOutcome::NoOp(_))
}

/// Whether no store would write anything, so that there is no transaction to wait for. An answer that nothing was to be done
/// rests on what was read, and is saved so that this is compared.
fn writes_nothing(writes: &[DecidedOperation]) -> bool {
    writes.iter().all(|write| match &write.outcome {
        OperationOutcome::Refusal(refusal) => !refusal.is_denial && refusal.audit.is_none(),
        OperationOutcome::Changes(_) | OperationOutcome::NoOp(_) => false,
    })
}

/// Bits of a seed that an id is made of, and those of them that chance keeps.
const ID_BITS: u32 = 74;
const RANDOM_BITS: u32 = 54;

/// A batch has one time, and records of one time are ordered by their ids; so ids made by later operations should be larger, that
/// jobs which callers make go as they came in. One whose questions were answered keeps its seed: they may name an id. Messages
/// to the outside need none of it: core orders them by their record's version.
fn assign_ordered_seeds(requests: &mut [QueuedOperation]) {
    for (index, request) in
        requests.iter_mut().enumerate().filter(|(_, request)| request.operation.check_answers.is_empty())
    {
        request.operation.seed = ordered_seed(request.operation.seed, index);
    }
}

/// A seed for the operation at this place of a batch.
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
    let mut asks = checks_needed.into_iter().peekable();
    let mut remaining = Vec::with_capacity(batch.requests.len());
    for (index, request) in std::mem::take(&mut batch.requests).into_iter().enumerate() {
        match asks.next_if(|(asking, _)| *asking == index) {
            Some((_, questions)) => checks::spawn_checks(Arc::clone(shared), request, questions),
            None => remaining.push(request),
        }
    }
    batch.requests = remaining;
}
