//! The desk where candidates are handed out: no job is offered to two callers of this engine at once, and those who ask for the same
//! look once for all of them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{LeaseQuery, Store};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::LeaseRequest;
use crate::error::EngineError;
use crate::notifier::Notifier;
use crate::queue::random_seed;
use crate::shared::Shared;

/// Others who are woken where there are more jobs than were asked for. Each of them does so in turn.
const WAKE_FANOUT: usize = 2;

/// Lists of lifecycles that are remembered.
const MAX_CACHED_EMPTY_SCANS: usize = 64;

/// Candidates at most that are passed over because others are at them, where few are wanted at once; and where many are.
const MIN_SPREAD_CAP: usize = 64;
const MAX_SPREAD_CAP: usize = 1_000;

/// Where candidates are handed out, one caller at a time.
#[derive(Debug, Default)]
pub(crate) struct CandidateBroker {
    /// Lists of lifecycles for which there was nothing.
    empty_scans: tokio::sync::Mutex<HashMap<Vec<Arc<str>>, EmptyScan>>,
    /// Candidates that somebody is about to lease.
    reserved: Mutex<HashSet<RecordId>>,
    /// Who stands at the desk. Whoever has it looks for all that ask for the same, once.
    requests: Mutex<Vec<CandidateRequest>>,
    /// Among how many more candidates ours are chosen: none, unless other processes take them from under our hands.
    spread: AtomicUsize,
}

/// Somebody who waits for candidates.
#[derive(Debug)]
struct CandidateRequest {
    lifecycles: Vec<Arc<str>>,
    max_jobs: usize,
    sender: oneshot::Sender<Vec<RecordId>>,
}

/// There was nothing when so much news was known. A thousand waiting workers look once, not each.
#[derive(Debug)]
struct EmptyScan {
    generation: u64,
    valid_until: Time,
}

impl CandidateBroker {
    fn lock_reserved(&self) -> MutexGuard<'_, HashSet<RecordId>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many of those that were offered were leased. What another process was quicker at lets us look further on the next time; what
    /// was ours brings us back to the head.
    pub(super) fn adjust_spread<S: Store>(&self, shared: &Shared<S>, leased: usize, reserved: usize) {
        if shared.store.change_notifications().is_none() {
            return;
        }
        let spread = self.spread.load(Ordering::Relaxed);
        let next = if leased < reserved {
            (spread * 2).max(16).min((4 * reserved).clamp(MIN_SPREAD_CAP, MAX_SPREAD_CAP))
        } else {
            spread.saturating_sub(leased)
        };
        self.spread.store(next, Ordering::Relaxed);
    }

    /// Whoever has gone away asks no more.
    fn remove_closed_requests(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).retain(|ask| !ask.sender.is_closed());
    }

    /// Those who ask for the same, in the order in which they came.
    fn take_requests(&self, wanted_lifecycles: &[Arc<str>]) -> Vec<CandidateRequest> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests
            .extract_if(.., |ask| ask.lifecycles == wanted_lifecycles)
            .filter(|ask| !ask.sender.is_closed())
            .collect()
    }

    fn enqueue_request(&self, lifecycles: &[Arc<str>], max_jobs: usize) -> oneshot::Receiver<Vec<RecordId>> {
        let (sender, receiver) = oneshot::channel();
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(CandidateRequest { lifecycles: lifecycles.to_vec(), max_jobs, sender });
        receiver
    }
}

/// Candidates that nobody else of this engine is offered meanwhile.
pub(super) struct Reservation<'a> {
    broker: &'a CandidateBroker,
    notifier: &'a Notifier,
    lifecycles: &'a [Arc<str>],
    /// Where somebody else at the desk puts them.
    receiver: oneshot::Receiver<Vec<RecordId>>,
    pub(super) records: Vec<RecordId>,
    pub(super) was_used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        // What is given to one who goes away must not be lost.
        self.receiver.close();
        self.records.extend(self.receiver.try_recv().into_iter().flatten());
        let mut reserved = self.broker.lock_reserved();
        for record in &self.records {
            reserved.remove(record);
        }
        drop(reserved);
        // Others may have been told that there is nothing.
        if !self.was_used && !self.records.is_empty() {
            self.notifier.pollers.wake(self.lifecycles, self.records.len());
        }
    }
}

pub(super) async fn reserve<'a, S: Store>(
    shared: &'a Shared<S>,
    request: &'a LeaseRequest,
    max_jobs: usize,
    generation: u64,
) -> Result<Reservation<'a>, EngineError> {
    let broker = &shared.candidate_broker;
    let receiver = broker.enqueue_request(&request.lifecycles, max_jobs);
    let (notifier, lifecycles) = (&shared.notifier, &request.lifecycles);
    let mut reservation = Reservation { broker, notifier, lifecycles, receiver, records: Vec::new(), was_used: false };
    let mut empty_scans = broker.empty_scans.lock().await;
    match reservation.receiver.try_recv() {
        Ok(records) => {
            reservation.records = records;
            return Ok(reservation);
        }
        Err(TryRecvError::Empty) => {}
        // Whoever looked for us has failed, or gone away.
        Err(TryRecvError::Closed) => reservation.receiver = broker.enqueue_request(&request.lifecycles, max_jobs),
    }
    loop {
        let now = shared.store.now().await?;
        if let Some(empty) = empty_scans.get(&request.lifecycles)
            && empty.generation >= generation
            && now < empty.valid_until
        {
            reservation.receiver.close();
            broker.remove_closed_requests();
            return Ok(reservation);
        }
        if distribute(shared, &request.lifecycles, now).await? {
            let poll = shared.notifier.time_until_ready(now, shared.config.poll_interval);
            let micros = i64::try_from(poll.as_micros()).unwrap_or(i64::MAX);
            let valid_until = Time::from_micros(now.micros().saturating_add(micros));
            // Workers have a few lists between them. Where somebody makes up more, they are looked for each time, as new ones are.
            if empty_scans.len() >= MAX_CACHED_EMPTY_SCANS {
                empty_scans.clear();
            }
            empty_scans.insert(request.lifecycles.clone(), EmptyScan { generation, valid_until });
        }
        match reservation.receiver.try_recv() {
            Ok(records) => {
                reservation.records = records;
                return Ok(reservation);
            }
            // Those who came first had all that was looked for.
            Err(_) => reservation.receiver = broker.enqueue_request(&request.lifecycles, max_jobs),
        }
    }
}

/// Look once for all who ask for the same: they have asked before the store is looked at. Whoever came too late for so many is
/// told nothing, and looks for itself when the desk is free. Whether somebody had nothing because there was no more.
async fn distribute<S: Store>(shared: &Shared<S>, lifecycles: &[Arc<str>], now: Time) -> Result<bool, EngineError> {
    let broker = &shared.candidate_broker;
    let requests = broker.take_requests(lifecycles);
    // Those on offer to others are still in the list. Each will need a place in the queue: more than it has are of no use.
    let reserved_count = broker.lock_reserved().len();
    let max_new = shared.config.max_queued_operations.saturating_sub(reserved_count);
    if max_new == 0 {
        return Err(shared.queue.reject_overloaded());
    }
    let total = requests.iter().fold(0, |sum: usize, ask| sum.saturating_add(ask.max_jobs)).min(max_new);
    // One more where there is room, to know whether there are more.
    let min_found = total + reserved_count + usize::from(total < max_new);
    let spread = broker.spread.load(Ordering::Relaxed);
    let query = LeaseQuery { lifecycles: lifecycles.to_vec(), now, limit: min_found + spread };
    let found = shared.store.lease_candidates(&query).await?;
    let is_exhausted = found.len() < min_found;
    let mut reserved = broker.lock_reserved();
    let mut free: Vec<RecordId> = found.into_iter().map(|candidate| candidate.record).collect();
    free.retain(|record| !reserved.contains(record));
    // No further than there is enough after it.
    let skipped = random_skip(spread.min(free.len().saturating_sub(total)))?;
    let mut free = free.into_iter().skip(skipped).take(total);
    let shares: Vec<Vec<RecordId>> = requests.iter().map(|ask| free.by_ref().take(ask.max_jobs).collect()).collect();
    reserved.extend(shares.iter().flatten());
    drop(reserved);
    if !is_exhausted {
        shared.notifier.pollers.wake(lifecycles, WAKE_FANOUT);
    }
    let mut has_unserved = false;
    for (request, share) in requests.into_iter().zip(shares) {
        if share.is_empty() {
            has_unserved |= is_exhausted;
            if !is_exhausted {
                continue;
            }
        }
        if let Err(share) = request.sender.send(share) {
            // Gone meanwhile: on offer again.
            let mut reserved = broker.lock_reserved();
            for record in &share {
                reserved.remove(record);
            }
            drop(reserved);
            shared.notifier.pollers.wake(lifecycles, share.len());
        }
    }
    Ok(has_unserved)
}

/// How many to pass over, at most so many: other processes choose otherwise. Rather few than many, so that the head is not left for long.
fn random_skip(max_skip: usize) -> Result<usize, EngineError> {
    if max_skip == 0 {
        return Ok(0);
    }
    let random = usize::try_from(random_seed()? & 0xffff).unwrap_or(0);
    Ok(((max_skip + 1) * ((random * random) >> 16)) >> 16)
}
