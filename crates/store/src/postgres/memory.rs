//! Records as this process last saved them. A job that was made or leased a moment ago is most often the next that is asked
//! for, and most often nobody else has touched it meanwhile. Should somebody have, the save finds out, as it does for all
//! that was loaded; a refusal, which no save compares, is decided once more on what the database says.
//!
//! Where other processes write too, nothing is remembered: guessing wrong costs a batch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::decide::Key;
use onceward_core::record::Record;

use crate::base::{Base, Stored};
use crate::recent::Recent;

/// How long after the last word of another process it is taken to be gone.
const ALONE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Alone>);

#[derive(Debug, Default)]
struct Alone {
    recent: Recent,
    /// How many words of others had been heard.
    heard: u64,
    /// Since when nothing more was.
    since: Option<Instant>,
}

impl Memory {
    fn alone(&self) -> MutexGuard<'_, Alone> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tell a base what is remembered of these keys, unless others are at work.
    pub(super) fn tell(&self, base: &mut Base, keys: &[Key], heard: u64) {
        if base.is_wary() {
            return;
        }
        let mut alone = self.alone();
        if alone.heard != heard {
            *alone = Alone { heard, since: Some(Instant::now()), ..Alone::default() };
        }
        if alone.since.is_some_and(|since| since.elapsed() < ALONE) {
            return;
        }
        for key in keys {
            if let Key::Record(id) = key
                && base.lacks(key)
                && let Some((stored, record)) = alone.recent.get(*id)
            {
                base.put_remembered(stored, record);
            }
        }
    }

    /// These were saved.
    pub(super) fn put(&self, saved: impl Iterator<Item = (Stored, Arc<Record>)>) {
        let recent = &mut self.alone().recent;
        for (stored, record) in saved {
            // Two saves may come here in another order than that of their commits.
            if recent.version(record.id).is_none_or(|version| version <= stored.version) {
                recent.put(stored, &record);
            }
        }
    }

    /// These are not as they were.
    pub(super) fn forget(&self, keys: &[Key]) {
        let recent = &mut self.alone().recent;
        for key in keys {
            if let Key::Record(id) = key {
                recent.remove(*id);
            }
        }
    }

    /// Nobody knows what became of a save.
    pub(super) fn forget_all(&self) {
        self.alone().recent.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::tests::record;
    use onceward_core::value::RecordId;

    /// The version that a base is told, and whether from memory.
    fn told(memory: &Memory, mut base: Base, key: &Key, heard: u64) -> Option<u64> {
        memory.tell(&mut base, std::slice::from_ref(key), heard);
        let Key::Record(id) = key else { return None };
        let version = base.stored(*id).map(|stored| stored.version);
        assert_eq!(base.is_remembered(), version.is_some());
        version
    }

    #[test]
    fn what_was_saved_last_is_told_until_others_are_heard() {
        let memory = Memory::default();
        let (first, second) = (record(7, 1), record(7, 2));
        let key = Key::Record(first.1.id);
        assert_eq!(told(&memory, Base::default(), &key, 0), None);
        memory.put([second].into_iter());
        memory.put([first.clone()].into_iter());
        assert_eq!(told(&memory, Base::default(), &key, 0), Some(2), "an older one came late");
        assert_eq!(told(&memory, Base::wary(), &key, 0), None);
        memory.forget(std::slice::from_ref(&key));
        assert_eq!(told(&memory, Base::default(), &key, 0), None);
        memory.put([first.clone()].into_iter());
        assert_eq!(told(&memory, Base::default(), &key, 1), None, "somebody else is at work");
        memory.put([first].into_iter());
        assert_eq!(told(&memory, Base::default(), &key, 1), None, "and was a moment ago");
        memory.forget_all();
        assert!(memory.alone().recent.version(RecordId(uuid::Uuid::from_u128(7))).is_none());
    }
}
