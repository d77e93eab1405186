//! Derives choices from arbitrary bytes.

pub(super) struct ByteChoices<'b> {
    bytes: &'b [u8],
}

impl<'b> ByteChoices<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next byte, or zero if none is left.
    pub(super) fn next_byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    pub(super) fn next_bool(&mut self) -> bool {
        self.next_byte() & 1 == 1
    }

    /// Returns a number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.next_byte()) % bound.max(1)
    }

    pub(super) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    pub(super) fn next_i64(&mut self) -> i64 {
        let mut bits = [0; 8];
        for byte in &mut bits {
            *byte = self.next_byte();
        }
        i64::from_le_bytes(bits)
    }
}
