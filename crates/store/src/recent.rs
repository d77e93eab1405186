//! Records as they were last saved, of those that were saved lately. A job that was made or leased a moment ago is most
//! often the next that is asked for.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::record::Record;
use onceward_core::value::{RecordId, Value};

use crate::base::Stored;

/// Records in one half: a few batches of the largest size.
const HALF: usize = 8_192;

/// And bytes, by estimate. Most records have less than one KB, so it is their number that counts.
const HALF_BYTES: usize = 16 << 20;

/// A record of more than that is not kept: reading it again costs little beside all else that is done with it.
const LARGE: usize = 64 << 10;

/// Two halves: when the younger is full, it becomes the older, and what stood there is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    young: Half,
    old: Half,
}

#[derive(Debug, Default)]
struct Half {
    records: HashMap<RecordId, (Stored, Arc<Record>)>,
    bytes: usize,
}

impl Half {
    fn remove(&mut self, id: RecordId) {
        if let Some((_, record)) = self.records.remove(&id) {
            self.bytes -= weight(&record);
        }
    }
}

impl Recent {
    pub(crate) fn get(&self, id: RecordId) -> Option<(Stored, Arc<Record>)> {
        self.young.records.get(&id).or_else(|| self.old.records.get(&id)).cloned()
    }

    pub(crate) fn version(&self, id: RecordId) -> Option<u64> {
        self.young.records.get(&id).or_else(|| self.old.records.get(&id)).map(|(stored, _)| stored.version)
    }

    /// As it stands now. What is found here is never older than what was put here last.
    pub(crate) fn put(&mut self, stored: Stored, record: &Arc<Record>) {
        let bytes = weight(record);
        if bytes > LARGE {
            return self.remove(record.id);
        }
        self.young.remove(record.id);
        if self.young.records.len() >= HALF || self.young.bytes + bytes > HALF_BYTES {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += bytes;
        self.young.records.insert(record.id, (stored, Arc::clone(record)));
    }

    pub(crate) fn remove(&mut self, id: RecordId) {
        self.young.remove(id);
        self.old.remove(id);
    }

    /// Where it is not known what became of a write, nothing is.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The bytes that a record holds in memory, by estimate. Its payload is elsewhere.
fn weight(record: &Record) -> usize {
    let texts = [&record.owner].into_iter().chain(&record.stuck).map(|text| text.len());
    size_of::<Record>() + texts.sum::<usize>() + values(&record.fields)
}

fn values(values: &[Value]) -> usize {
    let own = |value: &Value| match value {
        Value::Text(text) | Value::Json(text) => text.len(),
        Value::List(items) => self::values(items),
        _ => 0,
    };
    size_of_val(values) + values.iter().map(own).sum::<usize>()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use onceward_core::diagnostic::{File, Files};
    use onceward_core::time::Time;

    pub(crate) fn record(id: u128, version: u64) -> (Stored, Arc<Record>) {
        let text = "language = 1\nlifecycle = \"a.b\"\nabout = \"c\"\n[states]\nx = { about = \"y\", final = true }\n[[on.create]]\ngo = \"-> x\"\n";
        let files = Files { files: vec![File { name: "a.toml".to_owned(), text: text.into() }] };
        let loaded = onceward_core::load(&files).expect("sound");
        let now = Time::from_secs(0);
        let record = Record {
            id: RecordId(uuid::Uuid::from_u128(id)),
            lifecycle: Arc::clone(loaded.definitions.get("a.b").expect("it was given")),
            state: 0,
            version,
            owner: "ann".into(),
            fields: Vec::new(),
            attempt: 0,
            created_at: now,
            updated_at: now,
            started_at: None,
            finished_at: None,
            entered_at: now,
            hold: 0,
            timers: Vec::new(),
            execution: None,
            committed: None,
            payload: None,
            stuck: None,
            trace: None,
        };
        (Stored { row: 1, version, expires_at: None, head: [0; 32], entry: 1 }, Arc::new(record))
    }

    #[test]
    fn the_newest_is_found_and_no_more_than_two_halves_are_kept() {
        let mut recent = Recent::default();
        let (stored, first) = record(0, 1);
        recent.put(stored, &first);
        for number in 1..3 * HALF {
            let mut other = Record::clone(&first);
            other.id = RecordId(uuid::Uuid::from_u128(number as u128));
            recent.put(stored, &Arc::new(other));
            if number == HALF {
                let newer = Record { version: 2, ..Record::clone(&first) };
                recent.put(Stored { version: 2, ..stored }, &Arc::new(newer));
                assert_eq!(recent.get(first.id).map(|(stored, _)| stored.version), Some(2));
            }
        }
        assert!(recent.young.records.len() + recent.old.records.len() <= 2 * HALF);
        assert!(recent.get(first.id).is_none(), "it was long ago");
        recent.forget();
        assert!(recent.young.records.is_empty() && recent.old.records.is_empty());
    }

    /// Long texts fill a half before many records do, and one that is too large leaves nothing older of itself behind.
    #[test]
    fn bytes_are_bounded_too() {
        let mut recent = Recent::default();
        let (stored, first) = record(0, 1);
        let with = |id: u128, text: usize| {
            let list = [Value::text("y"), Value::text("x".repeat(text))];
            let mut other = Record { fields: vec![Value::List(list.into())], ..Record::clone(&first) };
            other.id = RecordId(uuid::Uuid::from_u128(id));
            Arc::new(other)
        };
        for number in 0..2_000 {
            recent.put(stored, &with(number % 1_500, 50_000));
            assert!(recent.young.bytes <= HALF_BYTES && recent.old.bytes <= HALF_BYTES);
            let held: usize = recent.young.records.values().map(|(_, record)| weight(record)).sum();
            assert_eq!(held, recent.young.bytes);
        }
        let last = RecordId(uuid::Uuid::from_u128(499));
        assert!(recent.get(last).is_some(), "room enough for the last ones");
        recent.put(stored, &with(499, 70_000));
        assert!(recent.get(last).is_none() && recent.version(last).is_none(), "neither the old one nor the large one");
    }
}
