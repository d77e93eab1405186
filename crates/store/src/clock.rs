//! Clocks. Only this module reads the machine's time.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onceward_core::time::Time;

use crate::clock_guard::{ClockAcceptance, ClockGuard, ClockStatus, SampleMoment};

/// The source of a store's `now`. Clones share the same clock.
#[derive(Clone, Debug)]
pub struct Clock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    Guarded(Arc<GuardedClock>),
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// Returns the machine's wall clock, guarded against jumps.
    pub fn machine() -> Self {
        Self(ClockSource::Guarded(Arc::new(GuardedClock::new(TimeSource::Machine))))
    }

    /// Returns a clock for tests and simulations that changes only by [`set`](Self::set). It is not guarded.
    pub fn manual(start: Time) -> Self {
        Self(ClockSource::Manual(Arc::new(AtomicI64::new(start.micros()))))
    }

    /// Returns a clock for tests that is guarded like the machine's. [`set`](Self::set) makes it jump;
    /// [`advance`](Self::advance) lets time pass.
    pub fn manual_guarded(start: Time) -> Self {
        let source =
            TimeSource::Manual { wall_micros: AtomicI64::new(start.micros()), elapsed_micros: AtomicU64::new(0) };
        Self(ClockSource::Guarded(Arc::new(GuardedClock::new(source))))
    }

    pub fn now(&self) -> Time {
        match &self.0 {
            ClockSource::Guarded(clock) => clock.now(),
            ClockSource::Manual(micros) => Time::from_micros(micros.load(Ordering::SeqCst)),
        }
    }

    /// Sets a manual clock. Has no effect on a machine clock.
    pub fn set(&self, now: Time) {
        match &self.0 {
            ClockSource::Manual(micros) => micros.store(now.micros(), Ordering::SeqCst),
            ClockSource::Guarded(clock) => {
                if let TimeSource::Manual { wall_micros, .. } = &clock.source {
                    wall_micros.store(now.micros(), Ordering::SeqCst);
                }
            }
        }
    }

    /// Lets time pass on a guarded manual clock. Has no effect on others.
    pub fn advance(&self, duration: Duration) {
        let ClockSource::Guarded(clock) = &self.0 else { return };
        if let TimeSource::Manual { wall_micros, elapsed_micros } = &clock.source {
            let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
            wall_micros.fetch_add(micros, Ordering::SeqCst);
            elapsed_micros.fetch_add(micros.unsigned_abs(), Ordering::SeqCst);
        }
    }

    /// Returns the guard of this clock, if it has one.
    pub(crate) fn guarded(&self) -> Option<&GuardedClock> {
        match &self.0 {
            ClockSource::Guarded(clock) => Some(clock),
            ClockSource::Manual(_) => None,
        }
    }
}

#[derive(Debug)]
enum TimeSource {
    Machine,
    Manual { wall_micros: AtomicI64, elapsed_micros: AtomicU64 },
}

/// A clock with a guard against jumps.
#[derive(Debug)]
pub(crate) struct GuardedClock {
    source: TimeSource,
    guard: Mutex<ClockGuard>,
    /// When the clock of another machine was last sampled.
    sampled: Mutex<Option<Duration>>,
}

impl GuardedClock {
    fn new(source: TimeSource) -> Self {
        Self { source, guard: Mutex::default(), sampled: Mutex::default() }
    }

    fn now(&self) -> Time {
        let elapsed = self.elapsed();
        let moment = SampleMoment { before: elapsed, after: elapsed };
        lock(&self.guard).observe(moment, self.wall_time())
    }

    /// Compares the first sample, of the wall clock or of the given time, with the log.
    pub(crate) fn start(&self, sample: Option<Time>, last_entry_at: Option<Time>, acceptance: Option<ClockAcceptance>) {
        let sample = sample.unwrap_or_else(|| self.wall_time());
        lock(&self.guard).start(self.elapsed(), sample, last_entry_at, acceptance);
    }

    /// Follows the clock if the acceptance, of this or another process, fits the current hold. Returns the new time.
    pub(crate) fn apply_acceptance(&self, acceptance: ClockAcceptance) -> Option<Time> {
        lock(&self.guard).apply_acceptance(self.elapsed(), acceptance)
    }

    /// Returns the acceptance that ends the current hold, for the store to save; `None` without a hold.
    pub(crate) fn pending_acceptance(&self) -> Option<ClockAcceptance> {
        lock(&self.guard).pending_acceptance(self.elapsed())
    }

    pub(crate) fn status(&self) -> ClockStatus {
        lock(&self.guard).status(self.elapsed())
    }

    /// Returns the time by the last sample of another machine's clock; `None` if that sample is too old.
    pub(crate) fn now_by_sample(&self) -> Option<Time> {
        let (sampled, elapsed) = ((*lock(&self.sampled))?, self.elapsed());
        if elapsed.saturating_sub(sampled) >= SAMPLE_TTL { None } else { lock(&self.guard).extrapolate(elapsed) }
    }

    /// Takes a sample of another machine's clock, read after the reference showed `before`.
    pub(crate) fn add_sample(&self, before: Duration, sample: Time) -> Time {
        let after = self.elapsed();
        *lock(&self.sampled) = Some(after);
        lock(&self.guard).observe(SampleMoment { before, after }, sample)
    }

    /// Returns the time by the reference clock.
    pub(crate) fn elapsed(&self) -> Duration {
        match &self.source {
            TimeSource::Machine => elapsed_since_boot(),
            TimeSource::Manual { elapsed_micros, .. } => Duration::from_micros(elapsed_micros.load(Ordering::SeqCst)),
        }
    }

    fn wall_time(&self) -> Time {
        match &self.source {
            TimeSource::Machine => {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Time::from_micros(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX)).min(Time::MAX)
            }
            TimeSource::Manual { wall_micros, .. } => Time::from_micros(wall_micros.load(Ordering::SeqCst)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Includes the time that the machine was suspended, unlike `Instant`.
#[cfg(target_os = "linux")]
fn elapsed_since_boot() -> Duration {
    let elapsed = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(elapsed).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn elapsed_since_boot() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

/// How long a sample of the database clock is used. Drift in one second is a few microseconds, and a step of the clock
/// is noticed after one second at most.
const SAMPLE_TTL: Duration = Duration::from_secs(1);
