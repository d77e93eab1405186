//! Property: a transition that static analysis reports as never taken is never taken.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use onceward_core::analysis::analyze;
use onceward_core::decide::Decision;
use onceward_core::diagnostic::Span;
use onceward_core::model::{Definitions, Transition};

use super::{Property, PropertyViolation, ensure};
use crate::random::simulation::DecisionStep;

/// Codes that report a transition as never taken.
const DEAD_TRANSITION_CODES: [&str; 3] = ["dead-transition", "always-refused", "shadowed-transition"];

/// A transition, by lifecycle, event and index.
type TransitionId = (Arc<str>, Arc<str>, u16);

#[derive(Debug, Default)]
pub struct DeadTransitionProperty {
    dead_transitions: Option<HashSet<TransitionId>>,
    /// Number of transitions reported as dead, over all cases that share it.
    pub reported: Rc<Cell<usize>>,
}

impl DeadTransitionProperty {
    pub fn with_counter(reported: &Rc<Cell<usize>>) -> Self {
        Self { dead_transitions: None, reported: Rc::clone(reported) }
    }
}

impl Property for DeadTransitionProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        let met = &self.reported;
        let dead = self.dead_transitions.get_or_insert_with(|| {
            let dead = reported_dead(step.definitions);
            met.set(met.get() + dead.len());
            dead
        });
        let Decision::Changes(changes) = step.decision else { return Ok(()) };
        for change in &changes.records {
            for (event, number) in &change.transitions {
                let transition = (change.after.lifecycle.name.clone(), event.clone(), *number);
                ensure(!dead.contains(&transition), "a transition reported as dead is never taken", || {
                    format!("{transition:?}")
                })?;
            }
        }
        Ok(())
    }
}

fn reported_dead(definitions: &Definitions) -> HashSet<TransitionId> {
    let spans: HashSet<Span> = analyze(definitions)
        .iter()
        .filter(|found| DEAD_TRANSITION_CODES.contains(&found.code))
        .map(|found| found.span)
        .collect();
    let mut dead = HashSet::new();
    for lifecycle in definitions.lifecycles.values() {
        for event in &lifecycle.events {
            for (number, row) in (0..).zip(&event.transitions) {
                if transition_spans(row).any(|place| spans.contains(&place)) {
                    dead.insert((lifecycle.name.clone(), event.name.clone(), number));
                }
            }
        }
    }
    dead
}

/// Returns the spans that a diagnostic about the whole transition may have.
fn transition_spans(transition: &Transition) -> impl Iterator<Item = Span> {
    let when = transition.when.iter().map(|when| when.expr.span);
    when.chain(transition.refuse.iter().map(|refuse| refuse.condition.expr.span)).chain([transition.span])
}
