//! EXE-3: executions are the truth, and a job's state follows from them.
//!
//! Written apart from `decide` and from the lifecycle file on purpose: it is the second opinion that `verify` and the
//! property tests hold the stored state against.

use crate::record::{Execution, ExecutionStatus};

/// The states of `execution.changed_job`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl JobState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }
}

/// Yields that cost nothing; each further one counts as a failure.
const MAX_FREE_YIELDS: usize = 100;

/// The state of an `execution.changed_job` that was created with this budget and has had these executions, oldest first.
pub fn project_job_state(failure_budget: i64, executions: &[Execution]) -> JobState {
    let (mut failures, mut yields) = (0_i64, 0_usize);
    for execution in executions {
        match execution.status {
            ExecutionStatus::Done => return JobState::Succeeded,
            ExecutionStatus::Leased | ExecutionStatus::InProgress | ExecutionStatus::Committed => {
                return JobState::Running;
            }
            ExecutionStatus::Aborted => {
                let Some(abort) = &execution.aborted else { continue };
                if *abort.code == *"yielded" && yields < MAX_FREE_YIELDS {
                    yields += 1;
                    continue;
                }
                failures += 1;
                if !abort.retryable || failures >= failure_budget {
                    return JobState::Failed;
                }
            }
        }
    }
    JobState::Pending
}
