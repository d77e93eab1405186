//! Runs calls on the simulator and asserts their outcomes.

use std::sync::Arc;

use onceward_core::decide::{Call, Changes, CreateRecord, Decision, FailureReport, NoOpReason, Refusal};
use onceward_core::record::{Actor, Execution, FencingToken, PayloadRef};
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};

use super::world::{Simulator, object};

/// A lease from the worker's view.
#[derive(Clone, Debug)]
pub struct SimulatedLease {
    pub record: RecordId,
    pub worker: Actor,
    pub token: FencingToken,
    /// The execution when the lease was granted. Heartbeats do not update it.
    pub execution: Execution,
}

/// A call that is not run yet. Add inputs, then state the expected outcome.
#[must_use = "the call runs only when an outcome is expected"]
pub struct SimulatedCall<'s> {
    simulator: &'s mut Simulator,
    actor: Actor,
    call: Call,
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub struct CallOutcome {
    pub description: String,
    pub decision: Decision,
}

impl Simulator {
    pub fn call(&mut self, actor: &Actor, call: Call) -> SimulatedCall<'_> {
        SimulatedCall { simulator: self, actor: actor.clone(), call }
    }

    pub fn create(&mut self, lifecycle: &str, by: &Actor) -> SimulatedCall<'_> {
        let create =
            CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields: Map::new(), payload: None };
        self.call(by, Call::Create(create))
    }

    pub fn fire(&mut self, record: RecordId, event: &str, by: &Actor) -> SimulatedCall<'_> {
        let call = Call::Fire { record, event: event.into(), input: Map::new(), token: None, if_version: None };
        self.call(by, call)
    }

    /// Leases the job for a worker. The job must be leasable.
    pub fn lease(&mut self, record: RecordId, worker: &str) -> SimulatedLease {
        self.try_lease(record, worker).expect_ok();
        let record = self.record(record);
        let execution = record.execution.clone().expect("a leased record has an execution");
        SimulatedLease { record: record.id, worker: super::super::worker(worker), token: execution.token, execution }
    }

    pub fn try_lease(&mut self, record: RecordId, worker: &str) -> SimulatedCall<'_> {
        let call = Call::Lease { record, worker: worker.into(), lease: None, start: false };
        self.call(&super::super::worker(worker), call)
    }

    pub fn start(&mut self, lease: &SimulatedLease) -> SimulatedCall<'_> {
        self.call(&lease.worker, Call::Start { record: lease.record, token: lease.token })
    }

    pub fn heartbeat(&mut self, lease: &SimulatedLease) -> SimulatedCall<'_> {
        self.call(&lease.worker, Call::Heartbeat { record: lease.record, token: lease.token, lease: None })
    }

    /// Commits and finishes in one call.
    pub fn commit(&mut self, lease: &SimulatedLease, result: Json) -> SimulatedCall<'_> {
        self.call(&lease.worker, Call::Commit { record: lease.record, token: lease.token, result, finish: true })
    }

    /// Commits without finishing.
    pub fn commit_only(&mut self, lease: &SimulatedLease, result: Json) -> SimulatedCall<'_> {
        self.call(&lease.worker, Call::Commit { record: lease.record, token: lease.token, result, finish: false })
    }

    pub fn finish(&mut self, lease: &SimulatedLease) -> SimulatedCall<'_> {
        self.call(&lease.worker, Call::Finish { record: lease.record, token: lease.token })
    }

    /// Reports a failure with this code and a default message.
    pub fn fail(&mut self, lease: &SimulatedLease, code: &str) -> SimulatedCall<'_> {
        let message = format!("it failed: {code}").into();
        let error = FailureReport { code: code.into(), message, retryable: None, retry_after: None };
        self.call(&lease.worker, Call::Fail { record: lease.record, token: lease.token, error })
    }

    pub fn yield_job(&mut self, lease: &SimulatedLease) -> SimulatedCall<'_> {
        self.call(&lease.worker, Call::Yield { record: lease.record, token: lease.token })
    }

    /// Reports to the engine that the worker is gone.
    pub fn lose_lease(&mut self, lease: &SimulatedLease) -> SimulatedCall<'_> {
        self.call(&Actor::engine(), Call::LoseLease { record: lease.record, token: lease.token })
    }
}

impl SimulatedCall<'_> {
    /// Adds a field of a new record or an input of an event.
    pub fn with(mut self, name: &str, value: impl Into<Json>) -> Self {
        match &mut self.call {
            Call::Create(create) => create.fields.insert(name.to_owned(), value.into()),
            Call::Fire { input, .. } => input.insert(name.to_owned(), value.into()),
            other => panic!("{other:?} takes no `{name}`"),
        };
        self
    }

    pub fn with_all(mut self, values: Json) -> Self {
        for (name, value) in object(values) {
            self = self.with(&name, value);
        }
        self
    }

    pub fn payload(mut self, bytes: &[u8]) -> Self {
        let payload = self.simulator.store_payload(bytes);
        match &mut self.call {
            Call::Create(create) => create.payload = Some(payload),
            other => panic!("{other:?} takes no payload"),
        }
        self
    }

    /// Sets a payload of this size without content.
    pub fn payload_of_size(mut self, bytes: u64) -> Self {
        match &mut self.call {
            Call::Create(create) => create.payload = Some(PayloadRef { sha256: [7; 32], bytes }),
            other => panic!("{other:?} takes no payload"),
        }
        self
    }

    /// Sets the owner, to create a record on behalf of another user.
    pub fn owner(mut self, name: &str) -> Self {
        match &mut self.call {
            Call::Create(create) => create.owner = Some(name.into()),
            other => panic!("{other:?} takes no owner"),
        }
        self
    }

    pub fn id(mut self, id: RecordId) -> Self {
        match &mut self.call {
            Call::Create(create) => create.id = Some(id),
            other => panic!("{other:?} takes no id"),
        }
        self
    }

    pub fn token(mut self, own: FencingToken) -> Self {
        match &mut self.call {
            Call::Fire { token, .. } => *token = Some(own),
            other => panic!("{other:?} takes no token"),
        }
        self
    }

    pub fn message(mut self, text: &str) -> Self {
        self.error().message = text.into();
        self
    }

    pub fn retryable(mut self, is_retryable: bool) -> Self {
        self.error().retryable = Some(is_retryable);
        self
    }

    pub fn retry_after(mut self, length: &str) -> Self {
        self.error().retry_after = Some(length.parse().expect("a duration, as 30s"));
        self
    }

    fn error(&mut self) -> &mut FailureReport {
        match &mut self.call {
            Call::Fail { error, .. } => error,
            other => panic!("{other:?} reports no error"),
        }
    }

    /// Runs the call without an expected outcome.
    pub fn run(self) -> CallOutcome {
        let description = format!("{} by {}", call_name(&self.call), self.actor.id);
        let decision = self.simulator.run_operation(&self.actor, self.call);
        CallOutcome { description, decision }
    }

    /// Expects a change, and returns the record of the call.
    #[track_caller]
    pub fn expect_ok(self) -> RecordId {
        self.run().expect_changes().subject
    }

    #[track_caller]
    pub fn expect_changes(self) -> Box<Changes> {
        self.run().expect_changes()
    }

    /// Expects a refusal with this status and code.
    #[track_caller]
    pub fn expect_refusal(self, status: u16, code: &str) -> Refusal {
        let outcome = self.run();
        let refusal = outcome.expect_refusal();
        assert!(
            refusal.status == status && *refusal.code == *code,
            "{} should be refused with {status} {code}, not with {} {}: {}",
            outcome.description,
            refusal.status,
            refusal.code,
            refusal.reason
        );
        refusal
    }

    /// Expects that no transition answers the event in this state. The refusal must name both.
    #[track_caller]
    pub fn expect_wrong_state(self, state: &str, event: &str) -> Refusal {
        let refusal = self.expect_refusal(409, "wrong_state");
        assert_eq!(refusal.state.as_deref(), Some(state), "the state that the refusal names");
        assert_eq!(*refusal.event, *event, "the event that the refusal names");
        refusal
    }

    /// Expects that no transition admits this caller.
    #[track_caller]
    pub fn expect_not_allowed(self) -> Refusal {
        let refusal = self.expect_refusal(403, "not_allowed");
        assert!(refusal.is_denial, "a denial is logged as one");
        refusal
    }

    /// Expects 404, for a record that does not exist or that the caller may not read.
    #[track_caller]
    pub fn expect_not_found(self) -> Refusal {
        let refusal = self.expect_refusal(404, "not_found");
        assert!(refusal.is_denial, "a denial is logged as one");
        refusal
    }

    #[track_caller]
    pub fn expect_bad_input(self) -> Refusal {
        self.expect_refusal(422, "invalid_input")
    }

    /// Expects that the worker does not hold the lease.
    #[track_caller]
    pub fn expect_lease_lost(self) -> Refusal {
        self.expect_refusal(409, "lease_lost")
    }

    /// Expects that another execution has committed. The refusal must name it.
    #[track_caller]
    pub fn expect_already_committed(self, winner: &SimulatedLease) -> Refusal {
        let refusal = self.expect_refusal(409, "already_committed");
        assert_eq!(refusal.committed_token, Some(winner.token), "the execution that won");
        refusal
    }

    /// Expects that the job cannot be leased.
    #[track_caller]
    pub fn expect_not_leasable(self) -> Refusal {
        let outcome = self.run();
        let refusal = outcome.expect_refusal();
        let known = ["already_leased", "not_ready", "already_committed"].contains(&&*refusal.code);
        assert!(known && refusal.status == 409, "{} {}: {}", refusal.status, refusal.code, refusal.reason);
        refusal
    }

    /// Expects a no-op because the record is already in the requested state.
    #[track_caller]
    pub fn expect_unchanged(self) -> RecordId {
        self.run().expect_no_op(NoOpReason::Unchanged)
    }

    /// Expects a no-op because the call repeats an earlier one.
    #[track_caller]
    pub fn expect_repeated(self) -> RecordId {
        self.run().expect_no_op(NoOpReason::Repeated)
    }

    /// Expects a no-op that returns the existing holder of a unique key.
    #[track_caller]
    pub fn expect_existing(self) -> RecordId {
        self.run().expect_no_op(NoOpReason::ExistingRecord)
    }
}

impl CallOutcome {
    #[track_caller]
    pub fn expect_changes(self) -> Box<Changes> {
        match self.decision {
            Decision::Changes(changes) => changes,
            Decision::Refusal(refusal) => panic!(
                "{} should succeed, but is refused: {} {}: {}",
                self.description, refusal.status, refusal.code, refusal.reason
            ),
            other => panic!("{} should succeed, but: {}", self.description, describe_decision(&other)),
        }
    }

    #[track_caller]
    pub fn expect_refusal(&self) -> Refusal {
        match &self.decision {
            Decision::Refusal(refusal) => (**refusal).clone(),
            other => panic!("{} should be refused, but: {}", self.description, describe_decision(other)),
        }
    }

    #[track_caller]
    pub fn expect_no_op(&self, reason: NoOpReason) -> RecordId {
        match &self.decision {
            Decision::NoOp(no_op) if no_op.reason == reason => no_op.subject,
            other => {
                panic!("{} should change nothing ({reason:?}), but: {}", self.description, describe_decision(other))
            }
        }
    }
}

/// Describes a decision in one line, without whole records.
fn describe_decision(decision: &Decision) -> String {
    match decision {
        Decision::Changes(changes) => {
            let records: Vec<_> = changes
                .records
                .iter()
                .map(|change| {
                    let from = change.before.as_ref().map_or("nothing", |before| before.state_name());
                    format!("{} {} -> {}", change.after.lifecycle.name, from, change.after.state_name())
                })
                .collect();
            format!("it changes {}", if records.is_empty() { "no record".to_owned() } else { records.join(", ") })
        }
        Decision::NoOp(no_op) => format!("nothing changes ({:?})", no_op.reason),
        Decision::Refusal(refusal) => format!("refused with {} {}: {}", refusal.status, refusal.code, refusal.reason),
        Decision::Missing(keys) => format!("missing {keys:?}"),
        Decision::Due { records, .. } => format!("due first: {records:?}"),
        Decision::NeedsChecks(questions) => format!("asks {questions:?}"),
    }
}

fn call_name(call: &Call) -> Arc<str> {
    match call {
        Call::Create(create) => format!("create {}", create.lifecycle).into(),
        Call::Fire { event, .. } => Arc::clone(event),
        Call::Lease { .. } => "lease".into(),
        Call::Start { .. } => "start".into(),
        Call::Heartbeat { .. } => "heartbeat".into(),
        Call::Commit { .. } => "commit".into(),
        Call::Finish { .. } => "finish".into(),
        Call::Fail { error, .. } => format!("fail {}", error.code).into(),
        Call::Yield { .. } => "yield".into(),
        Call::FireDue { .. } => "due operation".into(),
        Call::LoseLease { .. } => "lost lease".into(),
        Call::MigrateVersion(_) => "move".into(),
    }
}
