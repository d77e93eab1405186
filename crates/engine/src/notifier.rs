//! Who is woken by what was saved. A signal is a hint: whoever waits for one looks for itself now and then.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::decide::{RecordChange, next_due, ordered_queue_key, readiness};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{DecidedOperation, OperationOutcome};
use tokio::sync::{Notify, watch};

use crate::waiting::PollerQueues;

/// Times at which jobs become ready that are remembered; later ones are found by looking.
const MAX_READY_TIMES: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Notifier {
    /// Who waits for jobs.
    pub(crate) pollers: PollerQueues,
    /// The last place of the log that is known to be written.
    last_seq: watch::Sender<u64>,
    scheduler_wakeup: Notify,
    /// When the timers look next, in microseconds; what is due later needs no signal.
    next_poll_micros: AtomicI64,
    /// When jobs that wait for their time become ready.
    ready_times: Mutex<BTreeSet<Time>>,
    /// One becomes ready before all that were known.
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
    /// A batch was saved. Jobs that it has given to somebody already call for nobody.
    pub(crate) fn on_saved(
        &self,
        writes: &[DecidedOperation],
        last: u64,
        now: Time,
        matched_records: &HashSet<RecordId>,
    ) {
        let (mut earliest, mut delayed_times) = (None, Vec::new());
        // How many of each lifecycle may have become leasable.
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

    /// The log is written up to here.
    pub(crate) fn advance_log(&self, last: u64) {
        self.last_seq.send_modify(|known| *known = last.max(*known));
    }

    /// Jobs become ready at these times.
    fn add_ready_times(&self, times: Vec<Time>) {
        let mut ready_times = self.lock_ready_times();
        let first = ready_times.first().copied();
        ready_times.extend(times);
        while ready_times.len() > MAX_READY_TIMES {
            ready_times.pop_last();
        }
        if ready_times.first().copied() != first {
            // Whoever looks for those that wait would look too late.
            self.earlier_ready.notify_one();
        }
    }

    /// Something was written elsewhere, and nobody knows what: all look for themselves, but of those who wait for jobs only one of
    /// each kind.
    pub(crate) fn on_remote_change(&self) {
        self.pollers.wake_one_each();
        self.last_seq.send_modify(|_| {});
        self.scheduler_wakeup.notify_one();
    }

    pub(crate) fn subscribe_log(&self) -> watch::Receiver<u64> {
        self.last_seq.subscribe()
    }

    /// Everybody looks again: the engine closes, or the clock was set.
    pub(crate) fn wake_all(&self) {
        self.pollers.wake_all();
        self.earlier_ready.notify_one();
        self.last_seq.send_modify(|_| {});
        self.scheduler_wakeup.notify_one();
    }

    /// The timers look now: until they say when they look next, everything is news to them.
    pub(crate) fn begin_poll(&self) {
        self.next_poll_micros.store(i64::MAX, Ordering::SeqCst);
    }

    /// Wait until something may be due before `next`, or so long.
    pub(crate) async fn wait_due_before(&self, next: Time, max_wait: Duration) {
        self.next_poll_micros.store(next.micros(), Ordering::SeqCst);
        let _ = tokio::time::timeout(max_wait, self.scheduler_wakeup.notified()).await;
    }

    /// Wait so long, or until a job is known to become ready sooner than all others.
    pub(crate) async fn wait_earlier_ready(&self, max_wait: Duration) {
        let _ = tokio::time::timeout(max_wait, self.earlier_ready.notified()).await;
    }

    /// How long until a job is known to become ready; at most `most`.
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

/// Whether others of its work key may go on now.
fn frees_concurrency_key(change: &RecordChange) -> bool {
    let Some(before) = &change.before else { return false };
    let has_concurrency_key = before.lifecycle.work.as_ref().is_some_and(|work| work.concurrency.is_some());
    has_concurrency_key
        && (before.live_execution().is_some() && change.after.live_execution().is_none()
            || ordered_queue_key(before) != ordered_queue_key(&change.after))
}

/// From one time to a later one, as the machine counts; rounded up, so that the time has come when it is over.
pub(crate) fn duration_between(from: Time, to: Time) -> Duration {
    let micros = to.micros().saturating_sub(from.micros());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0).saturating_add(1))
}
