//! One pass over a batch: decides the operations whose data is loaded.

use std::collections::HashSet;

use onceward_core::decide::{Call, Changes, CheckQuery, Decision, Operation, ReadKey, decide};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{DecidedOperation, OperationOutcome};

use super::batch::{DecidedBatch, SeedSource};
use super::retry_policy::{MAX_DUE_DEPTH, MAX_LOAD_ROUNDS};
use crate::dispatch::job_response_bytes;
use crate::error::EngineError;
use crate::submission::queue::{QueuedOperation, Receipt, Reply};

/// Why an operation is not decided yet.
enum PauseReason {
    Missing(Vec<ReadKey>),
    NeedsChecks(Vec<CheckQuery>),
    /// The key may be used already: look it up before the operation is refused or runs checks.
    NeedsKeyLookup,
    Failed(EngineError),
}

pub(super) struct DecidePass<'a> {
    pub(super) definitions: &'a Definitions,
    pub(super) decided: &'a mut DecidedBatch,
    /// Whose keys were looked up, and whose must be.
    pub(super) looked_up: &'a [bool],
    pub(super) pending_lookups: &'a mut Vec<usize>,
    pub(super) now: Time,
    pub(super) seeds: SeedSource,
}

impl DecidePass<'_> {
    /// Decides all operations that have their data, and collects the missing keys of the others, so that one load
    /// serves all of them.
    pub(super) fn run(
        &mut self,
        requests: &[QueuedOperation],
        undecided: &[usize],
        missing_keys: &mut Vec<ReadKey>,
    ) -> Result<Vec<usize>, EngineError> {
        let mut still_undecided = Vec::new();
        let mut paused_groups: HashSet<u64> = HashSet::new();
        for &at in undecided {
            let request = &requests[at];
            if paused_groups.contains(&request.group) {
                // An earlier operation of its group waits. Collect its missing keys in the same round.
                if let Decision::Missing(missing) = self.decide(&request.operation, self.now) {
                    missing_keys.extend(missing);
                }
                still_undecided.push(at);
                continue;
            }
            match self.decide_one(request, self.looked_up[at]) {
                Ok(reply) => self.decided.replies[at] = Some(reply),
                Err(PauseReason::Missing(missing)) => {
                    missing_keys.extend(missing);
                    paused_groups.insert(request.group);
                    still_undecided.push(at);
                }
                Err(PauseReason::NeedsKeyLookup) => {
                    self.pending_lookups.push(at);
                    paused_groups.insert(request.group);
                    still_undecided.push(at);
                }
                Err(PauseReason::NeedsChecks(queries)) => self.decided.checks.push((at, queries)),
                Err(PauseReason::Failed(EngineError::Undecided)) => {
                    self.decided.replies[at] = Some(Err(EngineError::Undecided));
                }
                Err(PauseReason::Failed(error)) => return Err(error),
            }
        }
        Ok(still_undecided)
    }

    fn decide_one(&mut self, request: &QueuedOperation, looked_up: bool) -> Result<Reply, PauseReason> {
        let operation = &request.operation;
        let needs_lookup = !looked_up && request.key_reservation.is_some();
        let (outcome, reply) = match self.decide_after_due(operation, self.now, 0)? {
            Decision::NeedsChecks(_) | Decision::Refusal(_) if needs_lookup => return Err(PauseReason::NeedsKeyLookup),
            Decision::NeedsChecks(queries) => return Err(PauseReason::NeedsChecks(queries)),
            Decision::Changes(changes) => {
                if !self.fits_group_limit(request, &changes) {
                    return Ok(Ok(Receipt::over_limit(changes.subject)));
                }
                self.decided.read_set.apply(&changes);
                let (subject, stop) = (changes.subject, changes.stop_requested);
                let receipt = Receipt {
                    stop_requested: stop,
                    spawned: spawned_records(&changes),
                    ..self.decided.receipt(operation, subject)
                };
                (OperationOutcome::Changes(changes), Ok(receipt))
            }
            Decision::NoOp(no_op) => {
                let (no_op_reason, existing) = (Some(no_op.reason), no_op.existing.clone());
                let receipt =
                    Receipt { existing, no_op: no_op_reason, ..self.decided.receipt(operation, no_op.subject) };
                (OperationOutcome::NoOp(no_op), Ok(receipt))
            }
            Decision::Refusal(refusal) => {
                (OperationOutcome::Refusal(refusal.clone()), Err(EngineError::Refused(refusal)))
            }
            // `decide_after_due` returns neither.
            Decision::Missing(_) | Decision::Due { .. } => return Err(PauseReason::Failed(EngineError::Undecided)),
        };
        // The payload of a refused operation is not stored.
        let payloads = if reply.is_ok() { request.payloads.clone() } else { Vec::new() };
        let idempotency = reply
            .as_ref()
            .ok()
            .zip(request.key_reservation.as_ref())
            .map(|(receipt, reservation)| reservation.idempotency_record(receipt));
        self.decided.writes.push(DecidedOperation {
            payloads,
            idempotency,
            ..DecidedOperation::new(operation.clone(), outcome)
        });
        Ok(reply)
    }

    /// Counts the job that a lease gives out. Returns false if the jobs of its call would then exceed the call's limit;
    /// from there on, the call leases nothing, so that it does not pass over jobs.
    fn fits_group_limit(&mut self, request: &QueuedOperation, changes: &Changes) -> bool {
        let Some(max_bytes) = request.max_group_bytes else { return true };
        let change = changes.records.iter().rfind(|change| change.after.id == changes.subject);
        let job_bytes = change.map_or(0, |change| job_response_bytes(&change.after));
        let leased_bytes = self.decided.leased_bytes.entry(request.group).or_default();
        let fits = *leased_bytes == 0 || leased_bytes.saturating_add(job_bytes) <= max_bytes;
        *leased_bytes = if fits { leased_bytes.saturating_add(job_bytes) } else { usize::MAX };
        fits
    }

    /// Decides an operation after firing the due records that it reads.
    fn decide_after_due(&mut self, operation: &Operation, now: Time, depth: usize) -> Result<Decision, PauseReason> {
        for _ in 0..MAX_LOAD_ROUNDS {
            match self.decide(operation, now) {
                Decision::Missing(keys) => return Err(PauseReason::Missing(keys)),
                Decision::Due { records, at } => self.fire_due(&records, at, depth)?,
                decision => return Ok(decision),
            }
        }
        Err(PauseReason::Failed(EngineError::Undecided))
    }

    fn decide(&self, operation: &Operation, now: Time) -> Decision {
        decide(self.definitions, self.decided.read_set.snapshot(), operation, now)
    }

    /// Fires due timers of these records first, each as an operation of its own. They stay in the batch even if the
    /// operation that needed them is refused.
    fn fire_due(&mut self, records: &[RecordId], at: Time, depth: usize) -> Result<(), PauseReason> {
        if depth > MAX_DUE_DEPTH {
            return Err(PauseReason::Failed(EngineError::Undecided));
        }
        for &record in records {
            let seed = (self.seeds)().map_err(PauseReason::Failed)?;
            let operation = Operation {
                seed,
                actor: Actor::engine(),
                call: Call::FireDue { record },
                check_answers: Vec::new(),
                trace: None,
            };
            match self.decide_after_due(&operation, self.now.max(at), depth + 1)? {
                Decision::Changes(changes) => {
                    self.decided.read_set.apply(&changes);
                    self.decided.writes.push(DecidedOperation::new(operation, OperationOutcome::Changes(changes)));
                }
                Decision::NoOp(_) | Decision::Refusal(_) => {}
                // Transitions that the engine fires have no checks: `validate` ensures it.
                Decision::NeedsChecks(_) | Decision::Missing(_) | Decision::Due { .. } => {
                    return Err(PauseReason::Failed(EngineError::Undecided));
                }
            }
        }
        Ok(())
    }
}

/// Returns the other records that the operation created, without the engine's own lifecycles.
fn spawned_records(changes: &Changes) -> Vec<RecordId> {
    let created = changes.records.iter().filter(|change| change.before.is_none());
    let others = created.map(|change| &change.after).filter(|record| record.id != changes.subject);
    others.filter(|record| !record.lifecycle.name.starts_with("onceward.")).map(|record| record.id).collect()
}
