//! Reserves lease candidates: no job is offered to two callers of this engine, and callers with the same lifecycles
//! share one scan.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{LeaseQuery, Store};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::LeaseRequest;
use super::pollers::PollerQueues;
use crate::error::EngineError;
use crate::shared::Shared;
use crate::submission::queue::random_seed;

/// Pollers to wake if more jobs are ready than requested. Each of them wakes others in turn.
const WAKE_FANOUT: usize = 2;

/// Workers use a few lists of lifecycles.
const MAX_CACHED_EMPTY_SCANS: usize = 64;

/// Bounds of the candidates that are skipped because other processes lease them: for small and for large requests.
const MIN_SPREAD_CAP: usize = 64;
const MAX_SPREAD_CAP: usize = 1_000;

/// Gives out candidates, one scan at a time.
#[derive(Debug, Default)]
pub(crate) struct CandidateBroker {
    /// Lists of lifecycles whose last scan found nothing.
    empty_scans: tokio::sync::Mutex<HashMap<Vec<Arc<str>>, EmptyScan>>,
    /// Candidates that a caller is about to lease.
    reserved: Mutex<HashSet<RecordId>>,
    /// Waiting callers. The one that scans does so for all callers with the same lifecycles.
    requests: Mutex<Vec<CandidateRequest>>,
    /// How many more candidates to choose from. 0 unless other processes lease the same candidates.
    spread: AtomicUsize,
}

/// A caller that waits for candidates.
#[derive(Debug)]
struct CandidateRequest {
    lifecycles: Vec<Arc<str>>,
    max_jobs: usize,
    sender: oneshot::Sender<Vec<RecordId>>,
}

/// A scan that found nothing at this generation. A thousand waiting workers need one scan.
#[derive(Debug)]
struct EmptyScan {
    generation: u64,
    valid_until: Time,
}

impl CandidateBroker {
    fn lock_reserved(&self) -> MutexGuard<'_, HashSet<RecordId>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adapts the spread to the result. If other processes leased some of the candidates first, the next scan spreads
    /// further; otherwise the spread shrinks by the leased jobs, back toward the head of the queue.
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

    /// Drops requests whose caller is gone.
    fn remove_closed_requests(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).retain(|request| !request.sender.is_closed());
    }

    /// Takes the requests for the same lifecycles, in order of arrival.
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

/// Candidates that no other caller of this engine is offered.
pub(super) struct Reservation<'a> {
    broker: &'a CandidateBroker,
    pollers: &'a PollerQueues,
    lifecycles: &'a [Arc<str>],
    /// Receives candidates from another caller's scan.
    receiver: oneshot::Receiver<Vec<RecordId>>,
    pub(super) records: Vec<RecordId>,
    pub(super) was_used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        // Candidates that were sent in the meantime must be released too.
        self.receiver.close();
        self.records.extend(self.receiver.try_recv().into_iter().flatten());
        let mut reserved = self.broker.lock_reserved();
        for record in &self.records {
            reserved.remove(record);
        }
        drop(reserved);
        // Other callers may have found nothing because of this reservation.
        if !self.was_used && !self.records.is_empty() {
            self.pollers.wake(self.lifecycles, self.records.len());
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
    let (pollers, lifecycles) = (&shared.notifier.pollers, &request.lifecycles);
    let mut reservation = Reservation { broker, pollers, lifecycles, receiver, records: Vec::new(), was_used: false };
    let mut empty_scans = broker.empty_scans.lock().await;
    match reservation.receiver.try_recv() {
        Ok(records) => {
            reservation.records = records;
            return Ok(reservation);
        }
        Err(TryRecvError::Empty) => {}
        // The scan failed, was canceled, or earlier requests took all its candidates: ask again.
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
            // If callers use more lists than the cache holds, each scan queries the store.
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
            // Earlier requests took all candidates of the scan.
            Err(_) => reservation.receiver = broker.enqueue_request(&request.lifecycles, max_jobs),
        }
    }
}

/// Scans once for all callers with the same lifecycles; they queued before the query. A caller that gets no share,
/// although there are more jobs, receives nothing and scans later. Returns whether a caller got nothing because no more
/// jobs are ready.
async fn distribute<S: Store>(shared: &Shared<S>, lifecycles: &[Arc<str>], now: Time) -> Result<bool, EngineError> {
    let broker = &shared.candidate_broker;
    let requests = broker.take_requests(lifecycles);
    // Reserved candidates are still in the list. Each new one needs a queue permit, so more than the queue holds are
    // useless.
    let reserved_count = broker.lock_reserved().len();
    let max_new = shared.config.max_queued_operations.saturating_sub(reserved_count);
    if max_new == 0 {
        return Err(shared.queue.reject_overloaded());
    }
    let total = requests.iter().fold(0, |sum: usize, ask| sum.saturating_add(ask.max_jobs)).min(max_new);
    // One more, if possible, to learn whether there are more.
    let min_found = total + reserved_count + usize::from(total < max_new);
    let spread = broker.spread.load(Ordering::Relaxed);
    let query = LeaseQuery { lifecycles: lifecycles.to_vec(), now, limit: min_found + spread };
    let found = shared.store.lease_candidates(&query).await?;
    let is_exhausted = found.len() < min_found;
    let mut reserved = broker.lock_reserved();
    let mut free: Vec<RecordId> = found.into_iter().map(|candidate| candidate.record).collect();
    free.retain(|record| !reserved.contains(record));
    // Skips only as far as enough candidates follow.
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
            // The caller is gone: release its share.
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

/// Returns a random number of candidates to skip, so that processes choose different ones. Small numbers are more
/// likely, so that the head is not skipped for long.
fn random_skip(max_skip: usize) -> Result<usize, EngineError> {
    if max_skip == 0 {
        return Ok(0);
    }
    let random = usize::try_from(random_seed()? & 0xffff).unwrap_or(0);
    Ok(((max_skip + 1) * ((random * random) >> 16)) >> 16)
}
