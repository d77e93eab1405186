//! What no record needs any more and no entry of the log tells of, taken away a bounded number at a time.

use onceward_core::time::Time;
use onceward_store::{Catalog, OldCounts, OldLetters, Store, StoreError};
use tokio::time::{Instant, sleep};

use super::STEP;

/// Counts of nobody, and those of windows that had ended by this time.
pub(super) async fn counts<S: Store>(store: &S, catalog: &Catalog, ended: Option<Time>) -> Result<(), StoreError> {
    let lifecycles = catalog.lifecycles();
    let limits = lifecycles.values().flat_map(|lifecycle| &lifecycle.limits);
    let longest = limits.filter_map(|limit| limit.per).max();
    let windows = ended.zip(longest).and_then(|(ended, longest)| ended.checked_sub(longest));
    let mut old = OldCounts { after: None, windows, limit: STEP };
    loop {
        let begun = Instant::now();
        let forgotten = store.forget_counts(&old).await?;
        if forgotten.next.is_none() {
            return Ok(());
        }
        old.after = forgotten.next;
        sleep(begun.elapsed()).await;
    }
}

/// Letters that were answered at this time or before.
pub(super) async fn letters<S: Store>(store: &S, before: Time) -> Result<(), StoreError> {
    let mut old = OldLetters { after: i64::MIN, before, limit: STEP };
    loop {
        let begun = Instant::now();
        let forgotten = store.forget_letters(&old).await?;
        let Some(next) = forgotten.next else { return Ok(()) };
        old.after = next;
        sleep(begun.elapsed()).await;
    }
}
