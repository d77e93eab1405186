//! When the engine decides an operation or a batch again, and when it gives up.
//!
//! A conflict is retried at once: the other writer made progress. A batch that keeps conflicting, or that one operation
//! may have broken, is split in half until that operation is alone. Refusals are final, and an operation whose outcome
//! is unknown is not retried. `ARCHITECTURE.md` lists these bounds with those of the store and the workers.

use crate::decision::RetryHints;
use crate::error::EngineError;

/// Conflicts of a batch before it is split. A smaller batch finishes sooner and reads less, so it conflicts less often.
const MAX_CONFLICTS_BEFORE_SPLIT: usize = 3;

/// Conflicts of a single operation. Each conflict means that another writer made progress, so a high count is rare.
const MAX_CONFLICT_RETRIES: usize = 1_000;

/// Lifecycle uploads during a batch are rare, so a few refreshes are enough.
pub(crate) const MAX_CATALOG_REFRESHES: usize = 3;

/// Each repetition means that another writer changed what the batch reads.
pub(crate) const MAX_REFUSAL_REDECIDES: usize = 3;

/// Bounds load rounds without progress, and due passes of one operation. `validate` bounds what an operation can reach
/// far below this, so only a bug of the engine gets here.
pub(crate) const MAX_LOAD_ROUNDS: usize = 1_000;

/// Longest chain of due records that trigger other due records.
pub(crate) const MAX_DUE_DEPTH: usize = 64;

/// The creators of the jobs wait for the loads of a sync match. A lease that needs more is left to a scan.
pub(crate) const MAX_MATCH_LOADS: usize = 4;

/// Most operations have all their data after this many rounds.
const PREFETCH_AFTER_ROUNDS: usize = 3;

/// Bounds of what one round prefetches.
const MAX_PREFETCH_STEPS: usize = 64;
pub(crate) const MAX_PREFETCH_KEYS: usize = 2_000;

/// Returns how many links to follow ahead after rounds without progress. `decide` reports only the next step of a chain
/// of links, so the number doubles with each round.
pub(crate) fn prefetch_steps(idle_rounds: usize) -> usize {
    let doublings = idle_rounds.checked_sub(PREFETCH_AFTER_ROUNDS);
    doublings.map_or(0, |doublings| MAX_PREFETCH_STEPS.min(1 << doublings.min(16)))
}

/// Why an attempt to commit a batch failed.
pub(crate) enum AttemptError {
    /// Another writer changed what the batch read; nothing was saved.
    Conflict(RetryHints),
    /// A sync match may be the cause; nothing was saved.
    SyncMatch,
    /// Nothing was saved, or the outcome is unknown.
    Failed(EngineError),
}

impl<E: Into<EngineError>> From<E> for AttemptError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// What follows a failed attempt.
pub(crate) enum NextStep {
    /// Decide the batch again, without sync matches.
    Retry,
    /// Like `Retry`, and count a conflict.
    RetryConflict(RetryHints),
    /// Commit each half on its own, so that only the operation at fault fails.
    Split,
    /// Answer every operation with this error.
    Fail(EngineError),
}

impl AttemptError {
    /// Returns what to do with a batch of this many operations that had `conflicts` conflicts before.
    pub(crate) fn next_step(self, operations: usize, conflicts: usize) -> NextStep {
        let is_single = operations < 2;
        match self {
            Self::Conflict(_) if is_single && conflicts >= MAX_CONFLICT_RETRIES => {
                NextStep::Fail(EngineError::TooManyConflicts)
            }
            Self::Conflict(hints) if is_single || conflicts < MAX_CONFLICTS_BEFORE_SPLIT => {
                NextStep::RetryConflict(hints)
            }
            Self::SyncMatch => NextStep::Retry,
            Self::Failed(error) if is_single || !error.is_single_operation_fault() => NextStep::Fail(error),
            Self::Conflict(_) | Self::Failed(_) => NextStep::Split,
        }
    }
}
