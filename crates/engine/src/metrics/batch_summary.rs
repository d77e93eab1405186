//! Summarizes a batch for metrics and logs.

use std::sync::Arc;

use onceward_core::decide::{Call, NoOpReason, RecordChange, readiness};
use onceward_core::record::{Execution, ExecutionStatus, Record};
use onceward_store::{DecidedOperation, OperationOutcome, ReadSet};
use tracing::{info, warn};

use super::LifecycleCounters;
use crate::delivery;

/// A lifecycle and one of its final states.
type FinalState<'a> = (&'a Arc<str>, &'a Arc<str>);

/// Counts of one batch. A batch has few lifecycles, so they are searched linearly, without an allocation per operation.
#[derive(Debug, Default)]
pub(crate) struct BatchSummary<'a> {
    pub(super) lifecycles: Vec<(&'a Arc<str>, LifecycleCounters)>,
    pub(super) ended_records: Vec<(FinalState<'a>, u64)>,
    pub(super) refusals: Vec<(Option<&'a Arc<str>>, &'a Arc<str>)>,
    /// Records to report to the operator.
    stuck: Vec<&'a Record>,
    dead_deliveries: Vec<&'a Record>,
}

impl<'a> BatchSummary<'a> {
    pub(crate) fn from_writes(writes: &'a [DecidedOperation], read_set: &'a ReadSet) -> Self {
        let mut summary = Self::default();
        for write in writes {
            match &write.outcome {
                OperationOutcome::Changes(changes) => {
                    changes.records.iter().for_each(|change| summary.add_change(change));
                }
                OperationOutcome::NoOp(no_op) => {
                    let Some(record) = read_set.snapshot().record(no_op.subject) else { continue };
                    let counters = summary.lifecycle_counters(&record.lifecycle.name);
                    match no_op.reason {
                        NoOpReason::Repeated => counters.repeated += 1,
                        NoOpReason::ExistingRecord => counters.existing_returned += 1,
                        NoOpReason::Unchanged => {}
                    }
                }
                // The engine's own attempts are not counted: no caller gets their refusals.
                OperationOutcome::Refusal(refusal)
                    if !matches!(write.operation.call, Call::FireDue { .. } | Call::LoseLease { .. }) =>
                {
                    summary.refusals.push((refusal.lifecycle.as_ref(), &refusal.code));
                }
                OperationOutcome::Refusal(_) => {}
            }
        }
        summary
    }

    fn lifecycle_counters(&mut self, lifecycle: &'a Arc<str>) -> &mut LifecycleCounters {
        let is_same = |(name, _): &(&Arc<str>, LifecycleCounters)| Arc::ptr_eq(name, lifecycle) || **name == *lifecycle;
        let index = self.lifecycles.iter().position(is_same).unwrap_or_else(|| {
            self.lifecycles.push((lifecycle, LifecycleCounters::default()));
            self.lifecycles.len() - 1
        });
        &mut self.lifecycles[index].1
    }

    fn add_change(&mut self, change: &'a RecordChange) {
        let (before, after) = (change.before.as_deref(), &*change.after);
        let lifecycle = &after.lifecycle.name;
        let counters = self.lifecycle_counters(lifecycle);
        counters.created += u64::from(before.is_none());
        counters.committed +=
            u64::from(after.committed_token.is_some() && before.is_none_or(|before| before.committed_token.is_none()));
        counters.retried += u64::from(is_retry(before, after));
        let previous_execution = before.and_then(|before| before.execution.as_ref());
        if let Some(execution) = &after.execution {
            counters.add_execution_change(previous_execution, execution);
        }
        if after.stuck_reason.is_some() && before.is_none_or(|before| before.stuck_reason.is_none()) {
            counters.stuck += 1;
            self.stuck.push(after);
        }
        if after.is_final() && before.is_none_or(|before| !before.is_final()) {
            let state = after.state_name();
            match self.ended_records.iter_mut().find(|(key, _)| *key.0 == *lifecycle && *key.1 == *state) {
                Some((_, count)) => *count += 1,
                None => self.ended_records.push(((lifecycle, state), 1)),
            }
            if delivery::is_dead_delivery(after) {
                self.dead_deliveries.push(after);
            }
        }
    }

    /// Logs what an operator needs to know, after the save. Only ids and names: a record's fields are private.
    pub(crate) fn log(&self) {
        for (lifecycle, counts) in self.lifecycles.iter().filter(|(_, counts)| counts.lost > 0) {
            info!(%lifecycle, leases = counts.lost, "leases lost: they ended without a commit");
        }
        for record in &self.stuck {
            let (lifecycle, state) = (&record.lifecycle.name, record.state_name());
            warn!(record = %record.id, %lifecycle, %state, "a timer or lease event failed; the record is stuck");
        }
        for record in &self.dead_deliveries {
            warn!(record = %record.id, attempts = record.attempt, "delivery failed permanently");
        }
    }
}

/// Whether the change makes a job leasable again after an execution without success: at once, or later than its failure,
/// for example when a timer has moved it from a state for waiting to a ready state.
fn is_retry(before: Option<&Record>, after: &Record) -> bool {
    let has_aborted = after.execution.as_ref().is_some_and(|newest| newest.status == ExecutionStatus::Aborted);
    has_aborted && readiness(after).is_some() && before.is_some_and(|before| readiness(before).is_none())
}

impl LifecycleCounters {
    /// Counts a change of a record's newest execution.
    fn add_execution_change(&mut self, previous: Option<&Execution>, current: &Execution) {
        let previous_status = previous.filter(|old| old.token == current.token).map(|old| old.status);
        if previous_status == Some(current.status) {
            return;
        }
        if previous_status.is_none() {
            self.leased += 1;
            // EXE-4: counted as a redelivery.
            self.redelivered += u64::from(current.token.0 > 1);
        }
        match current.status {
            ExecutionStatus::Leased | ExecutionStatus::Committed => {}
            ExecutionStatus::InProgress => self.started += 1,
            ExecutionStatus::Done => self.done += 1,
            // INV-5: each way to fail has its own counter.
            ExecutionStatus::Aborted => match current.aborted.as_ref().map(|abort| &*abort.code) {
                Some("lost") => self.lost += 1,
                Some("yielded") => self.yielded += 1,
                Some("left") => self.left_state += 1,
                _ => self.failed += 1,
            },
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
        self.left_state += other.left_state;
        self.retried += other.retried;
        self.repeated += other.repeated;
        self.existing_returned += other.existing_returned;
        self.replayed += other.replayed;
        self.stuck += other.stuck;
    }
}
