//! The one place that asks the machine for the time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onceward_core::time::Time;

/// Where a store's `now` comes from.
#[derive(Clone, Debug)]
pub struct Clock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    /// The wall clock when it was made, advanced by the monotonic clock: never steps back while the process lives.
    Machine {
        started_at: Time,
        started_instant: Instant,
    },
    Manual(Arc<AtomicI64>),
}

impl Clock {
    pub fn machine() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = Time::from_micros(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX)).min(Time::MAX);
        Self(ClockSource::Machine { started_at: start, started_instant: Instant::now() })
    }

    /// Moves only when told to: for tests and simulations. Clones are the same clock.
    pub fn manual(start: Time) -> Self {
        Self(ClockSource::Manual(Arc::new(AtomicI64::new(start.micros()))))
    }

    pub fn now(&self) -> Time {
        match &self.0 {
            ClockSource::Machine { started_at: start, started_instant: since } => {
                let passed = i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX);
                Time::from_micros(start.micros().saturating_add(passed)).min(Time::MAX)
            }
            ClockSource::Manual(micros) => Time::from_micros(micros.load(Ordering::SeqCst)),
        }
    }

    /// Set a manual clock; the machine's goes its own way.
    pub fn set(&self, now: Time) {
        if let ClockSource::Manual(micros) = &self.0 {
            micros.store(now.micros(), Ordering::SeqCst);
        }
    }
}

/// How long a look at a database's clock is good for: a few millionths of drift in the meantime, and a step of it goes
/// unseen for so long.
const SAMPLE_TTL: Duration = Duration::from_secs(1);

/// Another machine's clock, looked at now and then and carried on by our monotonic one.
#[derive(Debug, Default)]
pub(crate) struct SampledClock(Mutex<Option<(Time, Instant)>>);

impl SampledClock {
    /// `None` where it is time to look again.
    pub(crate) fn now(&self) -> Option<Time> {
        let (time, sampled_instant) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let elapsed = sampled_instant.elapsed();
        (elapsed < SAMPLE_TTL).then(|| {
            let passed = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
            Time::from_micros(time.micros().saturating_add(passed)).min(Time::MAX)
        })
    }

    /// It has just said this. Behind by no more than the answer took to come.
    pub(crate) fn set_sample(&self, time: Time) -> Time {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((time, Instant::now()));
        time
    }
}
