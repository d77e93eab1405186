//! Whether an operation may enter the log: judged by itself alone, so that the answer is the same everywhere and for ever.

use super::operation::LogOperation;
use crate::bounds;
use crate::time::Time;

/// Operations that one may build on. A node need name only the newest that it has seen of each author.
const DEPENDENCIES: usize = 256;

/// Why an operation never enters the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("its clock says a time that cannot be written")]
    Time,
    #[error("its author has no name, or one that is too long")]
    Author,
    #[error("it builds on more than {DEPENDENCIES} operations")]
    Dependencies,
    #[error("it builds on itself")]
    Itself,
}

/// The first verdict.
pub(super) fn admit(operation: &LogOperation) -> Result<(), Malformed> {
    if !(Time::MIN..=Time::MAX).contains(&operation.moment.wall) {
        return Err(Malformed::Time);
    }
    let author = &operation.author;
    if author.is_empty() || author.contains('\0') || author.chars().count() > bounds::TEXT_CHARS {
        return Err(Malformed::Author);
    }
    if operation.after.len() > DEPENDENCIES {
        return Err(Malformed::Dependencies);
    }
    if operation.after.contains(&operation.id) {
        return Err(Malformed::Itself);
    }
    Ok(())
}
