//! The loop that saves: takes what waits, decides it, saves it in one transaction, and answers.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use onceward_core::decide::{Call, Question};
use onceward_store::{Batch, Outcome, Save, Store, Write};
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::{debug, trace, warn};

use crate::checks;
use crate::counted::{KINDS, kind};
use crate::deciding::{Decided, Hints, decide_all};
use crate::error::EngineError;
use crate::leasing::{self, Grants};
use crate::queue::{Incoming, Reply, Request, seed};
use crate::shared::Shared;
use crate::spans::{self, OperationSpan};

/// Conflicts after which a batch is halved: smaller ones are sooner done and touch less.
const LOSSES: usize = 3;

/// Conflicts after which a single operation is given up. Each one means that somebody else got on.
const PATIENCE: usize = 1_000;

/// Batches on their way at once: while one is being written, the next is loaded and decided. Each is compared with what the
/// store says when it is saved, so that they need not know of one another.
const ABREAST: usize = 2;

/// Times that a batch is decided again because others brought lifecycles meanwhile. Nobody does so all the time.
const NEWS: usize = 3;

/// With one on its way, the next sets out when it is as large, or has this part of a full one.
const ENOUGH: usize = 4;

/// Smaller ones wait for the one before: each costs an fsync, and what comes meanwhile goes along.
const FEW: usize = 32;

/// But none waits longer for it: it may be stuck behind somebody's lock, while heartbeats among these keep leases alive.
const LONGEST: Duration = Duration::from_millis(5);

pub(crate) async fn run<S: Store + 'static>(shared: Arc<Shared<S>>, mut incoming: Incoming) {
    let most = shared.config.batch;
    let (mut flight, mut held, mut closed) = (Flight::default(), Held::new(most), false);
    while !closed || !flight.0.is_empty() || !held.requests.is_empty() {
        // What is there goes along; where nothing is on its way, nobody is waited for.
        while held.has_room()
            && let Ok(more) = incoming.try_recv()
        {
            held.add(more);
        }
        let enough = flight.largest().map_or(1, |largest| largest.max(FEW).min(most / ENOUGH + 1));
        if held.is_enough(enough) && flight.0.len() < ABREAST {
            let (shared, requests) = (Arc::clone(&shared), held.take());
            let size = requests.len();
            flight.0.push((size, Box::pin(async move { settle(&shared, requests).await })));
        } else {
            match news(&mut flight, &mut held, &mut incoming, closed).await {
                // Those who were answered go on first: the next batch may be written right here, and hold up this thread.
                News::Settled => tokio::task::yield_now().await,
                News::Overdue => {}
                News::More(more) => held.add(more),
                News::Closed => closed = true,
            }
        }
    }
}

/// Requests that wait to set out together.
struct Held {
    most: usize,
    requests: Vec<Request>,
    /// Those of one call that would have been too many: they go next, since those of one call go together.
    next: Vec<Request>,
    /// When the first of them has waited long enough.
    until: Instant,
    /// Set anew only when it goes off, which costs a busy engine less than setting it for each batch.
    alarm: Pin<Box<Sleep>>,
}

impl Held {
    fn new(most: usize) -> Self {
        let until = Instant::now();
        Self { most, requests: Vec::new(), next: Vec::new(), until, alarm: Box::pin(sleep_until(until)) }
    }

    fn has_room(&self) -> bool {
        self.next.is_empty() && self.requests.len() < self.most
    }

    fn add(&mut self, more: Vec<Request>) {
        if self.requests.is_empty() {
            self.until = Instant::now() + LONGEST;
        }
        if !self.requests.is_empty() && self.requests.len() + more.len() > self.most {
            self.next = more;
        } else {
            self.requests.extend(more);
        }
    }

    fn is_enough(&self, enough: usize) -> bool {
        let is_full = || !self.next.is_empty() || self.until <= Instant::now();
        self.requests.len() >= enough || !self.requests.is_empty() && is_full()
    }

    fn take(&mut self) -> Vec<Request> {
        if !self.next.is_empty() {
            self.until = Instant::now() + LONGEST;
        }
        std::mem::replace(&mut self.requests, std::mem::take(&mut self.next))
    }

    /// Whether they have waited long enough; else whoever polls is woken when they have.
    fn is_overdue(&mut self, context: &mut Context) -> bool {
        while self.alarm.as_mut().poll(context).is_ready() {
            if self.until <= Instant::now() {
                return true;
            }
            self.alarm.as_mut().reset(self.until);
        }
        false
    }
}

enum News {
    Settled,
    /// Those that are held need not wait any longer.
    Overdue,
    More(Vec<Request>),
    Closed,
}

/// Wait until a batch is settled, until those that wait have waited long enough, or, where there is room, until more comes in.
async fn news(flight: &mut Flight, held: &mut Held, incoming: &mut Incoming, closed: bool) -> News {
    poll_fn(|context| {
        if flight.advance(context) {
            return Poll::Ready(News::Settled);
        }
        // With all on their way nobody can set out, however long it waits.
        if !held.requests.is_empty() && flight.0.len() < ABREAST && held.is_overdue(context) {
            return Poll::Ready(News::Overdue);
        }
        if closed || !held.has_room() {
            return Poll::Pending;
        }
        incoming.poll_recv(context).map(|more| more.map_or(News::Closed, News::More))
    })
    .await
}

/// Batches on their way, each with its size. In one task, so that none outlives the loop.
#[derive(Default)]
struct Flight(Vec<(usize, Settling)>);

type Settling = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Flight {
    fn largest(&self) -> Option<usize> {
        self.0.iter().map(|(size, _)| *size).max()
    }

    /// Get on with all of them; whether one has come to its end.
    fn advance(&mut self, context: &mut Context) -> bool {
        let before = self.0.len();
        self.0.retain_mut(|(_, batch)| batch.as_mut().poll(context).is_pending());
        self.0.len() < before
    }
}

/// Requests that are decided and saved together.
struct Chunk {
    requests: Vec<Request>,
    losses: usize,
    /// What the last attempt has found out.
    hints: Hints,
    /// It may lease what it makes to those who wait: the first time only. Nobody's operation is lost for the sake of that.
    grants: bool,
}

impl Chunk {
    fn new(requests: Vec<Request>, grants: bool) -> Self {
        Self { requests, losses: 0, hints: Hints::default(), grants }
    }

    fn halves(mut self) -> [Self; 2] {
        let second = self.requests.split_off(self.requests.len() / 2);
        [Self::new(self.requests, false), Self::new(second, false)]
    }

    /// None of them goes unseen.
    fn fail<S>(self, shared: &Shared<S>, error: &EngineError) {
        let operations = self.requests.len();
        warn!(code = error.code(), operations, "a batch failed");
        for request in self.requests {
            answer(shared, request, Err(error.clone()), Instant::now());
        }
    }
}

/// Answer every one of these, after it is durable.
async fn settle<S: Store + 'static>(shared: &Arc<Shared<S>>, requests: Vec<Request>) {
    // The first to do stands last.
    let mut chunks = vec![Chunk::new(requests, true)];
    while let Some(mut chunk) = chunks.pop() {
        let attempted = attempt(shared, &mut chunk).await;
        chunk.grants = false;
        let alone = chunk.requests.len() < 2;
        match attempted {
            Ok((replies, Save::Saved { .. }, _)) => {
                let now = Instant::now();
                for (request, reply) in chunk.requests.into_iter().zip(replies) {
                    answer(shared, request, reply, now);
                }
            }
            Ok((_, Save::Conflict(_), _)) if alone && chunk.losses >= PATIENCE => {
                chunk.fail(shared, &EngineError::Contended);
            }
            Ok((_, Save::Conflict(_), hints)) if alone || chunk.losses < LOSSES => {
                let losses = chunk.losses + 1;
                chunks.push(Chunk { losses, hints, ..chunk });
            }
            Err(Failed { granted: true, .. }) => chunks.push(chunk),
            // One that cannot be read, or that the database will not have, is found by halving too, and fails alone.
            Err(Failed { error, .. }) if alone || !error.may_be_of_one() => chunk.fail(shared, &error),
            Ok((_, Save::Conflict(_), _)) | Err(_) => {
                let [first, second] = chunk.halves();
                chunks.extend([second, first]);
            }
        }
    }
}

/// Answer one, and count it.
pub(crate) fn answer<S>(shared: &Shared<S>, request: Request, reply: Reply, now: Instant) {
    let took = now.saturating_duration_since(request.came);
    shared.counted.answered(&request.operation.call, took);
    if let (Some(spans), Some(parent)) = (&shared.config.spans, request.operation.trace)
        && parent.is_sampled()
        && request.leads
    {
        let code = reply.as_ref().err().map(|error| error.code().into());
        spans.operation(OperationSpan { parent, kind: KINDS[kind(&request.operation.call)], took, code });
    }
    if let Err(error) = &reply
        && error.refusal().is_none()
    {
        shared.counted.failed(error, 1);
    }
    let record = reply.as_ref().ok().and_then(|answer| answer.record.clone());
    let replayed = |times: u64| {
        let nobody = Arc::default();
        shared.counted.replayed(record.as_ref().map_or(&nobody, |record| &record.lifecycle.name), times);
    };
    if reply.as_ref().is_ok_and(|answer| answer.replayed) {
        replayed(1);
    }
    let followers = request.answer(reply);
    if followers > 0 {
        replayed(followers);
    }
}

type Attempted = (Vec<Reply>, Save, Hints);

/// Nothing of a chunk was saved, or it is not known what was.
struct Failed {
    error: EngineError,
    /// What was leased to those who wait may be why: certainly nothing was saved, and it is tried again without.
    granted: bool,
}

impl<E: Into<EngineError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self { error: error.into(), granted: false }
    }
}

/// Decide and save once. Those that must ask the outside first leave the chunk.
async fn attempt<S: Store + 'static>(shared: &Arc<Shared<S>>, chunk: &mut Chunk) -> Result<Attempted, Failed> {
    let store = &shared.store;
    let came = Instant::now();
    let mut catalog = store.definitions().await?;
    let now = store.now().await?;
    let hints = std::mem::take(&mut chunk.hints);
    let answered = hints.answered.clone();
    number(&mut chunk.requests);
    let mut decided = decide_all(store, &catalog.definitions, &chunk.requests, hints, now, seed).await?;
    // Loading may have brought word of another process's lifecycles: new records are made by what is current now.
    for _ in 0..NEWS {
        // Where nothing was loaded no word can have come, and what is refused then, as an unknown lifecycle, is compared by nobody.
        let is_unasked = decided.looks == 0 && decided.refuses();
        let newest = if is_unasked { store.newest_definitions().await? } else { store.definitions().await? };
        if newest.number() == catalog.number() {
            break;
        }
        catalog = newest;
        let hints = Hints { keys: decided.base.keys(), answered: answered.clone() };
        decided = decide_all(store, &catalog.definitions, &chunk.requests, hints, now, seed).await?;
    }
    let mut grants = Grants::default();
    if chunk.grants {
        let granted = leasing::grant(shared, &catalog.definitions, &mut decided, now).await;
        grants = granted.map_err(|error| Failed { error, granted: true })?;
    }
    let Decided { base, mut writes, replies, asks, .. } = decided;
    // That nothing is due any more is told to nobody but the engine, which looks again: it needs no transaction to compare it,
    // unless it rests on memory.
    if !base.is_remembered() {
        writes.retain(|write| !is_done_already(write));
    }
    let spent = shared.trail.bound(&mut writes, now);
    leave(shared, chunk, asks);
    let replies: Vec<Reply> = replies.into_iter().flatten().collect();
    let (base, batch) = (Arc::new(base), Arc::new(Batch { writes, now, catalog: catalog.number() }));
    if is_nothing(&batch.writes) {
        shared.counted.decided(&batch.writes, &base);
        shared.counted.untold(spent.untold);
        return Ok((replies, Save::Saved { first: 1, last: 0 }, Hints::default()));
    }
    let begun = Instant::now();
    let save = match store.save(&base, &batch).await {
        Ok(save) => save,
        Err(error) => {
            shared.trail.give_back(spent);
            let error = EngineError::from(error);
            let granted = !grants.is_empty() && (error.may_be_of_one() || error.is_busy());
            if !grants.is_empty() {
                // What is there may be other than what they knew, who will look.
                shared.signals.lines.doubt();
            }
            return Err(Failed { error, granted });
        }
    };
    let hints = match &save {
        Save::Saved { last, .. } => {
            shared.counted.saved(batch.writes.len(), begun.elapsed());
            shared.counted.decided(&batch.writes, &base);
            trace!(operations = batch.writes.len(), last, "a batch is saved");
            shared.counted.untold(spent.untold);
            if let Some(spans) = &shared.config.spans {
                spans::tell(&**spans, &batch.writes);
            }
            shared.signals.saved(&batch.writes, *last, now, &grants.records());
            let came_alone = chunk.requests.len() == 1 && !grants.is_empty();
            grants.give(shared, came.elapsed());
            if came_alone {
                // One after the other, on this thread: to wake another thread for the second takes longer than either of them (0181).
                tokio::task::yield_now().await;
            }
            Hints::default()
        }
        Save::Conflict(conflict) => {
            shared.counted.conflict();
            debug!(operations = batch.writes.len(), "a batch found something changed and is decided again");
            shared.trail.give_back(spent);
            Hints { keys: base.keys(), answered: conflict.requests.clone() }
        }
    };
    Ok((replies, save, hints))
}

/// Whether somebody else has done what was due.
fn is_done_already(write: &Write) -> bool {
    matches!(write.operation.call, Call::Due { .. }) && matches!(write.outcome, Outcome::NoOp(_))
}

/// Whether no store would write anything, so that there is no transaction to wait for. An answer that nothing was to be done
/// rests on what was read, and is saved so that this is compared.
fn is_nothing(writes: &[Write]) -> bool {
    writes.iter().all(|write| match &write.outcome {
        Outcome::Refusal(refusal) => !refusal.denial && refusal.audit.is_none(),
        Outcome::Changes(_) | Outcome::NoOp(_) => false,
    })
}

/// Bits of a seed that an id is made of, and those of them that chance keeps.
const ID_BITS: u32 = 74;
const CHANCE_BITS: u32 = 54;

/// A batch has one time, and records of one time are ordered by their ids; so ids made by later operations should be larger, that
/// jobs which callers make go as they came in. One whose questions were answered keeps its seed: they may name an id. Messages
/// to the outside need none of it: core orders them by their record's version.
fn number(requests: &mut [Request]) {
    for (at, request) in requests.iter_mut().enumerate().filter(|(_, request)| request.operation.answers.is_empty()) {
        request.operation.seed = numbered(request.operation.seed, at);
    }
}

/// A seed for the operation at this place of a batch.
pub(crate) fn numbered(seed: u128, at: usize) -> u128 {
    let at = u128::try_from(at).unwrap_or(u128::MAX) << CHANCE_BITS & ((1 << ID_BITS) - 1);
    seed & ((1 << CHANCE_BITS) - 1) | at
}

fn leave<S: Store + 'static>(shared: &Arc<Shared<S>>, chunk: &mut Chunk, mut asks: Vec<(usize, Vec<Question>)>) {
    if asks.is_empty() {
        return;
    }
    asks.sort_unstable_by_key(|(at, _)| *at);
    let mut asks = asks.into_iter().peekable();
    let mut stay = Vec::with_capacity(chunk.requests.len());
    for (at, request) in std::mem::take(&mut chunk.requests).into_iter().enumerate() {
        match asks.next_if(|(asking, _)| *asking == at) {
            Some((_, questions)) => checks::ask(Arc::clone(shared), request, questions),
            None => stay.push(request),
        }
    }
    chunk.requests = stay;
}
