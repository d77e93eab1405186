//! Property: a transition whose `require` is not taken leaves no change.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use onceward_core::decide::{Call, Changes, Decision, Snapshot, decide};
use onceward_core::model::{Lifecycle, StateSet};

use super::{Property, PropertyViolation, ensure};
use crate::random::comparable_text;
use crate::random::partial_snapshot::with_reshuffled_maps;
use crate::random::simulation::DecisionStep;

/// Decides again without the transitions that were rolled back. The rest must be equal.
#[derive(Debug, Default)]
pub struct UndoProperty {
    /// Number of decisions that the property applied to.
    pub cases_tried: Rc<Cell<u64>>,
}

impl Property for UndoProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        let (Call::Fire { record, event, .. }, Decision::Changes(changes)) = (&step.operation.call, step.decision)
        else {
            return Ok(());
        };
        // Other records send `told` and `asked`. Only callers fire the remaining events, so each of their transitions
        // is tried once.
        let (Some(found), true) = (step.world.record(*record), event.starts_with("ev")) else { return Ok(()) };
        let Some(taken_index) = first_transition(changes, *record, event) else { return Ok(()) };
        let lifecycle = &found.lifecycle;
        let rows = lifecycle.event(event).map_or(&[][..], |event| &event.transitions);
        let undone: Vec<usize> = (0..taken_index)
            .filter(|number| rows[*number].from.contains(found.state) && !rows[*number].require.is_empty())
            .collect();
        if undone.is_empty() {
            return Ok(());
        }
        self.cases_tried.set(self.cases_tried.get() + 1);
        let without = Arc::new(without_transitions(lifecycle, event, &undone));
        let mut definitions = step.definitions.clone();
        definitions.lifecycles.insert(Arc::clone(&without.name), Arc::clone(&without));
        let again = decide(&definitions, &with_lifecycle(step.world, &without), step.operation, step.now);
        let Decision::Changes(again) = again else {
            return Err(PropertyViolation::new(
                "a rolled back transition leaves no change",
                format!("{:?} gives {again:?}", step.operation.call),
            ));
        };
        let (first, second) =
            (comparable_text::changes_text_without_ids(changes), comparable_text::changes_text_without_ids(&again));
        ensure(first == second, "a rolled back transition leaves no change", || {
            format!("{first}\nwithout it:\n{second}")
        })
    }
}

fn first_transition(changes: &Changes, record: onceward_core::value::RecordId, event: &str) -> Option<usize> {
    let change = changes.records.iter().find(|change| change.after.id == record)?;
    change.transitions.iter().find(|(name, _)| **name == *event).map(|(_, number)| usize::from(*number))
}

fn without_transitions(lifecycle: &Lifecycle, event: &str, rows: &[usize]) -> Lifecycle {
    let mut lifecycle = lifecycle.clone();
    for found in lifecycle.events.iter_mut().filter(|found| *found.name == *event) {
        for number in rows {
            found.transitions[*number].from = StateSet::default();
        }
    }
    lifecycle
}

fn with_lifecycle(world: &Snapshot, lifecycle: &Arc<Lifecycle>) -> Snapshot {
    let mut world = with_reshuffled_maps(world);
    for record in world.records.values_mut().flatten().filter(|record| record.lifecycle.name == lifecycle.name) {
        Arc::make_mut(record).lifecycle = Arc::clone(lifecycle);
    }
    world
}
