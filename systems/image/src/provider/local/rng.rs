//! What looks like chance: a stream of numbers that the prompt alone decides.

use sha2::{Digest as _, Sha256};

/// Numbers drawn one after another, the same for the same prompt.
#[derive(Clone, Debug)]
pub(super) struct PromptRng(u64);

/// The step of a Weyl sequence: odd, and near the golden ratio of 2^64, so that its multiples spread evenly.
const WEYL_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl PromptRng {
    /// The stream of a prompt; `part` tells the streams of a picture's parts from one another, so that a change to how one
    /// is drawn leaves the others as they were.
    pub(super) fn for_prompt(prompt: &str, stream_name: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(Sha256::digest(prompt.as_bytes()));
        hash.update(stream_name.as_bytes());
        let digest = hash.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Self(u64::from_be_bytes(first))
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(WEYL_STEP);
        mix_bits(self.0)
    }

    /// From 0 up to but not 1.
    pub(super) fn next_f64(&mut self) -> f64 {
        // 53 bits, as many as a float keeps.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next_f64()
    }

    /// From 0 up to but not `count`, which must not be 0.
    pub(super) fn next_below(&mut self, count: usize) -> usize {
        (self.next_u64() % count as u64) as usize
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.next_below(count) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.next_below(all.len())]
    }
}

/// Every bit of the result hangs on every bit of what is given (the end of `SplitMix64`).
pub(super) fn mix_bits(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
