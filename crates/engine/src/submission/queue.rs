//! The bounded submission queue.

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

use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::idempotency::{IdempotencyKey, InFlightKeys, KeyReservation};
use crate::submission::limits::{SubmissionLimits, estimated_bytes};

/// About the time of a few batches.
pub(crate) const OVERLOAD_RETRY_AFTER: Duration = Duration::from_millis(100);

/// Keeps a trace readable when one call submits a thousand operations.
const MAX_SPANS_PER_CALL: usize = 10;

/// The result of an operation that took effect, or was a no-op.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The record that the call addressed or created.
    pub subject: RecordId,
    /// Version of the record after the operation.
    pub version: Option<u64>,
    /// Fencing token of a new lease.
    pub token: Option<FencingToken>,
    /// The record after the operation. In a replayed reply: the record as it is now, if the caller may see it.
    pub record: Option<Arc<Record>>,
    /// Other records that the operation created, without the engine's own lifecycles.
    pub spawned: Vec<RecordId>,
    /// For a no-op: the records that existed already. Show them only to callers that may see them.
    pub existing: Vec<RecordId>,
    /// Why the operation changed nothing.
    pub no_op: Option<NoOpReason>,
    /// In the reply to a heartbeat: the worker should stop.
    pub stop_requested: bool,
    /// The idempotency key was used before, and this is the stored reply.
    pub replayed: bool,
}

impl Receipt {
    /// The reply to a lease that was not applied: with the leases of its call before it, it exceeds the call's
    /// [`max_group_bytes`](Submission::max_group_bytes).
    pub(crate) fn over_limit(subject: RecordId) -> Self {
        Self {
            subject,
            version: None,
            token: None,
            record: None,
            spawned: Vec::new(),
            existing: Vec::new(),
            no_op: None,
            stop_requested: false,
            replayed: false,
        }
    }

    /// Every receipt of an applied operation has a version.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.version.is_none()
    }

    /// Returns whether this call changed something: it is neither a no-op nor a replayed reply.
    pub fn is_new(&self) -> bool {
        self.no_op.is_none() && !self.replayed
    }
}

pub(crate) type Reply = Result<Receipt, EngineError>;

/// A call with its actor, payloads, idempotency key and trace.
#[derive(Clone, Debug)]
pub struct Submission {
    pub actor: Actor,
    pub call: Call,
    /// The bytes of the payload that the call names by hash.
    pub payloads: Vec<PayloadBytes>,
    /// The call takes effect once per key, however often it is sent.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The caller's distributed trace.
    pub trace: Option<TraceContext>,
    /// Leases only: estimated bytes of the jobs that the operations of one call may lease together. One job is leased
    /// whatever its size.
    pub max_group_bytes: Option<usize>,
}

impl Submission {
    pub fn new(actor: &Actor, call: Call) -> Self {
        let actor = actor.clone();
        Self { actor, call, payloads: Vec::new(), idempotency_key: None, trace: None, max_group_bytes: None }
    }

    /// Adds the trace of the request.
    #[must_use]
    pub fn with_trace(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// Adds an idempotency key: a repeated call gets the reply of the first. A refusal does not consume the key.
    pub fn with_idempotency_key(self, key: &str) -> Self {
        Self { idempotency_key: Some(IdempotencyKey::for_call(key, &self.call)), ..self }
    }
}

/// A caller that waits for a reply and holds its queue permit.
#[derive(Debug)]
pub(crate) struct PendingReply {
    sender: oneshot::Sender<Reply>,
    permit: QueuePermit,
}

impl PendingReply {
    pub(crate) fn send(self, reply: Reply) {
        // The receiver may be gone; the operation stays committed.
        let _ = self.sender.send(reply);
    }
}

/// An operation in the queue. Holds its permit until the reply.
#[derive(Debug)]
pub(crate) struct QueuedOperation {
    pub(crate) operation: Operation,
    pub(crate) payloads: Vec<PayloadBytes>,
    /// Operations of one group are decided in order.
    pub(crate) group: u64,
    pub(crate) max_group_bytes: Option<usize>,
    pub(crate) key_reservation: Option<KeyReservation>,
    pub(crate) received_at: Instant,
    /// Whether it is among the first [`MAX_SPANS_PER_CALL`] of its call.
    pub(crate) has_span: bool,
    sender: oneshot::Sender<Reply>,
    _permit: QueuePermit,
}

impl QueuedOperation {
    /// An operation without a receiver.
    #[cfg(test)]
    pub(crate) fn for_test(operation: Operation, group: u64) -> Self {
        let permit = QueuePermit { capacity: Arc::default(), estimated_bytes: 0 };
        let received_at = Instant::now();
        Self {
            operation,
            payloads: Vec::new(),
            group,
            max_group_bytes: None,
            key_reservation: None,
            received_at,
            has_span: true,
            sender: oneshot::channel().0,
            _permit: permit,
        }
    }

    /// Sends the reply, and returns how many followers with the same idempotency key got it too.
    pub(crate) fn reply(self, reply: Reply) -> u64 {
        let followers = self.key_reservation.map_or(0, |reservation| reservation.complete(&reply));
        let _ = self.sender.send(reply);
        followers
    }
}

/// A unit of queue capacity, released on drop.
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

#[derive(Debug)]
struct QueueCapacity {
    permits: Semaphore,
    /// Estimated memory of all queued operations.
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
        // The channel itself is unbounded; the permits bound it.
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

    /// Returns whether the queue is closed and all its operations are answered.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::SeqCst)
    }

    /// Returns the capacity in operations, and the queued bytes.
    pub(crate) fn capacity_and_queued_bytes(&self) -> (usize, usize) {
        (usize::try_from(self.max_operations).unwrap_or(usize::MAX), self.capacity.queued_bytes.load(Ordering::SeqCst))
    }

    /// Returns how many permits are in use.
    pub(crate) fn queued_operations(&self) -> usize {
        usize::try_from(self.max_operations)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.capacity.permits.available_permits())
    }

    /// Queues all submissions or none. Returns `Overloaded` at once if the capacity does not suffice.
    pub(crate) fn submit(&self, submissions: Vec<Submission>) -> Result<Vec<oneshot::Receiver<Reply>>, EngineError> {
        let count = self.validate_batch_len(&submissions)?;
        // An empty queue accepts a submission of any size, so that one larger than the limit is not rejected forever.
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

    /// Like [`submit`](Self::submit), but waits for capacity. For the engine's own operations.
    pub(crate) async fn submit_internal(
        &self,
        submissions: Vec<Submission>,
    ) -> Result<Vec<oneshot::Receiver<Reply>>, EngineError> {
        let count = self.validate_batch_len(&submissions)?;
        self.capacity.permits.acquire_many(count).await.map_err(|_| EngineError::Closed)?.forget();
        self.enqueue(submissions)
    }

    /// Counts a rejected call and returns its error.
    pub(crate) fn reject_overloaded(&self) -> EngineError {
        self.overloaded_calls.fetch_add(1, Ordering::Relaxed);
        EngineError::Overloaded { retry_after: OVERLOAD_RETRY_AFTER }
    }

    /// Returns the number of calls rejected as overloaded.
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
        // From here on, dropping the permits releases the capacity.
        let permits: Vec<QueuePermit> =
            submissions.iter().map(|submission| self.new_permit(estimated_bytes(submission))).collect();
        let mut requests = Vec::with_capacity(submissions.len());
        let mut receivers = Vec::with_capacity(submissions.len());
        for (index, ((submission, permit), seed)) in submissions.into_iter().zip(permits).zip(seeds?).enumerate() {
            let (sender, receiver) = oneshot::channel();
            receivers.push(receiver);
            let pending = PendingReply { sender, permit };
            if let Some((key_reservation, pending)) = self.admit(&submission, pending) {
                let Submission { actor, call, payloads, trace, max_group_bytes, .. } = submission;
                let operation = Operation { seed, actor, call, check_answers: Vec::new(), trace };
                let PendingReply { sender, permit } = pending;
                let has_span = index < MAX_SPANS_PER_CALL;
                requests.push(QueuedOperation {
                    operation,
                    payloads,
                    group,
                    max_group_bytes,
                    key_reservation,
                    received_at,
                    has_span,
                    sender,
                    _permit: permit,
                });
            }
        }
        if !requests.is_empty() {
            self.sender.send(requests).map_err(|_| self.stopped_error())?;
        }
        Ok(receivers)
    }

    /// Waits for the reply of a queued operation.
    pub(crate) async fn wait_reply(&self, receiver: oneshot::Receiver<Reply>) -> Reply {
        receiver.await.unwrap_or_else(|_| Err(self.stopped_error()))
    }

    /// Returns whether the group-commit task no longer accepts operations.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_closed() || self.sender.is_closed()
    }

    /// Returns why a reply is missing. The group-commit task answers every operation before it ends, unless it
    /// panicked.
    pub(crate) fn stopped_error(&self) -> EngineError {
        if self.is_closed() { EngineError::Closed } else { EngineError::WriterDied }
    }

    fn new_permit(&self, estimated_bytes: usize) -> QueuePermit {
        self.capacity.queued_bytes.fetch_add(estimated_bytes, Ordering::SeqCst);
        QueuePermit { capacity: Arc::clone(&self.capacity), estimated_bytes }
    }

    /// Returns `None` if the submission was answered, or follows an in-flight call with the same key.
    fn admit(&self, submission: &Submission, pending: PendingReply) -> Option<(Option<KeyReservation>, PendingReply)> {
        if let Err(error) = self.limits.validate(submission) {
            pending.send(Err(error));
            return None;
        }
        let Some(idempotency_key) = &submission.idempotency_key else { return Some((None, pending)) };
        let (reservation, pending) = self.in_flight_keys.reserve(&submission.actor, idempotency_key, pending)?;
        Some((Some(reservation), pending))
    }

    /// Queues an operation again after its checks were answered; it still holds its permit.
    pub(crate) fn requeue(&self, request: QueuedOperation) {
        if let Err(mpsc::error::SendError(requests)) = self.sender.send(vec![request]) {
            for request in requests {
                request.reply(Err(self.stopped_error()));
            }
        }
    }

    /// Rejects further submissions.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Waits until all queued operations are answered.
    pub(crate) async fn wait_drained(&self) {
        if let Ok(all) = self.capacity.permits.acquire_many(self.max_operations).await {
            drop(all);
        }
        self.drained.store(true, Ordering::SeqCst);
    }
}

/// Returns a seed for the ids of new records. It must be unpredictable and unique.
pub(crate) fn random_seed() -> Result<u128, EngineError> {
    Ok(random_seeds(1)?[0])
}

/// Fills all seeds with one system call; one call per seed takes longer than deciding the operation.
fn random_seeds(count: usize) -> Result<Vec<u128>, EngineError> {
    let mut bytes = vec![0; count * size_of::<u128>()];
    getrandom::fill(&mut bytes).map_err(|error| EngineError::RandomUnavailable(error.to_string()))?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| u128::from_le_bytes(*bytes)).collect())
}
