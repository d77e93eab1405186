//! Errors of calls to a fold.

use std::sync::Arc;

use super::operation::OperationId;

/// Why a call failed. The fold is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    #[error(
        "{lifecycle} lives by the engine's clock and cannot be folded: add `clock = \"operation\"` or leave it out"
    )]
    EngineClock { lifecycle: Arc<str> },
    #[error("{lifecycle} sends messages to the outside, which a fold could not take back: drop its `deliver`")]
    HasDeliveries { lifecycle: Arc<str> },
    #[error("the log is full: it holds {operations} operations and may hold {max_operations}")]
    LogFull { operations: usize, max_operations: usize },
    #[error(
        "{waiting} operations would wait for others that have not arrived, and {max_waiting} may: bring those others first"
    )]
    TooManyWaiting { waiting: usize, max_waiting: usize },
    #[error("two different operations have the id {0}: ids must be hashes of what was signed")]
    IdReused(OperationId),
    #[error("no operation on the log has the id {0}")]
    UnknownOperation(OperationId),
}
