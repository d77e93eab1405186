//! One batch looked through: what became of whom.

use std::sync::Arc;

use onceward_core::decide::{Call, NoOpReason, RecordChange, readiness};
use onceward_core::record::{Execution, ExecutionStatus, Record};
use onceward_store::{Base, Outcome, Write};
use tracing::{info, warn};

use super::Lived;
use crate::delivery;

/// A lifecycle and one of its final states.
type Final<'a> = (&'a Arc<str>, &'a Arc<str>);

/// A batch comes of few lifecycles, mostly of one: they are looked for one by one, and nothing is allocated for each operation.
#[derive(Debug, Default)]
pub(crate) struct Round<'a> {
    pub(super) lives: Vec<(&'a Arc<str>, Lived)>,
    pub(super) ended: Vec<(Final<'a>, u64)>,
    pub(super) refused: Vec<(Option<&'a Arc<str>>, &'a Arc<str>)>,
    /// Records of which an operator should hear.
    aside: Vec<&'a Record>,
    dead: Vec<&'a Record>,
}

impl<'a> Round<'a> {
    pub(crate) fn of(writes: &'a [Write], base: &'a Base) -> Self {
        let mut round = Self::default();
        for write in writes {
            match &write.outcome {
                Outcome::Changes(changes) => changes.records.iter().for_each(|change| round.changed(change)),
                Outcome::NoOp(no_op) => {
                    let Some(record) = base.snapshot().record(no_op.subject) else { continue };
                    let lived = round.life(&record.lifecycle.name);
                    match no_op.reason {
                        NoOpReason::Repeated => lived.repeated += 1,
                        NoOpReason::Holder => lived.returned += 1,
                        NoOpReason::Unchanged => {}
                    }
                }
                // Nobody asked for what the engine tries by itself.
                Outcome::Refusal(refusal) if !matches!(write.operation.call, Call::Due { .. } | Call::Lost { .. }) => {
                    round.refused.push((refusal.lifecycle.as_ref(), &refusal.code));
                }
                Outcome::Refusal(_) => {}
            }
        }
        round
    }

    fn life(&mut self, lifecycle: &'a Arc<str>) -> &mut Lived {
        let is = |(name, _): &(&Arc<str>, Lived)| Arc::ptr_eq(name, lifecycle) || **name == *lifecycle;
        let at = self.lives.iter().position(is).unwrap_or_else(|| {
            self.lives.push((lifecycle, Lived::default()));
            self.lives.len() - 1
        });
        &mut self.lives[at].1
    }

    fn changed(&mut self, change: &'a RecordChange) {
        let (before, after) = (change.before.as_deref(), &*change.after);
        let lifecycle = &after.lifecycle.name;
        let lived = self.life(lifecycle);
        lived.created += u64::from(before.is_none());
        lived.committed +=
            u64::from(after.committed.is_some() && before.is_none_or(|before| before.committed.is_none()));
        let old = before.and_then(|before| before.execution.as_ref());
        if let Some(execution) = &after.execution {
            lived.turned(old, execution, after);
        }
        if after.stuck.is_some() && before.is_none_or(|before| before.stuck.is_none()) {
            lived.stuck += 1;
            self.aside.push(after);
        }
        if after.is_final() && before.is_none_or(|before| !before.is_final()) {
            let state = after.state_name();
            match self.ended.iter_mut().find(|(key, _)| *key.0 == *lifecycle && *key.1 == *state) {
                Some((_, count)) => *count += 1,
                None => self.ended.push(((lifecycle, state), 1)),
            }
            if delivery::is_dead(after) {
                self.dead.push(after);
            }
        }
    }

    /// What an operator should hear of, once it is saved. Ids and names only: what a record holds is nobody's business.
    pub(crate) fn tell(&self) {
        for (lifecycle, lived) in self.lives.iter().filter(|(_, lived)| lived.lost > 0) {
            info!(%lifecycle, leases = lived.lost, "leases lost");
        }
        for record in &self.aside {
            let (lifecycle, state) = (&record.lifecycle.name, record.state_name());
            warn!(record = %record.id, %lifecycle, %state, "a record is set aside: an event of the engine's own failed on it");
        }
        for record in &self.dead {
            warn!(record = %record.id, attempts = record.attempt, "a delivery is dead");
        }
    }
}

impl Lived {
    /// A record's newest execution began, moved or ended.
    fn turned(&mut self, old: Option<&Execution>, new: &Execution, record: &Record) {
        let old = old.filter(|old| old.token == new.token).map(|old| old.status);
        if old == Some(new.status) {
            return;
        }
        if old.is_none() {
            self.leased += 1;
            // EXE-4: delivered again, and counted.
            self.redelivered += u64::from(new.token.0 > 1);
        }
        match new.status {
            ExecutionStatus::Leased | ExecutionStatus::Committed => {}
            ExecutionStatus::InProgress => self.started += 1,
            ExecutionStatus::Done => self.done += 1,
            // INV-5: each way to fail has its number.
            ExecutionStatus::Aborted => {
                match new.aborted.as_ref().map(|abort| &*abort.code) {
                    Some("lost") => self.lost += 1,
                    Some("yielded") => self.yielded += 1,
                    Some("left") => self.left += 1,
                    _ => self.failed += 1,
                }
                self.retried += u64::from(readiness(record).is_some());
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.created += other.created;
        self.leased += other.leased;
        self.redelivered += other.redelivered;
        self.started += other.started;
        self.committed += other.committed;
        self.done += other.done;
        self.failed += other.failed;
        self.lost += other.lost;
        self.yielded += other.yielded;
        self.left += other.left;
        self.retried += other.retried;
        self.repeated += other.repeated;
        self.returned += other.returned;
        self.replayed += other.replayed;
        self.stuck += other.stuck;
    }
}
