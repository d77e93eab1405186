//! Commits one batch: decides it, saves it in one transaction, and replies. [`AttemptError::next_step`] says what follows
//! a failed attempt.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use onceward_core::decide::{Call, CheckQuery};
use onceward_store::{Batch, DecidedOperation, OperationOutcome, ReadSet, SaveResult, Store};
use tokio::time::Instant;
use tracing::{debug, trace, warn};

use crate::checks;
use crate::decision::retry_policy::{AttemptError, NextStep};
use crate::decision::{DecidedBatch, RetryHints, assign_ordered_seeds, decide_batch};
use crate::dispatch::{self, SyncMatches};
use crate::error::EngineError;
use crate::shared::Shared;
use crate::spans;
use crate::submission::queue::{QueuedOperation, Reply, random_seed};
use crate::submission::reply::send_reply;

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
pub(super) async fn commit_with_retries<S: Store + 'static>(shared: &Arc<Shared<S>>, requests: Vec<QueuedOperation>) {
    // A stack: the last batch is next.
    let mut batches = vec![RequestBatch::new(requests, true)];
    while let Some(mut batch) = batches.pop() {
        let caught = AssertUnwindSafe(try_commit(shared, &mut batch)).catch_unwind().await;
        let mut attempt = caught.unwrap_or_else(|_| Err(EngineError::Panicked.into()));
        if matches!(attempt, Err(AttemptError::Failed(EngineError::Panicked))) {
            shared.metrics.record_panic();
            if batch.allows_sync_match {
                attempt = Err(AttemptError::SyncMatch);
            }
        }
        batch.allows_sync_match = false;
        let error = match attempt {
            Ok(committed) => {
                // Outside of the attempt: after a panic in here, the operations must not be decided again.
                let replies = announce(shared, batch.requests.len(), committed).await;
                let now = Instant::now();
                for (request, reply) in batch.requests.into_iter().zip(replies) {
                    send_reply(shared, request, reply, now);
                }
                continue;
            }
            Err(error) => error,
        };
        match error.next_step(batch.requests.len(), batch.conflicts) {
            NextStep::Retry => batches.push(batch),
            NextStep::RetryConflict(hints) => {
                let conflicts = batch.conflicts + 1;
                batches.push(RequestBatch { conflicts, hints, ..batch });
            }
            NextStep::Split => {
                let [first, second] = batch.split_in_half();
                batches.extend([second, first]);
            }
            NextStep::Fail(error) => batch.fail(shared, &error),
        }
    }
}

/// A batch whose operations are decided and, if they write anything, durable.
struct CommittedBatch {
    replies: Vec<Reply>,
    read_set: Arc<ReadSet>,
    batch: Arc<Batch>,
    unlogged_refusals: u64,
    /// `None` if nothing had to be saved.
    saved: Option<SavedBatch>,
}

struct SavedBatch {
    last_seq: u64,
    save_time: Duration,
    sync_matches: SyncMatches,
    started_at: Instant,
}

/// Decides and saves once. Operations that need external checks leave the batch. If it panics, nothing was saved.
async fn try_commit<S: Store + 'static>(
    shared: &Arc<Shared<S>>,
    request_batch: &mut RequestBatch,
) -> Result<CommittedBatch, AttemptError> {
    let store = &shared.store;
    let started_at = Instant::now();
    let (catalog, now) = (store.catalog().await?, store.now().await?);
    let hints = std::mem::take(&mut request_batch.hints);
    assign_ordered_seeds(&mut request_batch.requests);
    let (catalog, mut decided) = decide_batch(store, catalog, &request_batch.requests, hints, now, random_seed).await?;
    let mut sync_matches = SyncMatches::default();
    if request_batch.allows_sync_match {
        let matched = dispatch::match_pollers(shared, &catalog.definitions, &mut decided, now).await;
        sync_matches = matched.map_err(|_| AttemptError::SyncMatch)?;
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
    let unlogged_refusals = limiter_charge.unlogged_refusals;
    if writes_nothing(&batch.operations) {
        return Ok(CommittedBatch { replies, read_set: base, batch, unlogged_refusals, saved: None });
    }
    let save_started_at = Instant::now();
    let save_result = match store.save(&base, &batch).await {
        Ok(save) => save,
        Err(error) => {
            shared.refusal_limiter.refund(limiter_charge);
            let error = EngineError::from(error);
            if !sync_matches.is_empty() {
                // The failed save may have left jobs that the cached empty scans do not know.
                shared.notifier.pollers.invalidate_empty_scans();
                if error.is_single_operation_fault() || error.is_store_busy() {
                    return Err(AttemptError::SyncMatch);
                }
            }
            return Err(AttemptError::Failed(error));
        }
    };
    match save_result {
        SaveResult::Saved { last_seq, .. } => {
            let save_time = save_started_at.elapsed();
            let saved = Some(SavedBatch { last_seq, save_time, sync_matches, started_at });
            Ok(CommittedBatch { replies, read_set: base, batch, unlogged_refusals, saved })
        }
        SaveResult::Conflict(conflict) => {
            shared.metrics.record_conflict();
            debug!(operations = batch.operations.len(), "batch conflicted with another write and is decided again");
            shared.refusal_limiter.refund(limiter_charge);
            let (read_keys, used_idempotency_ids) = (base.loaded_keys(), conflict.answered_ids);
            Err(AttemptError::Conflict(RetryHints { read_keys, used_idempotency_ids }))
        }
    }
}

/// Counts a committed batch, wakes what waits for it, and returns the replies.
async fn announce<S: Store>(shared: &Shared<S>, requests: usize, committed: CommittedBatch) -> Vec<Reply> {
    let CommittedBatch { replies, read_set, batch, unlogged_refusals, saved } = committed;
    shared.metrics.record_decisions(&batch.operations, &read_set);
    shared.metrics.record_unlogged_refusals(unlogged_refusals);
    let Some(SavedBatch { last_seq, save_time, sync_matches, started_at }) = saved else { return replies };
    shared.metrics.record_batch(batch.operations.len(), save_time);
    trace!(operations = batch.operations.len(), last_seq, "batch saved");
    if let Some(spans) = &shared.config.span_sink {
        spans::emit_execution_spans(&**spans, &batch.operations);
    }
    shared.notifier.on_saved(&batch.operations, last_seq, batch.decided_at, &sync_matches.leased_records());
    let is_single = requests == 1 && !sync_matches.is_empty();
    sync_matches.deliver(shared, started_at.elapsed());
    if is_single {
        // Runs the matched poller before the creator on this thread: waking another thread takes longer than either of
        // them (0020).
        tokio::task::yield_now().await;
    }
    replies
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
