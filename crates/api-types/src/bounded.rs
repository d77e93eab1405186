//! Lists of names in request bodies, bounded while they are parsed: a list of millions of names costs no more than one
//! that is just too long.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// More than any body needs. Most lists have a lower limit, which the server checks.
const MAX_NAMES: usize = 1_000;

fn too_many<E: Error>() -> E {
    E::custom(format_args!("a list of names may have at most {MAX_NAMES} items"))
}

/// Parses a list of names. Fails at the first name over the limit.
pub(crate) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(NameListVisitor)
}

/// Parses names with a value each. Fails at the first name over the limit.
pub(crate) fn name_map<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_map(NameMapVisitor)
}

struct NameListVisitor;

impl<'de> Visitor<'de> for NameListVisitor {
    type Value = Vec<String>;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a list of names")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = list.next_element()? {
            if names.len() == MAX_NAMES {
                return Err(too_many());
            }
            names.push(name);
        }
        Ok(names)
    }
}

struct NameMapVisitor;

impl<'de> Visitor<'de> for NameMapVisitor {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an object of names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut map, mut entries) = (BTreeMap::new(), 0);
        while let Some((name, value)) = members.next_entry()? {
            // Counted by entry: a repeated name is an entry, too.
            if entries == MAX_NAMES {
                return Err(too_many());
            }
            entries += 1;
            map.insert(name, value);
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use crate::{LeaseBody, MigrateRecordsBody, NewApiKeyBody, PruneBody};

    /// The text after the last accepted name is not JSON, so a parser that goes on reports that instead.
    #[test]
    fn name_lists_fail_at_the_first_name_over_the_limit() {
        let list = |count: usize| format!("[{}", "\"a\",".repeat(count));
        let error_of = |text: String| {
            [
                serde_json::from_str::<LeaseBody>(&text).err(),
                serde_json::from_str::<NewApiKeyBody>(&text).err(),
                serde_json::from_str::<PruneBody>(&text).err(),
                serde_json::from_str::<MigrateRecordsBody>(&text).err(),
            ]
            .into_iter()
            .map(|error| error.map(|error| error.to_string()).unwrap_or_default())
            .collect::<Vec<_>>()
        };
        let bounded = "a list of names may have at most 1000 items";
        let lists = [(0, "lifecycles"), (1, "roles"), (1, "lifecycles"), (2, "only")];
        for (body, member) in lists {
            let error = &error_of(format!("{{\"{member}\":{}", list(1_001)))[body];
            assert!(error.starts_with(bounded), "{member}: {error}");
            let complete = format!("{{\"{member}\":{}\"a\"]}}", list(999));
            assert!(!error_of(complete)[body].starts_with(bounded), "{member}");
        }
        let map = format!("{{\"map\":{{{}", "\"a\":\"b\",".repeat(1_001));
        assert!(error_of(map)[3].starts_with(bounded));
    }
}
