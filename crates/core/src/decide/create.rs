//! Making records.

use std::sync::Arc;

use super::access::{Caller, turned_away};
use super::carry::Run;
use super::halt::{Halt, Step, refusal_of_call};
use super::input::{Given, is_bounded};
use super::operation::Create;
use super::plan::{NotTaken, Occasion, Weighed, weigh};
use crate::counted;
use crate::model::{EventKind, Lifecycle, PayloadBounds};
use crate::record::{Payload, Record};
use crate::value::{RecordId, Value};

/// Where the id of a new record comes from.
#[derive(Clone, Copy)]
pub(super) enum NewId {
    /// The caller, so that there may be one of this id.
    Given(RecordId),
    /// The draft.
    Made(RecordId),
}

impl Run<'_> {
    /// A creation asked for by a caller.
    pub(super) fn create_for_caller(&mut self, create: &Create) -> Step<RecordId> {
        let actor = &self.draft.operation.actor;
        let owner = match &create.owner {
            Some(owner) if *owner != actor.id && !actor.has_role("operator") => {
                let reason = "only an operator may make a record for another owner";
                return Err(Halt::Refuse(refusal_of_call("create", 403, "not_allowed", reason)));
            }
            Some(owner) => Arc::clone(owner),
            None => Arc::clone(&actor.id),
        };
        if owner.is_empty() || !is_bounded(&owner) {
            let reason = "an owner has from 1 to 1000 characters, and no NUL";
            return Err(Halt::Refuse(refusal_of_call("create", 422, "bad_input", reason)));
        }
        if create.id.is_some_and(|id| id.0.get_version_num() != 7) {
            let reason = "the id of a new record must be a UUID of version 7";
            return Err(Halt::Refuse(refusal_of_call("create", 422, "bad_input", reason)));
        }
        let given = Given::Json(&create.fields);
        let id = create.id.map_or_else(|| NewId::Made(self.draft.new_id()), NewId::Given);
        let made = self.create(&create.lifecycle, id, owner, given, create.payload, Caller::Key(None))?;
        made.map_err(|not_taken| {
            let (status, code, reason) = match not_taken {
                NotTaken::State | NotTaken::Guard => (409, "not_taken", "no row takes this creation".to_owned()),
                NotTaken::Caller => {
                    let lifecycle = self.draft.definitions.get(&create.lifecycle);
                    let why =
                        lifecycle.map(|lifecycle| turned_away(actor, lifecycle, lifecycle.rows(EventKind::Create)));
                    let why = why.unwrap_or_default();
                    (403, "not_allowed", format!("no row lets this caller create one{why}"))
                }
                NotTaken::Input(reason) => (422, "bad_input", reason),
            };
            let mut refusal = refusal_of_call("create", status, code, reason);
            refusal.lifecycle = Some(Arc::clone(&create.lifecycle));
            Halt::Refuse(refusal)
        })
    }

    /// Try the create rows in file order.
    pub(super) fn create(
        &mut self,
        lifecycle: &str,
        id: NewId,
        owner: Arc<str>,
        given: Given,
        payload: Option<Payload>,
        caller: Caller,
    ) -> Step<Result<RecordId, NotTaken>> {
        let Some(lifecycle) = self.draft.definitions.get(lifecycle).cloned() else {
            let reason = self.draft.definitions.no_lifecycle(lifecycle);
            return Err(Halt::Refuse(refusal_of_call("create", 404, "no_such_lifecycle", reason)));
        };
        if let Err(reason) = payload_fits(lifecycle.payload, payload) {
            return Ok(Err(NotTaken::Input(reason)));
        }
        // An operation that is decided again after it was saved must not make its record anew over the old one. But whoever could not
        // have made one is not told that there is one.
        let (id, taken) = match id {
            NewId::Given(id) => (id, self.draft.stored(id)?.is_some()),
            NewId::Made(id) => (id, self.draft.is_known(id)),
        };
        let record = self.newborn(&lifecycle, id, owner, payload);
        let occasion = Occasion { event: "create", caller, given, result: &[], error: None, creating: true };
        let mut best = NotTaken::State;
        let Some(event) = lifecycle.event("create") else { return Ok(Err(best)) };
        for (number, row) in event.rows.iter().enumerate() {
            match weigh(&self.draft, &record, row, occasion)? {
                Err(reason) => best = best.max(reason),
                Ok(_) if taken => {
                    let reason = "a record has this id already";
                    return Err(Halt::Refuse(refusal_of_call("create", 409, "id_taken", reason)));
                }
                Ok(Weighed::Waits(questions, known)) => {
                    return Err(self.ask(questions, known, None, &record, row, occasion));
                }
                Ok(Weighed::Holds(plan)) => {
                    let mark = self.mark();
                    if self.carry_out(None, record.clone(), row, plan, occasion, (event, number))? {
                        return Ok(Ok(id));
                    }
                    self.back_to(&mark);
                    best = best.max(NotTaken::Guard);
                }
            }
        }
        Ok(Err(best))
    }

    /// A record with its defaults, before any row has brought it into a state.
    fn newborn(&self, lifecycle: &Arc<Lifecycle>, id: RecordId, owner: Arc<str>, payload: Option<Payload>) -> Record {
        let now = self.draft.now;
        Record {
            id,
            lifecycle: Arc::clone(lifecycle),
            state: 0,
            version: 0,
            owner,
            fields: lifecycle.fields.iter().map(|field| field.default.clone().unwrap_or(Value::Null)).collect(),
            attempt: 0,
            created_at: now,
            updated_at: now,
            started_at: None,
            finished_at: None,
            entered_at: now,
            hold: 0,
            timers: Vec::new(),
            execution: None,
            committed: None,
            payload,
            stuck: None,
            trace: self.draft.trace(),
        }
    }
}

pub(super) fn payload_fits(bounds: PayloadBounds, payload: Option<Payload>) -> Result<(), String> {
    let bytes = payload.map_or(0, |payload| payload.bytes);
    if bytes < bounds.min {
        let least = counted(bounds.min, "byte", "bytes");
        return Err(format!("the payload must have at least {least}, this one has {bytes}"));
    }
    if bytes > bounds.max {
        let most = counted(bounds.max, "byte", "bytes");
        return Err(format!("the payload must have at most {most}, this one has {bytes}"));
    }
    Ok(())
}
