//! Workers that run a program for each job. The worker starts a supervisor for each program, which stays beside it: it is the one
//! that sees to it that nothing of the program outlives the worker or the lease.
//!
//! | file | duty |
//! | --- | --- |
//! | `worker.rs` | what a user says, and the worker as a whole |
//! | `process.rs` | one program from its start to its verdict |
//! | `exit_status.rs` | what its end means for the job |
//! | `stderr.rs` | its standard error: passed on, bounded, and its last line kept |
//! | `process_cleanup.rs` | what a program leaves behind, found and ended |
//! | `control_pipe.rs` | what the worker tells the supervisor, over its standard input |
//! | `supervisor.rs` | the supervisor itself, in its own process |

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
