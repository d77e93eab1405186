//! Token-bucket limit on requests per API key. Each key may burst one second's worth of requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Largest burst: the requests of one second.
const BURST_WINDOW: Duration = Duration::from_secs(1);

/// Number of tracked API keys: as many as a database may have. Idle keys are removed.
const MAX_TRACKED_KEYS: usize = 10_000;

#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Time that one request uses up; `None` disables the limit.
    cost_per_request: Option<Duration>,
    /// When each API key's bucket is full again.
    full_at: Mutex<HashMap<Arc<str>, Instant>>,
}

impl RateLimiter {
    /// Allows `per_second` requests per API key; 0 disables the limit.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { cost_per_request: BURST_WINDOW.checked_div(per_second), full_at: Mutex::default() }
    }

    /// Takes one request from the API key's bucket, or returns the time until one is available.
    pub(crate) fn try_acquire(&self, api_key: &Arc<str>) -> Result<(), Duration> {
        self.try_acquire_at(api_key, Instant::now())
    }

    fn try_acquire_at(&self, api_key: &Arc<str>, now: Instant) -> Result<(), Duration> {
        let Some(cost_per_request) = self.cost_per_request else { return Ok(()) };
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() >= MAX_TRACKED_KEYS && !full_at.contains_key(api_key) {
            full_at.retain(|_, full| *full > now);
        }
        let next_full_at = full_at.get(api_key).copied().unwrap_or(now).max(now) + cost_per_request;
        let retry_after = next_full_at.saturating_duration_since(now).saturating_sub(BURST_WINDOW);
        if !retry_after.is_zero() {
            return Err(retry_after);
        }
        full_at.insert(Arc::clone(api_key), next_full_at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_key_is_limited_per_second_and_refills_over_time() {
        let (limiter, now) = (RateLimiter::new(10), Instant::now());
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        assert_eq!((0..20).filter(|_| limiter.try_acquire_at(&ann, now).is_ok()).count(), 10);
        let wait = limiter.try_acquire_at(&ann, now).expect_err("limit is used up");
        assert_eq!(wait, Duration::from_millis(100), "one request per 100 ms");
        assert!(limiter.try_acquire_at(&bob, now).is_ok(), "each API key has its own limit");
        assert!(limiter.try_acquire_at(&ann, now + wait).is_ok());
        assert!(limiter.try_acquire_at(&ann, now + wait).is_err());
        let later = now + Duration::from_mins(1);
        assert_eq!(
            (0..20).filter(|_| limiter.try_acquire_at(&ann, later).is_ok()).count(),
            10,
            "unused requests do not add up"
        );
    }

    #[test]
    fn zero_requests_per_second_disables_the_limit() {
        let (limiter, now) = (RateLimiter::new(0), Instant::now());
        assert!((0..100_000).all(|_| limiter.try_acquire_at(&"ann".into(), now).is_ok()));
    }

    #[test]
    fn tracked_api_keys_are_bounded() {
        let (limiter, now) = (RateLimiter::new(1_000), Instant::now());
        for number in 0..3 * MAX_TRACKED_KEYS {
            let later = now + Duration::from_millis(u64::try_from(number).unwrap());
            assert!(limiter.try_acquire_at(&number.to_string().into(), later).is_ok());
        }
        assert!(limiter.full_at.lock().unwrap().len() <= MAX_TRACKED_KEYS);
    }
}
