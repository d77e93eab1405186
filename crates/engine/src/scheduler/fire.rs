//! Submits the operations that fire due records, for the scheduler and for readers.

use onceward_core::decide::Call;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::Store;
use tokio::sync::oneshot;
use tracing::warn;

use crate::error::EngineError;
use crate::shared::Shared;
use crate::submission::queue::{Reply, Submission};

/// Bounds the work before a list or a count. The records of a page are fresh in any case.
const MAX_DUE_BATCHES: usize = 20;

/// Returns the engine's own operation that fires the due timers of a record.
pub(super) fn due_submission(record: RecordId) -> Submission {
    Submission::new(&Actor::engine(), Call::FireDue { record })
}

/// Result of firing due records.
pub(super) struct DueResult {
    /// A record was fired or blocked: another poll makes sense.
    pub(super) made_progress: bool,
    /// Records that another writer had already fired.
    pub(super) already_done: usize,
    /// The last error that was not caused by a single record.
    error: Option<EngineError>,
}

/// Waits for the replies, and blocks records that cannot be fired.
pub(super) async fn await_due<S: Store>(
    shared: &Shared<S>,
    due_records: Vec<(Time, RecordId)>,
    receivers: Vec<oneshot::Receiver<Reply>>,
) -> DueResult {
    let mut result = DueResult { made_progress: false, already_done: 0, error: None };
    for ((_, record), receiver) in due_records.into_iter().zip(receivers) {
        match shared.queue.wait_reply(receiver).await {
            // A no-op is progress too: another caller or process had fired the record.
            Ok(answer) => {
                result.made_progress = true;
                result.already_done += usize::from(answer.no_op.is_some());
            }
            Err(error) if error.is_single_operation_fault() || error.refusal().is_some() => {
                warn!(%record, code = error.code(), "due record cannot be fired; the scheduler retries it later");
                result.made_progress |= shared.blocked_records.block(record);
            }
            Err(error) => result.error = Some(error),
        }
    }
    result
}

/// Fires these records. Fails if one cannot be fired.
pub(crate) async fn fire_due<S: Store>(shared: &Shared<S>, records: Vec<RecordId>) -> Result<(), EngineError> {
    for receiver in shared.queue.submit(records.into_iter().map(due_submission).collect())? {
        shared.queue.wait_reply(receiver).await?;
    }
    Ok(())
}

/// Fires due timers, in a bounded number of batches. A record that cannot be fired does not prevent the read of
/// others.
pub(crate) async fn fire_all_due<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    for _ in 0..MAX_DUE_BATCHES {
        let now = shared.store.now().await?;
        let due_records = shared.blocked_records.due_unblocked(&shared.store, now, shared.max_due_per_poll()).await?;
        if due_records.is_empty() {
            break;
        }
        let receivers = shared.queue.submit(due_records.iter().map(|(_, record)| due_submission(*record)).collect())?;
        let result = await_due(shared, due_records, receivers).await;
        if let Some(error) = result.error {
            return Err(error);
        }
        if !result.made_progress {
            break;
        }
    }
    Ok(())
}
