//! Workers: a closure for each job, its lease kept alive as long as it runs. The same names as those of the engine's own workers
//! inside a process.

mod failure;
mod heart;
mod job;
mod keeping;
mod reporter;
mod worker;

pub use failure::Failure;
pub(crate) use failure::{BAD_RESULT, SIZE_EXCEEDED};
pub use job::{Committed, Job, Stopping};
pub(crate) use keeping::{Run, until};
pub use worker::{Worker, Working};
