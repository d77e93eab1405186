//! Records which replayed rows were found in a table: one bit each, so that a hundred million rows take a dozen
//! megabytes.

#[derive(Debug, Default)]
pub(super) struct RowBitmap(Vec<u64>);

impl RowBitmap {
    pub(super) fn mark(&mut self, row: u64) {
        let (word, bit) = word_and_bit(row);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    pub(super) fn contains(&self, row: u64) -> bool {
        let (word, bit) = word_and_bit(row);
        self.0.get(word).is_some_and(|bits| bits & (1 << bit) != 0)
    }
}

fn word_and_bit(row: u64) -> (usize, u64) {
    (usize::try_from(row / 64).unwrap_or(usize::MAX), row % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmap_contains_exactly_marked_rows() {
        let mut bitmap = RowBitmap::default();
        for row in [1, 63, 64, 1_000] {
            assert!(!bitmap.contains(row));
            bitmap.mark(row);
        }
        let found: Vec<u64> = (0..2_000).filter(|row| bitmap.contains(*row)).collect();
        assert_eq!(found, [1, 63, 64, 1_000]);
    }
}
