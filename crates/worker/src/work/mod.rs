//! Workers: a closure for each job, its lease kept alive as long as it runs. The same names as those of the engine's own workers
//! inside a process.

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
