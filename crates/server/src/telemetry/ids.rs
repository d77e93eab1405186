//! Generates ids of requests and spans. They must be unique but not secret, so a mixed counter with a random start
//! is enough and faster than system randomness.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct IdGenerator {
    next: AtomicU64,
    trace_id_high: u64,
    /// Of 2^32 requests without `traceparent`, how many start a trace.
    sample_threshold: u64,
}

/// Step of `SplitMix64`, from the golden ratio.
const GOLDEN_RATIO_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl IdGenerator {
    /// `sample_ratio` is between 0 (none) and 1 (all).
    pub(crate) fn new(sample_ratio: f64) -> Self {
        let mut seed = [0; 16];
        // If the system has no randomness, ids may repeat after a restart. That only confuses traces.
        let _ = getrandom::fill(&mut seed);
        let (low, high) = seed.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^32")]
        let sample_threshold = (sample_ratio.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        Self { next: AtomicU64::new(number(low)), trace_id_high: number(high) | 1, sample_threshold }
    }

    fn next_u64(&self) -> u64 {
        mix(self.next.fetch_add(GOLDEN_RATIO_STEP, Ordering::Relaxed)).max(1)
    }

    pub(crate) fn new_span_id(&self) -> [u8; 8] {
        self.next_u64().to_be_bytes()
    }

    pub(crate) fn new_trace_id(&self) -> [u8; 16] {
        (u128::from(self.trace_id_high) << 64 | u128::from(self.next_u64())).to_be_bytes()
    }

    /// Returns whether a request without `traceparent` starts a trace.
    pub(crate) fn should_sample(&self) -> bool {
        self.sample_threshold > 0 && self.next_u64() >> 32 < self.sample_threshold
    }
}

#[cfg(test)]
mod tests {
    use super::IdGenerator;

    #[test]
    fn ids_are_unique_and_sample_ratio_is_respected() {
        let chance = IdGenerator::new(0.25);
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| chance.new_span_id()).collect();
        assert_eq!(ids.len(), 10_000);
        let begun = (0..10_000).filter(|_| chance.should_sample()).count();
        assert!((2_000..3_000).contains(&begun), "{begun}");
        assert!((0..100).all(|_| IdGenerator::new(1.0).should_sample() && !IdGenerator::new(0.0).should_sample()));
    }
}
