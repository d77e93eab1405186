//! State that all parts of one engine share.

use std::sync::Arc;

use onceward_core::record::PayloadRef;
use onceward_store::{PageLimit, Store};

use crate::api_keys::ApiKeyCache;
use crate::background_tasks::DeadTask;
use crate::checks::CheckFailureLog;
use crate::config::EngineConfig;
use crate::dispatch::CandidateBroker;
use crate::error::EngineError;
use crate::fair_semaphore::FairSemaphore;
use crate::metrics::EngineMetrics;
use crate::notifier::Notifier;
use crate::objects::{MAX_INLINE_PAYLOAD_BYTES, PayloadReader};
use crate::refusal_limiter::RefusalLogLimiter;
use crate::scheduler::BlockedRecords;
use crate::submission::queue::SubmissionQueue;
use crate::worker_registry::WorkerRegistry;

#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) store: S,
    pub(crate) config: EngineConfig,
    pub(crate) queue: SubmissionQueue,
    pub(crate) notifier: Notifier,
    pub(crate) candidate_broker: CandidateBroker,
    pub(crate) metrics: EngineMetrics,
    pub(crate) refusal_limiter: RefusalLogLimiter,
    pub(crate) blocked_records: BlockedRecords,
    pub(crate) worker_registry: WorkerRegistry,
    pub(crate) api_keys: ApiKeyCache,
    /// Permits for external checks.
    pub(crate) check_permits: FairSemaphore,
    pub(crate) check_failures: CheckFailureLog,
    /// Permits for streams that read the store.
    pub(crate) stream_read_permits: FairSemaphore,
    pub(crate) dead_task: DeadTask,
}

/// Due records that one poll fires at most.
const MAX_DUE_PER_POLL: usize = 500;

impl<S> Shared<S> {
    pub(crate) fn max_due_per_poll(&self) -> usize {
        MAX_DUE_PER_POLL.min(self.config.max_batch_operations).min(self.config.max_queued_operations)
    }

    /// Clamps a requested page size to the configured limit.
    pub(crate) fn clamp_page_items(&self, limit: usize) -> usize {
        limit.clamp(1, self.config.max_page_items.max(1))
    }

    /// Like [`clamp_page_items`](Self::clamp_page_items), with the limit in bytes.
    pub(crate) fn page_limit(&self, limit: usize) -> PageLimit {
        PageLimit { max_items: self.clamp_page_items(limit), max_bytes: self.config.max_page_bytes }
    }
}

impl<S: Store> Shared<S> {
    /// Opens a payload in object storage, or in the database.
    pub(crate) async fn open_payload(&self, payload: PayloadRef) -> Result<Option<PayloadReader>, EngineError> {
        let is_large = usize::try_from(payload.bytes).is_ok_and(|bytes| bytes > MAX_INLINE_PAYLOAD_BYTES);
        if let (Some(objects), true) = (&self.config.object_storage, is_large)
            && let Some(found) = objects.get(&payload).await?
        {
            return Ok(Some(found));
        }
        let found = self.store.payload(&payload.sha256).await?;
        Ok(found.map(|bytes| PayloadReader::from_bytes(bytes, payload)))
    }

    /// Reads a payload into memory.
    pub(crate) async fn read_payload(&self, payload: PayloadRef) -> Result<Option<Arc<[u8]>>, EngineError> {
        match self.open_payload(payload).await? {
            Some(found) => Ok(found.read_all(u64::MAX).await?),
            None => Ok(None),
        }
    }
}
