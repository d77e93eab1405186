//! The retention policy: how long ended records and stored replies are kept.

pub(crate) mod housekeeping;
pub(crate) mod prune;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::model::Lifecycle;
use onceward_core::time::{Duration as Length, Time};

const ONE_DAY: Duration = Duration::from_hours(24);

/// How long data is kept, and how it is pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Retention of records, from their end; `None` keeps them forever.
    pub records_ttl: Option<Duration>,
    /// Overrides `records_ttl` for these lifecycles.
    pub ttl_by_lifecycle: BTreeMap<Arc<str>, Option<Duration>>,
    /// Retention of stored replies to idempotency keys. After it, a repeated call is a new one.
    pub idempotency_keys_ttl: Option<Duration>,
    /// How often the engine prunes.
    pub prune_interval: Duration,
    /// Records in one transaction. A reference group with more records is kept.
    pub max_batch_records: usize,
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        Self {
            records_ttl: Some(30 * ONE_DAY),
            ttl_by_lifecycle: BTreeMap::new(),
            idempotency_keys_ttl: Some(7 * ONE_DAY),
            prune_interval: Duration::from_hours(1),
            max_batch_records: 500,
        }
    }
}

impl RetentionPolicy {
    /// Returns a policy that prunes nothing.
    pub fn keep_forever() -> Self {
        Self { records_ttl: None, idempotency_keys_ttl: None, ..Self::default() }
    }

    /// Sets the retention of one lifecycle; `None` keeps its records forever.
    #[must_use]
    pub fn with_lifecycle(mut self, name: &str, ttl: Option<Duration>) -> Self {
        self.ttl_by_lifecycle.insert(name.into(), ttl);
        self
    }

    /// Returns the time at or before which a record of this lifecycle must have ended to be pruned; `None` if never.
    pub(crate) fn cutoff(&self, lifecycle: &Lifecycle, now: Time) -> Option<Time> {
        cutoff_for_ttl(now, *self.ttl_by_lifecycle.get(&lifecycle.name).unwrap_or(&self.records_ttl))
    }

    /// Returns the latest cutoff of all lifecycles. Records that ended later need no look.
    pub(crate) fn latest_cutoff(&self, now: Time) -> Option<Time> {
        self.ttl_by_lifecycle
            .values()
            .chain([&self.records_ttl])
            .filter_map(|length| cutoff_for_ttl(now, *length))
            .max()
    }

    pub(crate) fn idempotency_keys_cutoff(&self, now: Time) -> Option<Time> {
        cutoff_for_ttl(now, self.idempotency_keys_ttl)
    }
}

fn cutoff_for_ttl(now: Time, ttl: Option<Duration>) -> Option<Time> {
    let length = Length::from_micros(i64::try_from(ttl?.as_micros()).ok()?);
    now.checked_sub(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifecycle_ttl_overrides_default_cutoff() {
        let now = Time::from_secs(100 * 24 * 3600);
        let days = |days: i64| Some(Time::from_secs(days * 24 * 3600));
        let default_policy = RetentionPolicy::default();
        assert_eq!(
            (default_policy.latest_cutoff(now), default_policy.idempotency_keys_cutoff(now)),
            (days(70), days(93))
        );
        assert_eq!(RetentionPolicy::keep_forever().latest_cutoff(now), None);
        assert_eq!(default_policy.with_lifecycle("a.b", Some(ONE_DAY)).latest_cutoff(now), days(99));
        let policy = RetentionPolicy::keep_forever().with_lifecycle("a.b", Some(2 * ONE_DAY));
        assert_eq!((policy.latest_cutoff(now), policy.idempotency_keys_cutoff(now)), (days(98), None));
    }
}
