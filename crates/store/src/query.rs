//! Queries of a store other than load and save, and their results.

use std::sync::Arc;

use onceward_core::decide::{ConcurrencyKey, CounterKey};
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use crate::catalog::Catalog;

/// Selects jobs that a worker could lease now.
#[derive(Clone, Debug)]
pub struct LeaseQuery {
    pub lifecycles: Vec<Arc<str>>,
    pub now: Time,
    pub limit: usize,
}

/// A ready job. `decide` makes the final decision whether it can be leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseCandidate {
    pub record: RecordId,
    pub lifecycle: Arc<str>,
}

/// Limits of one page. A page contains at least one item, however large that item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    pub max_items: usize,
    /// Limit for the stored size of all items. The store loads at most one item beyond it, to detect that there are
    /// more.
    pub max_bytes: usize,
}

/// Without a byte limit, for callers that know the items to be few or small.
impl From<usize> for PageLimit {
    fn from(count: usize) -> Self {
        Self { max_items: count, max_bytes: usize::MAX }
    }
}

/// Tracks how much of a [`PageLimit`] is used.
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

    /// Adds an item of this size and returns true, if it fits.
    pub(crate) fn try_take(&mut self, bytes: usize) -> bool {
        let bytes = self.used_bytes.saturating_add(bytes);
        let fits = self.used_items < self.limit.max_items && (self.used_items == 0 || bytes <= self.limit.max_bytes);
        if fits {
            (self.used_items, self.used_bytes) = (self.used_items + 1, bytes);
        }
        fits
    }
}

/// Selects a page of records, oldest first.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    pub lifecycle: Option<Arc<str>>,
    pub state: Option<Arc<str>>,
    pub owner: Option<Arc<str>>,
    /// [`RecordPage::next`] of the previous page.
    pub after: Option<u64>,
    pub limit: usize,
    /// Limit for the stored size of all fields; `None` means no limit.
    pub max_bytes: Option<usize>,
}

impl ListQuery {
    pub(crate) fn page_limit(&self) -> PageLimit {
        PageLimit { max_items: self.limit, max_bytes: self.max_bytes.unwrap_or(usize::MAX) }
    }
}

#[derive(Clone, Debug, Default)]
pub struct RecordPage {
    /// May be shorter than the limit, or empty, if few of the scanned records match. In that case `next` is set.
    pub records: Vec<Arc<Record>>,
    /// Row id of each record. A page with `after` set to it starts behind that record.
    pub row_ids: Vec<u64>,
    /// Cursor for the next page; `None` on the last page.
    pub next: Option<u64>,
    /// Number of damaged records that were skipped. `verify` names them.
    pub unreadable: u64,
}

/// Returns how many records one page of a list scans. There is no index by state, because each transition would have to
/// update it. Instead the scan skips records that do not match, and this bound keeps each page short.
pub(crate) fn max_scanned_records(limit: usize) -> usize {
    limit.saturating_add(1).max(2_000)
}

/// Number of records of a lifecycle in a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateCount {
    pub lifecycle: Arc<str>,
    pub state: Arc<str>,
    pub count: u64,
}

/// Number of records of a lifecycle version in a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionCount {
    pub lifecycle: Arc<str>,
    /// Hash of the version.
    pub definition: Arc<str>,
    pub state: Arc<str>,
    pub is_final: bool,
    pub count: u64,
}

impl VersionCount {
    /// Builds the count from a stored row; `None` if the version or the state is unknown.
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

/// Extra waiting time that outweighs one unit of priority. One minute is long enough for priorities to matter and short
/// enough to prevent starvation.
const AGING_MICROS_PER_PRIORITY: i64 = 60_000_000;

/// Returns the sort key of a ready job; the smallest goes first. All jobs age at the same rate, so the order of two
/// jobs never changes and an index can store it.
pub fn priority_rank(priority: i64, ready_at: Time) -> i64 {
    ready_at.micros().saturating_sub(priority.saturating_mul(AGING_MICROS_PER_PRIORITY))
}

/// Returns core's key for the counter of running jobs with a concurrency key.
pub(crate) fn running_counter_key(key: &ConcurrencyKey) -> CounterKey {
    let (lifecycle, parts) = (Arc::clone(&key.lifecycle), key.parts.clone());
    CounterKey { lifecycle, limit: "work.key".into(), parts, window_start: None }
}

/// Prefix of the name of every in-process worker.
pub(crate) const IN_PROCESS_WORKER_PREFIX: &str = "in-process";

/// Returns the name under which an in-process worker leases. It contains the instance, so that the next instance can
/// recognize orphaned leases.
pub fn in_process_worker_name(instance: &str, name: &str) -> Arc<str> {
    format!("{IN_PROCESS_WORKER_PREFIX} {instance} {name}").into()
}
