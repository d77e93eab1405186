//! Slots for long-lived calls: a total limit, and a limit per holder, so that one holder cannot use all slots.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct SlotPool {
    max_slots: usize,
    max_slots_per_holder: usize,
    usage: Mutex<SlotUsage>,
}

#[derive(Debug, Default)]
struct SlotUsage {
    total: usize,
    /// Contains only holders of slots.
    by_holder: HashMap<Arc<str>, usize>,
}

/// Why no slot was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotError {
    /// All slots are in use.
    Exhausted,
    /// The holder has this many slots, its maximum.
    ShareExceeded(usize),
}

impl SlotPool {
    pub fn new(max_slots: usize, max_slots_per_holder: usize) -> Self {
        Self { max_slots, max_slots_per_holder, usage: Mutex::default() }
    }

    /// Creates `max_slots` slots. One holder may have `percent` of them, but at least one.
    pub(crate) fn with_share(max_slots: usize, percent: u8) -> Self {
        let share = max_slots.saturating_mul(usize::from(percent)).div_ceil(100);
        Self::new(max_slots, share.clamp(1, max_slots.max(1)))
    }

    /// Acquires a slot until it is dropped. A call without a holder has no limit of its own.
    pub fn try_acquire(self: &Arc<Self>, holder: Option<&Arc<str>>) -> Result<Slot, SlotError> {
        let mut usage = self.lock();
        if usage.total >= self.max_slots {
            return Err(SlotError::Exhausted);
        }
        if let Some(holder) = holder {
            let own = usage.by_holder.get(holder).copied().unwrap_or(0);
            if own >= self.max_slots_per_holder {
                return Err(SlotError::ShareExceeded(own));
            }
            usage.by_holder.insert(Arc::clone(holder), own + 1);
        }
        usage.total += 1;
        Ok(Slot { pool: Arc::clone(self), holder: holder.cloned() })
    }

    pub(crate) fn used(&self) -> usize {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, SlotUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An acquired slot. Dropping it releases the slot.
#[derive(Debug)]
pub struct Slot {
    pool: Arc<SlotPool>,
    holder: Option<Arc<str>>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut usage = self.pool.lock();
        usage.total = usage.total.saturating_sub(1);
        if let Some(holder) = &self.holder
            && let Some(own) = usage.by_holder.get_mut(holder)
        {
            *own = own.saturating_sub(1);
            if *own == 0 {
                usage.by_holder.remove(holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_key_is_limited_to_its_share_of_slots() {
        let slots = Arc::new(SlotPool::with_share(5, 50));
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let mut anns: Vec<_> = (0..3).map(|_| slots.try_acquire(Some(&ann)).expect("within the share of 3")).collect();
        assert_eq!(slots.try_acquire(Some(&ann)).expect_err("the share is used up"), SlotError::ShareExceeded(3));
        let bobs: Vec<_> = (0..2).map(|_| slots.try_acquire(Some(&bob)).expect("two slots are free")).collect();
        assert_eq!(slots.try_acquire(Some(&bob)).expect_err("no slot is free"), SlotError::Exhausted);
        assert_eq!(slots.try_acquire(None).expect_err("no slot is free"), SlotError::Exhausted);
        assert_eq!(slots.used(), 5);
        anns.pop();
        drop(bobs);
        assert_eq!(slots.used(), 2);
        anns.push(slots.try_acquire(Some(&ann)).expect("a slot was released"));
        drop(anns);
        assert_eq!(slots.used(), 0);
        assert!(slots.lock().by_holder.is_empty(), "holders without slots are forgotten");
    }

    #[test]
    fn share_is_at_least_one_slot_and_at_most_all() {
        let key: Arc<str> = "ann".into();
        for (max_slots, key_share_percent, share) in
            [(1, 50, 1), (1_000, 0, 1), (10, 100, 10), (10, 255, 10), (3, 34, 2)]
        {
            let slots = Arc::new(SlotPool::with_share(max_slots, key_share_percent));
            let acquired: Vec<_> = std::iter::from_fn(|| slots.try_acquire(Some(&key)).ok()).collect();
            assert_eq!(acquired.len(), share, "{key_share_percent} % of {max_slots}");
        }
    }

    #[test]
    fn caller_without_api_key_may_use_all_slots() {
        let slots = Arc::new(SlotPool::with_share(4, 50));
        let acquired: Vec<_> = std::iter::from_fn(|| slots.try_acquire(None).ok()).collect();
        assert_eq!(acquired.len(), 4);
    }
}
