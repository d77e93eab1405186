//! Property: fencing tokens increase, and at most one execution of a job commits.

use std::collections::HashMap;

use onceward_core::decide::Decision;
use onceward_core::record::{Execution, ExecutionStatus, FencingToken};
use onceward_core::value::RecordId;

use super::{Property, PropertyViolation, ensure};
use crate::random::simulation::DecisionStep;

#[derive(Debug, Default)]
pub struct LeaseProperty {
    executions: HashMap<(RecordId, FencingToken), Execution>,
    newest_tokens: HashMap<RecordId, FencingToken>,
    committed_tokens: HashMap<RecordId, FencingToken>,
}

impl Property for LeaseProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        let Decision::Changes(changes) = step.decision else { return Ok(()) };
        for (record, execution) in &changes.executions {
            let describe = || format!("{record} {execution:?}");
            match self.executions.get(&(*record, execution.token)) {
                None => {
                    let newest = self.newest_tokens.get(record).map_or(0, |token| token.0);
                    ensure(execution.token.0 == newest + 1, "tokens increase by one", describe)?;
                    ensure(execution.leased_at == changes.now, "a lease begins now", describe)?;
                    ensure(execution.expires_at > changes.now, "a lease ends after it begins", describe)?;
                    self.newest_tokens.insert(*record, execution.token);
                }
                Some(old) => {
                    let onward = old.status == execution.status || is_forward(old.status, execution.status);
                    ensure(onward, "an execution never goes back", || format!("{old:?} becomes {execution:?}"))?;
                    ensure(
                        old.holder == execution.holder && old.leased_at == execution.leased_at,
                        "holder and lease time of an execution never change",
                        describe,
                    )?;
                }
            }
            let ended = !execution.status.is_live();
            ensure(ended == execution.finished_at.is_some(), "an ended execution has its end time", describe)?;
            ensure(
                (execution.status == ExecutionStatus::Aborted) == execution.aborted.is_some(),
                "an aborted execution has a reason",
                describe,
            )?;
            if matches!(execution.status, ExecutionStatus::Committed | ExecutionStatus::Done) {
                let winner = *self.committed_tokens.entry(*record).or_insert(execution.token);
                ensure(winner == execution.token, "at most one commit per job", describe)?;
            }
            self.executions.insert((*record, execution.token), execution.clone());
        }
        for effect in &changes.effects {
            let first = self.committed_tokens.get(&effect.record) == Some(&effect.token);
            ensure(first, "an effect is stored with its commit", || format!("{effect:?}"))?;
        }
        for change in &changes.records {
            let after = &change.after;
            let describe = || format!("{} {:?}", after.id, after.execution);
            ensure(
                after.committed_token.as_ref() == self.committed_tokens.get(&after.id),
                "the record names its commit",
                describe,
            )?;
            ensure(
                after.execution.as_ref().map_or(0, |execution| execution.token.0) == after.attempt,
                "the newest token is the attempt",
                describe,
            )?;
            ensure(
                after.live_execution().is_none() || !after.is_final() || after.committed_token.is_some(),
                "a final record has no open execution",
                describe,
            )?;
        }
        let repeated = changes
            .effects
            .iter()
            .any(|effect| step.world.record(effect.record).is_some_and(|record| record.committed_token.is_some()));
        ensure(!repeated, "at most one effect per job", || format!("{:?}", changes.effects))
    }
}

/// Returns whether an execution may change its status this way. A report on LEASED implies the start, and a commit may
/// finish at once.
const fn is_forward(from: ExecutionStatus, to: ExecutionStatus) -> bool {
    use ExecutionStatus::{Aborted, Committed, Done, InProgress, Leased};
    matches!(
        (from, to),
        (Leased, InProgress | Committed | Done | Aborted)
            | (InProgress, Committed | Done | Aborted)
            | (Committed, Done)
    )
}
