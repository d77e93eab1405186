//! How long what has ended is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::model::Lifecycle;
use onceward_core::time::{Duration as Length, Time};

const ONE_DAY: Duration = Duration::from_hours(24);

/// For how long, and how what is over is taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Records, counted from when they ended; `None`: for ever.
    pub records_ttl: Option<Duration>,
    /// Instead, for the records of these lifecycles.
    pub ttl_by_lifecycle: BTreeMap<Arc<str>, Option<Duration>>,
    /// Answers to callers' keys, counted from when they were given: a call that is sent again later is a new one.
    pub idempotency_keys_ttl: Option<Duration>,
    /// How often to look for what is over.
    pub prune_interval: Duration,
    /// Records in one transaction. Records that can only go together, and are more, stay.
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
    /// Nothing is ever pruned.
    pub fn keep_forever() -> Self {
        Self { records_ttl: None, idempotency_keys_ttl: None, ..Self::default() }
    }

    /// The records of one lifecycle are kept for so long after their end; `None`: for ever.
    #[must_use]
    pub fn with_lifecycle(mut self, name: &str, ttl: Option<Duration>) -> Self {
        self.ttl_by_lifecycle.insert(name.into(), ttl);
        self
    }

    /// Records of a lifecycle that ended at this time or before are over; `None` where none ever is.
    pub(crate) fn cutoff(&self, lifecycle: &Lifecycle, now: Time) -> Option<Time> {
        cutoff_for_ttl(now, *self.ttl_by_lifecycle.get(&lifecycle.name).unwrap_or(&self.records_ttl))
    }

    /// The same of any lifecycle: what ended later need not be looked at.
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
