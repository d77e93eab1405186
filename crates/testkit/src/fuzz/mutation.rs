//! Mutates an input deterministically by seed.

/// A `SplitMix64` generator: good enough to choose positions and bytes, and equal on every machine.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next_u64() % (bound.max(1) as u64)).unwrap_or(0)
    }
}

/// Fragments of lifecycle files and expressions. Mutations with them reach deeper code.
const SYNTAX_FRAGMENTS: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    "\"",
    "'",
    "=",
    ",",
    ".",
    "|",
    "->",
    "\n",
    "[[on.fail]]\n",
    "[[on.time]]\n",
    "null",
    "true",
    "record.",
    "input.",
    "error.",
    "result.",
    "links.",
    "refs.",
    "checks.",
    "actor.roles",
    "now",
    " in ",
    "&&",
    "||",
    "!",
    "? ",
    " : ",
    "+",
    "-",
    "*",
    "/",
    "%",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    "0",
    "size(",
    ".filter(x, ",
    ".all(x, ",
    "backoff(",
    "jitter(",
    "max(",
    "duration(",
    "timestamp(",
    "go = \"A -> B\"\n",
    "when = \"",
    "set = { ",
    "optional = true",
    "default = ",
    "\u{0}",
    "\u{202e}",
    "é",
    "😀",
    "\\u0000",
    "\"\"\"",
];

/// Returns the input with one to eight changes.
pub fn mutate_input(input: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = SplitMix64(seed);
    let mut bytes = input.to_vec();
    for _ in 0..=rng.below(8) {
        let at = rng.below(bytes.len() + 1);
        let end = (at + 1 + rng.below(24)).min(bytes.len());
        match rng.below(7) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(rng.below(256)).unwrap_or(0),
            1 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            2 if at < end => drop(bytes.drain(at..end)),
            3 if at < end => {
                let copy = bytes[at..end].to_vec();
                let to = rng.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            4 => bytes.truncate(at),
            5 if at < end => {
                // Repeats a part many times: parsers tend to fail on nesting and length.
                let copy = bytes[at..end].repeat(1 + rng.below(64));
                bytes.splice(at..end, copy);
            }
            _ => {
                let piece = SYNTAX_FRAGMENTS[rng.below(SYNTAX_FRAGMENTS.len())];
                bytes.splice(at..at, piece.bytes());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::mutate_input;

    #[test]
    fn same_seed_gives_same_mutation() {
        let input = b"record.count + 1 < 2";
        assert_eq!(mutate_input(input, 7), mutate_input(input, 7));
        assert!((0..50).any(|seed| mutate_input(input, seed) != input));
    }
}
