//! Workers that run a program for each job. The worker starts a supervisor for each program, which stays beside it: it is the one
//! that sees to it that nothing of the program outlives the worker or the lease.
//!
//! | file | duty |
//! | --- | --- |
//! | `worker.rs` | what a user says, and the worker as a whole |
//! | `running.rs` | one program from its start to its verdict |
//! | `verdict.rs` | what its end means for the job |
//! | `complaints.rs` | its standard error: passed on, bounded, and its last line kept |
//! | `orphans.rs` | what a program leaves behind, found and ended |
//! | `lifeline.rs` | what the worker tells the supervisor, over its standard input |
//! | `supervisor.rs` | the supervisor itself, in its own process |

mod complaints;
mod lifeline;
mod orphans;
mod running;
mod supervisor;
mod verdict;
mod worker;

pub use complaints::Complaint;
pub use supervisor::{execute, supervise};
pub use verdict::ResultKind;
pub use worker::{CommandEnd, Commands, Launcher};
