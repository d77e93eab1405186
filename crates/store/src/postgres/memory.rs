//! Records as this process last saved them. A job that was made or leased a moment ago is most often the next that is asked
//! for, and most often nobody else has touched it meanwhile. Should somebody have, the save finds out, as it does for all
//! that was loaded; a refusal, which no save compares, is decided once more on what the database says.
//!
//! Where other processes write too, nothing is remembered: guessing wrong costs a batch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::decide::Key;
use onceward_core::record::Record;
use onceward_core::value::RecordId;

use crate::base::{Base, Stored};

/// Records in one half. A few batches of the largest size, and some megabytes.
const HALF: usize = 8_192;

/// How long after the last word of another process it is taken to be gone.
const ALONE: Duration = Duration::from_secs(2);

type Known = HashMap<RecordId, (Stored, Arc<Record>)>;

#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Recent>);

/// Two halves: when the younger is full, it becomes the older, and what stood there is forgotten.
#[derive(Debug, Default)]
struct Recent {
    young: Known,
    old: Known,
    /// How many words of others had been heard.
    heard: u64,
    /// Since when nothing more was.
    since: Option<Instant>,
}

impl Recent {
    fn version(&self, id: RecordId) -> Option<u64> {
        self.young.get(&id).or_else(|| self.old.get(&id)).map(|(stored, _)| stored.version)
    }
}

impl Memory {
    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tell a base what is remembered of these keys, unless others are at work.
    pub(super) fn tell(&self, base: &mut Base, keys: &[Key], heard: u64) {
        if base.is_wary() {
            return;
        }
        let mut recent = self.recent();
        if recent.heard != heard {
            *recent = Recent { heard, since: Some(Instant::now()), ..Recent::default() };
        }
        if recent.since.is_some_and(|since| since.elapsed() < ALONE) {
            return;
        }
        for key in keys {
            if let Key::Record(id) = key
                && base.lacks(key)
                && let Some((stored, record)) = recent.young.get(id).or_else(|| recent.old.get(id))
            {
                base.put_remembered(*stored, Arc::clone(record));
            }
        }
    }

    /// These were saved.
    pub(super) fn put(&self, saved: impl Iterator<Item = (Stored, Arc<Record>)>) {
        let mut recent = self.recent();
        for (stored, record) in saved {
            // Two saves may come here in another order than that of their commits.
            if recent.version(record.id).is_some_and(|version| version > stored.version) {
                continue;
            }
            if recent.young.len() >= HALF {
                recent.old = std::mem::take(&mut recent.young);
            }
            recent.young.insert(record.id, (stored, record));
        }
    }

    /// These are not as they were.
    pub(super) fn forget(&self, keys: &[Key]) {
        let mut recent = self.recent();
        for key in keys {
            if let Key::Record(id) = key {
                recent.young.remove(id);
                recent.old.remove(id);
            }
        }
    }

    /// Nobody knows what became of a save.
    pub(super) fn forget_all(&self) {
        let mut recent = self.recent();
        (recent.young, recent.old) = Default::default();
    }
}
