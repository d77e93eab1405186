//! What must hold, one property a type; each is shown every decision and every world that follows from one.

mod dead_transitions;
mod determinism;
mod indexes;
mod leases;
mod ledger;
mod limits;
mod null_operands;
mod orphans;
mod record_progress;
mod soundness;
mod undo;

pub use dead_transitions::DeadTransitionProperty;
pub use determinism::{BatchProperty, DeterminismProperty, PartialSnapshotProperty, ReadSetProperty, RefusalProperty};
pub use indexes::IndexProperty;
pub use leases::LeaseProperty;
pub use ledger::LedgerProperty;
pub use limits::LimitProperty;
pub use null_operands::NullOperandProperty;
pub use orphans::OrphanProperty;
pub use record_progress::RecordProgressProperty;
pub use soundness::SoundnessProperty;
pub use undo::UndoProperty;

use onceward_core::decide::{Changes, Snapshot};
use onceward_core::model::Definitions;

use super::simulation::DecisionStep;

/// A property that does not hold, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyViolation {
    pub property: &'static str,
    pub detail: String,
}

impl PropertyViolation {
    pub fn new(property: &'static str, detail: impl Into<String>) -> Self {
        Self { property, detail: detail.into() }
    }
}

/// Holds, or is broken in this way.
pub(crate) fn ensure(
    holds: bool,
    property: &'static str,
    detail: impl FnOnce() -> String,
) -> Result<(), PropertyViolation> {
    if holds { Ok(()) } else { Err(PropertyViolation::new(property, detail())) }
}

pub trait Property {
    /// Every answer of `decide`, before anything is applied.
    fn on_decision(&mut self, _step: &DecisionStep) -> Result<(), PropertyViolation> {
        Ok(())
    }

    /// The world right after changes.
    fn on_applied(
        &mut self,
        _definitions: &Definitions,
        _sound: bool,
        _world: &Snapshot,
        _changes: &Changes,
    ) -> Result<(), PropertyViolation> {
        Ok(())
    }
}
