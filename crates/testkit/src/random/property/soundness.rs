//! Property: a sound lifecycle never faults on engine events, and always answers a worker.

use onceward_core::decide::{Call, Decision};
use onceward_core::model::StateReadiness;
use onceward_core::record::{ExecutionStatus, FencingToken, Record};
use onceward_core::time::Duration;
use onceward_core::value::{RecordId, Value};

use super::{Property, PropertyViolation, ensure};
use crate::random::simulation::DecisionStep;

#[derive(Debug, Default)]
pub struct SoundnessProperty;

impl Property for SoundnessProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        if !step.is_sound {
            return Ok(());
        }
        let describe = || format!("{:?} on {:?}", step.operation.call, step.decision);
        if let Decision::Changes(changes) = step.decision {
            for change in &changes.records {
                let stuck = change.after.stuck_reason.as_ref();
                ensure(stuck.is_none(), "no record of a sound lifecycle gets stuck", || {
                    format!("{stuck:?} after {:?} in {}", step.operation.call, change.after.state_name())
                })?;
            }
        }
        let Decision::Refusal(refusal) = step.decision else { return Ok(()) };
        let actor = &step.operation.actor;
        let works = ["worker", "operator", "engine"].iter().any(|role| actor.has_role(role));
        match &step.operation.call {
            Call::FireDue { record } => {
                ensure(step.world.record(*record).is_none(), "due operations are never refused", describe)
            }
            Call::Lease { record, lease, .. } if works && is_leasable(step, *record, *lease) => ensure(
                matches!(&*refusal.code, "concurrency_limit_reached" | "older_job_unfinished"),
                "a leasable job can be leased",
                describe,
            ),
            Call::Fail { record, token, .. } | Call::Yield { record, token } | Call::LoseLease { record, token }
                if works =>
            {
                ensure(
                    !holds_execution_with_status(step, *record, *token, is_running),
                    "a failure report is always accepted",
                    describe,
                )
            }
            Call::Commit { record, token, .. }
                if works && holds_execution_with_status(step, *record, *token, is_running) =>
            {
                ensure(!matches!(&*refusal.code, "not_taken" | "fault"), "a leased state accepts a commit", describe)
            }
            Call::Finish { record, token } if works => ensure(
                !holds_execution_with_status(step, *record, *token, |status| status == ExecutionStatus::Committed),
                "a committed job can always be finished",
                describe,
            ),
            _ => Ok(()),
        }
    }
}

/// Returns whether the caller's own execution has this status. Reports of other workers do not count (EXE-8).
fn holds_execution_with_status(
    step: &DecisionStep,
    record: RecordId,
    token: FencingToken,
    has_status: impl Fn(ExecutionStatus) -> bool,
) -> bool {
    let actor = &step.operation.actor;
    let execution = step.world.record(record).and_then(|record| record.execution.as_ref());
    execution.is_some_and(|execution| {
        let own = execution.holder == actor.id || actor.has_role("engine");
        own && execution.token == token && has_status(execution.status)
    })
}

const fn is_running(status: ExecutionStatus) -> bool {
    matches!(status, ExecutionStatus::Leased | ExecutionStatus::InProgress)
}

fn is_leasable(step: &DecisionStep, record: RecordId, lease: Option<Duration>) -> bool {
    let fits = lease.is_none_or(|lease| lease > Duration::ZERO);
    let free = |record: &Record| {
        let ready = match record.lifecycle.states[usize::from(record.state)].readiness {
            StateReadiness::NotReady => false,
            StateReadiness::Immediate => true,
            StateReadiness::FromField(slot) => match record.fields[usize::from(slot)] {
                Value::Time(from) => from <= step.now,
                _ => true,
            },
        };
        let retry_at = record.execution.as_ref().and_then(|execution| execution.aborted.as_ref()?.retry_at);
        let ready = ready && retry_at.is_none_or(|retry_at| retry_at <= step.now);
        ready && record.committed_token.is_none() && record.live_execution().is_none() && record.stuck_reason.is_none()
    };
    fits && step.world.record(record).is_some_and(|record| free(record))
}
