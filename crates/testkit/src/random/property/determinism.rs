//! Properties: the decision does not depend on how the world is stored or how much of it is loaded.

use onceward_core::decide::{Changes, Decision, ReadKey, Snapshot, decide};
use onceward_core::model::Definitions;
use onceward_core::time::Time;

use super::{Property, PropertyViolation, ensure};
use crate::random::comparable_text;
use crate::random::partial_snapshot::{SnapshotLoader, decide_with_loader, snapshot_of_keys, with_reshuffled_maps};
use crate::random::simulation::DecisionStep;

fn ensure_same_decision(
    property: &'static str,
    first: &Decision,
    second: &Decision,
    step: &DecisionStep,
) -> Result<(), PropertyViolation> {
    let (first, second) = (comparable_text::decision_text(first), comparable_text::decision_text(second));
    ensure(first == second, property, || format!("{:?}\nfirst: {first}\nthen: {second}", step.operation))
}

/// A refusal or a `NoOp` changes nothing, so repeating the operation gives the same decision.
#[derive(Debug, Default)]
pub struct RefusalProperty;

impl Property for RefusalProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        if !matches!(step.decision, Decision::Refusal(_) | Decision::NoOp(_)) {
            return Ok(());
        }
        let again = decide(step.definitions, step.world, step.operation, step.now);
        ensure_same_decision("a refusal changes nothing", step.decision, &again, step)
    }
}

/// The order of hash maps has no effect.
#[derive(Debug, Default)]
pub struct DeterminismProperty {
    decisions_seen: u64,
}

impl Property for DeterminismProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        self.decisions_seen += 1;
        if !self.decisions_seen.is_multiple_of(3) {
            return Ok(());
        }
        let again = decide(step.definitions, &with_reshuffled_maps(step.world), step.operation, step.now);
        ensure_same_decision("the same operation gives the same changes", step.decision, &again, step)
    }
}

/// An empty snapshot, filled with the keys that `decide` asks for, gives the same decision.
#[derive(Debug, Default)]
pub struct PartialSnapshotProperty;

impl Property for PartialSnapshotProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        let loader = SnapshotLoader { world: step.world };
        let again = decide_with_loader(step.definitions, &mut Snapshot::default(), &loader, step.operation, step.now);
        ensure_same_decision(
            "a partial snapshot gives the same decision as the complete world",
            step.decision,
            &again,
            step,
        )
    }
}

/// The read set of a decision is complete.
#[derive(Debug, Default)]
pub struct ReadSetProperty;

impl Property for ReadSetProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        // Uses the time of the decision: `decide` may have moved past an earlier one.
        let (reads, now) = match step.decision {
            Decision::Changes(changes) => (&changes.read_keys, changes.now),
            Decision::NoOp(no_op) => (&no_op.read_keys, latest_logged_time(step, &no_op.read_keys)),
            _ => return Ok(()),
        };
        let again = decide(step.definitions, &snapshot_of_keys(step.world, reads), step.operation, now);
        ensure_same_decision("the read set is complete", step.decision, &again, step)
    }
}

/// Returns the time of a decision that does not state it: at least the last logged time of each record it read.
fn latest_logged_time(step: &DecisionStep, reads: &[ReadKey]) -> Time {
    let logged = reads.iter().filter_map(|key| match key {
        ReadKey::Record(id) => step.world.record(*id).map(|record| record.updated_at),
        _ => None,
    });
    logged.fold(step.now, Time::max)
}

/// The operations of a batch share a partial snapshot, as if each was saved and loaded.
#[derive(Debug, Default)]
pub struct BatchProperty {
    partial: Snapshot,
    decided: usize,
}

/// Short enough that the next batch has much to load.
const MAX_BATCH_OPERATIONS: usize = 12;

impl Property for BatchProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        let loader = SnapshotLoader { world: step.world };
        let again = decide_with_loader(step.definitions, &mut self.partial, &loader, step.operation, step.now);
        ensure_same_decision("a batch decides like single operations", step.decision, &again, step)
    }

    fn on_applied(
        &mut self,
        _: &Definitions,
        _: bool,
        _: &Snapshot,
        changes: &Changes,
    ) -> Result<(), PropertyViolation> {
        self.partial.apply(changes);
        self.decided += 1;
        if self.decided == MAX_BATCH_OPERATIONS {
            *self = Self::default();
        }
        Ok(())
    }
}
