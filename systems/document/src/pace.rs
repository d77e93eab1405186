//! How slowly a document may come. Whoever sends a byte now and then is in time for each piece, and holds a place for others.

use std::time::Duration;

use crate::Pace;

/// What has come, by the time that was spent waiting for it. A disk of our own that is slow is not the sender's fault.
#[derive(Debug)]
pub(crate) struct Paced {
    bound: Pace,
    waited: Duration,
    /// Of the window that is under way.
    window: Duration,
    bytes: u64,
}

impl Paced {
    pub(crate) const fn new(bound: Pace) -> Self {
        Self { bound, waited: Duration::ZERO, window: Duration::ZERO, bytes: 0 }
    }

    /// A piece came after so long. Whether it goes on fast enough.
    pub(crate) fn came(&mut self, waited: Duration, bytes: u64) -> bool {
        self.waited = self.waited.saturating_add(waited);
        if self.waited < self.bound.after {
            return true;
        }
        self.window = self.window.saturating_add(waited);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.window < self.bound.window {
            return true;
        }
        let is_enough = self.bytes >= self.bound.bytes;
        (self.window, self.bytes) = (Duration::ZERO, 0);
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bounds;

    /// How long it goes on when a piece of so many bytes comes each so many seconds; an hour at most.
    fn lasts(seconds: u64, bytes: u64) -> u64 {
        let mut paced = Paced::new(Bounds::default().pace);
        let mut ended = (1..=3_600 / seconds).filter(|_| !paced.came(Duration::from_secs(seconds), bytes));
        ended.next().map_or(3_600, |count| count * seconds)
    }

    #[test]
    fn who_drips_is_given_up_soon_after_the_first_minute() {
        assert_eq!((lasts(1, 1), lasts(2, 1), lasts(29, 1)), (89, 88, 116));
        assert_eq!(lasts(1, (16 << 10) - 1), 89);
    }

    #[test]
    fn who_sends_enough_goes_on() {
        assert_eq!((lasts(1, 16 << 10), lasts(15, 240 << 10), lasts(30, 480 << 10)), (3_600, 3_600, 3_600));
    }

    /// In bursts, too; and the first minute is its own.
    #[test]
    fn a_line_may_begin_slowly_and_rest() {
        let mut paced = Paced::new(Bounds::default().pace);
        let second = Duration::from_secs(1);
        assert!((0..59).all(|_| paced.came(second, 0)));
        for _ in 0..10 {
            assert!((0..29).all(|_| paced.came(second, 0)));
            assert!(paced.came(second, 480 << 10), "all of a window's at its end");
        }
        assert!((0..29).all(|_| paced.came(second, 0)));
        assert!(!paced.came(second, 0), "what came in the window before does not count");
    }
}
