//! Onceward from outside: a client for its HTTP interface, workers in Rust, and workers that run a command.
//!
//! ```no_run
//! use onceward_worker::{Client, Failure, Job, Working};
//!
//! # async fn example() -> Result<(), onceward_worker::ClientError> {
//! let client = Client::new("http://127.0.0.1:7171", None)?;
//! let worker = client.work(Working::on("execution.job"), |job: Job| async move {
//!     let text: String = job.input()?;
//!     Ok::<_, Failure>(text.len())
//! });
//! // ... until the program is to end:
//! worker.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | file | duty |
//! | --- | --- |
//! | `client.rs` | whom to ask, and for whom one speaks |
//! | `tls_roots.rs` | whose word counts for who a server is |
//! | `transport.rs` | one question and its answer: time-outs, and trying again where that is safe |
//! | `error.rs` | why there is no answer, or why it was no |
//! | `types.rs`, `payload.rs` | what comes over the wire, with types |
//! | `records.rs`, `leases.rs`, `reports.rs`, `stream.rs`, `admin.rs` | the calls, one file a resource |
//! | `work/` | workers: a closure for each job, its lease kept alive |
//! | `command/` | workers that run a program for each job, and see to it that it ends |
//!
//! # What can be relied on
//!
//! - A call is sent again only where that is safe: it carries a key or a token, it only looks, or the server cannot have seen it.
//! - A handler runs at least once for each job, and its result is committed at most once. It may run twice: when its worker or the
//!   server dies, or when its lease is lost. What it does to the world outside must bear that.
//! - No handler runs on when its lease is surely gone; it is told so a moment before, and dropped then. A handler can be dropped only
//!   where it waits: one that computes or blocks for long keeps its lease, but had better do so in `spawn_blocking`.

mod admin;
mod client;
mod command;
mod error;
mod leases;
mod payload;
mod records;
mod reports;
mod stream;
mod tls_roots;
mod transport;
mod types;
mod work;

pub use client::{Client, RetryPolicy};
pub use command::{CommandWorker, CommandWorkerExit, ResultKind, SelfLauncher, StderrLine, execute, supervise};
pub use error::{ClientError, Problem};
pub use leases::LeaseRequest;
pub use payload::Payload;
pub use records::{EventRequest, ListQuery, NewRecord};
pub use reports::{Report, ReportKind};
pub use stream::{LogStream, StreamOptions};
pub use types::{
    BatchItemResult, Execution, FireResult, LeasedJob, LogEntry, PayloadRef, Record, RecordPage, ReportResult,
};
pub use work::{CommitResult, Failure, Job, StopReason, WorkerConfig, WorkerHandle};
