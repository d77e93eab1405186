//! The engine: decides and commits the operations of concurrent callers in group commits.
//!
//! ```text
//! caller --submit--> submission queue --batch--> group commit --reply--> caller
//!                    bounded: when full          load, decide, save      when the save
//!                    it returns `Overloaded`     in one transaction      is durable
//!                      ^            ^                    |
//!                      |            |                  saved
//!               fire due timers   lease                  v
//!                      |            |                notifier --wakes--> log streams
//!                      |            |                 |    |
//!                  scheduler <------|------wakes------+    |
//!                                   |                      |
//!                               dispatch <------wakes------+
//!                                   |
//!                                   +--jobs--> workers
//!
//! beside it: delivery (webhooks: messages to URLs), retention (prunes ended records), verify (replays the log)
//! ```
//!
//! - The **submission queue** (`submission/`) takes a permit for each operation, validates it, and holds the
//!   permit until the reply.
//! - The **group commit** (`group_commit/`) takes up to `max_batch_operations` queued operations and saves them in one
//!   transaction.
//! - The **decision driver** (`decision/`) loads what the operations read and decides them in order. If the save finds a
//!   changed read, the batch is decided again; after several conflicts it is split.
//! - **Dispatch** (`dispatch/`) gives ready jobs to workers. A waiting poller is leased a job by the
//!   batch that creates the job (sync match).
//! - The **scheduler** (`scheduler/`) fires due timers and expires leases.
//! - The **notifier** wakes dispatch, the scheduler and log streams after each save, here or in another process. A
//!   notification is only a hint: each of them also polls.
//! - **Delivery** and **retention** run in the background; [`verify()`] checks a store, also beside an engine.
//!
//! The engine holds no rule of its own: `onceward_core::decide` decides, and the store's `save` checks that what was
//! read is unchanged.
//!
//! # Guarantees
//!
//! - **Durability:** a receipt means that the operation is durable. If the reply is lost, the outcome is unknown: retry
//!   with an idempotency key, or read the record.
//! - **Atomicity:** each operation is applied as a whole or refused. A refusal writes at most its log entry.
//! - **Order:** the operations of one [`Engine::submit_all`] call are decided in order. An operation that needs an
//!   external check is decided when the answer arrives; later ones do not wait for it. Different calls have no order.
//! - **Isolation:** a change commits only if everything it read is unchanged. A refusal was correct for the data loaded
//!   for its batch.
//! - **Idempotency:** a call with an idempotency key ([`Submission::with_idempotency_key`]) takes effect once, also
//!   across restarts. A refusal does not consume the key.
//! - **Fresh reads:** [`Engine::get`] and [`Engine::list`] fire due timers first, and return only records that the
//!   actor may see.
//! - **Time:** the store's clock ([`Store::now`](onceward_store::Store::now)) decides. The engine reads no wall clock.

mod api_keys;
mod background_tasks;
mod checks;
mod clock_watch;
mod config;
mod decision;
mod delivery;
mod dispatch;
mod engine;
mod error;
mod fair_semaphore;
mod group_commit;
mod idempotency;
mod in_process_worker;
mod inbox;
mod ledger;
mod lifecycles;
mod log_on_change;
mod metrics;
mod notifier;
mod objects;
mod preflight;
mod queries;
mod refusal_limiter;
mod relations;
mod retention;
mod scheduler;
mod shared;
mod spans;
mod stream;
mod submission;
mod verify;
mod version_migration;
mod worker_registry;

pub use api_keys::{ApiKeyCache, ApiKeys, BUILT_IN_ROLES, Identity, NewApiKey, PlainApiKey, RevokedApiKey};
pub use checks::{CheckError, CheckRegistry, CheckRequest};
pub use config::EngineConfig;
pub use delivery::http::{HttpTransport, HttpTransportConfig};
pub use delivery::webhook_secrets::{DeliverySignature, reveal_webhook_secret};
pub use delivery::{DELIVERY_LIFECYCLE, DeliveryError, DeliveryRequest, DeliveryResponse, DeliveryTransport};
pub use dispatch::{KeepWaiting, LeaseRequest, LeasedJob};
pub use engine::Engine;
pub use error::EngineError;
pub use idempotency::IdempotencyKey;
pub use in_process_worker::{JobResult, WorkerConfig, WorkerHandle, WorkerJob};
pub use ledger::{AccountStatement, StatementCursor, StatementLine};
pub use lifecycles::find_version;
pub use metrics::{EngineCounters, LifecycleCounters, MetricsSnapshot};
pub use objects::{
    GcReport, MAX_INLINE_PAYLOAD_BYTES, ObjectError, ObjectStorage, ObjectWriter, PayloadReader, PayloadUpload,
    StaleNames, UploadedPayload, collect_orphans, sample_missing_objects, verify_objects,
};
pub use onceward_http_client::{AllowedTarget, AllowedTargets};
pub use queries::{ExecutionPage, HistoryPage};
pub use relations::{RecordRelations, RelatedPage, RelatedRecord, RelationsQuery};
pub use retention::RetentionPolicy;
pub use retention::prune::{PruneOptions, PruneReport, prune, prune_with_progress};
pub use spans::{ExecutionSpan, OperationSpan, SpanSink, execution_trace};
pub use stream::LogStream;
pub use submission::queue::{Receipt, Submission};
pub use verify::{DecisionDrift, ProgressObserver, PrunedSummary, VerifyReport, verify};
pub use version_migration::{
    MAX_RECORDS_PER_STEP, SkippedRecord, VersionMigration, VersionMigrationPlan, VersionMigrationStep,
};
pub use worker_registry::{WorkerList, WorkerStatus};
