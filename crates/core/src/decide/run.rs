//! The whole of one decision: from the call to its answer.

use std::sync::Arc;

use super::access::{Caller, is_holder, may_read, turned_away};
use super::carry::{Run, engine_event};
use super::changes::{Changes, Decision, NoOp, NoOpReason, RecordChange, Refusal};
use super::draft::{Draft, Parts, fault};
use super::halt::{Halt, Step, lease_lost, refusal};
use super::input::Given;
use super::operation::{Call, ErrorReport, Operation};
use super::plan::{NotTaken, Occasion};
use super::snapshot::{Key, Snapshot};
use super::timers::{Due, first_due, next_due};
use super::work::{Done, end_execution, not_found};
use crate::expr::{Fault, FaultKind};
use crate::model::{Definitions, EventKind};
use crate::near::advice;
use crate::record::{Abort, Execution, ExecutionStatus, Record, Token};
use crate::time::Time;
use crate::value::RecordId;

/// What an operation does to the world as it is: the one place where moves are decided.
///
/// The same arguments always give the same answer; replay, recovery and simulation call it as live traffic does.
pub fn decide(definitions: &Definitions, snapshot: &Snapshot, operation: &Operation, now: Time) -> Decision {
    // INV-9: what only the engine may say is judged here too. Refused like a record that is not there, and never by
    // setting the record aside.
    if is_engine_call(&operation.call) && !operation.actor.has_role("engine") {
        return Decision::Refusal(not_found("time"));
    }
    let mut now = now;
    loop {
        let mut run = Run::new(Draft::new(definitions, snapshot, operation, now));
        let done = run.call(&operation.call).and_then(|done| no_filled_hold(&run.draft).map(|()| done));
        let halt = match done {
            Ok(done) => return answer(run.draft, done, now),
            Err(halt) => halt,
        };
        let halt = match halt {
            Halt::Refuse(refusal) if !is_engine_call(&operation.call) => match shown(&run.draft, refusal) {
                Ok(refusal) => return Decision::Refusal(refusal),
                Err(halt) => halt,
            },
            other => other,
        };
        return match halt {
            // A record in reach was logged later: time never runs backwards in a record's log. Ends, because `now`
            // only grows, up to the latest of the records in the snapshot.
            Halt::Later(later) => {
                now = later;
                continue;
            }
            Halt::Missing(keys) => Decision::Missing(keys),
            Halt::Due(records) => Decision::Due { records, at: now },
            Halt::Ask(questions) => Decision::Ask(questions),
            Halt::Holder(subject) => {
                let reads = run.draft.into_parts().reads;
                Decision::NoOp(NoOp { subject, reason: NoOpReason::Holder, met: Vec::new(), reads })
            }
            Halt::Refuse(refusal) => stuck(run.draft, &refusal.reason),
            Halt::Fault(fault) if marks_stuck(&operation.call) => stuck(run.draft, &fault.kind.to_string()),
            Halt::Fault(fault) => Decision::Refusal(faulted(snapshot, &operation.call, &fault)),
        };
    }
}

/// What a call came to, when it came to something.
enum Outcome {
    Changed(RecordId),
    Repeated(RecordId),
    Heartbeat { record: RecordId, execution: Execution, stop: bool },
}

impl Run<'_> {
    fn call(&mut self, call: &Call) -> Step<Outcome> {
        let worked = |record, done| match done {
            Done::Changed => Outcome::Changed(record),
            Done::Repeated => Outcome::Repeated(record),
        };
        Ok(match call {
            Call::Create(create) => {
                let id = self.create_for_caller(create)?;
                self.follow_up(0)?;
                Outcome::Changed(id)
            }
            Call::Fire { record, event, input, token, if_version } => {
                self.fire_for_caller(*record, event, Given::Json(input), *token, *if_version)?;
                Outcome::Changed(*record)
            }
            Call::Lease { record, worker, lease, start } => {
                self.lease(*record, worker, *lease, *start)?;
                Outcome::Changed(*record)
            }
            Call::Start { record, token } => worked(*record, self.start(*record, *token)?),
            Call::Heartbeat { record, token, lease } => {
                let (execution, stop) = self.heartbeat(*record, *token, *lease)?;
                Outcome::Heartbeat { record: *record, execution, stop }
            }
            Call::Commit { record, token, result, finish } => {
                worked(*record, self.commit(*record, *token, result, *finish)?)
            }
            Call::Finish { record, token } => worked(*record, self.finish(*record, *token)?),
            Call::Fail { record, token, error } => worked(*record, self.fail(*record, *token, error, "fail")?),
            Call::Yield { record, token } => worked(
                *record,
                self.fail(*record, *token, &ErrorReport::new("yielded", "given back by the worker"), "yield")?,
            ),
            Call::Due { record } => {
                self.due(*record)?;
                Outcome::Changed(*record)
            }
            Call::Lost { record, token } => {
                // Only a lease that still counts can be lost. One that ended meanwhile is no fault of the record's.
                let live = self.draft.expect(*record)?.live_execution().filter(|live| live.token == *token).cloned();
                match live.map(|execution| execution.status) {
                    None => Outcome::Repeated(*record),
                    Some(ExecutionStatus::Committed) => {
                        self.close(*record)?;
                        Outcome::Changed(*record)
                    }
                    Some(_) => worked(
                        *record,
                        self.fail(*record, *token, &ErrorReport::new("lost", "the worker is gone"), "lost")?,
                    ),
                }
            }
            Call::Move(moving) => worked(moving.record, self.move_over(moving)?),
        })
    }

    fn fire_for_caller(
        &mut self,
        id: RecordId,
        event: &Arc<str>,
        given: Given,
        token: Option<Token>,
        if_version: Option<u64>,
    ) -> Step<()> {
        let actor = &self.draft.operation.actor;
        let record = match self.draft.find(id)? {
            Some(record) if may_read(&self.draft, record, actor, token)? => Arc::clone(record),
            _ => return Err(Halt::Refuse(not_found(event))),
        };
        let no = |status, code, reason: String| Err(Halt::Refuse(refusal(&record, event, status, code, reason)));
        match record.lifecycle.event(event) {
            Some(known) if known.kind == EventKind::Called => {}
            Some(_) => return no(404, "no_such_event", format!("`{event}` is the engine's own and cannot be called")),
            None => {
                let lifecycle = &record.lifecycle;
                let called = lifecycle.events.iter().filter(|known| known.kind == EventKind::Called);
                let instead = advice(0, event, "events that can be called", called.map(|known| &*known.name));
                return no(404, "no_such_event", format!("{} declares no `{event}`; {instead}", lifecycle.name));
            }
        }
        if if_version.is_some_and(|version| version != record.version) {
            return no(412, "version_mismatch", format!("the record is at version {}", record.version));
        }
        if let Some(token) = token
            && record.live_execution().is_none_or(|own| own.token != token || !is_holder(own, actor))
        {
            return Err(Halt::Refuse(lease_lost(&record, event, token)));
        }
        if record.awaits_finish() {
            let mut refusal =
                refusal(&record, event, 409, "already_committed", "the effect has landed; only the finish is left");
            refusal.committed = record.committed;
            return Err(Halt::Refuse(refusal));
        }
        let occasion = Occasion { caller: Caller::Key(token), given, ..engine_event(event) };
        match self.fire(id, occasion)? {
            Ok(()) => self.follow_up(0),
            Err(NotTaken::State) => {
                no(409, "wrong_state", format!("`{event}` is not taken in {}", record.state_name()))
            }
            Err(NotTaken::Caller) => {
                let rows = record.lifecycle.event(event).into_iter().flat_map(|event| &event.rows);
                let why = turned_away(actor, &record.lifecycle, rows.filter(|row| row.from.contains(record.state)));
                no(403, "not_allowed", format!("`{event}` is not for this caller in {}{why}", record.state_name()))
            }
            Err(NotTaken::Input(reason)) => no(422, "bad_input", reason),
            Err(NotTaken::Guard) => {
                no(409, "not_taken", format!("no row of `{event}` holds in {}", record.state_name()))
            }
        }
    }

    /// Whatever is due first: an ended lease, or timers.
    fn due(&mut self, id: RecordId) -> Step<()> {
        let Some(record) = self.draft.stored(id)?.cloned() else { return Err(Halt::Refuse(not_found("time"))) };
        if record.updated_at > self.draft.now {
            return Err(Halt::Later(record.updated_at));
        }
        let now = self.draft.now;
        self.draft.turn = next_due(&record).map(|due| (due, id));
        match first_due(&record, now) {
            None => Ok(()),
            Some(Due::Lease) => {
                // INV-4: what a crash cut off is finished after the commit, and lost before it. Put first: from here on the
                // record is the operation's own, and no longer asked whether it is due.
                self.draft.put((*record).clone())?;
                if record.execution.as_ref().is_some_and(|execution| execution.status == ExecutionStatus::Committed) {
                    return self.close(id);
                }
                self.fail(id, Token(record.attempt), &ErrorReport::new("lost", "the lease ran out"), "lost").map(drop)
            }
            Some(Due::Timers) => {
                // The timers that were due first are spent, whether or not a row takes them: one that is not taken
                // would otherwise be due for ever. Later ones have their turn after it, so that the outcome does not
                // hang on how late the engine comes.
                let Some(first) = record.timers.iter().map(|timer| timer.due).min() else { return Ok(()) };
                let mut spent = (*record).clone();
                spent.timers.retain(|timer| timer.due > first);
                self.draft.put(spent)?;
                let due: Vec<u16> =
                    record.timers.iter().filter(|timer| timer.due == first).map(|timer| timer.row).collect();
                // Not taken is no refusal here: the timers were there to offer the event.
                let _ = self.fire_timers(id, &due)?;
                self.follow_up(0)
            }
        }
    }
}

/// Entering, or being in, a final state with a filled hold is a fault.
fn no_filled_hold(draft: &Draft) -> Step<()> {
    let filled = draft.entries.iter().any(|entry| entry.after.hold != 0 && entry.after.is_final());
    if filled { Err(fault(FaultKind::FilledHold)) } else { Ok(()) }
}

fn answer(draft: Draft, outcome: Outcome, now: Time) -> Decision {
    let (subject, heartbeat, stop) = match outcome {
        Outcome::Repeated(subject) => {
            let reads = draft.into_parts().reads;
            return Decision::NoOp(NoOp { subject, reason: NoOpReason::Repeated, met: Vec::new(), reads });
        }
        Outcome::Changed(subject) => (subject, None, false),
        Outcome::Heartbeat { record, execution, stop } => (record, Some((record, execution)), stop),
    };
    let Parts { entries, uniques, counts, moves, effects, payloads, audit, senders, met, reads } = draft.into_parts();
    let mut records = Vec::with_capacity(entries.len());
    let mut executions = Vec::new();
    let mut told: Vec<RecordId> = moves.iter().map(|paid| paid.cause).chain(senders).collect();
    told.sort_unstable();
    for entry in entries {
        // A row that moves money between named accounts, or sends a message, changes something, and its record's log must tell of it.
        let unchanged = entry.before.as_deref().is_some_and(|before| same(before, &entry.after));
        if unchanged && told.binary_search(&entry.after.id).is_err() {
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
        records.push(RecordChange { before: entry.before, after, rows: entry.rows });
    }
    if records.is_empty() && heartbeat.is_none() {
        return Decision::NoOp(NoOp { subject, reason: NoOpReason::Unchanged, met, reads });
    }
    Decision::Changes(Box::new(Changes {
        now,
        records,
        uniques,
        counts,
        moves,
        executions,
        effects,
        payloads,
        audit,
        heartbeat,
        stop,
        subject,
        reads,
    }))
}

/// Whether nothing changed that a reader, a worker or a timer could tell.
fn same(before: &Record, after: &Record) -> bool {
    before.lifecycle.hash == after.lifecycle.hash
        && before.state == after.state
        && before.fields == after.fields
        && before.hold == after.hold
        && before.timers == after.timers
        && before.execution == after.execution
        && before.attempt == after.attempt
        && before.stuck == after.stuck
}

/// The engine's own calls: there is nobody to refuse.
fn is_engine_call(call: &Call) -> bool {
    matches!(call, Call::Due { .. } | Call::Lost { .. })
}

/// The rows of these calls were proven not to fault; should one fault all the same, the record is set aside, since
/// trying again would fault again.
fn marks_stuck(call: &Call) -> bool {
    matches!(
        call,
        Call::Due { .. }
            | Call::Lost { .. }
            | Call::Lease { .. }
            | Call::Fail { .. }
            | Call::Yield { .. }
            | Call::Finish { .. }
    )
}

/// Set the record aside: readable, counted, and left alone by the engine until somebody's event moves it on.
fn stuck(failed: Draft, why: &str) -> Decision {
    let (definitions, snapshot, operation, now) = (failed.definitions, failed.snapshot, failed.operation, failed.now);
    let Some(id) = operation.call.record() else {
        return Decision::Refusal(super::halt::refusal_of_call("time", 422, "fault", why));
    };
    // Looked for and not there: asking for it again would go on for ever.
    let Some(record) = snapshot.record(id) else { return Decision::Refusal(not_found("time")) };
    let mut draft = Draft::new(definitions, snapshot, operation, now);
    // That it failed rests on all that was read on the way.
    failed.into_parts().reads.into_iter().for_each(|key| draft.note_read(key));
    let mut aside = (**record).clone();
    aside.stuck = Some(why.into());
    let leased = aside
        .execution
        .as_ref()
        .is_some_and(|execution| matches!(execution.status, ExecutionStatus::Leased | ExecutionStatus::InProgress));
    let ends_lease = match operation.call {
        Call::Due { .. } => first_due(record, now) == Some(Due::Lease),
        _ => true,
    };
    if leased && ends_lease {
        let abort = Abort { code: "fault".into(), retryable: false };
        end_execution(&mut draft, &mut aside, ExecutionStatus::Aborted, Some(abort));
    }
    match draft.put(aside) {
        Ok(()) => answer(draft, Outcome::Changed(id), now),
        Err(_) => Decision::Missing(vec![Key::Record(id)]),
    }
}

fn faulted(snapshot: &Snapshot, call: &Call, fault: &Fault) -> Box<Refusal> {
    let (record, event): (Option<RecordId>, &str) = match call {
        Call::Fire { record, event, .. } => (Some(*record), event),
        Call::Create(_) => (None, "create"),
        Call::Commit { record, .. } => (Some(*record), "commit"),
        Call::Start { record, .. } => (Some(*record), "start"),
        Call::Heartbeat { record, .. } => (Some(*record), "heartbeat"),
        Call::Move(moving) => (Some(moving.record), "move"),
        _ => (None, "time"),
    };
    let mut refusal = super::halt::refusal_of_call(
        event,
        422,
        "fault",
        format!("the lifecycle cannot carry this out: {}", fault.kind),
    );
    refusal.record = record.filter(|id| snapshot.record(*id).is_some());
    refusal
}

/// A refusal names no record that does not exist (the one that was to be made), nor one that the caller may not read:
/// another record's row may have refused.
fn shown(draft: &Draft, mut refusal: Box<Refusal>) -> Step<Box<Refusal>> {
    let Some(id) = refusal.record else { return Ok(refusal) };
    let visible = match draft.snapshot.record(id) {
        None => false,
        // Whoever got as far as a refusal about the record it named may know of it.
        Some(_) if draft.operation.call.record() == Some(id) => true,
        Some(record) => may_read(draft, record, &draft.operation.actor, None)?,
    };
    if !visible {
        refusal.record = None;
        refusal.state = None;
    }
    Ok(refusal)
}
