//! Request and response bodies of the HTTP API and of its event stream.
//!
//! The server serializes what the worker and the command line deserialize, and the other way round, so each body is
//! defined once. Requests reject unknown members. Responses ignore them, so that a client can talk to a newer server.
//!
//! Type parameters have the owned type as default. The server replaces them where it can avoid a copy (borrowed text,
//! fields serialized straight from a record) or needs a stricter parser (size limits).
//!
//! The feature `openapi` derives the schemas of `docs/openapi.json`. Doc comments become their descriptions.

mod account;
mod api_key;
mod batch;
mod bounded;
mod clock;
mod event;
mod execution;
mod health;
mod lease;
mod lifecycle;
mod lifecycle_version;
mod links;
mod log_entry;
mod problem;
mod prune;
mod record;
mod report;
mod webhook_secret;
mod worker;

pub use account::{Account, AccountEntry, Accounts, Counterparty, Statement};
pub use api_key::{ApiKey, ApiKeys, NewApiKeyBody, NewApiKeyJson, RevokedApiKey};
pub use batch::BatchReturn;
pub use clock::{ClockHoldState, ClockState};
pub use event::{BatchEvent, FireBatchItem, FireBatchResult, FireResult, NewEvent, NewEventBatch};
pub use execution::{AbortReason, Effect, Execution, ExecutionPage, ExecutionStatus};
pub use health::HealthStatus;
pub use lease::{Lease, LeaseBody, LeasedJobs};
pub use lifecycle::{Field, Lifecycle, LifecycleList, State};
pub use lifecycle_version::{
    ActivateVersionBody, CurrentVersion, LifecycleVersion, MigrateRecordsBody, MigrationStep, SkippedRecord,
    VersionList,
};
pub use links::{RelatedPage, RelatedRecord, Relations};
pub use log_entry::{EffectRef, HistoryPage, LogEntry, LoggedRefusal, StreamEvent, Transfer};
pub use problem::{MAX_RETRY_DELAY, Problem};
pub use prune::{LifecyclePruneReport, PruneBlocked, PruneBody, PruneReport};
pub use record::{CreateBatchItem, CreateBatchResult, NewRecord, NewRecordBatch, PayloadRef, Record, RecordPage};
pub use report::{
    FailureReport, NewReport, NewReportBatch, ReportBatchItem, ReportBatchResult, ReportKind, ReportResult,
};
pub use webhook_secret::WebhookSecretJson;
pub use worker::{Worker, Workers};
