//! Admission to the log. It depends on the operation alone, so that every node gives the same final verdict.

use super::operation::LogOperation;
use crate::bounds;
use crate::time::Time;

/// Most dependencies of one operation. A node needs to name only the newest operation that it has seen of each author.
const MAX_DEPENDENCIES: usize = 256;

/// Why an operation is never admitted to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    #[error("the operation's timestamp is out of range")]
    InvalidTime,
    #[error("the name of the operation's author is empty or too long")]
    InvalidAuthor,
    #[error("the operation has more than {MAX_DEPENDENCIES} dependencies")]
    TooManyDependencies,
    #[error("the operation names itself as a dependency")]
    DependsOnItself,
}

/// Validates an operation for admission, the first of its two verdicts.
pub(super) fn validate_operation(operation: &LogOperation) -> Result<(), AdmissionError> {
    if !(Time::MIN..=Time::MAX).contains(&operation.timestamp.wall_time) {
        return Err(AdmissionError::InvalidTime);
    }
    let author = &operation.author;
    if author.is_empty() || author.contains('\0') || author.chars().count() > bounds::MAX_TEXT_CHARS {
        return Err(AdmissionError::InvalidAuthor);
    }
    if operation.dependencies.len() > MAX_DEPENDENCIES {
        return Err(AdmissionError::TooManyDependencies);
    }
    if operation.dependencies.contains(&operation.id) {
        return Err(AdmissionError::DependsOnItself);
    }
    Ok(())
}
