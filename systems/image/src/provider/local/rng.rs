//! Pseudorandom numbers seeded by the prompt.

use sha2::{Digest as _, Sha256};

/// A random number generator with the same sequence for the same prompt.
#[derive(Clone, Debug)]
pub(super) struct PromptRng(u64);

/// Step of a Weyl sequence: odd and near 2^64 divided by the golden ratio, so that its multiples spread evenly.
const WEYL_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl PromptRng {
    /// Creates the generator of a prompt. Each part of an image has its own `stream_name`, so that changing how one
    /// part is drawn leaves the others as they were.
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

    /// Returns a number from 0 to below 1.
    pub(super) fn next_f64(&mut self) -> f64 {
        // A double has 53 bits of precision.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next_f64()
    }

    /// Returns a number from 0 to below `count`, which must not be 0.
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

/// Mixes the bits so that each output bit depends on every input bit (the finalizer of `SplitMix64`).
pub(super) fn mix_bits(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
