//! Reading choices out of bytes: whatever the bytes are, they say something.

pub(super) struct Choices<'b> {
    bytes: &'b [u8],
}

impl<'b> Choices<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Zero once the bytes are used up.
    pub(super) fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    pub(super) fn coin(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    pub(super) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    pub(super) fn number(&mut self) -> i64 {
        let mut bits = [0; 8];
        for byte in &mut bits {
            *byte = self.byte();
        }
        i64::from_le_bytes(bits)
    }
}
