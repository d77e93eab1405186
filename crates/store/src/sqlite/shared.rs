//! What the threads of a store know together.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use onceward_core::decide::Key;

use crate::anchors::Anchors;
use crate::base::Base;
use crate::histogram::Histogram;
use crate::names::Known;
use crate::recent::Recent;

/// What all threads of a store share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Raised after every commit. Only this process writes, so it need not outlive it.
    pub(super) generation: AtomicU64,
    pub(super) known: RwLock<Known>,
    /// Written between a commit and the next number: what is found there is never older than that number.
    pub(super) recent: Mutex<Recent>,
    /// How long the commits of batches took: nearly all of it is waiting for the disk.
    pub(super) commits: Histogram,
    /// Whether the last save was done in less time than a runtime's thread may be held up for.
    pub(super) disk_is_quick: AtomicBool,
    /// In microseconds: before it, nobody in `later` is due.
    pub(super) soonest: AtomicI64,
    pub(super) anchors: Anchors,
}

impl Shared {
    pub(super) fn known(&self) -> Known {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Put what was saved lately into the base; the keys that are left to look for. A save that is done and not remembered yet may
    /// be seen by those who look, so a base is told what it has from memory.
    pub(super) fn recall(&self, base: &mut Base, keys: &[Key]) -> Vec<Key> {
        if base.is_wary() {
            return keys.to_vec();
        }
        let recent = self.recent();
        let mut left = Vec::new();
        for key in keys {
            match key {
                Key::Record(id) if base.lacks(key) => match recent.get(*id) {
                    Some((stored, record)) => base.put_remembered(stored, record),
                    None => left.push(key.clone()),
                },
                other => left.push(other.clone()),
            }
        }
        left
    }
}
