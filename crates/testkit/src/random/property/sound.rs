//! What the checker calls sound never faults on the engine's own events, and always answers a worker.

use onceward_core::decide::{Call, Decision};
use onceward_core::model::Ready;
use onceward_core::record::{ExecutionStatus, Record, Token};
use onceward_core::time::Duration;
use onceward_core::value::{RecordId, Value};

use super::{Broken, Property, ensure};
use crate::random::play::Step;

#[derive(Debug, Default)]
pub struct Sound;

impl Property for Sound {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        if !step.sound {
            return Ok(());
        }
        let who = || format!("{:?} on {:?}", step.operation.call, step.decision);
        if let Decision::Changes(changes) = step.decision {
            for change in &changes.records {
                let stuck = change.after.stuck.as_ref();
                ensure(stuck.is_none(), "a sound lifecycle is never stuck", || {
                    format!("{stuck:?} after {:?} in {}", step.operation.call, change.after.state_name())
                })?;
            }
        }
        let Decision::Refusal(refusal) = step.decision else { return Ok(()) };
        let actor = &step.operation.actor;
        let works = ["worker", "operator", "engine"].iter().any(|role| actor.has_role(role));
        match &step.operation.call {
            Call::Due { record } => ensure(step.world.record(*record).is_none(), "what is due is never refused", who),
            Call::Lease { record, lease, .. } if works && is_leasable(step, *record, *lease) => {
                ensure(matches!(&*refusal.code, "key_busy" | "not_first"), "what is leasable is leased", who)
            }
            Call::Fail { record, token, .. } | Call::Yield { record, token } | Call::Lost { record, token }
                if works =>
            {
                ensure(!stands(step, *record, *token, is_running), "a failure is always taken", who)
            }
            Call::Commit { record, token, .. } if works && stands(step, *record, *token, is_running) => {
                ensure(!matches!(&*refusal.code, "not_taken" | "fault"), "a leased state answers its commit", who)
            }
            Call::Finish { record, token } if works => ensure(
                !stands(step, *record, *token, |status| status == ExecutionStatus::Committed),
                "a commit is always finished",
                who,
            ),
            _ => Ok(()),
        }
    }
}

/// Whether the caller's own execution stands so: nobody else's report counts (EXE-8).
fn stands(step: &Step, record: RecordId, token: Token, fits: impl Fn(ExecutionStatus) -> bool) -> bool {
    let actor = &step.operation.actor;
    let execution = step.world.record(record).and_then(|record| record.execution.as_ref());
    execution.is_some_and(|execution| {
        let own = execution.holder == actor.id || actor.has_role("engine");
        own && execution.token == token && fits(execution.status)
    })
}

const fn is_running(status: ExecutionStatus) -> bool {
    matches!(status, ExecutionStatus::Leased | ExecutionStatus::InProgress)
}

fn is_leasable(step: &Step, record: RecordId, lease: Option<Duration>) -> bool {
    let fits = lease.is_none_or(|lease| lease > Duration::ZERO);
    let free = |record: &Record| {
        let ready = match record.lifecycle.states[usize::from(record.state)].ready {
            Ready::No => false,
            Ready::Yes => true,
            Ready::From(slot) => match record.fields[usize::from(slot)] {
                Value::Time(from) => from <= step.now,
                _ => true,
            },
        };
        ready && record.committed.is_none() && record.live_execution().is_none() && record.stuck.is_none()
    };
    fits && step.world.record(record).is_some_and(|record| free(record))
}
