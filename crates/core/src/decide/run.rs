//! Runs one decision, from the call to its result.

use std::sync::Arc;

use super::access::{EventCaller, can_read, denial_hint, is_holder};
use super::apply::{OperationRun, engine_event_context};
use super::changes::{Changes, Decision, NoOp, NoOpReason, RecordChange, Refusal};
use super::draft::{Draft, DraftParts, fault_halt};
use super::halt::{DecideResult, Halt, lease_lost_refusal, record_refusal};
use super::input::EventInput;
use super::leases::{WorkerCallResult, end_execution, not_found_refusal};
use super::operation::{Call, FailureReport, Operation};
use super::plan::{EventContext, NoMatch};
use super::snapshot::{ReadKey, Snapshot};
use super::timers::{DueKind, first_due, next_due};
use super::visibility::reads_everything;
use crate::expr::{EvalFault, FaultKind};
use crate::model::{Definitions, EventKind};
use crate::record::{AbortReason, Execution, ExecutionStatus, FencingToken, Record};
use crate::suggest::suggestion_text;
use crate::time::Time;
use crate::value::RecordId;

/// Decides what an operation changes. The engine changes records only through this function.
///
/// It is deterministic: replay, recovery and simulation call it exactly as live traffic does.
pub fn decide(definitions: &Definitions, snapshot: &Snapshot, operation: &Operation, now: Time) -> Decision {
    // INV-9: only the engine may make these calls. Other callers get the refusal of a missing record, and the record is
    // not marked stuck.
    if is_engine_call(&operation.call) && !operation.actor.has_role("engine") {
        return Decision::Refusal(not_found_refusal("time"));
    }
    let mut now = now;
    loop {
        let mut run = OperationRun::new(Draft::new(definitions, snapshot, operation, now));
        let done = run.run_call(&operation.call).and_then(|done| ensure_final_holds_empty(&run.draft).map(|()| done));
        let halt = match done {
            Ok(done) => return build_decision(run.draft, done, now),
            Err(halt) => halt,
        };
        let halt = match halt {
            Halt::Refuse(refusal) if !is_engine_call(&operation.call) => {
                match redact_unreadable_record(&run.draft, refusal) {
                    Ok(refusal) => return Decision::Refusal(refusal),
                    Err(halt) => halt,
                }
            }
            other => other,
        };
        return match halt {
            // A needed record has a later log entry, and times in a record's log never decrease. The loop ends, because
            // `now` only grows, up to the latest `updated_at` in the snapshot.
            Halt::ClockBehind(later) => {
                now = later;
                continue;
            }
            Halt::Missing(keys) => Decision::Missing(keys),
            Halt::Due(records) => Decision::Due { records, at: now },
            Halt::NeedsChecks(questions) => Decision::NeedsChecks(questions),
            Halt::ExistingRecord(subject) => {
                let reads = run.draft.into_parts().read_keys;
                Decision::NoOp(NoOp {
                    subject,
                    reason: NoOpReason::ExistingRecord,
                    existing: Vec::new(),
                    read_keys: reads,
                })
            }
            Halt::Refuse(refusal) => mark_stuck(run.draft, &refusal.reason),
            Halt::Fault(fault) if is_fault_marking_stuck(&operation.call) => {
                mark_stuck(run.draft, &fault.kind.to_string())
            }
            Halt::Fault(fault) => Decision::Refusal(fault_refusal(snapshot, &operation.call, &fault)),
        };
    }
}

/// Result of a successful call.
enum CallOutcome {
    Changed(RecordId),
    Repeated(RecordId),
    Heartbeat { record: RecordId, execution: Execution, stop_requested: bool },
}

impl OperationRun<'_> {
    fn run_call(&mut self, call: &Call) -> DecideResult<CallOutcome> {
        let to_outcome = |record, done| match done {
            WorkerCallResult::Changed => CallOutcome::Changed(record),
            WorkerCallResult::Repeated => CallOutcome::Repeated(record),
        };
        Ok(match call {
            Call::Create(create) => {
                let id = self.create_for_caller(create)?;
                self.run_tasks(0)?;
                CallOutcome::Changed(id)
            }
            Call::Fire { record, event, input, token, if_version } => {
                self.fire_for_caller(*record, event, EventInput::Json(input), *token, *if_version)?;
                CallOutcome::Changed(*record)
            }
            Call::Lease { record, worker, lease, start } => {
                self.lease_record(*record, worker, *lease, *start)?;
                CallOutcome::Changed(*record)
            }
            Call::Start { record, token } => to_outcome(*record, self.start_execution(*record, *token)?),
            Call::Heartbeat { record, token, lease } => {
                let (execution, stop) = self.extend_lease(*record, *token, *lease)?;
                CallOutcome::Heartbeat { record: *record, execution, stop_requested: stop }
            }
            Call::Commit { record, token, result, finish } => {
                to_outcome(*record, self.commit_execution(*record, *token, result, *finish)?)
            }
            Call::Finish { record, token } => to_outcome(*record, self.finish_execution(*record, *token)?),
            Call::Fail { record, token, error } => {
                to_outcome(*record, self.fail_execution(*record, *token, error, "fail")?)
            }
            Call::Yield { record, token } => to_outcome(
                *record,
                self.fail_execution(*record, *token, &FailureReport::new("yielded", "yielded by the worker"), "yield")?,
            ),
            Call::FireDue { record } => {
                self.fire_due(*record)?;
                CallOutcome::Changed(*record)
            }
            Call::LoseLease { record, token } => {
                // Only a live lease can be lost. If it ended meanwhile, the record is not marked stuck.
                let live =
                    self.draft.expect_record(*record)?.live_execution().filter(|live| live.token == *token).cloned();
                match live.map(|execution| execution.status) {
                    None => CallOutcome::Repeated(*record),
                    Some(ExecutionStatus::Committed) => {
                        self.close_execution(*record)?;
                        CallOutcome::Changed(*record)
                    }
                    Some(_) => to_outcome(
                        *record,
                        self.fail_execution(
                            *record,
                            *token,
                            &FailureReport::new("lost", "the worker stopped"),
                            "lost",
                        )?,
                    ),
                }
            }
            Call::MigrateVersion(moving) => to_outcome(moving.record, self.migrate_version(moving)?),
        })
    }

    fn fire_for_caller(
        &mut self,
        id: RecordId,
        event: &Arc<str>,
        input: EventInput,
        token: Option<FencingToken>,
        if_version: Option<u64>,
    ) -> DecideResult<()> {
        let actor = &self.draft.operation.actor;
        let record = match self.draft.find(id)? {
            Some(record) if can_read(&self.draft, record, actor, token)? => Arc::clone(record),
            // An operator reads every record, so it is told the truth.
            Some(record) if reads_everything(actor) => {
                let reason = "the caller may read the record as an operator, but its lifecycle's [access] does not admit the caller, so it may fire no event";
                return Err(Halt::Refuse(record_refusal(record, event, 403, "not_allowed", reason)));
            }
            _ => return Err(Halt::Refuse(not_found_refusal(event))),
        };
        let refuse =
            |status, code, reason: String| Err(Halt::Refuse(record_refusal(&record, event, status, code, reason)));
        match record.lifecycle.event(event) {
            Some(declared) if declared.kind == EventKind::Called => {}
            Some(_) => {
                return refuse(404, "unknown_event", format!("only the engine fires `{event}`"));
            }
            None => {
                let lifecycle = &record.lifecycle;
                let callable = lifecycle.events.iter().filter(|declared| declared.kind == EventKind::Called);
                let suggestion =
                    suggestion_text(0, event, "events that callers may fire", callable.map(|known| &*known.name));
                return refuse(
                    404,
                    "unknown_event",
                    format!("{} declares no event `{event}`; {suggestion}", lifecycle.name),
                );
            }
        }
        if let Some(expected) = if_version.filter(|version| *version != record.version) {
            let reason =
                format!("the record is at version {}, not {expected}; read it again before you retry", record.version);
            return refuse(412, "version_mismatch", reason);
        }
        if let Some(token) = token
            && record.live_execution().is_none_or(|own| own.token != token || !is_holder(own, actor))
        {
            return Err(Halt::Refuse(lease_lost_refusal(&record, event, token)));
        }
        if record.awaits_finish() {
            let mut refusal = record_refusal(
                &record,
                event,
                409,
                "already_committed",
                "the effect is committed; only `finish` is allowed",
            );
            refusal.committed_token = record.committed_token;
            return Err(Halt::Refuse(refusal));
        }
        let context = EventContext { caller: EventCaller::ApiKey(token), input, ..engine_event_context(event) };
        match self.fire_event(id, context)? {
            Ok(()) => self.run_tasks(0),
            Err(NoMatch::State) => {
                refuse(409, "wrong_state", format!("no transition of `{event}` starts from {}", record.state_name()))
            }
            Err(NoMatch::Caller) => {
                let transitions = record.lifecycle.event(event).into_iter().flat_map(|event| &event.transitions);
                let hint = denial_hint(
                    actor,
                    &record.lifecycle,
                    transitions.filter(|transition| transition.from.contains(record.state)),
                );
                refuse(
                    403,
                    "not_allowed",
                    format!("the caller may not fire `{event}` in {}{hint}", record.state_name()),
                )
            }
            Err(NoMatch::Input(reason)) => refuse(422, "invalid_input", reason),
            Err(NoMatch::Guard) => refuse(
                409,
                "not_taken",
                format!("no transition of `{event}` from {} has a true guard", record.state_name()),
            ),
        }
    }

    /// Fires the record's first due item: an expired lease, or timers.
    fn fire_due(&mut self, id: RecordId) -> DecideResult<()> {
        let Some(record) = self.draft.stored_record(id)?.cloned() else {
            return Err(Halt::Refuse(not_found_refusal("time")));
        };
        if record.updated_at > self.draft.now {
            return Err(Halt::ClockBehind(record.updated_at));
        }
        let now = self.draft.now;
        self.draft.firing_due = next_due(&record).map(|due| (due, id));
        match first_due(&record, now) {
            None => Ok(()),
            Some(DueKind::LeaseExpiry) => {
                // INV-4: after a crash, a committed execution is finished and an uncommitted one is lost. The record is
                // put first, so that the draft no longer treats it as due.
                self.draft.put_record((*record).clone())?;
                if record.execution.as_ref().is_some_and(|execution| execution.status == ExecutionStatus::Committed) {
                    return self.close_execution(id);
                }
                self.fail_execution(
                    id,
                    FencingToken(record.attempt),
                    &FailureReport::new("lost", "the lease expired"),
                    "lost",
                )
                .map(drop)
            }
            Some(DueKind::Timers) => {
                // The earliest timers are spent even if no transition takes them; otherwise they would stay due. Later
                // timers fire after them, so that the outcome does not depend on how late the engine runs.
                let Some(earliest_due) = record.timers.iter().map(|timer| timer.due_at).min() else { return Ok(()) };
                let mut without_earliest = (*record).clone();
                without_earliest.timers.retain(|timer| timer.due_at > earliest_due);
                self.draft.put_record(without_earliest)?;
                let due: Vec<u16> = record
                    .timers
                    .iter()
                    .filter(|timer| timer.due_at == earliest_due)
                    .map(|timer| timer.transition)
                    .collect();
                // An untaken timer is not an error.
                let _ = self.fire_timers(id, &due)?;
                self.run_tasks(0)
            }
        }
    }
}

/// A record in a final state with money in its hold is a fault.
fn ensure_final_holds_empty(draft: &Draft) -> DecideResult<()> {
    let filled = draft.records.iter().any(|entry| entry.after.hold != 0 && entry.after.is_final());
    if filled { Err(fault_halt(FaultKind::FilledHold)) } else { Ok(()) }
}

fn build_decision(draft: Draft, outcome: CallOutcome, now: Time) -> Decision {
    let (subject, heartbeat, stop) = match outcome {
        CallOutcome::Repeated(subject) => {
            let reads = draft.into_parts().read_keys;
            return Decision::NoOp(NoOp {
                subject,
                reason: NoOpReason::Repeated,
                existing: Vec::new(),
                read_keys: reads,
            });
        }
        CallOutcome::Changed(subject) => (subject, None, false),
        CallOutcome::Heartbeat { record, execution, stop_requested: stop } => (record, Some((record, execution)), stop),
    };
    let DraftParts {
        records: entries,
        unique_claims: uniques,
        counter_deltas: counts,
        transfers,
        effects,
        payloads,
        audit_entries: audit,
        delivery_senders: senders,
        existing,
        read_keys: reads,
    } = draft.into_parts();
    let mut records = Vec::with_capacity(entries.len());
    let mut executions = Vec::new();
    let mut must_log: Vec<RecordId> = transfers.iter().map(|transfer| transfer.caused_by).chain(senders).collect();
    must_log.sort_unstable();
    for entry in entries {
        // A transition that transfers money between named accounts, or sends a delivery, must appear in its record's
        // log even if the record itself is unchanged.
        let unchanged = entry.before.as_deref().is_some_and(|before| is_unchanged(before, &entry.after));
        if unchanged && must_log.binary_search(&entry.after.id).is_err() {
            continue;
        }
        let mut after = entry.after;
        let changed = Arc::make_mut(&mut after);
        changed.version += 1;
        changed.updated_at = now;
        if let Some(execution) = &after.execution
            && entry.before.as_ref().and_then(|before| before.execution.as_ref()) != Some(execution)
        {
            executions.push((after.id, execution.clone()));
        }
        records.push(RecordChange { before: entry.before, after, transitions: entry.transitions });
    }
    if records.is_empty() && heartbeat.is_none() {
        return Decision::NoOp(NoOp { subject, reason: NoOpReason::Unchanged, existing, read_keys: reads });
    }
    Decision::Changes(Box::new(Changes {
        now,
        records,
        unique_claims: uniques,
        counter_deltas: counts,
        transfers,
        executions,
        effects,
        payloads,
        audit_entries: audit,
        heartbeat,
        stop_requested: stop,
        subject,
        read_keys: reads,
    }))
}

/// Whether the record is the same for readers, workers and timers.
fn is_unchanged(before: &Record, after: &Record) -> bool {
    before.lifecycle.hash == after.lifecycle.hash
        && before.state == after.state
        && before.fields == after.fields
        && before.hold == after.hold
        && before.timers == after.timers
        && before.execution == after.execution
        && before.attempt == after.attempt
        && before.stuck_reason == after.stuck_reason
}

/// The engine's own calls: no caller waits for a refusal.
fn is_engine_call(call: &Call) -> bool {
    matches!(call, Call::FireDue { .. } | Call::LoseLease { .. })
}

/// The static analysis proves that the transitions of these calls cannot fault. If one faults, the record is marked
/// stuck, because a retry would fault again.
fn is_fault_marking_stuck(call: &Call) -> bool {
    matches!(
        call,
        Call::FireDue { .. }
            | Call::LoseLease { .. }
            | Call::Lease { .. }
            | Call::Fail { .. }
            | Call::Yield { .. }
            | Call::Finish { .. }
    )
}

/// Marks the record stuck: readable and counted, and ignored by the engine until a caller's event changes it.
fn mark_stuck(failed_draft: Draft, reason: &str) -> Decision {
    let (definitions, snapshot, operation, now) =
        (failed_draft.definitions, failed_draft.snapshot, failed_draft.operation, failed_draft.now);
    let Some(id) = operation.call.record() else {
        return Decision::Refusal(super::halt::recordless_refusal("time", 422, "fault", reason));
    };
    // The record was looked up and does not exist; requesting it again would loop forever.
    let Some(record) = snapshot.record(id) else { return Decision::Refusal(not_found_refusal("time")) };
    let mut draft = Draft::new(definitions, snapshot, operation, now);
    // The failure depends on everything that was read before it.
    failed_draft.into_parts().read_keys.into_iter().for_each(|key| draft.record_read(key));
    let mut stuck_record = (**record).clone();
    stuck_record.stuck_reason = Some(reason.into());
    let leased = stuck_record
        .execution
        .as_ref()
        .is_some_and(|execution| matches!(execution.status, ExecutionStatus::Leased | ExecutionStatus::InProgress));
    let ends_lease = match operation.call {
        Call::FireDue { .. } => first_due(record, now) == Some(DueKind::LeaseExpiry),
        _ => true,
    };
    if leased && ends_lease {
        let abort = AbortReason::by_engine("fault", reason);
        end_execution(&mut draft, &mut stuck_record, ExecutionStatus::Aborted, Some(abort));
    }
    match draft.put_record(stuck_record) {
        Ok(()) => build_decision(draft, CallOutcome::Changed(id), now),
        Err(_) => Decision::Missing(vec![ReadKey::Record(id)]),
    }
}

fn fault_refusal(snapshot: &Snapshot, call: &Call, fault: &EvalFault) -> Box<Refusal> {
    let (record, event): (Option<RecordId>, &str) = match call {
        Call::Fire { record, event, .. } => (Some(*record), event),
        Call::Create(_) => (None, "create"),
        Call::Commit { record, .. } => (Some(*record), "commit"),
        Call::Start { record, .. } => (Some(*record), "start"),
        Call::Heartbeat { record, .. } => (Some(*record), "heartbeat"),
        Call::MigrateVersion(moving) => (Some(moving.record), "move"),
        _ => (None, "time"),
    };
    let mut refusal =
        super::halt::recordless_refusal(event, 422, "fault", format!("the lifecycle failed: {}", fault.kind));
    refusal.record = record.filter(|id| snapshot.record(*id).is_some());
    refusal
}

/// Removes the record from a refusal if it does not exist (it was to be created), or if the caller may not read it
/// (another record's transition refused).
fn redact_unreadable_record(draft: &Draft, mut refusal: Box<Refusal>) -> DecideResult<Box<Refusal>> {
    let Some(id) = refusal.record else { return Ok(refusal) };
    let is_visible = match draft.snapshot.record(id) {
        None => false,
        // The call names this record, and the refusal shows that the caller may know of it.
        Some(_) if draft.operation.call.record() == Some(id) => true,
        Some(record) => can_read(draft, record, &draft.operation.actor, None)?,
    };
    if !is_visible {
        refusal.record = None;
        refusal.state = None;
    }
    Ok(refusal)
}
