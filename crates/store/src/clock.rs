//! Clocks. Only this module reads the machine's time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onceward_core::time::Time;

/// The source of a store's `now`.
#[derive(Clone, Debug)]
pub struct Clock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    /// The wall clock at construction, advanced by the monotonic clock. It never goes back while the process runs.
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

    /// Returns a clock for tests and simulations that changes only by [`set`](Self::set). Clones share the same clock.
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

    /// Sets a manual clock. Has no effect on a machine clock.
    pub fn set(&self, now: Time) {
        if let ClockSource::Manual(micros) = &self.0 {
            micros.store(now.micros(), Ordering::SeqCst);
        }
    }
}

/// How long a sample of the database clock is used. Drift in one second is a few microseconds, and a step of the clock
/// is noticed after one second at most.
const SAMPLE_TTL: Duration = Duration::from_secs(1);

/// A clock of another machine: sampled at intervals and advanced by the local monotonic clock in between.
#[derive(Debug, Default)]
pub(crate) struct SampledClock(Mutex<Option<(Time, Instant)>>);

impl SampledClock {
    /// Returns `None` if the sample is too old.
    pub(crate) fn now(&self) -> Option<Time> {
        let (time, sampled_instant) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let elapsed = sampled_instant.elapsed();
        (elapsed < SAMPLE_TTL).then(|| {
            let passed = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
            Time::from_micros(time.micros().saturating_add(passed)).min(Time::MAX)
        })
    }

    /// Stores a time just read from the clock. The sample is late by at most the round trip.
    pub(crate) fn set_sample(&self, time: Time) -> Time {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((time, Instant::now()));
        time
    }
}
