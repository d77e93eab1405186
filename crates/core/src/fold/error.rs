//! Errors of calls to a fold.

use std::sync::Arc;

use super::operation::OperationId;

/// Why a call failed. The fold is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    #[error("{lifecycle} uses the engine's clock and cannot be folded: add `clock = \"operation\"` or leave it out")]
    EngineClock { lifecycle: Arc<str> },
    #[error("{lifecycle} sends deliveries, which a fold cannot roll back: remove its `deliver`")]
    HasDeliveries { lifecycle: Arc<str> },
    #[error("the log is full: it has {operations} operations, but at most {max_operations} are allowed")]
    LogFull { operations: usize, max_operations: usize },
    #[error(
        "{waiting} operations would wait for missing dependencies, but at most {max_waiting} may; add the dependencies \
         first"
    )]
    TooManyWaiting { waiting: usize, max_waiting: usize },
    #[error("two different operations have the id {0}: ids must be hashes of the signed content")]
    IdReused(OperationId),
    #[error("no operation on the log has the id {0}")]
    UnknownOperation(OperationId),
}
