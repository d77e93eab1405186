//! Parses rule ids: capital letters, a dash, a number.

use std::cmp::Ordering;
use std::fmt;

/// A rule id such as `EXE-8`. Ordered by prefix, then by number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuleId {
    pub(crate) prefix: String,
    pub(crate) number: u32,
}

impl Ord for RuleId {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.prefix, self.number).cmp(&(&other.prefix, other.number))
    }
}

impl PartialOrd for RuleId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.prefix, self.number)
    }
}

impl RuleId {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let (prefix, number) = word.split_once('-')?;
        let fits = (2..=4).contains(&prefix.len()) && prefix.bytes().all(|byte| byte.is_ascii_uppercase());
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (fits && digits).then(|| Some(Self { prefix: prefix.into(), number: number.parse().ok()? }))?
    }
}

/// Returns everything that looks like an id, in order. `SHA-256` does too, so the caller filters by known prefixes.
pub(crate) fn find_rule_ids(text: &str) -> Vec<RuleId> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter_map(RuleId::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_ids_are_found_in_text() {
        let found: Vec<String> = find_rule_ids("EXE-8, DOC-10: (FM-1) exe-3 EXE-X UTF-8's X-1 ABCDE-1")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, ["EXE-8", "DOC-10", "FM-1", "UTF-8"]);
    }

    #[test]
    fn rule_ids_sort_by_number() {
        assert!(RuleId::parse("EXE-9") < RuleId::parse("EXE-10"));
    }
}
