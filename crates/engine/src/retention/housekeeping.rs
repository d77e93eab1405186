//! Deletes rows that no record needs and the log does not contain, in bounded pages.

use onceward_core::time::Time;
use onceward_store::{AnsweredCallsQuery, Catalog, ExpiredCountersQuery, Store, StoreError};
use tokio::time::{Instant, sleep};

use super::prune::SCAN_PAGE_RECORDS;

/// Deletes counters that are zero, and counters of windows that ended before the cutoff.
pub(super) async fn delete_expired_counters<S: Store>(
    store: &S,
    catalog: &Catalog,
    cutoff: Option<Time>,
) -> Result<(), StoreError> {
    let lifecycles = catalog.lifecycles();
    let limits = lifecycles.values().flat_map(|lifecycle| &lifecycle.limits);
    let longest_window = limits.filter_map(|limit| limit.window).max();
    let window_cutoff = cutoff.zip(longest_window).and_then(|(ended, longest)| ended.checked_sub(longest));
    let mut query = ExpiredCountersQuery { after: None, window_cutoff, limit: SCAN_PAGE_RECORDS };
    loop {
        let started_at = Instant::now();
        let page = store.delete_expired_counters(&query).await?;
        if page.next.is_none() {
            return Ok(());
        }
        query.after = page.next;
        sleep(started_at.elapsed()).await;
    }
}

/// Deletes inbox calls that were answered at or before the cutoff.
pub(super) async fn delete_answered_calls<S: Store>(store: &S, cutoff: Time) -> Result<(), StoreError> {
    let mut query = AnsweredCallsQuery { after_id: i64::MIN, cutoff, limit: SCAN_PAGE_RECORDS };
    loop {
        let started_at = Instant::now();
        let page = store.delete_answered_calls(&query).await?;
        let Some(next) = page.next else { return Ok(()) };
        query.after_id = next;
        sleep(started_at.elapsed()).await;
    }
}
