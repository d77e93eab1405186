//! How many requests a key may send. Each key has a second's worth to spend at once; what is spent comes back with time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What may be saved up.
const BURST: Duration = Duration::from_secs(1);

/// Keys that are told apart. There are no more in a database; those that have their whole second are not remembered.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Limits {
    /// What a request costs, in time; nothing where there is no limit.
    cost: Option<Duration>,
    /// When each key will have its whole second again.
    full: Mutex<HashMap<Arc<str>, Instant>>,
}

impl Limits {
    /// So many a second; none: no limit.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { cost: BURST.checked_div(per_second), full: Mutex::default() }
    }

    /// Spend one request, or say when there will be one to spend.
    pub(crate) fn take(&self, key: &Arc<str>) -> Result<(), Duration> {
        self.take_at(key, Instant::now())
    }

    fn take_at(&self, key: &Arc<str>, now: Instant) -> Result<(), Duration> {
        let Some(cost) = self.cost else { return Ok(()) };
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        if full.len() >= MOST && !full.contains_key(key) {
            full.retain(|_, full| *full > now);
        }
        let then = full.get(key).copied().unwrap_or(now).max(now) + cost;
        let over = then.saturating_duration_since(now).saturating_sub(BURST);
        if !over.is_zero() {
            return Err(over);
        }
        full.insert(Arc::clone(key), then);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_so_many_a_second_and_no_more() {
        let (limits, now) = (Limits::new(10), Instant::now());
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        assert_eq!((0..20).filter(|_| limits.take_at(&ann, now).is_ok()).count(), 10);
        let wait = limits.take_at(&ann, now).expect_err("spent");
        assert_eq!(wait, Duration::from_millis(100), "one comes back in a tenth of a second");
        assert!(limits.take_at(&bob, now).is_ok(), "another key has its own");
        assert!(limits.take_at(&ann, now + wait).is_ok());
        assert!(limits.take_at(&ann, now + wait).is_err());
        let later = now + Duration::from_mins(1);
        assert_eq!((0..20).filter(|_| limits.take_at(&ann, later).is_ok()).count(), 10, "no more is saved up");
    }

    #[test]
    fn no_limit_is_none() {
        let (limits, now) = (Limits::new(0), Instant::now());
        assert!((0..100_000).all(|_| limits.take_at(&"ann".into(), now).is_ok()));
    }

    /// Keys that are at rest are forgotten.
    #[test]
    fn memory_is_bounded() {
        let (limits, now) = (Limits::new(1_000), Instant::now());
        for number in 0..3 * MOST {
            let later = now + Duration::from_millis(u64::try_from(number).unwrap());
            assert!(limits.take_at(&number.to_string().into(), later).is_ok());
        }
        assert!(limits.full.lock().unwrap().len() <= MOST);
    }
}
