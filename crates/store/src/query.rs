//! What a store may be asked besides loading and saving, and what it answers.

use std::sync::Arc;

use onceward_core::decide::{CountKey, QueueKey};
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::catalog::Catalog;

/// Which jobs a worker could have now.
#[derive(Clone, Debug)]
pub struct LeaseQuery {
    /// Of these lifecycles.
    pub lifecycles: Vec<Arc<str>>,
    pub now: Time,
    pub limit: usize,
}

/// A job that waits for a worker. Whether it may have one is for `decide` to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub record: RecordId,
    pub lifecycle: Arc<str>,
}

/// Which records to list, oldest first.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    pub lifecycle: Option<Arc<str>>,
    pub state: Option<Arc<str>>,
    pub owner: Option<Arc<str>>,
    /// Where the page before ended: its [`Page::next`].
    pub after: Option<u64>,
    pub limit: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Fewer than were asked for, or none, where not enough of those that were looked at fit: then `next` tells where to go on.
    pub records: Vec<Arc<Record>>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<u64>,
    /// Records that are damaged and cannot be read: they are passed over. `verify` names them.
    pub unreadable: u64,
}

/// How many records one page of a list looks at. An index by state would cost every move of every record, so those that do not
/// fit are passed over; but a page is one short look, however few fit.
pub(crate) fn looked_at(limit: usize) -> usize {
    limit.saturating_add(1).max(2_000)
}

/// How many records of a lifecycle are in a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateCount {
    pub lifecycle: Arc<str>,
    pub state: Arc<str>,
    pub count: u64,
}

/// How many records that live by a version of a lifecycle are in a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionCount {
    pub lifecycle: Arc<str>,
    /// The version's hash.
    pub definition: Arc<str>,
    pub state: Arc<str>,
    pub is_final: bool,
    pub count: u64,
}

impl VersionCount {
    /// `None` for a version or a state that is not known.
    pub(crate) fn of(catalog: &Catalog, definition: u32, state: &Arc<str>, count: u64) -> Option<Self> {
        let version = catalog.by_number(definition)?;
        let number = version.state(state)?;
        Some(Self {
            lifecycle: Arc::clone(&version.name),
            definition: Arc::clone(&version.hash),
            state: Arc::clone(state),
            is_final: version.states[usize::from(number)].is_final,
            count,
        })
    }
}

/// So much longer waiting makes up for one less in priority. A minute: long enough that a priority means something, short
/// enough that nothing starves.
const AGING_MICROS: i64 = 60_000_000;

/// Where a waiting job stands: the smallest goes first. Since all jobs age alike, the order of two never changes, so it
/// can be kept in an index.
pub fn rank(priority: i64, from: Time) -> i64 {
    from.micros().saturating_sub(priority.saturating_mul(AGING_MICROS))
}

/// The counter of a work key's running jobs, as core names it.
pub(crate) fn running(key: &QueueKey) -> CountKey {
    let (lifecycle, parts) = (Arc::clone(&key.lifecycle), key.parts.clone());
    CountKey { lifecycle, limit: "work.key".into(), parts, window: None }
}

/// Begins the name of every worker inside a process.
pub(crate) const OWN_WORKER: &str = "in-process";

/// The name under which a worker inside the process leases, so that it is known to be gone when the store is opened again.
pub fn own_worker(opening: &str, name: &str) -> Arc<str> {
    format!("{OWN_WORKER} {opening} {name}").into()
}
