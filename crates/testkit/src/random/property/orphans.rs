//! Property: in a sound lifecycle, the engine can move every record on that is neither final nor at rest.

use onceward_core::decide::{Changes, Snapshot, next_due};
use onceward_core::model::{Definitions, StateReadiness};
use onceward_core::record::Record;

use super::{Property, PropertyViolation, ensure};
use crate::random::comparable_text;

#[derive(Debug, Default)]
pub struct OrphanProperty;

impl Property for OrphanProperty {
    fn on_applied(
        &mut self,
        _: &Definitions,
        sound: bool,
        _: &Snapshot,
        changes: &Changes,
    ) -> Result<(), PropertyViolation> {
        for change in changes.records.iter().filter(|_| sound) {
            ensure(can_move_on(&change.after), "no record is an orphan", || {
                format!("in {}: {}", change.after.state_name(), comparable_text::record_text(&change.after))
            })?;
        }
        Ok(())
    }
}

fn can_move_on(record: &Record) -> bool {
    let state = &record.lifecycle.states[usize::from(record.state)];
    let leasable = state.readiness != StateReadiness::NotReady
        && record.live_execution().is_none()
        && record.committed_token.is_none();
    state.is_final || state.can_rest || leasable || next_due(record).is_some()
}
