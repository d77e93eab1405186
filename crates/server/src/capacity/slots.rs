//! Slots for long-lived calls: a total limit, and a share per API key, so that one key cannot use all slots.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct SlotPool {
    max_slots: usize,
    max_slots_per_key: usize,
    usage: Mutex<SlotUsage>,
}

#[derive(Debug, Default)]
struct SlotUsage {
    total: usize,
    /// Contains only API keys that hold slots.
    by_api_key: HashMap<Arc<str>, usize>,
}

/// Why no slot was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    /// All slots are in use.
    Exhausted,
    /// The API key holds this many slots, its maximum.
    KeyShareExceeded(usize),
}

impl SlotPool {
    /// Creates `max_slots` slots. One API key may hold `percent` of them, but at least one.
    pub(crate) fn new(max_slots: usize, percent: u8) -> Self {
        let max_slots_per_key = max_slots.saturating_mul(usize::from(percent)).div_ceil(100);
        Self { max_slots, max_slots_per_key: max_slots_per_key.clamp(1, max_slots.max(1)), usage: Mutex::default() }
    }

    /// Acquires a slot until it is dropped. Callers without API key are local and have no share limit.
    pub(crate) fn try_acquire(self: &Arc<Self>, api_key: Option<&Arc<str>>) -> Result<Slot, SlotError> {
        let mut usage = self.lock();
        if usage.total >= self.max_slots {
            return Err(SlotError::Exhausted);
        }
        if let Some(key) = api_key {
            let own = usage.by_api_key.get(key).copied().unwrap_or(0);
            if own >= self.max_slots_per_key {
                return Err(SlotError::KeyShareExceeded(own));
            }
            usage.by_api_key.insert(Arc::clone(key), own + 1);
        }
        usage.total += 1;
        Ok(Slot { pool: Arc::clone(self), api_key: api_key.cloned() })
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
pub(crate) struct Slot {
    pool: Arc<SlotPool>,
    api_key: Option<Arc<str>>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut usage = self.pool.lock();
        usage.total = usage.total.saturating_sub(1);
        if let Some(key) = &self.api_key
            && let Some(own) = usage.by_api_key.get_mut(key)
        {
            *own = own.saturating_sub(1);
            if *own == 0 {
                usage.by_api_key.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_key_is_limited_to_its_share_of_slots() {
        let places = Arc::new(SlotPool::new(5, 50));
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let mut anns: Vec<_> = (0..3).map(|_| places.try_acquire(Some(&ann)).expect("half of them")).collect();
        assert_eq!(places.try_acquire(Some(&ann)).expect_err("no more than that"), SlotError::KeyShareExceeded(3));
        let bobs: Vec<_> = (0..2).map(|_| places.try_acquire(Some(&bob)).expect("there are two left")).collect();
        assert_eq!(places.try_acquire(Some(&bob)).expect_err("he might have one more"), SlotError::Exhausted);
        assert_eq!(places.try_acquire(None).expect_err("nobody might"), SlotError::Exhausted);
        assert_eq!(places.used(), 5);
        anns.pop();
        drop(bobs);
        assert_eq!(places.used(), 2);
        anns.push(places.try_acquire(Some(&ann)).expect("one has come free"));
        drop(anns);
        assert_eq!(places.used(), 0);
        assert!(places.lock().by_api_key.is_empty(), "who has none is not remembered");
    }

    #[test]
    fn share_is_at_least_one_slot_and_at_most_all() {
        let key: Arc<str> = "ann".into();
        for (most, key_share_percent, share) in [(1, 50, 1), (1_000, 0, 1), (10, 100, 10), (10, 255, 10), (3, 34, 2)] {
            let places = Arc::new(SlotPool::new(most, key_share_percent));
            let taken: Vec<_> = std::iter::from_fn(|| places.try_acquire(Some(&key)).ok()).collect();
            assert_eq!(taken.len(), share, "{key_share_percent} % of {most}");
        }
    }

    #[test]
    fn caller_without_api_key_may_use_all_slots() {
        let places = Arc::new(SlotPool::new(4, 50));
        let taken: Vec<_> = std::iter::from_fn(|| places.try_acquire(None).ok()).collect();
        assert_eq!(taken.len(), 4);
    }
}
