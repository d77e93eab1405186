//! The way in: bounded, and answered one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use onceward_core::decide::{Call, NoOpReason, Operation};
use onceward_core::record::{Actor, FencingToken, Record};
use onceward_core::trace::TraceContext;
use onceward_core::value::RecordId;
use onceward_store::PayloadBytes;
use tokio::sync::{Semaphore, TryAcquireError, mpsc, oneshot};
use tokio::time::Instant;

use crate::admission::{SubmissionLimits, estimated_bytes};
use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::idempotency::{IdempotencyKey, InFlightKeys, KeyReservation};

/// When to come back after `Overloaded`: about the time of a few batches.
pub(crate) const OVERLOAD_RETRY_AFTER: Duration = Duration::from_millis(100);

/// Operations of one call that have a span of their own.
const MAX_SPANS_PER_CALL: usize = 10;

/// What was carried out, or was so already.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The record that the call was about: the new one, where it created.
    pub subject: RecordId,
    /// Its version after the operation.
    pub version: Option<u64>,
    /// Of the lease that a call to lease gave.
    pub token: Option<FencingToken>,
    /// As the operation left it. In the answer to a key that came before: as it is now, where the caller may see it.
    pub record: Option<Arc<Record>>,
    /// Records that the operation made besides the one that it was about; the engine's own are not told.
    pub spawned: Vec<RecordId>,
    /// Where nothing was to be done: records that were there already in place of what would have been made. Whoever is told of them must be one
    /// who may see them.
    pub existing: Vec<RecordId>,
    /// Nothing was to be done, and why.
    pub no_op: Option<NoOpReason>,
    /// A heartbeat's word to the worker: stop.
    pub stop_requested: bool,
    /// The key came before, and this is what was answered then.
    pub replayed: bool,
}

impl Receipt {
    /// Whether this call did something: it was not there before, and not done before under the same key.
    pub fn is_new(&self) -> bool {
        self.no_op.is_none() && !self.replayed
    }
}

pub(crate) type Reply = Result<Receipt, EngineError>;

/// A call with all that comes with it.
#[derive(Clone, Debug)]
pub struct Submission {
    pub actor: Actor,
    pub call: Call,
    /// The bytes of a payload that the call names by its hash.
    pub payloads: Vec<PayloadBytes>,
    /// However often it is sent with the same key, it is carried out once.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The request that it came with, in a distributed trace.
    pub trace: Option<TraceContext>,
}

impl Submission {
    pub fn new(actor: &Actor, call: Call) -> Self {
        Self { actor: actor.clone(), call, payloads: Vec::new(), idempotency_key: None, trace: None }
    }

    /// As part of a request that stands in a trace.
    #[must_use]
    pub fn with_trace(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// With a key of the caller's: sent again, it is answered as it was the first time. A refusal is not remembered; the
    /// same key is then judged anew.
    pub fn with_idempotency_key(self, key: &str) -> Self {
        Self { idempotency_key: Some(IdempotencyKey::for_call(key, &self.call)), ..self }
    }
}

/// One who waits for an answer, and keeps its place until then.
#[derive(Debug)]
pub(crate) struct PendingReply {
    sender: oneshot::Sender<Reply>,
    permit: QueuePermit,
}

impl PendingReply {
    pub(crate) fn send(self, reply: Reply) {
        // Whoever asked may have gone away: what was done stays done.
        let _ = self.sender.send(reply);
    }
}

/// An operation on its way. Keeps its place in the queue until it is answered.
#[derive(Debug)]
pub(crate) struct QueuedOperation {
    pub(crate) operation: Operation,
    pub(crate) payloads: Vec<PayloadBytes>,
    /// Those of one group are decided in order.
    pub(crate) group: u64,
    pub(crate) key_reservation: Option<KeyReservation>,
    /// When it came.
    pub(crate) received_at: Instant,
    /// One of the first of its call: a batch of a thousand is told of by a few spans.
    pub(crate) has_span: bool,
    sender: oneshot::Sender<Reply>,
    _permit: QueuePermit,
}

impl QueuedOperation {
    /// One that nobody waits for.
    #[cfg(test)]
    pub(crate) fn for_test(operation: Operation, group: u64) -> Self {
        let permit = QueuePermit { capacity: Arc::default(), estimated_bytes: 0 };
        let received_at = Instant::now();
        Self {
            operation,
            payloads: Vec::new(),
            group,
            key_reservation: None,
            received_at,
            has_span: true,
            sender: oneshot::channel().0,
            _permit: permit,
        }
    }

    /// How many others, who had asked the same, were answered with it.
    pub(crate) fn reply(self, reply: Reply) -> u64 {
        let followers = self.key_reservation.map_or(0, |reservation| reservation.complete(&reply));
        let _ = self.sender.send(reply);
        followers
    }
}

/// Given back when it is dropped, however the request ended.
#[derive(Debug)]
struct QueuePermit {
    capacity: Arc<QueueCapacity>,
    estimated_bytes: usize,
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.capacity.queued_bytes.fetch_sub(self.estimated_bytes, Ordering::SeqCst);
        self.capacity.permits.add_permits(1);
    }
}

/// What is on its way at once.
#[derive(Debug)]
struct QueueCapacity {
    permits: Semaphore,
    /// Bytes that those on their way keep in memory.
    queued_bytes: AtomicUsize,
}

impl Default for QueueCapacity {
    fn default() -> Self {
        Self { permits: Semaphore::new(0), queued_bytes: AtomicUsize::new(0) }
    }
}

#[derive(Debug)]
pub(crate) struct SubmissionQueue {
    sender: mpsc::UnboundedSender<Vec<QueuedOperation>>,
    capacity: Arc<QueueCapacity>,
    max_operations: u32,
    max_batch_operations: usize,
    max_queued_bytes: usize,
    limits: SubmissionLimits,
    closed: AtomicBool,
    drained: AtomicBool,
    next_group: AtomicU64,
    overloaded_calls: AtomicU64,
    pub(crate) in_flight_keys: Arc<InFlightKeys>,
}

pub(crate) type IncomingOperations = mpsc::UnboundedReceiver<Vec<QueuedOperation>>;

impl SubmissionQueue {
    pub(crate) fn new(config: &EngineConfig) -> (Self, IncomingOperations) {
        // The channel itself is not bounded: the places are, and none is sent without one.
        let (sender, incoming) = mpsc::unbounded_channel();
        let max_operations =
            u32::try_from(config.max_queued_operations.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let capacity = Arc::new(QueueCapacity::default());
        capacity.permits.add_permits(usize::try_from(max_operations).unwrap_or(usize::MAX));
        let (max_batch_operations, max_queued_bytes, limits) =
            (config.max_batch_operations, config.max_queued_bytes, SubmissionLimits::from_config(config));
        let (closed, drained, next_group) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let (in_flight_keys, overloaded_calls) = (Arc::default(), AtomicU64::new(0));
        let queue = Self {
            sender,
            capacity,
            max_operations,
            max_batch_operations,
            max_queued_bytes,
            limits,
            closed,
            drained,
            next_group,
            overloaded_calls,
            in_flight_keys,
        };
        (queue, incoming)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Closed, and nothing more will be written.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::SeqCst)
    }

    /// How many there are, and the bytes that those on their way keep in memory.
    pub(crate) fn capacity_and_queued_bytes(&self) -> (usize, usize) {
        (usize::try_from(self.max_operations).unwrap_or(usize::MAX), self.capacity.queued_bytes.load(Ordering::SeqCst))
    }

    /// How many places are taken.
    pub(crate) fn queued_operations(&self) -> usize {
        usize::try_from(self.max_operations)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.capacity.permits.available_permits())
    }

    /// Take these on, all or none, or say at once that there is no room.
    pub(crate) fn submit(&self, submissions: Vec<Submission>) -> Result<Vec<oneshot::Receiver<Reply>>, EngineError> {
        let count = self.validate_batch_len(&submissions)?;
        // Only where something else is on its way: one that is heavy on its own comes when it is alone.
        let queued_bytes = self.capacity.queued_bytes.load(Ordering::SeqCst);
        let added_bytes: usize = submissions.iter().map(estimated_bytes).sum();
        if queued_bytes > 0 && queued_bytes.saturating_add(added_bytes) > self.max_queued_bytes {
            return Err(self.reject_overloaded());
        }
        match self.capacity.permits.try_acquire_many(count) {
            Ok(permits) => permits.forget(),
            Err(TryAcquireError::NoPermits) if !self.is_closed() => {
                return Err(self.reject_overloaded());
            }
            Err(_) => return Err(EngineError::Closed),
        }
        self.enqueue(submissions)
    }

    /// The engine's own operations wait for room.
    pub(crate) async fn submit_internal(
        &self,
        submissions: Vec<Submission>,
    ) -> Result<Vec<oneshot::Receiver<Reply>>, EngineError> {
        let count = self.validate_batch_len(&submissions)?;
        self.capacity.permits.acquire_many(count).await.map_err(|_| EngineError::Closed)?.forget();
        self.enqueue(submissions)
    }

    /// Turned away, and counted.
    pub(crate) fn reject_overloaded(&self) -> EngineError {
        self.overloaded_calls.fetch_add(1, Ordering::Relaxed);
        EngineError::Overloaded { retry_after: OVERLOAD_RETRY_AFTER }
    }

    /// Calls that were turned away.
    pub(crate) fn overloaded_calls(&self) -> u64 {
        self.overloaded_calls.load(Ordering::Relaxed)
    }

    fn validate_batch_len(&self, submissions: &[Submission]) -> Result<u32, EngineError> {
        if self.is_closed() {
            return Err(EngineError::Closed);
        }
        match u32::try_from(submissions.len()) {
            Ok(count) if submissions.len() <= self.max_batch_operations && count <= self.max_operations => Ok(count),
            _ => {
                let max_operations =
                    self.max_batch_operations.min(usize::try_from(self.max_operations).unwrap_or(usize::MAX));
                Err(EngineError::BatchTooLarge { max_operations })
            }
        }
    }

    fn enqueue(&self, submissions: Vec<Submission>) -> Result<Vec<oneshot::Receiver<Reply>>, EngineError> {
        let (group, received_at) = (self.next_group.fetch_add(1, Ordering::Relaxed), Instant::now());
        let seeds = random_seeds(submissions.len());
        // From here on every place is given back by whoever holds it.
        let permits: Vec<QueuePermit> =
            submissions.iter().map(|submission| self.new_permit(estimated_bytes(submission))).collect();
        let mut requests = Vec::with_capacity(submissions.len());
        let mut receivers = Vec::with_capacity(submissions.len());
        for (index, ((submission, permit), seed)) in submissions.into_iter().zip(permits).zip(seeds?).enumerate() {
            let (sender, receiver) = oneshot::channel();
            receivers.push(receiver);
            let pending = PendingReply { sender, permit };
            if let Some((keyed, asking)) = self.admit(&submission, pending) {
                let Submission { actor, call, payloads: contents, trace, .. } = submission;
                let operation = Operation { seed, actor, call, check_answers: Vec::new(), trace };
                let PendingReply { sender: answer, permit: place } = asking;
                let has_span = index < MAX_SPANS_PER_CALL;
                requests.push(QueuedOperation {
                    operation,
                    payloads: contents,
                    group,
                    key_reservation: keyed,
                    received_at,
                    has_span,
                    sender: answer,
                    _permit: place,
                });
            }
        }
        if !requests.is_empty() {
            self.sender.send(requests).map_err(|_| self.stopped_error())?;
        }
        Ok(receivers)
    }

    /// What came of one that was taken on.
    pub(crate) async fn wait_reply(&self, receiver: oneshot::Receiver<Reply>) -> Reply {
        receiver.await.unwrap_or_else(|_| Err(self.stopped_error()))
    }

    /// Whether the loop that saves is there no more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_closed() || self.sender.is_closed()
    }

    /// Why nobody answers. The loop that saves ends, and what it had is dropped, only after all was answered; unless it broke.
    pub(crate) fn stopped_error(&self) -> EngineError {
        if self.is_closed() { EngineError::Closed } else { EngineError::WriterDied }
    }

    fn new_permit(&self, estimated_bytes: usize) -> QueuePermit {
        self.capacity.queued_bytes.fetch_add(estimated_bytes, Ordering::SeqCst);
        QueuePermit { capacity: Arc::clone(&self.capacity), estimated_bytes }
    }

    /// `None`: it is answered, or follows one with the same key.
    fn admit(&self, submission: &Submission, pending: PendingReply) -> Option<(Option<KeyReservation>, PendingReply)> {
        if let Err(error) = self.limits.validate(submission) {
            pending.send(Err(error));
            return None;
        }
        let Some(idempotency_key) = &submission.idempotency_key else { return Some((None, pending)) };
        let (keyed, asking) = self.in_flight_keys.reserve(&submission.actor, idempotency_key, pending)?;
        Some((Some(keyed), asking))
    }

    /// One that had left its batch, and has its place still.
    pub(crate) fn requeue(&self, request: QueuedOperation) {
        if let Err(mpsc::error::SendError(requests)) = self.sender.send(vec![request]) {
            for request in requests {
                request.reply(Err(self.stopped_error()));
            }
        }
    }

    /// Take on nothing more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Wait until all that was taken on is answered.
    pub(crate) async fn wait_drained(&self) {
        if let Ok(all) = self.capacity.permits.acquire_many(self.max_operations).await {
            drop(all);
        }
        self.drained.store(true, Ordering::SeqCst);
    }
}

/// Ids of new records derive from it, so it must not be guessed nor come twice.
pub(crate) fn random_seed() -> Result<u128, EngineError> {
    Ok(random_seeds(1)?[0])
}

/// So many of them: asking the system for each takes longer than deciding what it is for.
fn random_seeds(count: usize) -> Result<Vec<u128>, EngineError> {
    let mut bytes = vec![0; count * size_of::<u128>()];
    getrandom::fill(&mut bytes).map_err(|error| EngineError::RandomUnavailable(error.to_string()))?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| u128::from_le_bytes(*bytes)).collect())
}
