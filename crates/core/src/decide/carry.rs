//! Carrying out: choosing the row that answers an event, doing what it says, and all that follows from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::access::Caller;
use super::changes::{AuditEntry, NewPayload};
use super::create::NewId;
use super::draft::{Draft, Mark};
use super::halt::{Halt, Step, refusal};
use super::input::Given;
use super::keys;
use super::ledger;
use super::links;
use super::plan::{NotTaken, Occasion, Plan, PlannedCause, Weighed, weigh};
use super::timers;
use super::work::end_execution;
use crate::bounds;
use crate::model::{Event, EventKind, Row};
use crate::record::{Abort, ExecutionStatus, Payload, Record};
use crate::value::{RecordId, Value};

/// Spawns and requires inside each other. Real lifecycles nest two deep; a lifecycle that spawns itself ends here.
const DEPTH: usize = 16;

/// What is still to be done, last first.
pub(super) enum Task {
    /// Offer an event to a record; not taken is fine.
    Offer { record: RecordId, event: Arc<str>, input: Arc<[(Arc<str>, Value)]> },
    /// The record was brought into a state by the row that stands at this place among those it has taken.
    /// `chain` counts the enter rows that led there one after another.
    Entered { record: RecordId, row: usize, chain: usize },
}

/// One attempt at an operation.
pub(super) struct Run<'a> {
    pub(super) draft: Draft<'a>,
    tasks: Vec<Task>,
    depth: usize,
    /// Records that took an event offered or required, or declined it, or were spawned, so far.
    reached: usize,
    /// Events offered so far; some of them to records that have taken them before.
    offered: usize,
    /// Enter rows in a row, so far.
    chain: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(draft: Draft<'a>) -> Self {
        Self { draft, tasks: Vec::new(), depth: 0, reached: 0, offered: 0, chain: 0 }
    }

    /// Where to go back to when a row is undone: what was changed, and what is still to be done.
    pub(super) fn mark(&self) -> (Mark, usize) {
        (self.draft.mark(), self.tasks.len())
    }

    pub(super) fn back_to(&mut self, (mark, tasks): &(Mark, usize)) {
        self.draft.back_to(mark);
        self.tasks.truncate(*tasks);
    }

    /// Try the rows of an event in file order; the first that holds is taken.
    pub(super) fn fire(&mut self, id: RecordId, occasion: Occasion) -> Step<Result<(), NotTaken>> {
        self.fire_rows(id, occasion, None)
    }

    /// Fire `time`, for the rows whose timers are due only.
    pub(super) fn fire_timers(&mut self, id: RecordId, due: &[u16]) -> Step<Result<(), NotTaken>> {
        self.fire_rows(id, engine_event("time"), Some(due))
    }

    fn fire_rows(&mut self, id: RecordId, occasion: Occasion, only: Option<&[u16]>) -> Step<Result<(), NotTaken>> {
        let record = self.draft.expect(id)?;
        let lifecycle = Arc::clone(&record.lifecycle);
        let mut best = NotTaken::State;
        let Some(event) = lifecycle.event(occasion.event) else { return Ok(Err(best)) };
        for (number, row) in event.rows.iter().enumerate() {
            let wanted = only.is_none_or(|rows| rows.iter().any(|row| usize::from(*row) == number));
            if !wanted || !row.from.contains(record.state) {
                continue;
            }
            match weigh(&self.draft, &record, row, occasion)? {
                Err(reason) => best = best.max(reason),
                Ok(Weighed::Waits(questions, known)) => {
                    return Err(self.ask(questions, known, Some(&record), &record, row, occasion));
                }
                Ok(Weighed::Holds(plan)) => {
                    let mark = self.mark();
                    if self.carry_out(Some(&record), (*record).clone(), row, plan, occasion, (event, number))? {
                        return Ok(Ok(()));
                    }
                    self.back_to(&mark);
                    best = best.max(NotTaken::Guard);
                }
            }
        }
        Ok(Err(best))
    }

    /// Do what a row says. `false`: a require was not taken, and the caller must go back.
    pub(super) fn carry_out(
        &mut self,
        before: Option<&Arc<Record>>,
        mut record: Record,
        row: &Row,
        plan: Plan,
        occasion: Occasion,
        (event, number): (&Event, usize),
    ) -> Step<bool> {
        let (id, kind) = (record.id, event.kind);
        if let Some(to) = row.to {
            self.enter(&mut record, to, kind);
        }
        for (slot, value) in plan.set {
            record.fields[usize::from(slot)] = value;
        }
        if kind == EventKind::Called {
            record.stuck = None;
        }
        // A commit that stays holds the record from here on, so that nothing it causes can move it away.
        if let (EventKind::Commit, None, Some(execution)) = (kind, row.to, &mut record.execution) {
            execution.finish_moves = true;
        }
        keys::update(&mut self.draft, before.map(|record| &**record), &record, occasion)?;
        links::check(&self.draft, before.map(|record| &**record), &record, occasion.event)?;
        ledger::carry_out(&mut self.draft, &mut record, plan.moves, occasion.event)?;
        match before {
            Some(before) if row.to.is_none() => timers::follow(&before.lifecycle, before, &mut record),
            _ => timers::arm(&self.draft, &mut record)?,
        }
        if let Some(tag) = &row.audit {
            self.draft.audit.push(AuditEntry { record: Some(id), tag: Arc::clone(tag) });
        }
        let (owner, payload) = (Arc::clone(&record.owner), record.payload);
        let version = record.version + 1;
        let entered = row.to.is_some() && !record.lifecycle.rows(EventKind::Enter).is_empty();
        if before.is_some() {
            self.draft.put(record)?;
        } else {
            self.draft.put_new(record);
        }
        let taken = self.draft.note_row(id, &event.name, number);

        for spawn in plan.spawn {
            let payload = if spawn.same_payload { payload } else { None };
            let made = self.draft.new_id();
            self.spawn(id, made, &spawn.lifecycle, &spawn.fields, spawn.owner, payload)?;
        }
        for delivery in plan.deliver {
            let payload =
                Payload { sha256: Sha256::digest(delivery.body.as_bytes()).into(), bytes: delivery.body.len() as u64 };
            self.draft.payloads.push(NewPayload { payload, bytes: delivery.body });
            let fields = [("to".into(), delivery.to), ("source".into(), Value::text(id.to_string()))];
            self.draft.senders.push(id);
            let made = self.draft.message_id(version);
            self.spawn(id, made, "onceward.delivery", &fields, Arc::clone(&owner), Some(payload))?;
        }
        for cause in plan.require {
            if !self.require(cause)? {
                return Ok(false);
            }
        }
        if entered {
            self.tasks.push(Task::Entered { record: id, row: taken, chain: self.chain });
        }
        for cause in plan.cascade.into_iter().rev() {
            self.offered += cause.targets.len();
            for target in cause.targets.into_iter().rev() {
                self.tasks.push(Task::Offer {
                    record: target,
                    event: Arc::clone(&cause.event),
                    input: Arc::clone(&cause.input),
                });
            }
        }
        Ok(true)
    }

    /// Into a state: the clock of its timers starts, a lease that is not part of the move ends.
    fn enter(&mut self, record: &mut Record, to: crate::model::StateIx, kind: EventKind) {
        let leaves_lease = kind != EventKind::Lease
            && record.execution.as_ref().is_some_and(|execution| {
                matches!(execution.status, ExecutionStatus::Leased | ExecutionStatus::InProgress)
            });
        if leaves_lease {
            let abort = Abort { code: "left".into(), retryable: false };
            end_execution(&mut self.draft, record, ExecutionStatus::Aborted, Some(abort));
        }
        record.state = to;
        record.entered_at = self.draft.now;
        if record.is_final() {
            record.finished_at = Some(self.draft.now);
        }
    }

    /// An event that must be taken by each of its targets.
    fn require(&mut self, cause: PlannedCause) -> Step<bool> {
        if cause.targets.is_empty() {
            return Ok(false);
        }
        self.draft.gather(&cause.targets)?;
        for target in cause.targets {
            if self.draft.expect(target)?.awaits_finish() {
                return Ok(false);
            }
            let occasion = caused(&cause.event, &cause.input);
            let taken = self.nested(target, |run| run.fire(target, occasion))?;
            if taken.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn spawn(
        &mut self,
        from: RecordId,
        id: RecordId,
        lifecycle: &str,
        fields: &[(Arc<str>, Value)],
        owner: Arc<str>,
        payload: Option<Payload>,
    ) -> Step<()> {
        let mark = self.mark();
        let made = self.nested(from, |run| {
            run.create(lifecycle, NewId::Made(id), owner, Given::Values(fields), payload, Caller::Record)
        });
        match made {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(reason)) => {
                let spawner = self.draft.expect(from)?;
                let reason = match reason {
                    NotTaken::Input(reason) => format!("a {lifecycle} cannot be made: {reason}"),
                    _ => format!("no row of {lifecycle} takes the creation"),
                };
                Err(Halt::Refuse(refusal(&spawner, "create", 409, "spawn_not_taken", reason)))
            }
            // The record that holds the key serves in place of a new one.
            Err(Halt::Holder(holder)) => {
                self.back_to(&mark);
                self.draft.met.push(holder);
                Ok(())
            }
            Err(halt) => Err(halt),
        }
    }

    /// Do something with all that follows from it, before going on.
    fn nested<T>(&mut self, about: RecordId, step: impl FnOnce(&mut Self) -> Step<T>) -> Step<T> {
        if self.depth == DEPTH {
            let record = self.draft.expect(about)?;
            let reason = format!("more than {DEPTH} records make or require one another");
            return Err(Halt::Refuse(refusal(&record, "require", 409, "too_deep", reason)));
        }
        self.reached += 1;
        self.within_bounds()?;
        self.depth += 1;
        let base = self.tasks.len();
        let done = step(self).and_then(|done| self.follow_up(base).map(|()| done));
        self.depth -= 1;
        done
    }

    /// Run the tasks down to a length of the stack: depth first, and no deeper in calls however long the chain.
    ///
    /// Where one of them lacks something the attempt is lost; the others are run all the same, for what they lack, so that
    /// a store is asked once for each step away from the first record and not once for each record.
    pub(super) fn follow_up(&mut self, base: usize) -> Step<()> {
        let (mut missing, mut due) = (BTreeSet::new(), BTreeSet::new());
        while self.tasks.len() > base {
            let Some(task) = self.tasks.pop() else { break };
            let mark = self.mark();
            match self.take_up(task) {
                Ok(()) => {}
                Err(Halt::Missing(keys)) => {
                    missing.extend(keys);
                    self.back_to(&mark);
                }
                Err(Halt::Due(records)) => {
                    due.extend(records);
                    self.back_to(&mark);
                }
                // Nothing that is found out without what is missing counts.
                Err(_) if !missing.is_empty() || !due.is_empty() => self.tasks.truncate(base),
                Err(halt) => return Err(halt),
            }
        }
        if !missing.is_empty() {
            return Err(Halt::Missing(missing.into_iter().collect()));
        }
        if due.is_empty() { Ok(()) } else { Err(Halt::Due(due.into_iter().collect())) }
    }

    fn take_up(&mut self, task: Task) -> Step<()> {
        self.within_bounds()?;
        match task {
            Task::Offer { record, event, input } => self.offer(record, &event, &input),
            Task::Entered { record, row, chain } => {
                // The checker allows no circle of enter rows; should one come here unchecked, it ends.
                if chain > bounds::STATES {
                    let record = self.draft.expect(record)?;
                    let reason = "its enter rows go round in a circle";
                    return Err(Halt::Refuse(refusal(&record, "enter", 409, "endless_enter", reason)));
                }
                self.chain = chain + 1;
                self.entered(record, row)?;
                self.chain = 0;
                Ok(())
            }
        }
    }

    /// What is undone counts too: it is the work that is bounded, however rows are tried and given up.
    fn within_bounds(&self) -> Step<()> {
        let reason = if self.reached > bounds::RECORDS_PER_OPERATION {
            format!("the operation reaches more than {} records", bounds::RECORDS_PER_OPERATION)
        } else if self.offered > bounds::OFFERS_PER_OPERATION {
            format!("the operation offers more than {} events", bounds::OFFERS_PER_OPERATION)
        } else {
            return Ok(());
        };
        Err(Halt::Refuse(super::halt::refusal_of_call("cascade", 409, "operation_too_large", reason)))
    }

    fn offer(&mut self, id: RecordId, event: &Arc<str>, input: &Arc<[(Arc<str>, Value)]>) -> Step<()> {
        if self.draft.has_taken(id, event) || self.draft.expect(id)?.awaits_finish() {
            return Ok(());
        }
        self.reached += 1;
        self.within_bounds()?;
        // Noted before its own cascades come round to it again.
        self.draft.note_taken(id, event);
        if self.fire(id, caused(event, input))?.is_err() {
            self.draft.forget_taken(id, event);
        }
        Ok(())
    }

    fn entered(&mut self, id: RecordId, row: usize) -> Step<()> {
        // What the row caused may have moved the record on meanwhile; its newer state has had its own turn.
        if self.draft.has_moved_since(id, row) {
            return Ok(());
        }
        self.fire(id, engine_event("enter")).map(drop)
    }
}

fn caused<'b>(event: &'b str, input: &'b [(Arc<str>, Value)]) -> Occasion<'b> {
    Occasion { caller: Caller::Record, given: Given::Values(input), ..engine_event(event) }
}

/// One of the engine's own events, with nothing given.
pub(super) fn engine_event(event: &str) -> Occasion<'_> {
    Occasion { event, caller: Caller::Engine, given: Given::Nothing, result: &[], error: None, creating: false }
}
