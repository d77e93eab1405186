//! Group commit: takes the queued operations and commits them in batches, with two batches in flight.

mod commit;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use onceward_store::Store;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::group_commit::commit::commit_with_retries;
use crate::shared::Shared;
use crate::submission::queue::{IncomingOperations, QueuedOperation};

/// While one batch is being written, the next is loaded and decided. The save validates each batch's read set, so the
/// batches need no coordination.
const MAX_IN_FLIGHT_BATCHES: usize = 2;

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
