//! Records as they were last saved, of those that were saved lately. A job that was made or leased a moment ago is most
//! often the next that is asked for, and nobody but this process writes.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::record::Record;
use onceward_core::value::RecordId;

use crate::base::Stored;

/// Records in one half. A few batches of the largest size, and some megabytes.
const HALF: usize = 8_192;

/// Two halves: when the younger is full, it becomes the older, and what stood there is forgotten.
#[derive(Debug, Default)]
pub(super) struct Recent {
    young: HashMap<RecordId, (Stored, Arc<Record>)>,
    old: HashMap<RecordId, (Stored, Arc<Record>)>,
}

impl Recent {
    pub(super) fn get(&self, id: RecordId) -> Option<(Stored, Arc<Record>)> {
        self.young.get(&id).or_else(|| self.old.get(&id)).cloned()
    }

    /// As it stands now. Called between the commit and the next number of [`super::Shared::generation`]: what is found here is
    /// never older than that number.
    pub(super) fn put(&mut self, stored: Stored, record: &Arc<Record>) {
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(record.id, (stored, Arc::clone(record)));
    }

    /// Where it is not known what became of a write, nothing is.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceward_core::diagnostic::{File, Files};
    use onceward_core::time::Time;

    fn record(id: u128, version: u64) -> (Stored, Arc<Record>) {
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
        assert!(recent.young.len() + recent.old.len() <= 2 * HALF);
        assert!(recent.get(first.id).is_none(), "it was long ago");
        recent.forget();
        assert!(recent.young.is_empty() && recent.old.is_empty());
    }
}
