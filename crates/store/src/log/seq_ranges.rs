//! Sets of seqs, stored as ranges.

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A set of seqs as sorted ranges, written as `1-3,7`. Entries that are pruned together are mostly adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqRanges(Vec<(u64, u64)>);

impl SeqRanges {
    /// Creates the set from seqs in any order.
    pub fn from_seqs(mut seqs: Vec<u64>) -> Self {
        seqs.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for seq in seqs {
            match ranges.last_mut() {
                Some((_, last)) if seq <= last.saturating_add(1) => *last = seq.max(*last),
                _ => ranges.push((seq, seq)),
            }
        }
        Self(ranges)
    }

    /// Returns the first and last seq of each range, in order.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub fn contains(&self, seq: u64) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= seq);
        after.checked_sub(1).is_some_and(|at| seq <= self.0[at].1)
    }

    pub fn last(&self) -> Option<u64> {
        self.0.last().map(|(_, last)| *last)
    }

    /// Returns the number of seqs.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| (last - first).saturating_add(1)).fold(0, u64::saturating_add)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut ranges = Vec::new();
        let mut next = 1;
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            if first < next || last < first {
                return None;
            }
            next = last.checked_add(2)?;
            ranges.push((first, last));
        }
        Some(Self(ranges))
    }
}

impl Serialize for SeqRanges {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for (first, last) in &self.0 {
            let comma = if text.is_empty() { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}{first}");
            if last > first {
                let _ = write!(text, "-{last}");
            }
        }
        out.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for SeqRanges {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not ranges of seqs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_seqs_are_written_as_ranges() {
        let ranges = SeqRanges::from_seqs(vec![7, 3, 1, 2, 9, 10]);
        let text = serde_json::to_string(&ranges).unwrap();
        assert_eq!(text, "\"1-3,7,9-10\"");
        assert_eq!(serde_json::from_str::<SeqRanges>(&text).unwrap(), ranges);
        let inside: Vec<u64> = (0..12).filter(|seq| ranges.contains(*seq)).collect();
        assert_eq!(inside, [1, 2, 3, 7, 9, 10]);
        assert_eq!((ranges.count(), ranges.last()), (6, Some(10)));
        assert_eq!(serde_json::from_str::<SeqRanges>("\"\"").unwrap(), SeqRanges::default());
    }

    #[test]
    fn malformed_seq_ranges_are_rejected() {
        for wrong in ["0", "3-1", "1,2", "2,1", "1-", "x", "1-18446744073709551615", "-"] {
            assert!(serde_json::from_str::<SeqRanges>(&format!("\"{wrong}\"")).is_err(), "{wrong}");
        }
    }
}
