//! EXE-3: derives a job's state from its executions.
//!
//! Written independently of `decide` and of the lifecycle file, so that `verify` and the property tests can compare the
//! stored state with it.

use crate::record::{Execution, ExecutionStatus};

/// The states of the lifecycle `execution.job`.
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

/// Yields that cost nothing. Each further yield counts as a failure.
const MAX_FREE_YIELDS: usize = 100;

/// Returns the state of an `execution.job` from its failure budget and its executions, oldest first.
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
