//! Applies transitions: chooses the first that matches an event, changes the record and runs all resulting actions.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::access::EventCaller;
use super::changes::{AuditEntry, NewPayload};
use super::constraints;
use super::create::NewRecordId;
use super::draft::{Draft, Savepoint};
use super::halt::{DecideResult, Halt, record_refusal};
use super::input::EventInput;
use super::leases::end_execution;
use super::ledger;
use super::links;
use super::plan::{Evaluation, EventContext, NoMatch, PlannedEventAction, TransitionPlan, evaluate};
use super::timers;
use crate::bounds;
use crate::model::{EventDef, EventKind, Transition};
use crate::record::{AbortReason, ExecutionStatus, PayloadRef, Record};
use crate::value::{RecordId, Value};

/// Deepest nesting of spawns and requires. Lifecycles in use nest two deep; the limit stops a lifecycle that spawns
/// itself.
const MAX_ACTION_DEPTH: usize = 16;

/// A task on the stack of pending work; the last one runs first.
pub(super) enum PendingTask {
    /// Offers a cascaded event to a record, which may decline it.
    OfferEvent { record: RecordId, event: Arc<str>, input: Arc<[(Arc<str>, Value)]> },
    /// Fires `enter` after the record's transition `transition_index` entered a state. `enter_chain` counts the `enter`
    /// transitions that led there in sequence.
    FireEnter { record: RecordId, transition_index: usize, enter_chain: usize },
}

/// One attempt to decide an operation.
pub(super) struct OperationRun<'a> {
    pub(super) draft: Draft<'a>,
    tasks: Vec<PendingTask>,
    depth: usize,
    /// Records so far that were spawned, or that took or declined an event.
    reached_records: usize,
    /// Events offered so far, including repeated offers to a record that has taken the event.
    offered_events: usize,
    /// Length of the current sequence of `enter` transitions.
    enter_chain: usize,
}

impl<'a> OperationRun<'a> {
    pub(super) fn new(draft: Draft<'a>) -> Self {
        Self { draft, tasks: Vec::new(), depth: 0, reached_records: 0, offered_events: 0, enter_chain: 0 }
    }

    /// Marks the current changes and pending tasks for [`rollback_to`](Self::rollback_to).
    pub(super) fn savepoint(&self) -> (Savepoint, usize) {
        (self.draft.savepoint(), self.tasks.len())
    }

    pub(super) fn rollback_to(&mut self, (savepoint, tasks): &(Savepoint, usize)) {
        self.draft.rollback_to(savepoint);
        self.tasks.truncate(*tasks);
    }

    /// Tries the transitions of an event in file order and applies the first that matches.
    pub(super) fn fire_event(&mut self, id: RecordId, context: EventContext) -> DecideResult<Result<(), NoMatch>> {
        self.fire_transitions(id, context, None)
    }

    /// Fires `time`, but only the transitions whose timers are due.
    pub(super) fn fire_timers(&mut self, id: RecordId, due: &[u16]) -> DecideResult<Result<(), NoMatch>> {
        self.fire_transitions(id, engine_event_context("time"), Some(due))
    }

    fn fire_transitions(
        &mut self,
        id: RecordId,
        context: EventContext,
        allowed_transitions: Option<&[u16]>,
    ) -> DecideResult<Result<(), NoMatch>> {
        let record = self.draft.expect_record(id)?;
        let lifecycle = Arc::clone(&record.lifecycle);
        let mut closest = NoMatch::State;
        let Some(event) = lifecycle.event(context.event) else { return Ok(Err(closest)) };
        for (number, transition) in event.transitions.iter().enumerate() {
            let is_allowed = allowed_transitions
                .is_none_or(|allowed| allowed.iter().any(|transition| usize::from(*transition) == number));
            if !is_allowed || !transition.from.contains(record.state) {
                continue;
            }
            match evaluate(&self.draft, &record, transition, context)? {
                Err(reason) => closest = closest.max(reason),
                Ok(Evaluation::NeedsChecks(queries, partial_plan)) => {
                    return Err(self.request_checks(
                        queries,
                        partial_plan,
                        Some(&record),
                        &record,
                        transition,
                        context,
                    ));
                }
                Ok(Evaluation::Matches(plan)) => {
                    let savepoint = self.savepoint();
                    if self.apply_transition(
                        Some(&record),
                        (*record).clone(),
                        transition,
                        plan,
                        context,
                        (event, number),
                    )? {
                        return Ok(Ok(()));
                    }
                    self.rollback_to(&savepoint);
                    closest = closest.max(NoMatch::Guard);
                }
            }
        }
        Ok(Err(closest))
    }

    /// Applies a transition. Returns `false` if a target did not take a required event; the caller must then roll back.
    pub(super) fn apply_transition(
        &mut self,
        before: Option<&Arc<Record>>,
        mut record: Record,
        transition: &Transition,
        plan: TransitionPlan,
        context: EventContext,
        (event, number): (&EventDef, usize),
    ) -> DecideResult<bool> {
        let (id, kind) = (record.id, event.kind);
        if let Some(to) = transition.to {
            self.enter_state(&mut record, to, event);
        }
        for (slot, value) in plan.set {
            record.fields[usize::from(slot)] = value;
        }
        if kind == EventKind::Called {
            record.stuck_reason = None;
        }
        // From here on only `finish` may change the state of a record with a committed internal transition, so that no
        // action of the commit moves it.
        if let (EventKind::Commit, None, Some(execution)) = (kind, transition.to, &mut record.execution) {
            execution.finish_pending = true;
        }
        constraints::update_constraints(&mut self.draft, before.map(|record| &**record), &record, context)?;
        links::enforce_link_limits(&self.draft, before.map(|record| &**record), &record, context.event)?;
        ledger::apply_transfers(&mut self.draft, &mut record, plan.transfers, context.event)?;
        match before {
            Some(before) if transition.to.is_none() => {
                timers::update_field_timers(&before.lifecycle, before, &mut record);
            }
            _ => timers::arm_timers(&self.draft, &mut record)?,
        }
        if let Some(tag) = &transition.audit {
            self.draft.audit_entries.push(AuditEntry { record: Some(id), tag: Arc::clone(tag) });
        }
        let (owner, payload) = (Arc::clone(&record.owner), record.payload);
        let version = record.version + 1;
        let fires_enter = transition.to.is_some() && !record.lifecycle.transitions(EventKind::Enter).is_empty();
        if before.is_some() {
            self.draft.put_record(record)?;
        } else {
            self.draft.put_new_record(record);
        }
        let transition_index = self.draft.record_transition(id, &event.name, number);

        for spawn in plan.spawn {
            let payload = if spawn.copies_payload { payload } else { None };
            let new_id = self.draft.generate_id();
            self.spawn_record(id, new_id, &spawn.lifecycle, &spawn.fields, spawn.owner, payload)?;
        }
        for delivery in plan.deliver {
            let payload = PayloadRef {
                sha256: Sha256::digest(delivery.body.as_bytes()).into(),
                bytes: delivery.body.len() as u64,
            };
            self.draft.payloads.push(NewPayload { payload, bytes: delivery.body });
            let fields = [("to".into(), delivery.url), ("source".into(), Value::text(id.to_string()))];
            self.draft.delivery_senders.push(id);
            let new_id = self.draft.generate_delivery_id(version);
            self.spawn_record(id, new_id, "onceward.delivery", &fields, Arc::clone(&owner), Some(payload))?;
        }
        for action in plan.require {
            if !self.require_event(action)? {
                return Ok(false);
            }
        }
        if fires_enter {
            self.tasks.push(PendingTask::FireEnter { record: id, transition_index, enter_chain: self.enter_chain });
        }
        for action in plan.cascade.into_iter().rev() {
            self.offered_events += action.targets.len();
            for target in action.targets.into_iter().rev() {
                self.tasks.push(PendingTask::OfferEvent {
                    record: target,
                    event: Arc::clone(&action.event),
                    input: Arc::clone(&action.input),
                });
            }
        }
        Ok(true)
    }

    /// Enters a state: starts its timers, and aborts the lease unless the event is `lease` or the execution has
    /// committed.
    fn enter_state(&mut self, record: &mut Record, to: crate::model::StateIndex, event: &EventDef) {
        let aborts_lease = event.kind != EventKind::Lease
            && record.execution.as_ref().is_some_and(|execution| {
                matches!(execution.status, ExecutionStatus::Leased | ExecutionStatus::InProgress)
            });
        if aborts_lease {
            let message = format!("`{}` took the record out of {}", event.name, record.state_name());
            let abort = AbortReason::by_engine("left", &message);
            end_execution(&mut self.draft, record, ExecutionStatus::Aborted, Some(abort));
        }
        record.state = to;
        record.entered_at = self.draft.now;
        if record.is_final() {
            record.finished_at = Some(self.draft.now);
        }
    }

    /// Fires an event that every target must take.
    fn require_event(&mut self, action: PlannedEventAction) -> DecideResult<bool> {
        if action.targets.is_empty() {
            return Ok(false);
        }
        self.draft.require_loaded(&action.targets)?;
        for target in action.targets {
            if self.draft.expect_record(target)?.awaits_finish() {
                return Ok(false);
            }
            let context = event_action_context(&action.event, &action.input);
            let taken = self.run_nested(target, |run| run.fire_event(target, context))?;
            if taken.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn spawn_record(
        &mut self,
        from: RecordId,
        id: RecordId,
        lifecycle: &str,
        fields: &[(Arc<str>, Value)],
        owner: Arc<str>,
        payload: Option<PayloadRef>,
    ) -> DecideResult<()> {
        let savepoint = self.savepoint();
        let created = self.run_nested(from, |run| {
            run.create_record(
                lifecycle,
                NewRecordId::Generated(id),
                owner,
                EventInput::Values(fields),
                payload,
                EventCaller::Record,
            )
        });
        match created {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(reason)) => {
                let spawner = self.draft.expect_record(from)?;
                let reason = match reason {
                    NoMatch::Input(reason) => format!("a {lifecycle} cannot be created: {reason}"),
                    _ => format!("no `create` transition of {lifecycle} matches"),
                };
                Err(Halt::Refuse(record_refusal(&spawner, "create", 409, "spawn_not_taken", reason)))
            }
            // The record that holds the unique key takes the place of the new one.
            Err(Halt::ExistingRecord(holder)) => {
                self.rollback_to(&savepoint);
                self.draft.existing.push(holder);
                Ok(())
            }
            Err(halt) => Err(halt),
        }
    }

    /// Runs `run` and all tasks that result from it.
    fn run_nested<T>(
        &mut self,
        record_id: RecordId,
        run: impl FnOnce(&mut Self) -> DecideResult<T>,
    ) -> DecideResult<T> {
        if self.depth == MAX_ACTION_DEPTH {
            let record = self.draft.expect_record(record_id)?;
            let reason = format!("more than {MAX_ACTION_DEPTH} records spawn or require one another");
            return Err(Halt::Refuse(record_refusal(&record, "require", 409, "nesting_too_deep", reason)));
        }
        self.reached_records += 1;
        self.enforce_limits()?;
        self.depth += 1;
        let base_task = self.tasks.len();
        let result = run(self).and_then(|done| self.run_tasks(base_task).map(|()| done));
        self.depth -= 1;
        result
    }

    /// Runs pending tasks until the stack is back to `base_task` tasks. The order is depth first; the call depth does
    /// not grow with the length of the chain.
    ///
    /// If a task lacks data, the attempt fails. The other tasks still run, to collect everything that is missing. The
    /// store is thus queried once per hop from the first record, not once per record.
    pub(super) fn run_tasks(&mut self, base_task: usize) -> DecideResult<()> {
        let (mut missing, mut due) = (BTreeSet::new(), BTreeSet::new());
        while self.tasks.len() > base_task {
            let Some(task) = self.tasks.pop() else { break };
            let savepoint = self.savepoint();
            match self.run_task(task) {
                Ok(()) => {}
                Err(Halt::Missing(keys)) => {
                    missing.extend(keys);
                    self.rollback_to(&savepoint);
                }
                Err(Halt::Due(records)) => {
                    due.extend(records);
                    self.rollback_to(&savepoint);
                }
                // Results computed without the missing data do not count.
                Err(_) if !missing.is_empty() || !due.is_empty() => self.tasks.truncate(base_task),
                Err(halt) => return Err(halt),
            }
        }
        if !missing.is_empty() {
            return Err(Halt::Missing(missing.into_iter().collect()));
        }
        if due.is_empty() { Ok(()) } else { Err(Halt::Due(due.into_iter().collect())) }
    }

    fn run_task(&mut self, task: PendingTask) -> DecideResult<()> {
        self.enforce_limits()?;
        match task {
            PendingTask::OfferEvent { record, event, input } => self.offer_event(record, &event, &input),
            PendingTask::FireEnter { record, transition_index, enter_chain: chain } => {
                // The static analysis rejects cycles of `enter` transitions. This limit stops a lifecycle that was not
                // analyzed.
                if chain > bounds::MAX_STATES {
                    let record = self.draft.expect_record(record)?;
                    let reason = "its `enter` transitions form a cycle";
                    return Err(Halt::Refuse(record_refusal(&record, "enter", 409, "enter_cycle", reason)));
                }
                self.enter_chain = chain + 1;
                self.fire_enter(record, transition_index)?;
                self.enter_chain = 0;
                Ok(())
            }
        }
    }

    /// Rolled-back work counts too, because the limits bound the work, not the result.
    fn enforce_limits(&self) -> DecideResult<()> {
        let reason = if self.reached_records > bounds::MAX_RECORDS_PER_OPERATION {
            format!("the operation reaches more than {} records", bounds::MAX_RECORDS_PER_OPERATION)
        } else if self.offered_events > bounds::MAX_OFFERS_PER_OPERATION {
            format!("the operation sends more than {} events", bounds::MAX_OFFERS_PER_OPERATION)
        } else {
            return Ok(());
        };
        Err(Halt::Refuse(super::halt::recordless_refusal("cascade", 409, "operation_too_large", reason)))
    }

    fn offer_event(&mut self, id: RecordId, event: &Arc<str>, input: &Arc<[(Arc<str>, Value)]>) -> DecideResult<()> {
        if self.draft.has_taken_cascade(id, event) || self.draft.expect_record(id)?.awaits_finish() {
            return Ok(());
        }
        self.reached_records += 1;
        self.enforce_limits()?;
        // Marked before firing, because the record's own cascades may offer the event again.
        self.draft.mark_cascade_taken(id, event);
        if self.fire_event(id, event_action_context(event, input))?.is_err() {
            self.draft.unmark_cascade_taken(id, event);
        }
        Ok(())
    }

    fn fire_enter(&mut self, id: RecordId, transition_index: usize) -> DecideResult<()> {
        // An action of the transition may already have moved the record to another state, which fired its own `enter`.
        if self.draft.has_entered_state_since(id, transition_index) {
            return Ok(());
        }
        self.fire_event(id, engine_event_context("enter")).map(drop)
    }
}

fn event_action_context<'b>(event: &'b str, input: &'b [(Arc<str>, Value)]) -> EventContext<'b> {
    EventContext { caller: EventCaller::Record, input: EventInput::Values(input), ..engine_event_context(event) }
}

/// Context of one of the engine's own events, without input.
pub(super) fn engine_event_context(event: &str) -> EventContext<'_> {
    EventContext {
        event,
        caller: EventCaller::Engine,
        input: EventInput::Empty,
        result: &[],
        error: None,
        is_creation: false,
    }
}
