//! Which rows of the scratch were met in a table: one bit each, so that a hundred million cost a dozen megabytes.

#[derive(Debug, Default)]
pub(super) struct Seen(Vec<u64>);

impl Seen {
    pub(super) fn mark(&mut self, row: u64) {
        let (word, bit) = place(row);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    pub(super) fn has(&self, row: u64) -> bool {
        let (word, bit) = place(row);
        self.0.get(word).is_some_and(|bits| bits & (1 << bit) != 0)
    }
}

fn place(row: u64) -> (usize, u64) {
    (usize::try_from(row / 64).unwrap_or(usize::MAX), row % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_marked_was_seen_and_nothing_else() {
        let mut seen = Seen::default();
        for row in [1, 63, 64, 1_000] {
            assert!(!seen.has(row));
            seen.mark(row);
        }
        let found: Vec<u64> = (0..2_000).filter(|row| seen.has(*row)).collect();
        assert_eq!(found, [1, 63, 64, 1_000]);
    }
}
