//! Ids of requests and spans. They must differ, and need not be secret: a mixed counter from a start by chance is quicker than
//! asking the system for each.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Chance {
    next: AtomicU64,
    high: u64,
    /// Of 2^32: how many of the requests that stand in no trace begin one.
    begins: u64,
}

/// Steps by the golden ratio, then mixed: `SplitMix64`.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Chance {
    /// `sample`: from 0, none, to 1, all.
    pub(crate) fn new(sample: f64) -> Self {
        let mut start = [0; 16];
        // Without chance ids may come again after a restart, which confuses a trace and harms nothing else.
        let _ = getrandom::fill(&mut start);
        let (low, high) = start.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of 2^32")]
        let begins = (sample.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        Self { next: AtomicU64::new(number(low)), high: number(high) | 1, begins }
    }

    fn number(&self) -> u64 {
        mixed(self.next.fetch_add(STEP, Ordering::Relaxed)).max(1)
    }

    pub(crate) fn span(&self) -> [u8; 8] {
        self.number().to_be_bytes()
    }

    pub(crate) fn trace(&self) -> [u8; 16] {
        (u128::from(self.high) << 64 | u128::from(self.number())).to_be_bytes()
    }

    /// Whether a request that stands in no trace begins one.
    pub(crate) fn begins(&self) -> bool {
        self.begins > 0 && self.number() >> 32 < self.begins
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    #[test]
    fn ids_differ_and_a_part_begins_a_trace() {
        let chance = Chance::new(0.25);
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| chance.span()).collect();
        assert_eq!(ids.len(), 10_000);
        let begun = (0..10_000).filter(|_| chance.begins()).count();
        assert!((2_000..3_000).contains(&begun), "{begun}");
        assert!((0..100).all(|_| Chance::new(1.0).begins() && !Chance::new(0.0).begins()));
    }
}
