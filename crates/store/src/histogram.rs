//! Lock-free histograms of durations and sizes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bucket bounds for latencies, from 0.1 ms to 10 s.
pub const LATENCY_BUCKETS_MICROS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// Bucket bounds for the number of operations in a batch.
pub const BATCH_SIZE_BUCKETS: &[u64] = &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];

/// Includes the bucket without an upper bound.
const MAX_BUCKETS: usize = 16;

/// Counts values by bucket.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    counts: [AtomicU64; MAX_BUCKETS],
    sum: AtomicU64,
}

/// The counts of a [`Histogram`] at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Largest value of each bucket, except the last bucket, which has no bound.
    pub bounds: &'static [u64],
    /// One more than `bounds`.
    pub counts: Vec<u64>,
    pub sum: u64,
}

impl Histogram {
    /// Creates a histogram for [`LATENCY_BUCKETS_MICROS`] or [`BATCH_SIZE_BUCKETS`].
    pub const fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() < MAX_BUCKETS, "one bucket per bound and one for larger values");
        Self { bounds, counts: [const { AtomicU64::new(0) }; MAX_BUCKETS], sum: AtomicU64::new(0) }
    }

    pub fn record(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Records a duration in microseconds.
    pub fn record_duration(&self, duration: std::time::Duration) {
        self.record(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts = self.counts[..=self.bounds.len()].iter().map(|count| count.load(Ordering::Relaxed)).collect();
        HistogramSnapshot { bounds: self.bounds, counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl HistogramSnapshot {
    pub fn total_count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_equal_to_bound_falls_into_its_bucket() {
        let sizes = Histogram::new(BATCH_SIZE_BUCKETS);
        for size in [1, 2, 3, 1_000, 1_001] {
            sizes.record(size);
        }
        let snapshot = sizes.snapshot();
        assert_eq!(snapshot.counts, [1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((snapshot.total_count(), snapshot.sum), (5, 2_007));
    }
}
