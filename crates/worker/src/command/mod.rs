//! Workers that run a command for each job. A supervisor process per command ensures that no process of the command
//! outlives the worker or the lease.
//!
//! | file | content |
//! | --- | --- |
//! | `worker.rs` | the configuration, and the worker |
//! | `process.rs` | runs one command |
//! | `exit_status.rs` | converts exit status and output into the job's result |
//! | `stderr.rs` | forwards standard error with limits and keeps its last line |
//! | `process_cleanup.rs` | finds and kills processes that a command left behind |
//! | `control_pipe.rs` | messages from the worker to the supervisor, over its standard input |
//! | `supervisor.rs` | the supervisor process |

mod control_pipe;
mod exit_status;
mod process;
mod process_cleanup;
mod stderr;
mod supervisor;
mod worker;

pub use exit_status::ResultKind;
pub use stderr::StderrLine;
pub use supervisor::{execute, supervise};
pub use worker::{CommandWorker, CommandWorkerExit, SelfLauncher};
