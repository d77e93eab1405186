//! In a sound lifecycle, whatever is neither final nor at rest can be moved on by the engine.

use onceward_core::decide::{Changes, Snapshot, next_due};
use onceward_core::model::{Definitions, Ready};
use onceward_core::record::Record;

use super::{Broken, Property, ensure};
use crate::random::outline;

#[derive(Debug, Default)]
pub struct Orphans;

impl Property for Orphans {
    fn after(&mut self, _: &Definitions, sound: bool, _: &Snapshot, changes: &Changes) -> Result<(), Broken> {
        for change in changes.records.iter().filter(|_| sound) {
            ensure(moves_on(&change.after), "no record is an orphan", || {
                format!("in {}: {}", change.after.state_name(), outline::record(&change.after))
            })?;
        }
        Ok(())
    }
}

fn moves_on(record: &Record) -> bool {
    let state = &record.lifecycle.states[usize::from(record.state)];
    let leasable = state.ready != Ready::No && record.live_execution().is_none() && record.committed.is_none();
    state.is_final || state.rest || leasable || next_due(record).is_some()
}
