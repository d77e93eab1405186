//! The retention policy: how long ended records and stored replies are kept. Without settings, the engine deletes no
//! record of a user's lifecycle.

pub(crate) mod housekeeping;
pub(crate) mod prune;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::model::Lifecycle;
use onceward_core::time::{Duration as Length, Time};

/// Lifecycles of the engine, such as `onceward.delivery`.
const BUILT_IN_PREFIX: &str = "onceward.";

const ONE_DAY: Duration = Duration::from_hours(24);

/// How long data is kept, and how it is pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Retention of records, from their end; `None`, the default, keeps them forever.
    pub records_ttl: Option<Duration>,
    /// Retention of records of the engine's own lifecycles (`onceward.*`), by default 30 days.
    pub built_in_ttl: Option<Duration>,
    /// Overrides `records_ttl` and `built_in_ttl` for these lifecycles.
    pub ttl_by_lifecycle: BTreeMap<Arc<str>, Option<Duration>>,
    /// Retention of records whose log has audit entries: they are deleted only when this time has passed, too.
    /// `Some(None)` keeps them forever; `None` adds nothing.
    pub audit_ttl: Option<Option<Duration>>,
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
            records_ttl: None,
            built_in_ttl: Some(30 * ONE_DAY),
            ttl_by_lifecycle: BTreeMap::new(),
            audit_ttl: None,
            idempotency_keys_ttl: Some(7 * ONE_DAY),
            prune_interval: Duration::from_hours(1),
            max_batch_records: 500,
        }
    }
}

impl RetentionPolicy {
    /// Returns a policy that prunes nothing.
    pub fn keep_forever() -> Self {
        Self { records_ttl: None, built_in_ttl: None, idempotency_keys_ttl: None, ..Self::default() }
    }

    /// Returns the policy of one prune call. `older_than` replaces the retention of all lifecycles without one of their
    /// own, or of the lifecycles `only`, which are then the only ones that are pruned.
    #[must_use]
    pub fn for_call(&self, older_than: Option<Duration>, only: &[String]) -> Self {
        let mut policy = self.clone();
        if older_than.is_some() {
            (policy.records_ttl, policy.built_in_ttl) = (older_than, older_than);
        }
        if !only.is_empty() {
            let named = only.iter().map(|name| (name.as_str().into(), older_than.or_else(|| policy.ttl(name))));
            policy.ttl_by_lifecycle = named.collect();
            (policy.records_ttl, policy.built_in_ttl) = (None, None);
        }
        policy
    }

    /// Returns whether the policy deletes records of some lifecycle that is not the engine's own.
    pub fn deletes_records(&self) -> bool {
        let mut own = self.ttl_by_lifecycle.iter().filter(|(name, _)| !name.starts_with(BUILT_IN_PREFIX));
        self.records_ttl.is_some() || own.any(|(_, ttl)| ttl.is_some())
    }

    fn ttl(&self, lifecycle: &str) -> Option<Duration> {
        let default = if lifecycle.starts_with(BUILT_IN_PREFIX) { self.built_in_ttl } else { self.records_ttl };
        self.ttl_by_lifecycle.get(lifecycle).copied().unwrap_or(default)
    }

    /// Sets the retention of one lifecycle; `None` keeps its records forever.
    #[must_use]
    pub fn with_lifecycle(mut self, name: &str, ttl: Option<Duration>) -> Self {
        self.ttl_by_lifecycle.insert(name.into(), ttl);
        self
    }

    /// Returns the time at or before which a record of this lifecycle must have ended to be pruned; `None` if never.
    pub(crate) fn cutoff(&self, lifecycle: &Lifecycle, now: Time) -> Option<Time> {
        let cutoff = cutoff_for_ttl(now, self.ttl(&lifecycle.name))?;
        let is_audited = || lifecycle.events.iter().flat_map(|event| &event.transitions).any(|one| one.audit.is_some());
        match self.audit_ttl {
            Some(ttl) if is_audited() => Some(cutoff.min(cutoff_for_ttl(now, ttl)?)),
            _ => Some(cutoff),
        }
    }

    /// Returns the latest cutoff of all lifecycles. Records that ended later need no look.
    pub(crate) fn latest_cutoff(&self, now: Time) -> Option<Time> {
        self.ttl_by_lifecycle
            .values()
            .chain([&self.records_ttl, &self.built_in_ttl])
            .filter_map(|length| cutoff_for_ttl(now, *length))
            .max()
    }

    pub(crate) fn idempotency_keys_cutoff(&self, now: Time) -> Option<Time> {
        cutoff_for_ttl(now, self.idempotency_keys_ttl)
    }
}

/// One line for people.
impl fmt::Display for RetentionPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |ttl: Option<Duration>| match ttl.map(|ttl| i64::try_from(ttl.as_micros())) {
            None => "forever".to_owned(),
            Some(micros) => Length::from_micros(micros.unwrap_or(i64::MAX)).to_string(),
        };
        write!(out, "ended records {}", length(self.records_ttl))?;
        for (name, ttl) in &self.ttl_by_lifecycle {
            write!(out, ", {name} {}", length(*ttl))?;
        }
        if let Some(ttl) = self.audit_ttl {
            write!(out, ", records with audit entries {}", length(ttl))?;
        }
        write!(out, ", {BUILT_IN_PREFIX}* {}", length(self.built_in_ttl))?;
        write!(out, ", idempotency keys {}", length(self.idempotency_keys_ttl))
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
        assert_eq!((default_policy.ttl("a.b"), default_policy.ttl("onceward.delivery")), (None, Some(30 * ONE_DAY)));
        assert_eq!(
            default_policy.to_string(),
            "ended records forever, onceward.* 30d, idempotency keys 7d",
            "the start banner shows it"
        );
        assert_eq!(default_policy.with_lifecycle("a.b", Some(ONE_DAY)).latest_cutoff(now), days(99));
        let policy = RetentionPolicy::keep_forever().with_lifecycle("a.b", Some(2 * ONE_DAY));
        assert_eq!((policy.latest_cutoff(now), policy.idempotency_keys_cutoff(now)), (days(98), None));
    }
}
