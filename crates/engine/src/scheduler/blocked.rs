//! Due records that the scheduler skips.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Store, StoreError};
use tokio::time::Instant;

/// Bounds memory. If more records were blocked, later due records would wait.
const MAX_BLOCKED_RECORDS: usize = 10_000;

/// An operator may have repaired the database or uploaded the missing lifecycle version.
const BLOCKED_RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// Due records that cannot be fired, for example damaged ones. The scheduler skips them, so that records due later do
/// not wait.
#[derive(Debug, Default)]
pub(crate) struct BlockedRecords(Mutex<BlockedState>);

#[derive(Debug, Default)]
struct BlockedState {
    records: HashSet<RecordId>,
    retry_at: Option<Instant>,
}

impl BlockedRecords {
    /// Returns unblocked records that are due at `cutoff`.
    pub(crate) async fn due_unblocked<S: Store>(
        &self,
        store: &S,
        cutoff: Time,
        max_records: usize,
    ) -> Result<Vec<(Time, RecordId)>, StoreError> {
        let blocked = self.lock_state().records.clone();
        let mut found = store.due_records(cutoff, max_records + blocked.len()).await?;
        found.retain(|(_, record)| !blocked.contains(record));
        found.truncate(max_records);
        Ok(found)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock_state().records.len()
    }

    /// Blocks a record. Returns false if it was already blocked or the capacity is used up.
    pub(super) fn block(&self, record: RecordId) -> bool {
        let mut state = self.lock_state();
        if state.records.len() >= MAX_BLOCKED_RECORDS {
            return false;
        }
        state.retry_at.get_or_insert_with(|| Instant::now() + BLOCKED_RETRY_INTERVAL);
        state.records.insert(record)
    }

    fn lock_state(&self) -> MutexGuard<'_, BlockedState> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.retry_at.is_some_and(|until| until <= Instant::now()) {
            *state = BlockedState::default();
        }
        state
    }
}
