//! Workers that run a closure for each job and keep its lease. The names match those of the engine's in-process
//! workers.

mod failure;
mod heartbeat;
mod job;
mod job_runner;
mod reporter;
mod worker;

pub use failure::Failure;
pub(crate) use failure::{BAD_RESULT_CODE, SIZE_EXCEEDED_CODE};
pub use job::{CommitResult, Job, StopReason};
pub(crate) use job_runner::{Handler, sleep_until_deadline};
pub use worker::{WorkerConfig, WorkerHandle};
