//! How long things took, and how large they were: counted into a few ranges, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Times in microseconds, from a tenth of a millisecond to ten seconds.
pub const TIMES: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// Numbers of operations in a batch.
pub const SIZES: &[u64] = &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];

/// Ranges at most, the one without an upper end included.
const RANGES: usize = 16;

/// Counts what it is shown by the range that it falls into.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    counts: [AtomicU64; RANGES],
    sum: AtomicU64,
}

/// What a [`Histogram`] has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// The largest value of each range but the last, which has no end.
    pub bounds: &'static [u64],
    /// One more than there are bounds.
    pub counts: Vec<u64>,
    pub sum: u64,
}

impl Histogram {
    /// Of [`TIMES`] or [`SIZES`].
    pub const fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() < RANGES, "a range for each bound, and one beyond");
        Self { bounds, counts: [const { AtomicU64::new(0) }; RANGES], sum: AtomicU64::new(0) }
    }

    pub fn add(&self, value: u64) {
        let range = self.bounds.partition_point(|bound| *bound < value);
        self.counts[range].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// In microseconds.
    pub fn add_time(&self, time: std::time::Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn counted(&self) -> Distribution {
        let counts = self.counts[..=self.bounds.len()].iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Distribution { bounds: self.bounds, counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl Distribution {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_range_that_ends_at_it() {
        let sizes = Histogram::new(SIZES);
        for size in [1, 2, 3, 1_000, 1_001] {
            sizes.add(size);
        }
        let counted = sizes.counted();
        assert_eq!(counted.counts, [1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((counted.count(), counted.sum), (5, 2_007));
    }
}
