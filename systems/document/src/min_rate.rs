//! Enforces the minimum transfer rate of an upload. A sender that trickles single bytes meets every chunk timeout, but
//! would hold an upload slot for hours.

use std::time::Duration;

use crate::MinRate;

/// Measures bytes per time spent waiting for the sender. Time spent writing to the server's own disk does not count.
#[derive(Debug)]
pub(crate) struct RateMeter {
    min_rate: MinRate,
    total_waited: Duration,
    /// Waiting time in the current window.
    window_waited: Duration,
    window_bytes: u64,
}

impl RateMeter {
    pub(crate) const fn new(min_rate: MinRate) -> Self {
        Self { min_rate, total_waited: Duration::ZERO, window_waited: Duration::ZERO, window_bytes: 0 }
    }

    /// Records a chunk and returns false if the sender was below the minimum rate in a completed window.
    pub(crate) fn record_chunk(&mut self, waited: Duration, bytes: u64) -> bool {
        self.total_waited = self.total_waited.saturating_add(waited);
        if self.total_waited < self.min_rate.grace_period {
            return true;
        }
        self.window_waited = self.window_waited.saturating_add(waited);
        self.window_bytes = self.window_bytes.saturating_add(bytes);
        if self.window_waited < self.min_rate.window {
            return true;
        }
        let is_enough = self.window_bytes >= self.min_rate.bytes_per_window;
        (self.window_waited, self.window_bytes) = (Duration::ZERO, 0);
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UploadLimits;

    /// Returns the time of the first rejection if a chunk of `bytes` arrives every `seconds`; 3,600 if there is none.
    fn seconds_until_rejected(seconds: u64, bytes: u64) -> u64 {
        let mut meter = RateMeter::new(UploadLimits::default().min_rate);
        let mut rejections = (1..=3_600 / seconds).filter(|_| !meter.record_chunk(Duration::from_secs(seconds), bytes));
        rejections.next().map_or(3_600, |count| count * seconds)
    }

    #[test]
    fn slow_sender_is_rejected_within_two_minutes() {
        assert_eq!(
            (seconds_until_rejected(1, 1), seconds_until_rejected(2, 1), seconds_until_rejected(29, 1)),
            (89, 88, 116)
        );
        assert_eq!(seconds_until_rejected(1, (16 << 10) - 1), 89);
    }

    #[test]
    fn sender_at_min_rate_is_not_rejected() {
        assert_eq!(
            (
                seconds_until_rejected(1, 16 << 10),
                seconds_until_rejected(15, 240 << 10),
                seconds_until_rejected(30, 480 << 10)
            ),
            (3_600, 3_600, 3_600)
        );
    }

    /// Bursts count: one chunk may carry all bytes of a window.
    #[test]
    fn rate_is_ignored_in_grace_period_then_enforced_per_window() {
        let mut meter = RateMeter::new(UploadLimits::default().min_rate);
        let second = Duration::from_secs(1);
        assert!((0..59).all(|_| meter.record_chunk(second, 0)));
        for _ in 0..10 {
            assert!((0..29).all(|_| meter.record_chunk(second, 0)));
            assert!(meter.record_chunk(second, 480 << 10), "all bytes of a window arrive at its end");
        }
        assert!((0..29).all(|_| meter.record_chunk(second, 0)));
        assert!(!meter.record_chunk(second, 0), "bytes of the previous window do not count");
    }
}
