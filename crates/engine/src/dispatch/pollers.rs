//! Queues of waiting pollers: wakes as many as there may be jobs, in FIFO order.
//!
//! A woken poller scans, or passes the wakeup on if it is dropped, so that no job waits because its poller is gone.
//!
//! A poller that found nothing parks its request; a batch that creates a job leases it to the parked request (sync
//! match). A wakeup unparks requests, because jobs that are already ready come first.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, oneshot};

use crate::dispatch::{LeasedJob, ParkedRequest};

#[derive(Debug, Default)]
pub(crate) struct PollerQueues {
    /// Incremented before each wakeup: a scan of an earlier generation may be stale.
    generation: AtomicU64,
    /// Pollers with the same lifecycles share a queue.
    by_lifecycles: Mutex<HashMap<Vec<Arc<str>>, Arc<PollerQueue>>>,
    /// Orders parked requests over all queues.
    next_ticket: AtomicU64,
    /// Parked requests. If it is 0, a batch skips the queues.
    parked_count: AtomicUsize,
}

#[derive(Debug, Default)]
struct PollerQueue {
    wakeup: Arc<Notify>,
    pollers: AtomicUsize,
    parked: Mutex<BTreeMap<u64, ParkedSlot>>,
}

#[derive(Debug)]
struct ParkedSlot {
    request: ParkedRequest,
    sender: oneshot::Sender<MatchResult>,
}

/// The end of a parked request.
#[derive(Debug)]
pub(crate) enum MatchResult {
    Jobs(Vec<LeasedJob>),
    /// A batch tried to lease a job to the poller and failed: whether a lease was saved may be unknown.
    Failed,
    /// The poller left the queue without a match.
    Unparked,
}

impl PollerQueue {
    fn lock_parked(&self) -> MutexGuard<'_, BTreeMap<u64, ParkedSlot>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PollerQueues {
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Makes the next scan query the store, without waking a poller.
    pub(crate) fn invalidate_empty_scans(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Joins the queue for these lifecycles.
    pub(crate) fn join(&self, lifecycles: &[Arc<str>]) -> Poller<'_> {
        let mut queues = self.lock_queues();
        let queue = Arc::clone(queues.entry(lifecycles.to_vec()).or_default());
        queue.pollers.fetch_add(1, Ordering::SeqCst);
        drop(queues);
        Poller { queues: self, lifecycles: lifecycles.to_vec(), queue, has_unused_wakeup: false }
    }

    /// Wakes pollers for up to `jobs` jobs of these lifecycles.
    pub(crate) fn wake(&self, lifecycles: &[Arc<str>], jobs: usize) {
        self.wake_by_lifecycles(|wanted| if wanted.iter().any(|name| lifecycles.contains(name)) { jobs } else { 0 });
    }

    /// Wakes one poller of each queue. It wakes others if it finds more jobs than it wants.
    pub(crate) fn wake_one_each(&self) {
        self.wake_by_lifecycles(|_| 1);
    }

    /// Wakes as many pollers of each queue as `jobs` returns for its lifecycles.
    pub(crate) fn wake_by_lifecycles(&self, jobs: impl Fn(&[Arc<str>]) -> usize) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        for (lifecycles, queue) in &*self.lock_queues() {
            let woken = jobs(lifecycles).min(queue.pollers.load(Ordering::SeqCst));
            for _ in 0..woken {
                queue.wakeup.notify_one();
            }
            // The job they are woken for comes before newer ones.
            self.unpark_first(queue, woken);
        }
    }

    pub(crate) fn wake_all(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        for queue in self.lock_queues().values() {
            queue.wakeup.notify_waiters();
            self.unpark_first(queue, usize::MAX);
        }
    }

    /// Removes the first parked requests of a queue.
    fn unpark_first(&self, queue: &PollerQueue, max_slots: usize) {
        let mut parked = queue.lock_parked();
        for _ in 0..max_slots.min(parked.len()) {
            parked.pop_first();
            self.parked_count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn parked_count(&self) -> usize {
        self.parked_count.load(Ordering::SeqCst)
    }

    /// Takes the oldest parked request for this lifecycle that names none of `excluded_lifecycles`. If the result is
    /// dropped, its poller scans again.
    pub(crate) fn claim_parked(
        &self,
        lifecycle: &str,
        excluded_lifecycles: &HashSet<Arc<str>>,
    ) -> Option<PendingMatch> {
        loop {
            let ParkedSlot { request, sender } = self.pop_first_parked(lifecycle, excluded_lifecycles)?;
            let pending = PendingMatch { request, sender: Some(sender) };
            if !pending.is_canceled() && (pending.request.keep_waiting)() {
                return Some(pending);
            }
        }
    }

    fn pop_first_parked(&self, lifecycle: &str, excluded_lifecycles: &HashSet<Arc<str>>) -> Option<ParkedSlot> {
        let queues = self.lock_queues();
        let is_wanted_by = |wanted: &[Arc<str>]| {
            wanted.iter().any(|name| **name == *lifecycle)
                && !wanted.iter().any(|name| excluded_lifecycles.contains(name))
        };
        loop {
            let matching = queues.iter().filter(|(asked, _)| is_wanted_by(asked));
            let first = matching.filter_map(|(_, line)| Some((*line.lock_parked().first_key_value()?.0, line)));
            let (ticket, queue) = first.min_by_key(|(number, _)| *number)?;
            // It may have been withdrawn in between.
            if let Some(slot) = queue.lock_parked().remove(&ticket) {
                self.parked_count.fetch_sub(1, Ordering::SeqCst);
                return Some(slot);
            }
        }
    }

    fn lock_queues(&self) -> MutexGuard<'_, HashMap<Vec<Arc<str>>, Arc<PollerQueue>>> {
        self.by_lifecycles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A parked request that a batch is matching. If dropped, the match fails.
#[derive(Debug)]
pub(crate) struct PendingMatch {
    pub(crate) request: ParkedRequest,
    sender: Option<oneshot::Sender<MatchResult>>,
}

impl PendingMatch {
    /// Returns whether the poller is gone.
    pub(crate) fn is_canceled(&self) -> bool {
        self.sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Delivers durable leases. The poller may be gone, as with every lease.
    pub(crate) fn deliver(mut self, leased: Vec<LeasedJob>) {
        self.resolve(MatchResult::Jobs(leased));
    }

    fn resolve(&mut self, result: MatchResult) {
        let _ = self.sender.take().map(|give| give.send(result));
    }
}

impl Drop for PendingMatch {
    fn drop(&mut self) {
        self.resolve(MatchResult::Failed);
    }
}

/// A parked request of this poller, withdrawn on drop.
#[derive(Debug)]
pub(crate) struct ParkedHandle<'a> {
    queues: &'a PollerQueues,
    queue: Arc<PollerQueue>,
    ticket: u64,
    receiver: oneshot::Receiver<MatchResult>,
}

impl ParkedHandle<'_> {
    /// Waits until it is matched or removed.
    pub(crate) async fn wait_result(&mut self) -> MatchResult {
        (&mut self.receiver).await.unwrap_or(MatchResult::Unparked)
    }

    /// Withdraws the request. If a batch is matching it, waits for the result; otherwise the job would be leased to a
    /// poller that is gone.
    pub(crate) async fn withdraw(mut self) -> MatchResult {
        if self.unpark() { MatchResult::Unparked } else { self.wait_result().await }
    }

    fn unpark(&self) -> bool {
        let removed = self.queue.lock_parked().remove(&self.ticket).is_some();
        self.queues.parked_count.fetch_sub(usize::from(removed), Ordering::SeqCst);
        removed
    }
}

impl Drop for ParkedHandle<'_> {
    fn drop(&mut self) {
        self.unpark();
    }
}

/// A poller's membership in a queue.
#[derive(Debug)]
pub(crate) struct Poller<'a> {
    queues: &'a PollerQueues,
    lifecycles: Vec<Arc<str>>,
    queue: Arc<PollerQueue>,
    /// Woken, but has not scanned since.
    has_unused_wakeup: bool,
}

impl<'a> Poller<'a> {
    /// Parks the request after a scan without result.
    pub(crate) fn park(&self, request: ParkedRequest) -> ParkedHandle<'a> {
        let ticket = self.queues.next_ticket.fetch_add(1, Ordering::SeqCst);
        let (sender, receiver) = oneshot::channel();
        self.queues.parked_count.fetch_add(1, Ordering::SeqCst);
        self.queue.lock_parked().insert(ticket, ParkedSlot { request, sender });
        ParkedHandle { queues: self.queues, queue: Arc::clone(&self.queue), ticket, receiver }
    }

    /// Resolves when this poller is woken, also if the wakeup came before the wait. If dropped, the wakeup goes to the
    /// next poller.
    pub(crate) fn wakeup(&self) -> OwnedNotified {
        Arc::clone(&self.queue.wakeup).notified_owned()
    }

    pub(crate) fn mark_woken(&mut self) {
        self.has_unused_wakeup = true;
    }

    pub(crate) fn mark_scanned(&mut self) {
        self.has_unused_wakeup = false;
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        if self.has_unused_wakeup {
            self.queue.wakeup.notify_one();
        }
        let mut queues = self.queues.lock_queues();
        if self.queue.pollers.fetch_sub(1, Ordering::SeqCst) == 1 {
            queues.remove(&self.lifecycles);
        }
    }
}
