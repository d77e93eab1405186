//! The way in: bounded, and answered one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use onceward_core::decide::{Call, NoOpReason, Operation};
use onceward_core::record::{Actor, Record, Token};
use onceward_core::trace::Trace;
use onceward_core::value::RecordId;
use onceward_store::Content;
use tokio::sync::{Semaphore, TryAcquireError, mpsc, oneshot};
use tokio::time::Instant;

use crate::admission::{Bounds, weight};
use crate::config::Config;
use crate::error::EngineError;
use crate::once::{Keyed, Once, Running};

/// When to come back after `Overloaded`: about the time of a few batches.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Operations of one call that have a span of their own.
const LEADERS: usize = 10;

/// What was carried out, or was so already.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The record that the call was about: the new one, where it created.
    pub subject: RecordId,
    /// Its version after the operation.
    pub version: Option<u64>,
    /// Of the lease that a call to lease gave.
    pub token: Option<Token>,
    /// As the operation left it. In the answer to a key that came before: as it is now, where the caller may see it.
    pub record: Option<Arc<Record>>,
    /// Records that the operation made besides the one that it was about; the engine's own are not told.
    pub spawned: Vec<RecordId>,
    /// Nothing was to be done, and why.
    pub already: Option<NoOpReason>,
    /// A heartbeat's word to the worker: stop.
    pub stop: bool,
    /// The key came before, and this is what was answered then.
    pub replayed: bool,
}

impl Answer {
    /// Whether this call did something: it was not there before, and not done before under the same key.
    pub fn is_new(&self) -> bool {
        self.already.is_none() && !self.replayed
    }
}

pub(crate) type Reply = Result<Answer, EngineError>;

/// A call with all that comes with it.
#[derive(Clone, Debug)]
pub struct Submission {
    pub actor: Actor,
    pub call: Call,
    /// The bytes of a payload that the call names by its hash.
    pub contents: Vec<Content>,
    /// However often it is sent with the same key, it is carried out once.
    pub once: Option<Once>,
    /// The request that it came with, in a distributed trace.
    pub trace: Option<Trace>,
}

impl Submission {
    pub fn new(actor: &Actor, call: Call) -> Self {
        Self { actor: actor.clone(), call, contents: Vec::new(), once: None, trace: None }
    }

    /// As part of a request that stands in a trace.
    #[must_use]
    pub fn traced(self, trace: Option<Trace>) -> Self {
        Self { trace, ..self }
    }

    /// With a key of the caller's: sent again, it is answered as it was the first time. A refusal is not remembered; the
    /// same key is then judged anew.
    pub fn once(self, key: &str) -> Self {
        Self { once: Some(Once::of(key, &self.call)), ..self }
    }
}

/// One who waits for an answer, and keeps its place until then.
#[derive(Debug)]
pub(crate) struct Follower {
    answer: oneshot::Sender<Reply>,
    place: Place,
}

impl Follower {
    pub(crate) fn answer(self, reply: Reply) {
        // Whoever asked may have gone away: what was done stays done.
        let _ = self.answer.send(reply);
    }
}

/// An operation on its way. Keeps its place in the queue until it is answered.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) contents: Vec<Content>,
    /// Those of one group are decided in order.
    pub(crate) group: u64,
    pub(crate) keyed: Option<Keyed>,
    /// When it came.
    pub(crate) came: Instant,
    /// One of the first of its call: a batch of a thousand is told of by a few spans.
    pub(crate) leads: bool,
    answer: oneshot::Sender<Reply>,
    _place: Place,
}

impl Request {
    /// One that nobody waits for.
    #[cfg(test)]
    pub(crate) fn of(operation: Operation, group: u64) -> Self {
        let place = Place { room: Arc::default(), weight: 0 };
        let came = Instant::now();
        Self {
            operation,
            contents: Vec::new(),
            group,
            keyed: None,
            came,
            leads: true,
            answer: oneshot::channel().0,
            _place: place,
        }
    }

    /// How many others, who had asked the same, were answered with it.
    pub(crate) fn answer(self, reply: Reply) -> u64 {
        let followers = self.keyed.map_or(0, |keyed| keyed.answered(&reply));
        let _ = self.answer.send(reply);
        followers
    }
}

/// Given back when it is dropped, however the request ended.
#[derive(Debug)]
struct Place {
    room: Arc<Room>,
    weight: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.weight.fetch_sub(self.weight, Ordering::SeqCst);
        self.room.places.add_permits(1);
    }
}

/// What is on its way at once.
#[derive(Debug)]
struct Room {
    places: Semaphore,
    /// Bytes that those on their way keep in memory.
    weight: AtomicUsize,
}

impl Default for Room {
    fn default() -> Self {
        Self { places: Semaphore::new(0), weight: AtomicUsize::new(0) }
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    sender: mpsc::UnboundedSender<Vec<Request>>,
    room: Arc<Room>,
    size: u32,
    batch: usize,
    heaviest: usize,
    bounds: Bounds,
    closed: AtomicBool,
    drained: AtomicBool,
    groups: AtomicU64,
    turned_away: AtomicU64,
    pub(crate) running: Arc<Running>,
}

pub(crate) type Incoming = mpsc::UnboundedReceiver<Vec<Request>>;

impl Queue {
    pub(crate) fn new(config: &Config) -> (Self, Incoming) {
        // The channel itself is not bounded: the places are, and none is sent without one.
        let (sender, incoming) = mpsc::unbounded_channel();
        let size = u32::try_from(config.queue.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let room = Arc::new(Room::default());
        room.places.add_permits(usize::try_from(size).unwrap_or(usize::MAX));
        let (batch, heaviest, bounds) = (config.batch, config.queue_bytes, Bounds::of(config));
        let (closed, drained, groups) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let (running, turned_away) = (Arc::default(), AtomicU64::new(0));
        let queue = Self { sender, room, size, batch, heaviest, bounds, closed, drained, groups, turned_away, running };
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
    pub(crate) fn places(&self) -> (usize, usize) {
        (usize::try_from(self.size).unwrap_or(usize::MAX), self.room.weight.load(Ordering::SeqCst))
    }

    /// How many places are taken.
    pub(crate) fn waiting(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX).saturating_sub(self.room.places.available_permits())
    }

    /// Take these on, all or none, or say at once that there is no room.
    pub(crate) fn enter(&self, submissions: Vec<Submission>) -> Result<Vec<oneshot::Receiver<Reply>>, EngineError> {
        let count = self.count(&submissions)?;
        // Only where something else is on its way: one that is heavy on its own comes when it is alone.
        let waiting = self.room.weight.load(Ordering::SeqCst);
        let weight: usize = submissions.iter().map(weight).sum();
        if waiting > 0 && waiting.saturating_add(weight) > self.heaviest {
            return Err(self.overloaded());
        }
        match self.room.places.try_acquire_many(count) {
            Ok(permits) => permits.forget(),
            Err(TryAcquireError::NoPermits) if !self.is_closed() => {
                return Err(self.overloaded());
            }
            Err(_) => return Err(EngineError::Closed),
        }
        self.send(submissions)
    }

    /// The engine's own operations wait for room.
    pub(crate) async fn enter_own(
        &self,
        submissions: Vec<Submission>,
    ) -> Result<Vec<oneshot::Receiver<Reply>>, EngineError> {
        let count = self.count(&submissions)?;
        self.room.places.acquire_many(count).await.map_err(|_| EngineError::Closed)?.forget();
        self.send(submissions)
    }

    /// Turned away, and counted.
    pub(crate) fn overloaded(&self) -> EngineError {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        EngineError::Overloaded { retry_after: RETRY_AFTER }
    }

    /// Calls that were turned away.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    fn count(&self, submissions: &[Submission]) -> Result<u32, EngineError> {
        if self.is_closed() {
            return Err(EngineError::Closed);
        }
        match u32::try_from(submissions.len()) {
            Ok(count) if submissions.len() <= self.batch && count <= self.size => Ok(count),
            _ => {
                let most = self.batch.min(usize::try_from(self.size).unwrap_or(usize::MAX));
                Err(EngineError::BatchTooLarge { most })
            }
        }
    }

    fn send(&self, submissions: Vec<Submission>) -> Result<Vec<oneshot::Receiver<Reply>>, EngineError> {
        let (group, came) = (self.groups.fetch_add(1, Ordering::Relaxed), Instant::now());
        let chance = chance(submissions.len());
        // From here on every place is given back by whoever holds it.
        let places: Vec<Place> = submissions.iter().map(|submission| self.place(weight(submission))).collect();
        let mut requests = Vec::with_capacity(submissions.len());
        let mut answers = Vec::with_capacity(submissions.len());
        for (number, ((submission, place), seed)) in submissions.into_iter().zip(places).zip(chance?).enumerate() {
            let (answer, answered) = oneshot::channel();
            answers.push(answered);
            let asking = Follower { answer, place };
            if let Some((keyed, asking)) = self.begin(&submission, asking) {
                let Submission { actor, call, contents, trace, .. } = submission;
                let operation = Operation { seed, actor, call, answers: Vec::new(), trace };
                let Follower { answer, place } = asking;
                let leads = number < LEADERS;
                requests.push(Request { operation, contents, group, keyed, came, leads, answer, _place: place });
            }
        }
        if !requests.is_empty() {
            self.sender.send(requests).map_err(|_| self.gone())?;
        }
        Ok(answers)
    }

    /// What came of one that was taken on.
    pub(crate) async fn answered(&self, answer: oneshot::Receiver<Reply>) -> Reply {
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Whether the loop that saves is there no more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_closed() || self.sender.is_closed()
    }

    /// Why nobody answers. The loop that saves ends, and what it had is dropped, only after all was answered; unless it broke.
    pub(crate) fn gone(&self) -> EngineError {
        if self.is_closed() { EngineError::Closed } else { EngineError::Broken }
    }

    fn place(&self, weight: usize) -> Place {
        self.room.weight.fetch_add(weight, Ordering::SeqCst);
        Place { room: Arc::clone(&self.room), weight }
    }

    /// `None`: it is answered, or follows one with the same key.
    fn begin(&self, submission: &Submission, asking: Follower) -> Option<(Option<Keyed>, Follower)> {
        if let Err(error) = self.bounds.check(submission) {
            asking.answer(Err(error));
            return None;
        }
        let Some(once) = &submission.once else { return Some((None, asking)) };
        let (keyed, asking) = self.running.begin(&submission.actor, once, asking)?;
        Some((Some(keyed), asking))
    }

    /// One that had left its batch, and has its place still.
    pub(crate) fn again(&self, request: Request) {
        if let Err(mpsc::error::SendError(requests)) = self.sender.send(vec![request]) {
            for request in requests {
                request.answer(Err(self.gone()));
            }
        }
    }

    /// Take on nothing more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Wait until all that was taken on is answered.
    pub(crate) async fn drained(&self) {
        if let Ok(all) = self.room.places.acquire_many(self.size).await {
            drop(all);
        }
        self.drained.store(true, Ordering::SeqCst);
    }
}

/// Ids of new records derive from it, so it must not be guessed nor come twice.
pub(crate) fn seed() -> Result<u128, EngineError> {
    Ok(chance(1)?[0])
}

/// So many of them: asking the system for each takes longer than deciding what it is for.
fn chance(count: usize) -> Result<Vec<u128>, EngineError> {
    let mut bytes = vec![0; count * size_of::<u128>()];
    getrandom::fill(&mut bytes).map_err(|error| EngineError::NoChance(error.to_string()))?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| u128::from_le_bytes(*bytes)).collect())
}
