//! Counts with a noun in singular or plural: "1 job", "2 jobs".

use std::fmt::Display;

/// Formats a count with `singular` if it is 1, else with `plural`.
pub fn count_noun<N: Copy + Display + PartialEq + From<u8>>(count: N, singular: &str, plural: &str) -> String {
    let noun = if count == N::from(1) { singular } else { plural };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_one_uses_singular_noun() {
        let phrases = [0_u64, 1, 2, 11].map(|count| count_noun(count, "job waits", "jobs wait"));
        assert_eq!(phrases, ["0 jobs wait", "1 job waits", "2 jobs wait", "11 jobs wait"]);
    }
}
