//! The second verdict on one operation: may it be decided at all, and what does the lifecycle say?

use serde_json::{Map, Value as Json};

use super::authority::{Authority, AuthorityGrant, CheckResolver};
use super::log::{FoldLog, FoldPosition};
use super::operation::LogOperation;
use super::verdict::{ApplyStatus, FoldRefusalReason, WaitReason};
use crate::decide::{Changes, CheckAnswer, CheckQuery, Decision, Snapshot, decide};
use crate::model::Definitions;

/// Times that one operation may ask the outside. Each round answers the checks of one row, and rows are few.
const MAX_CHECK_ROUNDS: usize = 64;

/// What can be said of an operation before its lifecycle is asked. It hangs on the set, on rights and on what became of
/// operations with earlier clocks; never on those of the same moment.
pub(super) fn require_eligible<'a>(
    log: &'a FoldLog,
    position: &FoldPosition,
) -> Result<(&'a LogOperation, &'a AuthorityGrant), ApplyStatus> {
    let Some(entry) = log.get(position) else { return Err(ApplyStatus::Refused(FoldRefusalReason::NotAdmitted)) };
    let operation = &entry.operation;
    if log.is_clock_reused(position) {
        return Err(ApplyStatus::Refused(FoldRefusalReason::ClockReused));
    }
    require_dependencies(log, operation)?;
    match &entry.authority {
        Authority::Held(grant) => Ok((operation, grant)),
        // MSH-19: held, and judged again when the suspension lifts.
        Authority::Suspended { reason: why } => Err(ApplyStatus::AuthorSuspended { reason: why.clone() }),
        // MSH-20: what no valid chain covers leaves the state and stays on the log.
        Authority::Withdrawn { reason: why } => {
            Err(ApplyStatus::Refused(FoldRefusalReason::NoAuthority { reason: why.clone() }))
        }
    }
}

/// MSH-15: what an operation builds on must be here and applied. Naming one that is not earlier is a lie, and every circle
/// of operations holds such a one; all of a circle follows it.
fn require_dependencies(log: &FoldLog, operation: &LogOperation) -> Result<(), ApplyStatus> {
    let mut wait = None;
    for id in &operation.dependencies {
        let Some(dependency) = log.find(*id) else {
            wait = wait.or(Some(WaitReason::DependencyAbsent(*id)));
            continue;
        };
        if dependency.operation.timestamp >= operation.timestamp {
            return Err(ApplyStatus::Refused(FoldRefusalReason::DependencyNotEarlier(*id)));
        }
        if dependency.status.is_permanently_refused() {
            return Err(ApplyStatus::Refused(FoldRefusalReason::DependencyRefused(*id)));
        }
        if !dependency.status.is_applied() {
            wait = wait.or(Some(WaitReason::DependencyUnapplied(*id)));
        }
    }
    wait.map_or(Ok(()), |wait| Err(ApplyStatus::Waiting(wait)))
}

/// What `decide` makes of an operation at its own time.
pub(super) enum DecideOutcome {
    Changes(Box<Changes>),
    NoChanges(ApplyStatus),
}

/// A question to the outside, and what it said.
#[derive(Debug)]
pub(super) struct CheckExchange {
    pub(super) query: CheckQuery,
    pub(super) answer: Option<Map<String, Json>>,
}

/// Ask the lifecycle, and the outside where it wants to know something: each time anew, since what an answer was founded on
/// may have been withdrawn (MSH-20).
pub(super) fn decide_operation(
    definitions: &Definitions,
    world: &Snapshot,
    resolver: &dyn CheckResolver,
    operation: &LogOperation,
    grant: &AuthorityGrant,
) -> (DecideOutcome, Vec<CheckExchange>) {
    let mut request = operation.to_operation(grant);
    let mut exchanges = Vec::new();
    for _ in 0..MAX_CHECK_ROUNDS {
        let queries = match decide(definitions, world, &request, operation.timestamp.wall_time) {
            Decision::Changes(changes) => return (DecideOutcome::Changes(changes), exchanges),
            Decision::NoOp(no_op) => return (DecideOutcome::NoChanges(ApplyStatus::NoOp(no_op.reason)), exchanges),
            Decision::Refusal(refusal) => {
                return (
                    DecideOutcome::NoChanges(ApplyStatus::Refused(FoldRefusalReason::RefusedByLifecycle(refusal))),
                    exchanges,
                );
            }
            // Neither comes of a whole world without timers.
            Decision::Missing(_) | Decision::Due { .. } => break,
            Decision::NeedsChecks(questions) => questions,
        };
        let mut open_wait = None;
        for query in queries {
            let answer = resolver.resolve(operation, &query);
            if let Some(answer) = &answer {
                request.check_answers.push(to_check_answer(&query, answer.clone()));
            } else {
                let (lifecycle, check) = (query.lifecycle.clone(), query.check.clone());
                open_wait = open_wait.or(Some(WaitReason::CheckUnanswered { lifecycle, check }));
            }
            exchanges.push(CheckExchange { query, answer });
        }
        if let Some(wait) = open_wait {
            return (DecideOutcome::NoChanges(ApplyStatus::Waiting(wait)), exchanges);
        }
    }
    (DecideOutcome::NoChanges(ApplyStatus::Refused(FoldRefusalReason::Undecidable)), exchanges)
}

fn to_check_answer(query: &CheckQuery, answer: Map<String, Json>) -> CheckAnswer {
    CheckAnswer {
        lifecycle: query.lifecycle.clone(),
        check: query.check.clone(),
        arguments: query.arguments.clone(),
        payload: query.payload,
        answer,
    }
}
