//! The second verdict on an operation: whether it may be decided, and what its lifecycle decides.

use serde_json::{Map, Value as Json};

use super::authority::{Authority, AuthorityGrant, CheckResolver};
use super::log::{FoldLog, FoldPosition};
use super::operation::LogOperation;
use super::verdict::{ApplyStatus, FoldRefusalReason, WaitReason};
use crate::decide::{Changes, CheckAnswer, CheckQuery, Decision, Snapshot, decide};
use crate::model::Definitions;

/// Most rounds of external checks per operation. Each round answers the checks of one transition.
const MAX_CHECK_ROUNDS: usize = 64;

/// Checks an operation before its lifecycle decides it. The result depends on the set of operations, on authority and
/// on the status of operations with earlier timestamps; never on those with the same timestamp.
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
        // MSH-19: held, and evaluated again when the suspension ends.
        Authority::Suspended { reason: why } => Err(ApplyStatus::AuthorSuspended { reason: why.clone() }),
        // MSH-20: without a valid chain, the operation has no effect on the state but stays in the log.
        Authority::Withdrawn { reason: why } => {
            Err(ApplyStatus::Refused(FoldRefusalReason::NoAuthority { reason: why.clone() }))
        }
    }
}

/// MSH-15: every dependency must be present and applied. A dependency that is not earlier is a false claim of the
/// author. Every dependency cycle contains one, so the whole cycle is refused.
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

/// Result of `decide` at the operation's own time.
pub(super) enum DecideOutcome {
    Changes(Box<Changes>),
    NoChanges(ApplyStatus),
}

/// A check query and its answer.
#[derive(Debug)]
pub(super) struct CheckExchange {
    pub(super) query: CheckQuery,
    pub(super) answer: Option<Map<String, Json>>,
}

/// Decides an operation and runs the external checks that it needs. Checks run each time, since the basis of an earlier
/// answer may have been withdrawn (MSH-20).
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
            // A complete snapshot without timers causes neither.
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
