//! The engine: load, decide, save, for many callers at once.
//!
//! Callers hand in operations; one loop takes all that wait, decides them on one base, saves them in one transaction and
//! only then answers. Each is taken or refused on its own. The engine holds no rule: what an operation does is for core's
//! `decide` to say, and whether it still holds is for the store's `save_result` to find out.
//!
//! # One duty a file
//!
//! | file | duty |
//! | --- | --- |
//! | `engine.rs` | what a program calls |
//! | `queue.rs` | the bounded way in: a full queue answers [`EngineError::Overloaded`] at once |
//! | `admission.rs` | calls that are too large, and bytes that are not what they are said to be, are turned away |
//! | `batch.rs` | the loop that saves: takes what is there, never waits for company; conflicts decide again, losses halve |
//! | `deciding.rs` | one batch decided: what is missing is loaded for all together, what is due is done first |
//! | `idempotency.rs` | calls that carry a key are carried out once, and answered the same again |
//! | `objects/` | large payloads, beside the database |
//! | `reading.rs` | who sees what, and never a state whose time is over |
//! | `preflight.rs` | calls with large payloads that have no hope, turned away before their bytes are written |
//! | `relations.rs` | whom a record names, and who names it |
//! | `ledger.rs` | what named accounts hold, and what moved there |
//! | `leasing.rs` | jobs for workers: candidates from the store, each leased by an operation of its own |
//! | `worker_registry.rs` | who comes for jobs, in this process and others |
//! | `in_process_worker.rs` | workers inside the process: a closure for each job, its lease kept alive |
//! | `timers.rs` | what is due is done when it is due, also what fell due while nobody was there |
//! | `checks.rs` | questions to the outside, bounded in time and number |
//! | `delivery.rs`, `http.rs` | messages to the outside, posted until they are acknowledged or dead |
//! | `inbox.rs` | calls that users' own transactions left in the database |
//! | `keys/` | API keys: making and revoking them, and telling who calls |
//! | `elsewhere.rs` | what other processes write wakes whoever waits here |
//! | `notifier.rs` | who is woken by what was saved |
//! | `waiting.rs` | who waits for jobs: as many are woken as there may be jobs |
//! | `refusal_limiter.rs` | how many denials and audited refusals are logged: so many of each a minute for each owner |
//! | `fair_semaphore.rs` | so much of something at once, and a share of it for one owner |
//! | `log_on_change.rs` | what goes wrong again and again is told once |
//! | `shared_work.rs` | what these parts share |
//! | `metrics.rs` | what the engine has done, counted |
//! | `spans.rs` | what it tells of operations and executions that stand in a trace |
//! | `stream.rs` | the log, in order, as it grows |
//! | `lifecycles.rs` | which versions there are, and which one is current |
//! | `version_migration.rs` | records moved to another version, so many at a time |
//! | `retention.rs`, `prune.rs` | how long what has ended is kept, and taking it out when that is over |
//! | `verify/` | everything that a store keeps, worked out again from its log |
//!
//! # What can be relied on
//!
//! - An answer means that the operation is durable. No answer means that nobody knows: ask again, or look.
//! - The operations of one call of [`Engine::submit_all`] are decided in their order, but for those that ask the outside
//!   first, which come when that has answered; those of different calls in any order.
//! - A refusal writes nothing but its log entry, where it has one. It was true of what had been loaded for its batch.
//! - [`Engine::get`] and [`Engine::list`] never show a record on which something is overdue, nor one that the actor may not see.
//! - A call with a key ([`Submission::once`]) is carried out once, also when it is sent again after a restart. A refusal is not
//!   remembered.
//! - Time is the store's: [`Store::now`](onceward_store::Store::now). The engine itself reads no wall clock.

mod admission;
mod api_keys;
mod batch;
mod checks;
mod config;
mod deciding;
mod delivery;
mod elsewhere;
mod engine;
mod error;
mod fair_semaphore;
mod http;
mod idempotency;
mod in_process_worker;
mod inbox;
mod leasing;
mod ledger;
mod lifecycles;
mod log_on_change;
mod metrics;
mod notifier;
mod objects;
mod preflight;
mod prune;
mod queries;
mod queue;
mod refusal_limiter;
mod relations;
mod retention;
mod shared;
mod spans;
mod stream;
mod timers;
mod tls_roots;
mod verify;
mod version_migration;
mod waiting;
mod weight;
mod worker_registry;

pub use api_keys::{ApiKeyCache, ApiKeys, Identity, NewApiKey, PlainApiKey, RevokedApiKey};
pub use checks::{CheckError, CheckRegistry, CheckRequest};
pub use config::EngineConfig;
pub use delivery::{DELIVERY_LIFECYCLE, DeliveryError, DeliveryRequest, DeliveryResponse, DeliveryTransport};
pub use engine::Engine;
pub use error::EngineError;
pub use http::HttpTransport;
pub use idempotency::IdempotencyKey;
pub use in_process_worker::{JobResult, WorkerConfig, WorkerHandle, WorkerJob};
pub use leasing::{KeepWaiting, LeaseRequest, LeasedJob};
pub use ledger::{AccountStatement, StatementCursor, StatementLine};
pub use lifecycles::find_version;
pub use metrics::{EngineCounters, LifecycleCounters, MetricsSnapshot};
pub use objects::{
    GcReport, MAX_INLINE_PAYLOAD_BYTES, ObjectError, ObjectStorage, ObjectWriter, PayloadReader, PayloadUpload,
    StaleNames, UploadedPayload, collect_orphans, verify_objects,
};
pub use prune::{PruneOptions, PruneReport, prune, prune_with_progress};
pub use queries::{ExecutionPage, HistoryPage};
pub use queue::{Receipt, Submission};
pub use relations::{RecordRelations, RelatedPage, RelatedRecord, RelationsQuery};
pub use retention::RetentionPolicy;
pub use spans::{ExecutionSpan, OperationSpan, SpanSink, execution_trace};
pub use stream::LogStream;
pub use tls_roots::root_certificates;
pub use verify::{DecisionDrift, ProgressObserver, PrunedSummary, VerifyReport, verify};
pub use version_migration::{
    MAX_RECORDS_PER_STEP, SkippedRecord, VersionMigration, VersionMigrationPlan, VersionMigrationStep,
};
pub use worker_registry::{WorkerList, WorkerStatus};
