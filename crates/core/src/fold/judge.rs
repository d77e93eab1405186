//! The second verdict on one operation: may it be decided at all, and what does the lifecycle say?

use serde_json::{Map, Value as Json};

use super::log::{Log, Place};
use super::operation::LogOperation;
use super::standing::{Grant, Outside, Standing};
use super::verdict::{Applied, Reason, Wait};
use crate::decide::{Answer, Changes, Decision, Question, Snapshot, decide};
use crate::model::Definitions;

/// Times that one operation may ask the outside. Each round answers the checks of one row, and rows are few.
const ROUNDS: usize = 64;

/// What can be said of an operation before its lifecycle is asked. It hangs on the set, on rights and on what became of
/// operations with earlier clocks; never on those of the same moment.
pub(super) fn eligible<'a>(log: &'a Log, place: &Place) -> Result<(&'a LogOperation, &'a Grant), Applied> {
    let Some(entry) = log.get(place) else { return Err(Applied::Refused(Reason::NotAdmitted)) };
    let operation = &entry.operation;
    if log.is_clock_reused(place) {
        return Err(Applied::Refused(Reason::ClockReused));
    }
    dependencies(log, operation)?;
    match &entry.standing {
        Standing::Held(grant) => Ok((operation, grant)),
        // MSH-19: held, and judged again when the suspension lifts.
        Standing::Suspended { why } => Err(Applied::Held { why: why.clone() }),
        // MSH-20: what no valid chain covers leaves the state and stays on the log.
        Standing::Withdrawn { why } => Err(Applied::Refused(Reason::NoAuthority { why: why.clone() })),
    }
}

/// MSH-15: what an operation builds on must be here and applied. Naming one that is not earlier is a lie, and every circle
/// of operations holds such a one; all of a circle follows it.
fn dependencies(log: &Log, operation: &LogOperation) -> Result<(), Applied> {
    let mut wait = None;
    for id in &operation.after {
        let Some(dependency) = log.find(*id) else {
            wait = wait.or(Some(Wait::Absent(*id)));
            continue;
        };
        if dependency.operation.moment >= operation.moment {
            return Err(Applied::Refused(Reason::NotAfter(*id)));
        }
        if dependency.applied.is_hopeless() {
            return Err(Applied::Refused(Reason::Hopeless(*id)));
        }
        if !dependency.applied.is_applied() {
            wait = wait.or(Some(Wait::Unapplied(*id)));
        }
    }
    wait.map_or(Ok(()), |wait| Err(Applied::Waiting(wait)))
}

/// What `decide` makes of an operation at its own time.
pub(super) enum Ruling {
    Changes(Box<Changes>),
    Other(Applied),
}

/// A question to the outside, and what it said.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) question: Question,
    pub(super) answer: Option<Map<String, Json>>,
}

/// Ask the lifecycle, and the outside where it wants to know something: each time anew, since what an answer was founded on
/// may have been withdrawn (MSH-20).
pub(super) fn rule(
    definitions: &Definitions,
    world: &Snapshot,
    outside: &dyn Outside,
    operation: &LogOperation,
    grant: &Grant,
) -> (Ruling, Vec<Heard>) {
    let mut asked = operation.with(grant);
    let mut heard = Vec::new();
    for _ in 0..ROUNDS {
        let questions = match decide(definitions, world, &asked, operation.moment.wall) {
            Decision::Changes(changes) => return (Ruling::Changes(changes), heard),
            Decision::NoOp(nothing) => return (Ruling::Other(Applied::Nothing(nothing.reason)), heard),
            Decision::Refusal(refusal) => {
                return (Ruling::Other(Applied::Refused(Reason::Decided(refusal))), heard);
            }
            // Neither comes of a whole world without timers.
            Decision::Missing(_) | Decision::Due { .. } => break,
            Decision::Ask(questions) => questions,
        };
        let mut open = None;
        for question in questions {
            let answer = outside.answer(operation, &question);
            if let Some(answer) = &answer {
                asked.answers.push(answered(&question, answer.clone()));
            } else {
                let (lifecycle, check) = (question.lifecycle.clone(), question.check.clone());
                open = open.or(Some(Wait::Unanswered { lifecycle, check }));
            }
            heard.push(Heard { question, answer });
        }
        if let Some(wait) = open {
            return (Ruling::Other(Applied::Waiting(wait)), heard);
        }
    }
    (Ruling::Other(Applied::Refused(Reason::Undecidable)), heard)
}

fn answered(question: &Question, answer: Map<String, Json>) -> Answer {
    Answer {
        lifecycle: question.lifecycle.clone(),
        check: question.check.clone(),
        arguments: question.arguments.clone(),
        payload: question.payload,
        answer,
    }
}
