//! Places of the log, many of them in a row.

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A set of places, as ranges from the lowest to the highest. Written as `1-3,7`: what is pruned together mostly stood
/// together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(Vec<(u64, u64)>);

impl Places {
    /// These places, in any order.
    pub fn of(mut places: Vec<u64>) -> Self {
        places.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for place in places {
            match ranges.last_mut() {
                Some((_, last)) if place <= last.saturating_add(1) => *last = place.max(*last),
                _ => ranges.push((place, place)),
            }
        }
        Self(ranges)
    }

    /// The first and the last of each range, in order.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub fn contains(&self, place: u64) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= place);
        after.checked_sub(1).is_some_and(|at| place <= self.0[at].1)
    }

    pub fn last(&self) -> Option<u64> {
        self.0.last().map(|(_, last)| *last)
    }

    /// How many places there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| (last - first).saturating_add(1)).fold(0, u64::saturating_add)
    }

    fn read(text: &str) -> Option<Self> {
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

impl Serialize for Places {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for (first, last) in &self.0 {
            let comma = if text.is_empty() { "" } else { "," };
            // Writing to a string does not fail.
            let _ = write!(text, "{comma}{first}");
            if last > first {
                let _ = write!(text, "-{last}");
            }
        }
        out.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Places {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::read(&text).ok_or_else(|| D::Error::custom("these are no places of a log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_written_together() {
        let places = Places::of(vec![7, 3, 1, 2, 9, 10]);
        let text = serde_json::to_string(&places).unwrap();
        assert_eq!(text, "\"1-3,7,9-10\"");
        assert_eq!(serde_json::from_str::<Places>(&text).unwrap(), places);
        let inside: Vec<u64> = (0..12).filter(|place| places.contains(*place)).collect();
        assert_eq!(inside, [1, 2, 3, 7, 9, 10]);
        assert_eq!((places.count(), places.last()), (6, Some(10)));
        assert_eq!(serde_json::from_str::<Places>("\"\"").unwrap(), Places::default());
    }

    #[test]
    fn what_is_no_set_of_places_is_not_read() {
        for wrong in ["0", "3-1", "1,2", "2,1", "1-", "x", "1-18446744073709551615", "-"] {
            assert!(serde_json::from_str::<Places>(&format!("\"{wrong}\"")).is_err(), "{wrong}");
        }
    }
}
