//! Making records.

use std::sync::Arc;

use super::access::{EventCaller, denial_hint};
use super::apply::OperationRun;
use super::halt::{DecideResult, Halt, recordless_refusal};
use super::input::{EventInput, is_valid_name};
use super::operation::CreateRecord;
use super::plan::{Evaluation, EventContext, NoMatch, evaluate};
use crate::model::{EventKind, Lifecycle, PayloadBounds};
use crate::plural::count_noun;
use crate::record::{PayloadRef, Record};
use crate::value::{RecordId, Value};

/// Where the id of a new record comes from.
#[derive(Clone, Copy)]
pub(super) enum NewRecordId {
    /// The caller, so that there may be one of this id.
    FromCaller(RecordId),
    /// The draft.
    Generated(RecordId),
}

impl OperationRun<'_> {
    /// A creation asked for by a caller.
    pub(super) fn create_for_caller(&mut self, create: &CreateRecord) -> DecideResult<RecordId> {
        let actor = &self.draft.operation.actor;
        let owner = match &create.owner {
            Some(owner) if *owner != actor.id && !actor.has_role("operator") => {
                let reason = "only an operator may make a record for another owner";
                return Err(Halt::Refuse(recordless_refusal("create", 403, "not_allowed", reason)));
            }
            Some(owner) => Arc::clone(owner),
            None => Arc::clone(&actor.id),
        };
        if owner.is_empty() || !is_valid_name(&owner) {
            let reason = "an owner has from 1 to 1000 characters, and no NUL";
            return Err(Halt::Refuse(recordless_refusal("create", 422, "bad_input", reason)));
        }
        if create.id.is_some_and(|id| id.0.get_version_num() != 7) {
            let reason = "the id of a new record must be a UUID of version 7";
            return Err(Halt::Refuse(recordless_refusal("create", 422, "bad_input", reason)));
        }
        let input = EventInput::Json(&create.fields);
        let id = create.id.map_or_else(|| NewRecordId::Generated(self.draft.generate_id()), NewRecordId::FromCaller);
        let created =
            self.create_record(&create.lifecycle, id, owner, input, create.payload, EventCaller::ApiKey(None))?;
        created.map_err(|no_match| {
            let (status, code, reason) = match no_match {
                NoMatch::State | NoMatch::Guard => (409, "not_taken", "no row takes this creation".to_owned()),
                NoMatch::Caller => {
                    let lifecycle = self.draft.definitions.get(&create.lifecycle);
                    let hint = lifecycle
                        .map(|lifecycle| denial_hint(actor, lifecycle, lifecycle.transitions(EventKind::Create)));
                    let hint = hint.unwrap_or_default();
                    (403, "not_allowed", format!("no row lets this caller create one{hint}"))
                }
                NoMatch::Input(reason) => (422, "bad_input", reason),
            };
            let mut refusal = recordless_refusal("create", status, code, reason);
            refusal.lifecycle = Some(Arc::clone(&create.lifecycle));
            Halt::Refuse(refusal)
        })
    }

    /// Try the create rows in file order.
    pub(super) fn create_record(
        &mut self,
        lifecycle: &str,
        id: NewRecordId,
        owner: Arc<str>,
        input: EventInput,
        payload: Option<PayloadRef>,
        caller: EventCaller,
    ) -> DecideResult<Result<RecordId, NoMatch>> {
        let Some(lifecycle) = self.draft.definitions.get(lifecycle).cloned() else {
            let reason = self.draft.definitions.unknown_lifecycle_message(lifecycle);
            return Err(Halt::Refuse(recordless_refusal("create", 404, "no_such_lifecycle", reason)));
        };
        if let Err(reason) = validate_payload_size(lifecycle.payload_bounds, payload) {
            return Ok(Err(NoMatch::Input(reason)));
        }
        // An operation that is decided again after it was saved must not make its record anew over the old one. But whoever could not
        // have made one is not told that there is one.
        let (id, id_exists) = match id {
            NewRecordId::FromCaller(id) => (id, self.draft.stored_record(id)?.is_some()),
            NewRecordId::Generated(id) => (id, self.draft.is_loaded(id)),
        };
        let record = self.new_record(&lifecycle, id, owner, payload);
        let context = EventContext { event: "create", caller, input, result: &[], error: None, is_creation: true };
        let mut closest = NoMatch::State;
        let Some(event) = lifecycle.event("create") else { return Ok(Err(closest)) };
        for (number, transition) in event.transitions.iter().enumerate() {
            match evaluate(&self.draft, &record, transition, context)? {
                Err(reason) => closest = closest.max(reason),
                Ok(_) if id_exists => {
                    let reason = "a record has this id already";
                    return Err(Halt::Refuse(recordless_refusal("create", 409, "id_taken", reason)));
                }
                Ok(Evaluation::NeedsChecks(queries, partial_plan)) => {
                    return Err(self.request_checks(queries, partial_plan, None, &record, transition, context));
                }
                Ok(Evaluation::Matches(plan)) => {
                    let savepoint = self.savepoint();
                    if self.apply_transition(None, record.clone(), transition, plan, context, (event, number))? {
                        return Ok(Ok(id));
                    }
                    self.rollback_to(&savepoint);
                    closest = closest.max(NoMatch::Guard);
                }
            }
        }
        Ok(Err(closest))
    }

    /// A record with its defaults, before any row has brought it into a state.
    fn new_record(
        &self,
        lifecycle: &Arc<Lifecycle>,
        id: RecordId,
        owner: Arc<str>,
        payload: Option<PayloadRef>,
    ) -> Record {
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
            committed_token: None,
            payload,
            stuck_reason: None,
            trace: self.draft.trace_context(),
        }
    }
}

pub(super) fn validate_payload_size(bounds: PayloadBounds, payload: Option<PayloadRef>) -> Result<(), String> {
    let bytes = payload.map_or(0, |payload| payload.bytes);
    if bytes < bounds.min_bytes {
        let min_text = count_noun(bounds.min_bytes, "byte", "bytes");
        return Err(format!("the payload must have at least {min_text}, this one has {bytes}"));
    }
    if bytes > bounds.max_bytes {
        let max_text = count_noun(bounds.max_bytes, "byte", "bytes");
        return Err(format!("the payload must have at most {max_text}, this one has {bytes}"));
    }
    Ok(())
}
