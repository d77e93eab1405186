//! One question, one answer: however the world is kept, and however much of it is given.

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

/// A refusal or a `NoOp` changes nothing, so that asking again gives it again.
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

/// The order of hash maps shows nowhere.
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

/// A snapshot that starts with nothing and is given what `decide` asks for leads to the same answer.
#[derive(Debug, Default)]
pub struct PartialSnapshotProperty;

impl Property for PartialSnapshotProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        let loader = SnapshotLoader { world: step.world };
        let again = decide_with_loader(step.definitions, &mut Snapshot::default(), &loader, step.operation, step.now);
        ensure_same_decision("a partial snapshot decides as the whole world does", step.decision, &again, step)
    }
}

/// What a decision says it rests on is all that it rests on.
#[derive(Debug, Default)]
pub struct ReadSetProperty;

impl Property for ReadSetProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        // At the time that was decided on: an earlier one is passed over on the way there.
        let (reads, now) = match step.decision {
            Decision::Changes(changes) => (&changes.read_keys, changes.now),
            Decision::NoOp(no_op) => (&no_op.read_keys, latest_logged_time(step, &no_op.read_keys)),
            _ => return Ok(()),
        };
        let again = decide(step.definitions, &snapshot_of_keys(step.world, reads), step.operation, now);
        ensure_same_decision("the keys that a decision names are all it reads", step.decision, &again, step)
    }
}

/// The time of a decision that does not tell it: not below the last logged time of any record it looked at.
fn latest_logged_time(step: &DecisionStep, reads: &[ReadKey]) -> Time {
    let logged = reads.iter().filter_map(|key| match key {
        ReadKey::Record(id) => step.world.record(*id).map(|record| record.updated_at),
        _ => None,
    });
    logged.fold(step.now, Time::max)
}

/// Operations of a batch see each other through one partial snapshot, as if each had been saved and loaded.
#[derive(Debug, Default)]
pub struct BatchProperty {
    partial: Snapshot,
    decided: usize,
}

/// The longest batch; short enough that the next one starts with much to load.
const MAX_BATCH_OPERATIONS: usize = 12;

impl Property for BatchProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        let loader = SnapshotLoader { world: step.world };
        let again = decide_with_loader(step.definitions, &mut self.partial, &loader, step.operation, step.now);
        ensure_same_decision("a batch decides as one operation after another", step.decision, &again, step)
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
