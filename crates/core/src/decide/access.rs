//! Access control: which callers may read a record or fire a transition.

use super::draft::Draft;
use super::halt::{DecideResult, Halt};
use crate::expr::{EvalEnv, eval};
use crate::model::{AllowedCaller, AllowedReader, Lifecycle, Transition};
use crate::record::{Actor, Execution, FencingToken, Record};
use crate::value::Value;

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventCaller {
    /// An API key, with the fencing token if it sent one.
    ApiKey(Option<FencingToken>),
    /// Another record's require, cascade or spawn.
    Record,
    /// The engine: its own events, and those that a worker reports.
    Engine,
}

/// INV-9: worker calls need the API key of a worker. A fencing token is a small number and not a secret, so the token
/// alone proves nothing.
pub(super) fn is_worker(actor: &Actor) -> bool {
    ["worker", "operator", "engine"].iter().any(|role| actor.has_role(role))
}

/// EXE-8: whether the actor took this execution's lease. The engine acts for every lost worker.
pub(super) fn is_holder(execution: &Execution, actor: &Actor) -> bool {
    execution.holder == actor.id || actor.has_role("engine")
}

/// Whether the call carries the token of the live lease and comes from the API key that took it.
fn holds_lease(record: &Record, actor: &Actor, token: Option<FencingToken>) -> bool {
    let is_own = |execution: &Execution| Some(execution.token) == token && is_holder(execution, actor);
    is_worker(actor) && record.live_execution().is_some_and(is_own)
}

/// Whether the actor may read the record: the lifecycle's `[access]` admits it, or it holds the live lease.
pub(super) fn can_read(
    draft: &Draft,
    record: &Record,
    actor: &Actor,
    token: Option<FencingToken>,
) -> DecideResult<bool> {
    if holds_lease(record, actor, token) {
        return Ok(true);
    }
    let lifecycle = &record.lifecycle;
    for access in &lifecycle.allowed_readers {
        let admitted = match access {
            AllowedReader::Anyone => true,
            // If the predicate faults, the caller is denied like any other, so that it cannot learn that the record
            // exists.
            AllowedReader::Caller(by) => match matches_caller(draft, by, record, actor, EventCaller::ApiKey(token)) {
                Err(Halt::Fault(_)) => false,
                answer => answer?,
            },
        };
        if admitted {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the caller may fire the transition.
pub(super) fn admits_caller(
    draft: &Draft,
    transition: &Transition,
    record: &Record,
    caller: EventCaller,
) -> DecideResult<bool> {
    let actor = &draft.operation.actor;
    // A read-only API key fires nothing, not even on records of its own owner.
    if matches!(caller, EventCaller::ApiKey(_)) && !actor.can_write() {
        return Ok(false);
    }
    // An API key with only the role `worker` creates nothing and fires events only on a record whose lease it holds, or
    // through transitions that name it.
    let can_act = match caller {
        EventCaller::ApiKey(token) => actor.can_create_and_fire() || holds_lease(record, actor, token),
        EventCaller::Record | EventCaller::Engine => true,
    };
    if transition.by.is_empty() {
        return Ok(can_act);
    }
    for by in &transition.by {
        if (can_act || !matches!(by, AllowedCaller::Owner)) && matches_caller(draft, by, record, actor, caller)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Explains a denial with what the caller may know: its own roles, and the callers that the transitions admit.
pub(super) fn denial_hint<'a>(
    actor: &Actor,
    lifecycle: &Lifecycle,
    transitions: impl IntoIterator<Item = &'a Transition> + Clone,
) -> String {
    let is_for_producers =
        |transition: &Transition| transition.by.is_empty() || transition.by.contains(&AllowedCaller::Owner);
    if !actor.can_create_and_fire() && transitions.clone().into_iter().any(is_for_producers) {
        let roles: Vec<String> = actor.roles.iter().map(|role| format!("`{role}`")).collect();
        let roles = if roles.is_empty() { "no role".to_owned() } else { format!("only {}", roles.join(" and ")) };
        return format!(
            "; it has {roles}, which cannot create or change records; use an API key with the role `producer`"
        );
    }
    let mut caller_names: Vec<&str> = Vec::new();
    for by in transitions.into_iter().flat_map(|transition| &transition.by) {
        let name = match by {
            AllowedCaller::Owner => "owner",
            AllowedCaller::Operator => "operator",
            AllowedCaller::Worker => "worker",
            AllowedCaller::Record => "record",
            AllowedCaller::Predicate(number) => {
                lifecycle.caller_predicates.get(usize::from(*number)).map_or("", |who| &who.name)
            }
        };
        if !caller_names.contains(&name) {
            caller_names.push(name);
        }
    }
    if caller_names.is_empty() { String::new() } else { format!("; allowed callers: {}", caller_names.join(", ")) }
}

fn matches_caller(
    draft: &Draft,
    by: &AllowedCaller,
    record: &Record,
    actor: &Actor,
    caller: EventCaller,
) -> DecideResult<bool> {
    Ok(match by {
        AllowedCaller::Owner => actor.id == record.owner,
        AllowedCaller::Operator => actor.has_role("operator"),
        AllowedCaller::Worker => match caller {
            EventCaller::ApiKey(token) => holds_lease(record, actor, token),
            _ => false,
        },
        AllowedCaller::Record => caller == EventCaller::Record,
        AllowedCaller::Predicate(number) => {
            let who = &record.lifecycle.caller_predicates[usize::from(*number)];
            eval(&who.condition.expr, &EvalEnv { actor, ..draft.env(record) })? == Value::Bool(true)
        }
    })
}
