//! The one place that asks the machine for the time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onceward_core::time::Time;

/// Where a store's `now` comes from.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The wall clock when it was made, advanced by the monotonic clock: never steps back while the process lives.
    Machine {
        start: Time,
        since: Instant,
    },
    Manual(Arc<AtomicI64>),
}

impl Clock {
    pub fn machine() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = Time::from_micros(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX)).min(Time::MAX);
        Self(Source::Machine { start, since: Instant::now() })
    }

    /// Moves only when told to: for tests and simulations. Clones are the same clock.
    pub fn manual(start: Time) -> Self {
        Self(Source::Manual(Arc::new(AtomicI64::new(start.micros()))))
    }

    pub fn now(&self) -> Time {
        match &self.0 {
            Source::Machine { start, since } => {
                let passed = i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX);
                Time::from_micros(start.micros().saturating_add(passed)).min(Time::MAX)
            }
            Source::Manual(micros) => Time::from_micros(micros.load(Ordering::SeqCst)),
        }
    }

    /// Set a manual clock; the machine's goes its own way.
    pub fn set(&self, now: Time) {
        if let Source::Manual(micros) = &self.0 {
            micros.store(now.micros(), Ordering::SeqCst);
        }
    }
}

/// How long a look at a database's clock is good for: a few millionths of drift in the meantime, and a step of it goes
/// unseen for so long.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Another machine's clock, looked at now and then and carried on by our monotonic one.
#[derive(Debug, Default)]
pub(crate) struct Sampled(Mutex<Option<(Time, Instant)>>);

impl Sampled {
    /// `None` where it is time to look again.
    pub(crate) fn now(&self) -> Option<Time> {
        let (time, at) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let passed = at.elapsed();
        (passed < GOOD_FOR).then(|| {
            let passed = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
            Time::from_micros(time.micros().saturating_add(passed)).min(Time::MAX)
        })
    }

    /// It has just said this. Behind by no more than the answer took to come.
    pub(crate) fn sample(&self, time: Time) -> Time {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((time, Instant::now()));
        time
    }
}
