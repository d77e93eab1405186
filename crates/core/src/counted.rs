//! So many of something: "1 job", "2 jobs".

use std::fmt::Display;

/// So many of something, in the words for one or for more.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, one: &str, many: &str) -> String {
    let word = if count == N::from(1) { one } else { many };
    format!("{count} {word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one() {
        let said = [0_u64, 1, 2, 11].map(|count| counted(count, "job waits", "jobs wait"));
        assert_eq!(said, ["0 jobs wait", "1 job waits", "2 jobs wait", "11 jobs wait"]);
    }
}
