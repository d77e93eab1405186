//! Who waits for jobs, and who is woken when there may be some: as many as there may be jobs, and those first who came first. Two
//! thousand workers wait at the price of one.
//!
//! Whoever is woken looks, or passes its turn on: a job for which somebody was woken is never left lying because that one went away.
//!
//! Whoever has looked and found nothing leaves a wish: a batch that makes a job for it leases it the job right there. A wish stands only
//! as long as nothing else is known to be there, since what waits goes first.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, oneshot};

use crate::leasing::{LeasedJob, ParkedRequest};

#[derive(Debug, Default)]
pub(crate) struct PollerQueues {
    /// Raised before anybody is woken: what was looked at before that may be out of date.
    generation: AtomicU64,
    /// Those who ask for the same stand in one line.
    by_lifecycles: Mutex<HashMap<Vec<Arc<str>>, Arc<PollerQueue>>>,
    /// Wishes that were made so far: whoever came first is served first.
    next_ticket: AtomicU64,
    /// Wishes that stand. A batch for which there is none need not look at the lines.
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

/// What came of a wish.
#[derive(Debug)]
pub(crate) enum MatchResult {
    Jobs(Vec<LeasedJob>),
    /// Somebody meant to grant it: whether anything of that was saved may not be known.
    Failed,
    /// It stands no longer.
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

    /// Nobody is woken, but whoever looks asks the store.
    pub(crate) fn invalidate_empty_scans(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Stand in line for jobs of these lifecycles.
    pub(crate) fn join(&self, lifecycles: &[Arc<str>]) -> Poller<'_> {
        let mut queues = self.lock_queues();
        let queue = Arc::clone(queues.entry(lifecycles.to_vec()).or_default());
        queue.pollers.fetch_add(1, Ordering::SeqCst);
        drop(queues);
        Poller { queues: self, lifecycles: lifecycles.to_vec(), queue, has_unused_wakeup: false }
    }

    /// So many jobs of these lifecycles may be ready.
    pub(crate) fn wake(&self, lifecycles: &[Arc<str>], jobs: usize) {
        self.wake_by_lifecycles(|wanted| if wanted.iter().any(|name| lifecycles.contains(name)) { jobs } else { 0 });
    }

    /// There may be something for anybody: one of each line looks, and wakes others where it finds more than it wants.
    pub(crate) fn wake_one_each(&self) {
        self.wake_by_lifecycles(|_| 1);
    }

    /// As many of each line as its lifecycles call for.
    pub(crate) fn wake_by_lifecycles(&self, jobs: impl Fn(&[Arc<str>]) -> usize) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        for (lifecycles, queue) in &*self.lock_queues() {
            let woken = jobs(lifecycles).min(queue.pollers.load(Ordering::SeqCst));
            for _ in 0..woken {
                queue.wakeup.notify_one();
            }
            // What they are woken for goes before what comes next.
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

    /// The first wishes of a line stand no longer.
    fn unpark_first(&self, queue: &PollerQueue, max_slots: usize) {
        let mut parked = queue.lock_parked();
        for _ in 0..max_slots.min(parked.len()) {
            parked.pop_first();
            self.parked_count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// How many stand.
    pub(crate) fn parked_count(&self) -> usize {
        self.parked_count.load(Ordering::SeqCst)
    }

    /// The first wish for a job of this lifecycle that names none of `others`, to be granted or dropped: then its waiter looks for
    /// itself.
    pub(crate) fn claim_parked(
        &self,
        lifecycle: &str,
        excluded_lifecycles: &HashSet<Arc<str>>,
    ) -> Option<PendingMatch> {
        loop {
            let ParkedSlot { request: wish, sender: give } = self.pop_first_parked(lifecycle, excluded_lifecycles)?;
            if !give.is_closed() && (wish.keep_waiting)() {
                return Some(PendingMatch { request: wish, sender: Some(give) });
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
            // It may have been withdrawn a moment ago.
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

/// A wish that somebody is about to grant. Dropped, it has failed.
#[derive(Debug)]
pub(crate) struct PendingMatch {
    pub(crate) request: ParkedRequest,
    sender: Option<oneshot::Sender<MatchResult>>,
}

impl PendingMatch {
    /// The jobs are leased: that is durable. Whoever asked may have gone away since, as with every other lease.
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

/// A wish that was made: withdrawn when it is dropped.
#[derive(Debug)]
pub(crate) struct ParkedHandle<'a> {
    queues: &'a PollerQueues,
    queue: Arc<PollerQueue>,
    ticket: u64,
    receiver: oneshot::Receiver<MatchResult>,
}

impl ParkedHandle<'_> {
    /// Ends when it is granted, or stands no longer.
    pub(crate) async fn wait_result(&mut self) -> MatchResult {
        (&mut self.receiver).await.unwrap_or(MatchResult::Unparked)
    }

    /// Let it stand no longer. Where somebody is just granting it, that is waited for: otherwise a job would be leased to nobody.
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

/// A place in a line.
#[derive(Debug)]
pub(crate) struct Poller<'a> {
    queues: &'a PollerQueues,
    lifecycles: Vec<Arc<str>>,
    queue: Arc<PollerQueue>,
    /// Woken, and has not looked since.
    has_unused_wakeup: bool,
}

impl<'a> Poller<'a> {
    /// Having looked, and found nothing.
    pub(crate) fn park(&self, request: ParkedRequest) -> ParkedHandle<'a> {
        let ticket = self.queues.next_ticket.fetch_add(1, Ordering::SeqCst);
        let (sender, receiver) = oneshot::channel();
        self.queues.parked_count.fetch_add(1, Ordering::SeqCst);
        self.queue.lock_parked().insert(ticket, ParkedSlot { request, sender });
        ParkedHandle { queues: self.queues, queue: Arc::clone(&self.queue), ticket, receiver }
    }

    /// Ends when it is this one's turn, whether that comes before or after it is waited for. Dropped before, the turn goes to the next.
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
