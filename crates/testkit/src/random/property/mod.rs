//! Properties, one per type. Each checks every decision and the world after it.

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

/// A violated property, with the details.
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

/// Returns a violation if `holds` is false.
pub(crate) fn ensure(
    holds: bool,
    property: &'static str,
    detail: impl FnOnce() -> String,
) -> Result<(), PropertyViolation> {
    if holds { Ok(()) } else { Err(PropertyViolation::new(property, detail())) }
}

pub trait Property {
    /// Checks a decision before its changes are applied.
    fn on_decision(&mut self, _step: &DecisionStep) -> Result<(), PropertyViolation> {
        Ok(())
    }

    /// Checks the world after changes were applied.
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
