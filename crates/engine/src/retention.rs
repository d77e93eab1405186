//! How long what has ended is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::model::Lifecycle;
use onceward_core::time::{Duration as Length, Time};

const DAY: Duration = Duration::from_hours(24);

/// For how long, and how what is over is taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Records, counted from when they ended; `None`: for ever.
    pub records: Option<Duration>,
    /// Instead, for the records of these lifecycles.
    pub lifecycles: BTreeMap<Arc<str>, Option<Duration>>,
    /// Answers to callers' keys, counted from when they were given: a call that is sent again later is a new one.
    pub requests: Option<Duration>,
    /// How often to look for what is over.
    pub every: Duration,
    /// Records in one transaction. Records that can only go together, and are more, stay.
    pub batch: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            records: Some(30 * DAY),
            lifecycles: BTreeMap::new(),
            requests: Some(7 * DAY),
            every: Duration::from_hours(1),
            batch: 500,
        }
    }
}

impl Retention {
    /// Nothing is ever pruned.
    pub fn for_ever() -> Self {
        Self { records: None, requests: None, ..Self::default() }
    }

    /// The records of one lifecycle are kept for so long after their end; `None`: for ever.
    #[must_use]
    pub fn lifecycle(mut self, name: &str, length: Option<Duration>) -> Self {
        self.lifecycles.insert(name.into(), length);
        self
    }

    /// Records of a lifecycle that ended at this time or before are over; `None` where none ever is.
    pub(crate) fn over(&self, lifecycle: &Lifecycle, now: Time) -> Option<Time> {
        before(now, *self.lifecycles.get(&lifecycle.name).unwrap_or(&self.records))
    }

    /// The same of any lifecycle: what ended later need not be looked at.
    pub(crate) fn over_somewhere(&self, now: Time) -> Option<Time> {
        self.lifecycles.values().chain([&self.records]).filter_map(|length| before(now, *length)).max()
    }

    pub(crate) fn requests_over(&self, now: Time) -> Option<Time> {
        before(now, self.requests)
    }
}

fn before(now: Time, length: Option<Duration>) -> Option<Time> {
    let length = Length::from_micros(i64::try_from(length?.as_micros()).ok()?);
    now.checked_sub(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifecycle_may_have_its_own_length() {
        let now = Time::from_secs(100 * 24 * 3600);
        let days = |days: i64| Some(Time::from_secs(days * 24 * 3600));
        let usual = Retention::default();
        assert_eq!((usual.over_somewhere(now), usual.requests_over(now)), (days(70), days(93)));
        assert_eq!(Retention::for_ever().over_somewhere(now), None);
        assert_eq!(usual.lifecycle("a.b", Some(DAY)).over_somewhere(now), days(99));
        let only = Retention::for_ever().lifecycle("a.b", Some(2 * DAY));
        assert_eq!((only.over_somewhere(now), only.requests_over(now)), (days(98), None));
    }
}
