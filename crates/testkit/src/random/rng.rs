//! A random number generator that is equal on every machine: splitmix64.

/// The only source of randomness of a case.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from zero up to, but excluding, `end`. The slight bias of the remainder does not matter in
    /// tests.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next_u64() % u64::try_from(end.max(1)).unwrap_or(u64::MAX)).unwrap_or(0)
    }

    /// Returns a number from `min` to `max`, both included.
    pub fn between(&mut self, min: i64, max: i64) -> i64 {
        let width = u64::try_from(max - min).unwrap_or(0) + 1;
        min + i64::try_from(self.next_u64() % width).unwrap_or(0)
    }

    /// Returns true with this probability in percent.
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.next_u64() % 100 < percent
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.below(items.len())) }
    }

    pub fn pick_word(&mut self, words: &[&'static str]) -> &'static str {
        self.pick(words).copied().unwrap_or("")
    }

    pub fn next_seed(&mut self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }

    /// Returns a generator that does not depend on later reads of this one.
    pub const fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}
