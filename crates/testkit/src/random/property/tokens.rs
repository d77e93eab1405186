//! Leases: tokens that grow, and one commit for ever.

use std::collections::HashMap;

use onceward_core::decide::Decision;
use onceward_core::record::{Execution, ExecutionStatus, Token};
use onceward_core::value::RecordId;

use super::{Broken, Property, ensure};
use crate::random::play::Step;

#[derive(Debug, Default)]
pub struct Tokens {
    executions: HashMap<(RecordId, Token), Execution>,
    newest: HashMap<RecordId, Token>,
    committed: HashMap<RecordId, Token>,
}

impl Property for Tokens {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        let Decision::Changes(changes) = step.decision else { return Ok(()) };
        for (record, execution) in &changes.executions {
            let who = || format!("{record} {execution:?}");
            match self.executions.get(&(*record, execution.token)) {
                None => {
                    let newest = self.newest.get(record).map_or(0, |token| token.0);
                    ensure(execution.token.0 == newest + 1, "tokens grow, one by one", who)?;
                    ensure(execution.leased_at == changes.now, "a lease begins now", who)?;
                    ensure(execution.expires_at > changes.now, "a lease ends after it begins", who)?;
                    self.newest.insert(*record, execution.token);
                }
                Some(old) => {
                    let onward = old.status == execution.status || forward(old.status, execution.status);
                    ensure(onward, "an execution goes forward only", || format!("{old:?} becomes {execution:?}"))?;
                    ensure(
                        old.holder == execution.holder && old.leased_at == execution.leased_at,
                        "an execution stays itself",
                        who,
                    )?;
                }
            }
            let ended = !execution.status.is_live();
            ensure(ended == execution.finished_at.is_some(), "an execution that has ended says when", who)?;
            ensure(
                (execution.status == ExecutionStatus::Aborted) == execution.aborted.is_some(),
                "an aborted execution says why",
                who,
            )?;
            if matches!(execution.status, ExecutionStatus::Committed | ExecutionStatus::Done) {
                let winner = *self.committed.entry(*record).or_insert(execution.token);
                ensure(winner == execution.token, "at most one commit for each job", who)?;
            }
            self.executions.insert((*record, execution.token), execution.clone());
        }
        for effect in &changes.effects {
            let first = self.committed.get(&effect.record) == Some(&effect.token);
            ensure(first, "an effect comes with its commit", || format!("{effect:?}"))?;
        }
        for change in &changes.records {
            let after = &change.after;
            let who = || format!("{} {:?}", after.id, after.execution);
            ensure(after.committed.as_ref() == self.committed.get(&after.id), "a record knows its commit", who)?;
            ensure(
                after.execution.as_ref().map_or(0, |execution| execution.token.0) == after.attempt,
                "the newest token is the attempt",
                who,
            )?;
            ensure(
                after.live_execution().is_none() || !after.is_final() || after.committed.is_some(),
                "nobody works on what is over",
                who,
            )?;
        }
        let repeated = changes
            .effects
            .iter()
            .any(|effect| step.world.record(effect.record).is_some_and(|record| record.committed.is_some()));
        ensure(!repeated, "at most one effect for each job", || format!("{:?}", changes.effects))
    }
}

/// A report on LEASED implies the start, and a commit may finish at once.
const fn forward(from: ExecutionStatus, to: ExecutionStatus) -> bool {
    use ExecutionStatus::{Aborted, Committed, Done, InProgress, Leased};
    matches!(
        (from, to),
        (Leased, InProgress | Committed | Done | Aborted)
            | (InProgress, Committed | Done | Aborted)
            | (Committed, Done)
    )
}
