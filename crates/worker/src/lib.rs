//! HTTP client for Onceward, and workers that run a Rust closure or a command for each job.
//!
//! ```no_run
//! use onceward_worker::{Client, Failure, Job, WorkerConfig};
//!
//! # async fn example() -> Result<(), onceward_worker::ClientError> {
//! let client = Client::new("http://127.0.0.1:7171", None)?;
//! let worker = client.work(WorkerConfig::for_lifecycle("execution.job"), |job: Job| async move {
//!     let text: String = job.input()?;
//!     Ok::<_, Failure>(text.len())
//! });
//! // ... until the program is to end:
//! worker.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | file | content |
//! | --- | --- |
//! | `client.rs` | the client: server address, API key, connections |
//! | `transport.rs` | sends one request: timeouts, and retries where they are safe |
//! | `error.rs` | errors of calls |
//! | `types.rs`, `payload.rs` | leased jobs, payloads and results of batches; the other types are in `onceward-api-types` |
//! | `records.rs`, `leases.rs`, `reports.rs`, `stream.rs`, `admin.rs` | the calls, one file per resource |
//! | `work/` | workers that run a closure for each job and keep its lease |
//! | `command/` | workers that run a command for each job and end it with its lease |
//!
//! # Guarantees
//!
//! - The client repeats a call only if that is safe: the call has an idempotency key or a fencing token, only reads, or
//!   did not reach the server.
//! - A handler runs at least once for each job, and its result is committed at most once. It may run twice, if its
//!   worker or the server dies or if its lease is lost. Its side effects outside Onceward must tolerate that.
//! - A handler does not outlive its lease: the worker warns it shortly before the lease expires, then drops it.
//!   Dropping takes effect only at an `await`. A handler that computes or blocks for long keeps its lease, but should
//!   use `spawn_blocking`.

mod admin;
mod client;
mod command;
mod error;
mod leases;
mod payload;
mod records;
mod reports;
mod stream;
mod transport;
mod types;
mod work;

pub use client::{Client, RetryPolicy};
pub use command::{CommandWorker, CommandWorkerExit, ResultKind, SelfLauncher, StderrLine, execute, supervise};
pub use error::{ClientError, Problem};
pub use leases::LeaseRequest;
pub use onceward_api_types::{
    BatchEvent as EventRequest, BatchReturn, Execution, FireBatchItem, FireResult, LeaseBody, LogEntry, PayloadRef,
    Record, RecordPage, ReportBatchItem, ReportResult,
};
pub use payload::Payload;
pub use records::{ListQuery, NewRecord};
pub use reports::{Report, ReportKind};
pub use stream::{LogStream, StreamOptions};
pub use types::{BatchItemResult, LeasedJob};
pub use work::{CommitResult, Failure, Job, StopReason, WorkerConfig, WorkerHandle};
