//! Limits concurrent uploads, in total and per owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_server::Problem;

#[derive(Clone, Debug)]
pub(crate) struct SlotPool {
    max_slots: usize,
    max_per_owner: usize,
    /// Number of slots in use per owner; owners without a slot have no entry.
    used_by_owner: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// An upload slot, released on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    owner: Arc<str>,
    used_by_owner: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

impl SlotPool {
    pub(crate) fn new(max_slots: usize, max_per_owner: usize) -> Self {
        Self { max_slots, max_per_owner, used_by_owner: Arc::default() }
    }

    pub(crate) fn try_acquire(&self, owner: &Arc<str>) -> Result<Slot, Problem> {
        let too_many_uploads = |detail: &str| Err(Problem::new(503, "too_many_uploads", detail));
        let mut taken = lock_counts(&self.used_by_owner);
        if taken.values().sum::<usize>() >= self.max_slots {
            return too_many_uploads("as many uploads come in as may at once: try again");
        }
        if taken.get(owner).is_some_and(|own| *own >= self.max_per_owner) {
            return too_many_uploads("as many uploads of yours come in as may at once: try again when one is done");
        }
        *taken.entry(Arc::clone(owner)).or_default() += 1;
        Ok(Slot { owner: Arc::clone(owner), used_by_owner: Arc::clone(&self.used_by_owner) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = lock_counts(&self.used_by_owner);
        if let Some(own) = taken.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

/// Locks the counts. Poisoning is ignored: no panic can leave a count half updated.
fn lock_counts(taken: &Mutex<HashMap<Arc<str>, usize>>) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_in_total_and_per_owner_and_freed_on_drop() {
        let (ann, eve): (Arc<str>, Arc<str>) = ("ann".into(), "eve".into());
        let slots = SlotPool::new(3, 2);
        let eve_slots = [&eve, &eve].map(|owner| slots.try_acquire(owner).expect("a place"));
        assert!(slots.try_acquire(&eve).is_err(), "a third of hers");
        let ann_slot = slots.try_acquire(&ann).expect("a place");
        assert!(slots.try_acquire(&ann).is_err(), "a fourth in all");
        drop(eve_slots);
        assert!(slots.try_acquire(&eve).is_ok() && slots.try_acquire(&ann).is_ok());
        drop(ann_slot);
        assert!(lock_counts(&slots.used_by_owner).is_empty());
    }
}
