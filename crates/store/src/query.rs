//! What a store may be asked besides loading and saving, and what it answers.

use std::sync::Arc;

use onceward_core::decide::{ConcurrencyKey, CounterKey};
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
pub struct LeaseCandidate {
    pub record: RecordId,
    pub lifecycle: Arc<str>,
}

/// How much to read at once. One is read in any case, however large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    pub max_items: usize,
    /// Of what is kept of all of them. What does not fit is not even loaded, but for one that shows that there is more.
    pub max_bytes: usize,
}

/// However large they are: for those who know that they are few, or small.
impl From<usize> for PageLimit {
    fn from(count: usize) -> Self {
        Self { max_items: count, max_bytes: usize::MAX }
    }
}

/// How much was read already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageBudget {
    limit: PageLimit,
    used_items: usize,
    used_bytes: usize,
}

impl PageBudget {
    pub(crate) fn new(limit: PageLimit) -> Self {
        Self { limit, used_items: 0, used_bytes: 0 }
    }

    /// Whether one of this size goes in as well; then it is counted.
    pub(crate) fn try_take(&mut self, bytes: usize) -> bool {
        let bytes = self.used_bytes.saturating_add(bytes);
        let fits = self.used_items < self.limit.max_items && (self.used_items == 0 || bytes <= self.limit.max_bytes);
        if fits {
            (self.used_items, self.used_bytes) = (self.used_items + 1, bytes);
        }
        fits
    }
}

/// Which records to list, oldest first.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    pub lifecycle: Option<Arc<str>>,
    pub state: Option<Arc<str>>,
    pub owner: Option<Arc<str>>,
    /// Where the page before ended: its [`RecordPage::next`].
    pub after: Option<u64>,
    pub limit: usize,
    /// Of the fields of all of them, as they are kept; as many as come where it is left out.
    pub max_bytes: Option<usize>,
}

impl ListQuery {
    pub(crate) fn page_limit(&self) -> PageLimit {
        PageLimit { max_items: self.limit, max_bytes: self.max_bytes.unwrap_or(usize::MAX) }
    }
}

#[derive(Clone, Debug, Default)]
pub struct RecordPage {
    /// Fewer than were asked for, or none, where not enough of those that were looked at fit: then `next` tells where to go on.
    pub records: Vec<Arc<Record>>,
    /// The place of each of them: a page that starts there starts behind it.
    pub row_ids: Vec<u64>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<u64>,
    /// Records that are damaged and cannot be read: they are passed over. `verify` names them.
    pub unreadable: u64,
}

/// How many records one page of a list looks at. An index by state would cost every move of every record, so those that do not
/// fit are passed over; but a page is one short look, however few fit.
pub(crate) fn max_scanned_records(limit: usize) -> usize {
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
    pub(crate) fn resolve(catalog: &Catalog, version_number: u32, state: &Arc<str>, count: u64) -> Option<Self> {
        let version = catalog.by_number(version_number)?;
        let state_index = version.state_index(state)?;
        Some(Self {
            lifecycle: Arc::clone(&version.name),
            definition: Arc::clone(&version.hash),
            state: Arc::clone(state),
            is_final: version.states[usize::from(state_index)].is_final,
            count,
        })
    }
}

/// So much longer waiting makes up for one less in priority. A minute: long enough that a priority means something, short
/// enough that nothing starves.
const AGING_MICROS_PER_PRIORITY: i64 = 60_000_000;

/// Where a waiting job stands: the smallest goes first. Since all jobs age alike, the order of two never changes, so it
/// can be kept in an index.
pub fn priority_rank(priority: i64, ready_at: Time) -> i64 {
    ready_at.micros().saturating_sub(priority.saturating_mul(AGING_MICROS_PER_PRIORITY))
}

/// The counter of a work key's running jobs, as core names it.
pub(crate) fn running_counter_key(key: &ConcurrencyKey) -> CounterKey {
    let (lifecycle, parts) = (Arc::clone(&key.lifecycle), key.parts.clone());
    CounterKey { lifecycle, limit: "work.key".into(), parts, window_start: None }
}

/// Begins the name of every worker inside a process.
pub(crate) const IN_PROCESS_WORKER_PREFIX: &str = "in-process";

/// The name under which a worker inside the process leases, so that it is known to be gone when the store is opened again.
pub fn in_process_worker_name(instance: &str, name: &str) -> Arc<str> {
    format!("{IN_PROCESS_WORKER_PREFIX} {instance} {name}").into()
}
