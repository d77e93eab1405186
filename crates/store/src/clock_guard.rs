//! Guards a store's time against jumps of the clock that it samples (decision 0047).
//!
//! The reference is a clock that only counts elapsed time, suspend included. While the sampled clock agrees with it, the
//! guard returns the sampled time. After a jump the guard holds: time runs on from the last good sample, so that nothing
//! expires early. The guard follows the new time once it is confirmed, or once an operator accepts it.

use std::time::Duration;

use onceward_core::time::Time;

/// A larger deviation from the reference between two samples is a jump. Clock corrections by NTP stay far below.
const MAX_DEVIATION: Duration = Duration::from_secs(10);

/// The guard follows a jump once the samples have agreed with each other for this long.
const CONFIRMATION_TIME: Duration = Duration::from_mins(1);

/// A larger jump needs an operator.
const MAX_AUTOMATIC_JUMP: Duration = Duration::from_hours(24);

/// A sample that took longer does not replace the anchor: it is too imprecise.
const MAX_SAMPLE_TIME: Duration = Duration::from_secs(1);

/// A moment by both clocks: the guarded time, and the elapsed time of the reference.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    time: Time,
    elapsed: Duration,
}

impl Anchor {
    /// Returns the time that the clock shows at `elapsed` if it does not jump.
    fn time_at(self, elapsed: Duration) -> Time {
        let passed = i64::try_from(elapsed.saturating_sub(self.elapsed).as_micros()).unwrap_or(i64::MAX);
        Time::from_micros(self.time.micros().saturating_add(passed)).min(Time::MAX)
    }
}

/// When a sample was taken by the reference: between these two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleMoment {
    pub(crate) before: Duration,
    pub(crate) after: Duration,
}

/// An operator's decision to follow the clock after a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockAcceptance {
    /// The time of the guard when the operator accepted.
    pub(crate) held_time: Time,
    /// The time that the clock showed then.
    pub(crate) clock_time: Time,
}

impl ClockAcceptance {
    /// Reads it from the columns of a database; `None` before the first acceptance.
    pub(crate) fn from_micros(held_time: Option<i64>, clock_time: Option<i64>) -> Option<Self> {
        let (held_time, clock_time) = held_time.map(Time::from_micros).zip(clock_time.map(Time::from_micros))?;
        Some(Self { held_time, clock_time })
    }
}

/// Whether the store follows its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStatus {
    /// Set while the store does not follow its clock.
    pub hold: Option<ClockHold>,
    /// How long ago the store followed a jump.
    pub since_jump: Option<Duration>,
}

/// A store's time while it does not follow its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockHold {
    /// The store's time: the last good time plus the time elapsed since then.
    pub held_time: Time,
    /// The time that the clock shows.
    pub clock_time: Time,
    /// How long the hold lasts so far.
    pub duration: Duration,
    /// Whether the hold ends only when the clock is corrected or an operator accepts its time.
    pub needs_operator: bool,
}

impl ClockHold {
    /// Returns how far the clock is ahead of the store's time, in microseconds.
    pub fn deviation_micros(&self) -> i64 {
        self.clock_time.micros().saturating_sub(self.held_time.micros())
    }
}

#[derive(Debug)]
struct Hold {
    began: Duration,
    /// The first of the samples that agree with each other.
    candidate: Anchor,
}

/// The state of the guard. All times are parameters.
#[derive(Debug, Default)]
pub(crate) struct ClockGuard {
    /// The last good sample.
    anchor: Option<Anchor>,
    /// The last returned time: small corrections do not turn time back.
    last: Option<Time>,
    hold: Option<Hold>,
    /// When the guard last followed a jump.
    followed: Option<Duration>,
}

impl ClockGuard {
    /// Takes the first sample. An old last log entry proves nothing, but an entry in the future starts a hold, unless an
    /// operator has accepted a step back from its time.
    pub(crate) fn start(
        &mut self,
        elapsed: Duration,
        sample: Time,
        last_entry_at: Option<Time>,
        acceptance: Option<ClockAcceptance>,
    ) {
        let sampled = Anchor { time: sample, elapsed };
        let future_entry = last_entry_at.filter(|at| is_after(*at, sample));
        let is_explained = |at: Time| {
            acceptance
                .is_some_and(|accepted| !is_after(at, accepted.held_time) && !is_after(accepted.clock_time, sample))
        };
        *self = Self { anchor: Some(sampled), ..Self::default() };
        if let Some(at) = future_entry.filter(|at| !is_explained(*at)) {
            self.anchor = Some(Anchor { time: at, elapsed });
            self.hold = Some(Hold { began: elapsed, candidate: sampled });
        }
    }

    /// Returns the time for a sample of the clock.
    pub(crate) fn observe(&mut self, moment: SampleMoment, sample: Time) -> Time {
        let SampleMoment { before, after } = moment;
        let sampled = Anchor { time: sample, elapsed: after };
        let Some(anchor) = self.anchor else {
            self.anchor = Some(sampled);
            return self.advance(sample);
        };
        if is_close(sample, sample.clamp(anchor.time_at(before), anchor.time_at(after))) {
            self.hold = None;
            if after.saturating_sub(before) <= MAX_SAMPLE_TIME {
                self.anchor = Some(sampled);
                return self.advance(sample);
            }
            return self.advance(anchor.time_at(after));
        }
        let hold = self.hold.get_or_insert(Hold { began: after, candidate: sampled });
        if !is_close(sample, hold.candidate.time_at(after)) {
            hold.candidate = sampled;
        }
        let is_confirmed = after.saturating_sub(hold.candidate.elapsed) >= CONFIRMATION_TIME;
        if is_confirmed && !is_large_jump(sample, anchor.time_at(after)) {
            return self.follow(sampled);
        }
        self.advance(anchor.time_at(after))
    }

    /// Returns the time without a new sample; `None` before the first.
    pub(crate) fn extrapolate(&mut self, elapsed: Duration) -> Option<Time> {
        let time = self.anchor?.time_at(elapsed);
        Some(self.advance(time))
    }

    /// Returns the acceptance that ends the current hold; `None` without a hold.
    pub(crate) fn pending_acceptance(&self, elapsed: Duration) -> Option<ClockAcceptance> {
        let ClockHold { held_time, clock_time, .. } = self.status(elapsed).hold?;
        Some(ClockAcceptance { held_time, clock_time })
    }

    /// Follows the clock if an operator accepted this jump, here or in another process: the jump is as large, and it was
    /// accepted after the last good sample of this process. Returns the new time.
    pub(crate) fn apply_acceptance(&mut self, elapsed: Duration, acceptance: ClockAcceptance) -> Option<Time> {
        let ClockHold { held_time, clock_time, .. } = self.status(elapsed).hold?;
        let passed = held_time.micros().saturating_sub(acceptance.held_time.micros());
        let expected = acceptance.clock_time.micros().saturating_add(passed);
        let is_recent =
            !is_after(self.anchor?.time, acceptance.held_time) && !is_after(acceptance.held_time, held_time);
        (is_recent && is_close(clock_time, Time::from_micros(expected)))
            .then(|| self.follow(Anchor { time: clock_time, elapsed }))
    }

    pub(crate) fn status(&self, elapsed: Duration) -> ClockStatus {
        let since_jump = self.followed.map(|followed| elapsed.saturating_sub(followed));
        let hold = self.hold.as_ref().zip(self.anchor).map(|(hold, anchor)| {
            let (held_time, clock_time) = (anchor.time_at(elapsed), hold.candidate.time_at(elapsed));
            let needs_operator = is_large_jump(clock_time, held_time);
            ClockHold { held_time, clock_time, duration: elapsed.saturating_sub(hold.began), needs_operator }
        });
        ClockStatus { hold, since_jump }
    }

    fn follow(&mut self, clock: Anchor) -> Time {
        *self = Self { anchor: Some(clock), last: Some(clock.time), hold: None, followed: Some(clock.elapsed) };
        clock.time
    }

    fn advance(&mut self, time: Time) -> Time {
        let time = self.last.map_or(time, |last| last.max(time));
        self.last = Some(time);
        time
    }
}

fn distance(left: Time, right: Time) -> Duration {
    Duration::from_micros(left.micros().abs_diff(right.micros()))
}

fn is_close(left: Time, right: Time) -> bool {
    distance(left, right) <= MAX_DEVIATION
}

fn is_after(left: Time, right: Time) -> bool {
    left > right && !is_close(left, right)
}

fn is_large_jump(left: Time, right: Time) -> bool {
    distance(left, right) > MAX_AUTOMATIC_JUMP
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_SECS: i64 = 1_000_000_000;
    const HOUR_SECS: i64 = 3_600;
    const YEAR_SECS: i64 = 365 * 24 * HOUR_SECS;

    fn time(offset_secs: i64) -> Time {
        Time::from_secs(START_SECS + offset_secs)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A guard that started at second 0 with a right clock.
    fn started() -> ClockGuard {
        let mut guard = ClockGuard::default();
        guard.start(secs(0), time(0), None, None);
        guard
    }

    /// Takes a sample at once.
    fn observe(guard: &mut ClockGuard, elapsed_secs: u64, offset_secs: i64) -> Time {
        guard.observe(SampleMoment { before: secs(elapsed_secs), after: secs(elapsed_secs) }, time(offset_secs))
    }

    fn is_held(guard: &ClockGuard, elapsed_secs: u64) -> bool {
        guard.status(secs(elapsed_secs)).hold.is_some()
    }

    #[test]
    fn small_corrections_are_followed_and_never_turn_time_back() {
        let mut guard = started();
        assert_eq!(observe(&mut guard, 10, 15), time(15));
        assert_eq!(observe(&mut guard, 11, 10), time(15), "six seconds behind: time stands still");
        assert_eq!(observe(&mut guard, 20, 19), time(19));
        assert!(!is_held(&guard, 20));
    }

    #[test]
    fn time_runs_on_from_last_good_sample_during_a_hold() {
        let mut guard = started();
        observe(&mut guard, 10, 10);
        assert_eq!(observe(&mut guard, 11, YEAR_SECS), time(11));
        assert_eq!(guard.extrapolate(secs(12)), Some(time(12)));
        let hold = guard.status(secs(12)).hold.expect("a year is a jump");
        assert!(hold.needs_operator);
        assert_eq!((hold.held_time, hold.clock_time), (time(12), time(YEAR_SECS + 1)));
        assert_eq!(observe(&mut guard, 100_000, YEAR_SECS + 99_989), time(100_000), "no time is long enough");
        assert_eq!(observe(&mut guard, 100_001, 100_001), time(100_001), "the clock was corrected");
        assert_eq!(guard.status(secs(100_001)), ClockStatus::default());
    }

    #[test]
    fn jump_of_up_to_a_day_is_followed_after_a_minute_of_consistent_samples() {
        for jump in [2 * HOUR_SECS, -2 * HOUR_SECS, 24 * HOUR_SECS] {
            let mut guard = started();
            assert_eq!(observe(&mut guard, 1, 1 + jump), time(1));
            assert!(!guard.status(secs(1)).hold.expect("a jump").needs_operator);
            assert_eq!(observe(&mut guard, 60, 60 + jump), time(60), "59 seconds are too few");
            assert_eq!(observe(&mut guard, 61, 61 + jump), time(61 + jump));
            assert!(!is_held(&guard, 61));
            assert_eq!(guard.status(secs(70)).since_jump, Some(secs(9)));
        }
    }

    #[test]
    fn inconsistent_samples_begin_the_minute_again() {
        let mut guard = started();
        observe(&mut guard, 1, HOUR_SECS);
        observe(&mut guard, 50, 3 * HOUR_SECS);
        assert_eq!(observe(&mut guard, 90, 3 * HOUR_SECS + 40), time(90));
        assert_eq!(observe(&mut guard, 110, 3 * HOUR_SECS + 60), time(3 * HOUR_SECS + 60));
    }

    #[test]
    fn operator_ends_the_hold_and_other_processes_follow_the_same_jump() {
        let (mut first, mut second, mut corrected) = (started(), started(), started());
        observe(&mut first, 5, YEAR_SECS);
        let acceptance = first.pending_acceptance(secs(9)).expect("there is a hold");
        assert_eq!(acceptance, ClockAcceptance { held_time: time(9), clock_time: time(YEAR_SECS + 4) });
        assert_eq!(first.apply_acceptance(secs(9), acceptance), Some(time(YEAR_SECS + 4)));
        assert_eq!(observe(&mut first, 10, YEAR_SECS + 5), time(YEAR_SECS + 5));
        assert_eq!(first.pending_acceptance(secs(10)), None);
        // It notices the jump long after the acceptance.
        observe(&mut second, 500, YEAR_SECS + 495);
        second.apply_acceptance(secs(501), acceptance);
        assert!(!is_held(&second, 501));
        // Another jump needs another acceptance.
        observe(&mut corrected, 500, 2 * YEAR_SECS);
        corrected.apply_acceptance(secs(501), acceptance);
        assert!(is_held(&corrected, 501));
        // An acceptance from before the last good sample is too old.
        let mut later = started();
        observe(&mut later, 100, 100);
        observe(&mut later, 101, YEAR_SECS + 96);
        later.apply_acceptance(secs(102), acceptance);
        assert!(is_held(&later, 102));
    }

    #[test]
    fn future_log_entry_starts_a_hold_unless_the_step_back_was_accepted() {
        let mut guard = ClockGuard::default();
        guard.start(secs(0), time(0), Some(time(-YEAR_SECS)), None);
        assert!(!is_held(&guard, 0), "an old entry proves nothing");
        guard.start(secs(0), time(0), Some(time(9)), None);
        assert!(!is_held(&guard, 0));
        guard.start(secs(0), time(0), Some(time(YEAR_SECS)), None);
        assert_eq!(observe(&mut guard, 1, 1), time(YEAR_SECS + 1));
        assert!(guard.status(secs(1)).hold.expect("a year").needs_operator);
        let acceptance = guard.pending_acceptance(secs(2)).expect("there is a hold");
        guard.apply_acceptance(secs(2), acceptance);
        assert_eq!(observe(&mut guard, 3, 3), time(3));
        guard.start(secs(0), time(60), Some(time(YEAR_SECS)), Some(acceptance));
        assert!(!is_held(&guard, 0), "the operator accepted the step back from this time");
        guard.start(secs(0), time(60), Some(time(2 * YEAR_SECS)), Some(acceptance));
        assert!(is_held(&guard, 0));
    }

    #[test]
    fn slow_sample_is_no_jump() {
        let mut guard = started();
        let slow = SampleMoment { before: secs(10), after: secs(40) };
        assert_eq!(guard.observe(slow, time(12)), time(40));
        assert!(!is_held(&guard, 40));
        assert_eq!(observe(&mut guard, 41, 41), time(41));
    }
}
