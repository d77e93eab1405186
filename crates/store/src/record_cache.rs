//! A cache of recently saved records. A job that was just created or leased is often read next.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::record::Record;
use onceward_core::value::{RecordId, Value};

use crate::read_set::RecordMeta;

/// Enough for several batches of maximum size.
const SEGMENT_RECORDS: usize = 8_192;

/// Estimated bytes. Most records are smaller than 1 KB, so usually the number of records is the limit.
const SEGMENT_BYTES: usize = 16 << 20;

/// Larger records are not cached: reading them costs little compared with their other processing.
const MAX_CACHED_RECORD_BYTES: usize = 64 << 10;

/// A cache of two segments. When the newer one is full, it replaces the older one.
#[derive(Debug, Default)]
pub(crate) struct RecordCache {
    newer: Segment,
    older: Segment,
}

#[derive(Debug, Default)]
struct Segment {
    records: HashMap<RecordId, (RecordMeta, Arc<Record>)>,
    bytes: usize,
}

impl Segment {
    fn remove(&mut self, id: RecordId) {
        if let Some((_, record)) = self.records.remove(&id) {
            self.bytes -= estimated_bytes(&record);
        }
    }
}

impl RecordCache {
    pub(crate) fn get(&self, id: RecordId) -> Option<(RecordMeta, Arc<Record>)> {
        self.newer.records.get(&id).or_else(|| self.older.records.get(&id)).cloned()
    }

    pub(crate) fn version(&self, id: RecordId) -> Option<u64> {
        self.newer.records.get(&id).or_else(|| self.older.records.get(&id)).map(|(stored, _)| stored.version)
    }

    /// Stores the current version of a record and removes earlier ones.
    pub(crate) fn put(&mut self, stored: RecordMeta, record: &Arc<Record>) {
        let bytes = estimated_bytes(record);
        if bytes > MAX_CACHED_RECORD_BYTES {
            return self.remove(record.id);
        }
        self.newer.remove(record.id);
        if self.newer.records.len() >= SEGMENT_RECORDS || self.newer.bytes + bytes > SEGMENT_BYTES {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.bytes += bytes;
        self.newer.records.insert(record.id, (stored, Arc::clone(record)));
    }

    pub(crate) fn remove(&mut self, id: RecordId) {
        self.newer.remove(id);
        self.older.remove(id);
    }

    /// Empties the cache, because the outcome of a write is unknown.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Estimates the bytes that a record uses in memory, without its payload.
fn estimated_bytes(record: &Record) -> usize {
    let texts = [&record.owner].into_iter().chain(&record.stuck_reason).map(|text| text.len());
    size_of::<Record>() + texts.sum::<usize>() + estimated_values_bytes(&record.fields)
}

fn estimated_values_bytes(values: &[Value]) -> usize {
    let own = |value: &Value| match value {
        Value::Text(text) | Value::Json(text) => text.len(),
        Value::List(items) => self::estimated_values_bytes(items),
        _ => 0,
    };
    size_of_val(values) + values.iter().map(own).sum::<usize>()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use onceward_core::diagnostic::{InputFile, InputFiles};
    use onceward_core::time::Time;

    pub(crate) fn test_record(id: u128, version: u64) -> (RecordMeta, Arc<Record>) {
        let text = "language = 1\nlifecycle = \"a.b\"\nabout = \"c\"\n[states]\nx = { about = \"y\", final = true }\n[[on.create]]\ngo = \"-> x\"\n";
        let files = InputFiles { files: vec![InputFile { name: "a.toml".to_owned(), text: text.into() }] };
        let loaded = onceward_core::load_definitions(&files).expect("sound");
        let now = Time::from_secs(0);
        let record = Record {
            id: RecordId(uuid::Uuid::from_u128(id)),
            lifecycle: Arc::clone(loaded.definitions.get("a.b").expect("the definition exists")),
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
            committed_token: None,
            payload: None,
            stuck_reason: None,
            trace: None,
        };
        (RecordMeta { row_id: 1, version, expires_at: None, head_hash: [0; 32], head_entry_id: 1 }, Arc::new(record))
    }

    #[test]
    fn cache_returns_newest_version_and_keeps_at_most_two_segments() {
        let mut cache = RecordCache::default();
        let (stored, first) = test_record(0, 1);
        cache.put(stored, &first);
        for number in 1..3 * SEGMENT_RECORDS {
            let mut other = Record::clone(&first);
            other.id = RecordId(uuid::Uuid::from_u128(number as u128));
            cache.put(stored, &Arc::new(other));
            if number == SEGMENT_RECORDS {
                let newer = Record { version: 2, ..Record::clone(&first) };
                cache.put(RecordMeta { version: 2, ..stored }, &Arc::new(newer));
                assert_eq!(cache.get(first.id).map(|(stored, _)| stored.version), Some(2));
            }
        }
        assert!(cache.newer.records.len() + cache.older.records.len() <= 2 * SEGMENT_RECORDS);
        assert!(cache.get(first.id).is_none(), "an old record is evicted");
        cache.clear();
        assert!(cache.newer.records.is_empty() && cache.older.records.is_empty());
    }

    #[test]
    fn cache_is_bounded_by_bytes_and_drops_oversized_records() {
        let mut cache = RecordCache::default();
        let (stored, first) = test_record(0, 1);
        let record_with_text = |id: u128, text: usize| {
            let list = [Value::text("y"), Value::text("x".repeat(text))];
            let mut other = Record { fields: vec![Value::List(list.into())], ..Record::clone(&first) };
            other.id = RecordId(uuid::Uuid::from_u128(id));
            Arc::new(other)
        };
        for number in 0..2_000 {
            cache.put(stored, &record_with_text(number % 1_500, 50_000));
            assert!(cache.newer.bytes <= SEGMENT_BYTES && cache.older.bytes <= SEGMENT_BYTES);
            let held: usize = cache.newer.records.values().map(|(_, record)| estimated_bytes(record)).sum();
            assert_eq!(held, cache.newer.bytes);
        }
        let last = RecordId(uuid::Uuid::from_u128(499));
        assert!(cache.get(last).is_some(), "the last records fit");
        cache.put(stored, &record_with_text(499, 70_000));
        assert!(
            cache.get(last).is_none() && cache.version(last).is_none(),
            "neither the old version nor the large record"
        );
    }
}
