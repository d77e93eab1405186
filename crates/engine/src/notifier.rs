//! Wakes pollers, the scheduler and log streams after a save. A notification is a hint: each of them also polls.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::decide::{RecordChange, next_due, ordered_queue_key, readiness};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{DecidedOperation, OperationOutcome, Store};
use tokio::sync::{Notify, watch};

use crate::dispatch::pollers::PollerQueues;
use crate::shared::Shared;

/// Bounds memory. Polling finds jobs that become ready after these times.
const MAX_READY_TIMES: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Notifier {
    pub(crate) pollers: PollerQueues,
    /// Last seq known to be written.
    last_seq: watch::Sender<u64>,
    scheduler_wakeup: Notify,
    /// Time of the scheduler's next poll. Records due later need no notification.
    next_poll_micros: AtomicI64,
    /// Times at which delayed jobs become ready.
    ready_times: Mutex<BTreeSet<Time>>,
    /// Notified if a job becomes ready before all known times.
    earlier_ready: Notify,
}

impl Default for Notifier {
    fn default() -> Self {
        Self {
            pollers: PollerQueues::default(),
            last_seq: watch::Sender::new(0),
            scheduler_wakeup: Notify::new(),
            next_poll_micros: AtomicI64::new(i64::MAX),
            ready_times: Mutex::default(),
            earlier_ready: Notify::new(),
        }
    }
}

impl Notifier {
    /// Announces a saved batch. Jobs in `matched_records` are already leased and wake no poller.
    pub(crate) fn on_saved(
        &self,
        writes: &[DecidedOperation],
        last: u64,
        now: Time,
        matched_records: &HashSet<RecordId>,
    ) {
        let (mut earliest, mut delayed_times) = (None, Vec::new());
        // How many jobs of each lifecycle may have become ready.
        let mut ready_jobs: HashMap<&str, usize> = HashMap::new();
        for write in writes {
            let OperationOutcome::Changes(changes) = &write.outcome else { continue };
            for change in &changes.records {
                let mut jobs = usize::from(frees_concurrency_key(change));
                match readiness(&change.after) {
                    Some(waiting) if waiting.ready_at <= now => {
                        jobs += usize::from(!matched_records.contains(&change.after.id));
                    }
                    Some(waiting) => delayed_times.push(waiting.ready_at),
                    None => {}
                }
                if jobs > 0 {
                    *ready_jobs.entry(&change.after.lifecycle.name).or_default() += jobs;
                }
                if let Some(due) = next_due(&change.after) {
                    earliest = Some(earliest.map_or(due, |earliest: Time| earliest.min(due)));
                }
            }
        }
        if !delayed_times.is_empty() {
            self.add_ready_times(delayed_times);
        }
        self.advance_log(last);
        if earliest.is_some_and(|due| due.micros() < self.next_poll_micros.load(Ordering::SeqCst)) {
            self.scheduler_wakeup.notify_one();
        }
        if !ready_jobs.is_empty() {
            let jobs = |name: &Arc<str>| ready_jobs.get(&**name).copied().unwrap_or(0);
            self.pollers.wake_by_lifecycles(|lifecycles| lifecycles.iter().map(jobs).sum());
        }
    }

    /// Announces that the log is written up to `last`.
    pub(crate) fn advance_log(&self, last: u64) {
        self.last_seq.send_modify(|known| *known = last.max(*known));
    }

    fn add_ready_times(&self, times: Vec<Time>) {
        let mut ready_times = self.lock_ready_times();
        let first = ready_times.first().copied();
        ready_times.extend(times);
        while ready_times.len() > MAX_READY_TIMES {
            ready_times.pop_last();
        }
        if ready_times.first().copied() != first {
            // The notifier's task would wake too late.
            self.earlier_ready.notify_one();
        }
    }

    /// Announces a commit of another process, of which nothing else is known. All waiters check, but only one poller of
    /// each queue.
    pub(crate) fn on_remote_change(&self) {
        self.pollers.wake_one_each();
        self.last_seq.send_modify(|_| {});
        self.scheduler_wakeup.notify_one();
    }

    pub(crate) fn subscribe_log(&self) -> watch::Receiver<u64> {
        self.last_seq.subscribe()
    }

    /// Wakes all waiters: the engine closes, or the clock was set.
    pub(crate) fn wake_all(&self) {
        self.pollers.wake_all();
        self.earlier_ready.notify_one();
        self.last_seq.send_modify(|_| {});
        self.scheduler_wakeup.notify_one();
    }

    /// Begins a poll of the scheduler. Until its next poll time is set, every due record notifies it.
    pub(crate) fn begin_poll(&self) {
        self.next_poll_micros.store(i64::MAX, Ordering::SeqCst);
    }

    /// Waits until a record may be due before `next`, or `max_wait` has passed.
    pub(crate) async fn wait_due_before(&self, next: Time, max_wait: Duration) {
        self.next_poll_micros.store(next.micros(), Ordering::SeqCst);
        let _ = tokio::time::timeout(max_wait, self.scheduler_wakeup.notified()).await;
    }

    /// Waits until a job becomes ready before all known ones, or `max_wait` has passed.
    pub(crate) async fn wait_earlier_ready(&self, max_wait: Duration) {
        let _ = tokio::time::timeout(max_wait, self.earlier_ready.notified()).await;
    }

    /// Returns the time until the next delayed job becomes ready, at most `max_wait`.
    pub(crate) fn time_until_ready(&self, now: Time, max_wait: Duration) -> Duration {
        let mut ready_times = self.lock_ready_times();
        while ready_times.first().is_some_and(|first| *first <= now) {
            ready_times.pop_first();
        }
        ready_times.first().map_or(max_wait, |first| duration_between(now, *first).min(max_wait))
    }

    fn lock_ready_times(&self) -> MutexGuard<'_, BTreeSet<Time>> {
        self.ready_times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether other jobs of its concurrency key may become ready.
fn frees_concurrency_key(change: &RecordChange) -> bool {
    let Some(before) = &change.before else { return false };
    let has_concurrency_key = before.lifecycle.work.as_ref().is_some_and(|work| work.concurrency.is_some());
    has_concurrency_key
        && (before.live_execution().is_some() && change.after.live_execution().is_none()
            || ordered_queue_key(before) != ordered_queue_key(&change.after))
}

/// Returns the duration, rounded up, so that after the wait the time is reached.
pub(crate) fn duration_between(from: Time, to: Time) -> Duration {
    let micros = to.micros().saturating_sub(from.micros());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0).saturating_add(1))
}

/// Wakes pollers when a delayed job becomes ready, and every `poll_interval` in case a notification was lost.
pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    while !shared.queue.is_closed() {
        let poll = shared.config.poll_interval;
        let delay = shared.store.now().await.map_or(poll, |now| shared.notifier.time_until_ready(now, poll));
        shared.notifier.wait_earlier_ready(delay).await;
        shared.notifier.pollers.wake_one_each();
    }
}

/// Wakes local pollers, the scheduler and log streams whenever another process commits.
pub(crate) async fn forward_remote_changes<S>(shared: Arc<Shared<S>>, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        shared.notifier.on_remote_change();
    }
}
