//! Trying something on the stage, and saying what must come of it.

use std::sync::Arc;

use onceward_core::decide::{Call, Changes, Create, Decision, ErrorReport, NoOpReason, Refusal};
use onceward_core::record::{Actor, Execution, Payload, Token};
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};

use super::world::{Stage, object};

/// A lease as its worker knows it.
#[derive(Clone, Debug)]
pub struct Lease {
    pub record: RecordId,
    pub worker: Actor,
    pub token: Token,
    /// As it was granted; heartbeats do not reach back here.
    pub execution: Execution,
}

/// Something about to be tried: add to it, then say what must come of it.
#[must_use = "nothing is tried until it is said what must come of it"]
pub struct Attempt<'s> {
    stage: &'s mut Stage,
    actor: Actor,
    call: Call,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub what: String,
    pub decision: Decision,
}

impl Stage {
    pub fn attempt(&mut self, actor: &Actor, call: Call) -> Attempt<'_> {
        Attempt { stage: self, actor: actor.clone(), call }
    }

    pub fn create(&mut self, lifecycle: &str, by: &Actor) -> Attempt<'_> {
        let create = Create { lifecycle: lifecycle.into(), id: None, owner: None, fields: Map::new(), payload: None };
        self.attempt(by, Call::Create(create))
    }

    pub fn fire(&mut self, record: RecordId, event: &str, by: &Actor) -> Attempt<'_> {
        let call = Call::Fire { record, event: event.into(), input: Map::new(), token: None, if_version: None };
        self.attempt(by, call)
    }

    /// A worker takes the job; it must be there to be taken.
    pub fn lease(&mut self, record: RecordId, worker: &str) -> Lease {
        self.try_lease(record, worker).ok();
        let record = self.record(record);
        let execution = record.execution.clone().expect("a leased record has an execution");
        Lease { record: record.id, worker: super::super::worker(worker), token: execution.token, execution }
    }

    pub fn try_lease(&mut self, record: RecordId, worker: &str) -> Attempt<'_> {
        let call = Call::Lease { record, worker: worker.into(), lease: None, start: false };
        self.attempt(&super::super::worker(worker), call)
    }

    pub fn start(&mut self, lease: &Lease) -> Attempt<'_> {
        self.attempt(&lease.worker, Call::Start { record: lease.record, token: lease.token })
    }

    pub fn heartbeat(&mut self, lease: &Lease) -> Attempt<'_> {
        self.attempt(&lease.worker, Call::Heartbeat { record: lease.record, token: lease.token, lease: None })
    }

    /// Commit and finish in one call.
    pub fn commit(&mut self, lease: &Lease, result: Json) -> Attempt<'_> {
        self.attempt(&lease.worker, Call::Commit { record: lease.record, token: lease.token, result, finish: true })
    }

    /// Commit, and leave finishing for later.
    pub fn commit_only(&mut self, lease: &Lease, result: Json) -> Attempt<'_> {
        self.attempt(&lease.worker, Call::Commit { record: lease.record, token: lease.token, result, finish: false })
    }

    pub fn finish(&mut self, lease: &Lease) -> Attempt<'_> {
        self.attempt(&lease.worker, Call::Finish { record: lease.record, token: lease.token })
    }

    /// The worker reports an error: its code, and a message made of it unless said otherwise.
    pub fn fail(&mut self, lease: &Lease, code: &str) -> Attempt<'_> {
        let message = format!("it failed: {code}").into();
        let error = ErrorReport { code: code.into(), message, retryable: None, retry_after: None };
        self.attempt(&lease.worker, Call::Fail { record: lease.record, token: lease.token, error })
    }

    /// The worker gives the job back unharmed: a yield.
    pub fn give_back(&mut self, lease: &Lease) -> Attempt<'_> {
        self.attempt(&lease.worker, Call::Yield { record: lease.record, token: lease.token })
    }

    /// The engine knows that the worker is gone.
    pub fn lost(&mut self, lease: &Lease) -> Attempt<'_> {
        self.attempt(&Actor::engine(), Call::Lost { record: lease.record, token: lease.token })
    }
}

impl Attempt<'_> {
    /// A field of a new record, or an input of an event.
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
        let kept = self.stage.keep(bytes);
        match &mut self.call {
            Call::Create(create) => create.payload = Some(kept),
            other => panic!("{other:?} takes no payload"),
        }
        self
    }

    /// A payload that is nothing but large, and nowhere.
    pub fn payload_of_size(mut self, bytes: u64) -> Self {
        match &mut self.call {
            Call::Create(create) => create.payload = Some(Payload { sha256: [7; 32], bytes }),
            other => panic!("{other:?} takes no payload"),
        }
        self
    }

    /// On behalf of somebody else.
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

    pub fn token(mut self, own: Token) -> Self {
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

    pub fn retryable(mut self, word: bool) -> Self {
        self.error().retryable = Some(word);
        self
    }

    pub fn retry_after(mut self, length: &str) -> Self {
        self.error().retry_after = Some(length.parse().expect("a duration, as 30s"));
        self
    }

    fn error(&mut self) -> &mut ErrorReport {
        match &mut self.call {
            Call::Fail { error, .. } => error,
            other => panic!("{other:?} reports no error"),
        }
    }

    /// Try it, whatever comes of it.
    pub fn outcome(self) -> Outcome {
        let what = format!("{} by {}", named(&self.call), self.actor.id);
        let decision = self.stage.play(&self.actor, self.call);
        Outcome { what, decision }
    }

    /// It changes something; the record that it was about.
    #[track_caller]
    pub fn ok(self) -> RecordId {
        self.outcome().changes().subject
    }

    #[track_caller]
    pub fn changes(self) -> Box<Changes> {
        self.outcome().changes()
    }

    /// It is refused with this status and code.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Refusal {
        let outcome = self.outcome();
        let refusal = outcome.refusal();
        assert!(
            refusal.status == status && *refusal.code == *code,
            "{} should be refused with {status} {code}, not with {} {}: {}",
            outcome.what,
            refusal.status,
            refusal.code,
            refusal.reason
        );
        refusal
    }

    /// No row answers this event in this state; the refusal names both.
    #[track_caller]
    pub fn wrong_state(self, state: &str, event: &str) -> Refusal {
        let refusal = self.refused(409, "wrong_state");
        assert_eq!(refusal.state.as_deref(), Some(state), "the state that the refusal names");
        assert_eq!(*refusal.event, *event, "the event that the refusal names");
        refusal
    }

    /// There are rows for it, but none for this caller.
    #[track_caller]
    pub fn not_allowed(self) -> Refusal {
        let refusal = self.refused(403, "not_allowed");
        assert!(refusal.denial, "a denial is logged as one");
        refusal
    }

    /// Not there, or not for this caller's eyes: one answer for both.
    #[track_caller]
    pub fn not_found(self) -> Refusal {
        let refusal = self.refused(404, "not_found");
        assert!(refusal.denial, "a denial is logged as one");
        refusal
    }

    #[track_caller]
    pub fn bad_input(self) -> Refusal {
        self.refused(422, "bad_input")
    }

    /// The lease is no longer, or never was, this worker's.
    #[track_caller]
    pub fn lease_lost(self) -> Refusal {
        self.refused(409, "lease_lost")
    }

    /// Another execution's effect won, and the refusal says which.
    #[track_caller]
    pub fn already_committed(self, winner: &Lease) -> Refusal {
        let refusal = self.refused(409, "already_committed");
        assert_eq!(refusal.committed, Some(winner.token), "the execution that won");
        refusal
    }

    /// Nothing here for a worker to take.
    #[track_caller]
    pub fn not_leasable(self) -> Refusal {
        let outcome = self.outcome();
        let refusal = outcome.refusal();
        let known = ["already_leased", "not_ready", "already_committed"].contains(&&*refusal.code);
        assert!(known && refusal.status == 409, "{} {}: {}", refusal.status, refusal.code, refusal.reason);
        refusal
    }

    /// Already so: nothing changes.
    #[track_caller]
    pub fn unchanged(self) -> RecordId {
        self.outcome().no_op(NoOpReason::Unchanged)
    }

    /// The same call came before: the same answer, nothing changes.
    #[track_caller]
    pub fn repeated(self) -> RecordId {
        self.outcome().no_op(NoOpReason::Repeated)
    }

    /// The key is held: the record that holds it, nothing changes.
    #[track_caller]
    pub fn holder(self) -> RecordId {
        self.outcome().no_op(NoOpReason::Holder)
    }
}

impl Outcome {
    #[track_caller]
    pub fn changes(self) -> Box<Changes> {
        match self.decision {
            Decision::Changes(changes) => changes,
            Decision::Refusal(refusal) => panic!(
                "{} should do something, but is refused: {} {}: {}",
                self.what, refusal.status, refusal.code, refusal.reason
            ),
            other => panic!("{} should do something, but: {}", self.what, told(&other)),
        }
    }

    #[track_caller]
    pub fn refusal(&self) -> Refusal {
        match &self.decision {
            Decision::Refusal(refusal) => (**refusal).clone(),
            other => panic!("{} should be refused, but: {}", self.what, told(other)),
        }
    }

    #[track_caller]
    pub fn no_op(&self, reason: NoOpReason) -> RecordId {
        match &self.decision {
            Decision::NoOp(no_op) if no_op.reason == reason => no_op.subject,
            other => panic!("{} should change nothing ({reason:?}), but: {}", self.what, told(other)),
        }
    }
}

/// A decision in a line, for messages: whole records would bury it.
fn told(decision: &Decision) -> String {
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
        Decision::Ask(questions) => format!("asks {questions:?}"),
    }
}

fn named(call: &Call) -> Arc<str> {
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
        Call::Due { .. } => "what is due".into(),
        Call::Lost { .. } => "lost lease".into(),
        Call::Move(_) => "move".into(),
    }
}
