//! Who is woken by what was saved. A signal is a hint: whoever waits for one looks for itself now and then.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::decide::{RecordChange, in_order, next_due, readiness};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Outcome, Write};
use tokio::sync::{Notify, watch};

use crate::waiting::Lines;

/// Times at which jobs become ready that are remembered; later ones are found by looking.
const SOON: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Signals {
    /// Who waits for jobs.
    pub(crate) lines: Lines,
    /// The last place of the log that is known to be written.
    log: watch::Sender<u64>,
    timers: Notify,
    /// When the timers look next, in microseconds; what is due later needs no signal.
    next_look: AtomicI64,
    /// When jobs that wait for their time become ready.
    soon: Mutex<BTreeSet<Time>>,
    /// One becomes ready before all that were known.
    sooner: Notify,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            lines: Lines::default(),
            log: watch::Sender::new(0),
            timers: Notify::new(),
            next_look: AtomicI64::new(i64::MAX),
            soon: Mutex::default(),
            sooner: Notify::new(),
        }
    }
}

impl Signals {
    /// A batch was saved. Jobs that it has given to somebody already call for nobody.
    pub(crate) fn saved(&self, writes: &[Write], last: u64, now: Time, given: &HashSet<RecordId>) {
        let (mut earliest, mut later) = (None, Vec::new());
        // How many of each lifecycle may have become leasable.
        let mut ready: HashMap<&str, usize> = HashMap::new();
        for write in writes {
            let Outcome::Changes(changes) = &write.outcome else { continue };
            for change in &changes.records {
                let mut jobs = usize::from(frees_others(change));
                match readiness(&change.after) {
                    Some(waiting) if waiting.from <= now => jobs += usize::from(!given.contains(&change.after.id)),
                    Some(waiting) => later.push(waiting.from),
                    None => {}
                }
                if jobs > 0 {
                    *ready.entry(&change.after.lifecycle.name).or_default() += jobs;
                }
                if let Some(due) = next_due(&change.after) {
                    earliest = Some(earliest.map_or(due, |earliest: Time| earliest.min(due)));
                }
            }
        }
        if !later.is_empty() {
            self.remember(later);
        }
        self.logged(last);
        if earliest.is_some_and(|due| due.micros() < self.next_look.load(Ordering::SeqCst)) {
            self.timers.notify_one();
        }
        if !ready.is_empty() {
            let jobs = |name: &Arc<str>| ready.get(&**name).copied().unwrap_or(0);
            self.lines.wake_each(|lifecycles| lifecycles.iter().map(jobs).sum());
        }
    }

    /// The log is written up to here.
    pub(crate) fn logged(&self, last: u64) {
        self.log.send_modify(|known| *known = last.max(*known));
    }

    /// Jobs become ready at these times.
    fn remember(&self, times: Vec<Time>) {
        let mut soon = self.soon();
        let first = soon.first().copied();
        soon.extend(times);
        while soon.len() > SOON {
            soon.pop_last();
        }
        if soon.first().copied() != first {
            // Whoever looks for those that wait would look too late.
            self.sooner.notify_one();
        }
    }

    /// Something was written elsewhere, and nobody knows what: all look for themselves, but of those who wait for jobs only one of
    /// each kind.
    pub(crate) fn look(&self) {
        self.lines.look();
        self.log.send_modify(|_| {});
        self.timers.notify_one();
    }

    pub(crate) fn log(&self) -> watch::Receiver<u64> {
        self.log.subscribe()
    }

    /// Everybody looks again: the engine closes, or the clock was set.
    pub(crate) fn wake_all(&self) {
        self.lines.wake_all();
        self.sooner.notify_one();
        self.log.send_modify(|_| {});
        self.timers.notify_one();
    }

    /// The timers look now: until they say when they look next, everything is news to them.
    pub(crate) fn looking(&self) {
        self.next_look.store(i64::MAX, Ordering::SeqCst);
    }

    /// Wait until something may be due before `next`, or so long.
    pub(crate) async fn due_before(&self, next: Time, most: Duration) {
        self.next_look.store(next.micros(), Ordering::SeqCst);
        let _ = tokio::time::timeout(most, self.timers.notified()).await;
    }

    /// Wait so long, or until a job is known to become ready sooner than all others.
    pub(crate) async fn sooner(&self, most: Duration) {
        let _ = tokio::time::timeout(most, self.sooner.notified()).await;
    }

    /// How long until a job is known to become ready; at most `most`.
    pub(crate) fn until_ready(&self, now: Time, most: Duration) -> Duration {
        let mut soon = self.soon();
        while soon.first().is_some_and(|first| *first <= now) {
            soon.pop_first();
        }
        soon.first().map_or(most, |first| length(now, *first).min(most))
    }

    fn soon(&self) -> MutexGuard<'_, BTreeSet<Time>> {
        self.soon.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether others of its work key may go on now.
fn frees_others(change: &RecordChange) -> bool {
    let Some(before) = &change.before else { return false };
    let keyed = before.lifecycle.work.as_ref().is_some_and(|work| work.key.is_some());
    keyed
        && (before.live_execution().is_some() && change.after.live_execution().is_none()
            || in_order(before) != in_order(&change.after))
}

/// From one time to a later one, as the machine counts; rounded up, so that the time has come when it is over.
pub(crate) fn length(from: Time, to: Time) -> Duration {
    let micros = to.micros().saturating_sub(from.micros());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0).saturating_add(1))
}
