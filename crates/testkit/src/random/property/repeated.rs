//! One question, one answer: however the world is kept, and however much of it is given.

use onceward_core::decide::{Changes, Decision, Snapshot, decide};
use onceward_core::model::Definitions;

use super::{Broken, Property, ensure};
use crate::random::load::{Loader, answer_missing, only, reshuffled};
use crate::random::outline;
use crate::random::play::Step;

fn same(property: &'static str, first: &Decision, second: &Decision, step: &Step) -> Result<(), Broken> {
    let (first, second) = (outline::decision(first), outline::decision(second));
    ensure(first == second, property, || format!("{:?}\nfirst: {first}\nthen: {second}", step.operation))
}

/// A refusal or a `NoOp` changes nothing, so that asking again gives it again.
#[derive(Debug, Default)]
pub struct Refused;

impl Property for Refused {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        if !matches!(step.decision, Decision::Refusal(_) | Decision::NoOp(_)) {
            return Ok(());
        }
        let again = decide(step.definitions, step.world, step.operation, step.now);
        same("a refusal changes nothing", step.decision, &again, step)
    }
}

/// The order of hash maps shows nowhere.
#[derive(Debug, Default)]
pub struct Repeated {
    seen: u64,
}

impl Property for Repeated {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        self.seen += 1;
        if !self.seen.is_multiple_of(3) {
            return Ok(());
        }
        let again = decide(step.definitions, &reshuffled(step.world), step.operation, step.now);
        same("the same operation gives the same changes", step.decision, &again, step)
    }
}

/// A snapshot that starts with nothing and is given what `decide` asks for leads to the same answer.
#[derive(Debug, Default)]
pub struct Partial;

impl Property for Partial {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        let loader = Loader { world: step.world };
        let again = answer_missing(step.definitions, &mut Snapshot::default(), &loader, step.operation, step.now);
        same("a partial snapshot decides as the whole world does", step.decision, &again, step)
    }
}

/// What a decision says it rests on is all that it rests on.
#[derive(Debug, Default)]
pub struct Reads;

impl Property for Reads {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        // At the time that was decided on: an earlier one is passed over on the way there.
        let (reads, now) = match step.decision {
            Decision::Changes(changes) => (&changes.reads, changes.now),
            Decision::NoOp(no_op) => (&no_op.reads, step.now),
            _ => return Ok(()),
        };
        let again = decide(step.definitions, &only(step.world, reads), step.operation, now);
        same("the keys that a decision names are all it reads", step.decision, &again, step)
    }
}

/// Operations of a batch see each other through one partial snapshot, as if each had been saved and loaded.
#[derive(Debug, Default)]
pub struct Batch {
    partial: Snapshot,
    decided: usize,
}

/// The longest batch; short enough that the next one starts with much to load.
const BATCH: usize = 12;

impl Property for Batch {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        let loader = Loader { world: step.world };
        let again = answer_missing(step.definitions, &mut self.partial, &loader, step.operation, step.now);
        same("a batch decides as one operation after another", step.decision, &again, step)
    }

    fn after(&mut self, _: &Definitions, _: bool, _: &Snapshot, changes: &Changes) -> Result<(), Broken> {
        self.partial.apply(changes);
        self.decided += 1;
        if self.decided == BATCH {
            *self = Self::default();
        }
        Ok(())
    }
}
