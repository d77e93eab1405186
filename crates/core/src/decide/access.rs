//! Who may read a record, and who may take a row.

use super::draft::Draft;
use super::halt::{Halt, Step};
use crate::expr::{Env, eval};
use crate::model::{Access, By, Lifecycle, Row};
use crate::record::{Actor, Execution, Record, Token};
use crate::value::Value;

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A key, with the token of a lease where it sent one.
    Key(Option<Token>),
    /// Another record's require, cascade or spawn.
    Record,
    /// The engine: its own events, on its own or on a worker's word.
    Engine,
}

/// INV-9: a worker's calls are for a worker's key. A token fences; it is a small number and keeps no secret, so in
/// anybody else's hands it is worth nothing.
pub(super) fn is_worker(actor: &Actor) -> bool {
    ["worker", "operator", "engine"].iter().any(|role| actor.has_role(role))
}

/// EXE-8: whether an execution is this actor's own. The engine speaks for every worker that is gone.
pub(super) fn is_holder(execution: &Execution, actor: &Actor) -> bool {
    execution.holder == actor.id || actor.has_role("engine")
}

/// Whether the call carries the token of the live lease, from the key that took it.
fn holds_lease(record: &Record, actor: &Actor, token: Option<Token>) -> bool {
    let held = |execution: &Execution| Some(execution.token) == token && is_holder(execution, actor);
    is_worker(actor) && record.live_execution().is_some_and(held)
}

/// One owner never sees another's records unless the lifecycle says so; a live lease grants reading while it lasts.
pub(super) fn may_read(draft: &Draft, record: &Record, actor: &Actor, token: Option<Token>) -> Step<bool> {
    if holds_lease(record, actor, token) {
        return Ok(true);
    }
    let lifecycle = &record.lifecycle;
    for access in &lifecycle.access {
        let admitted = match access {
            Access::Anyone => true,
            // A caller of whom it cannot be said is not admitted, nor told that there is something to fault.
            Access::By(by) => match admits(draft, by, record, actor, Caller::Key(token)) {
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

/// Whether a row is for this caller.
pub(super) fn is_for(draft: &Draft, row: &Row, record: &Record, caller: Caller) -> Step<bool> {
    let actor = &draft.operation.actor;
    // A key that may only look moves nothing, not even its own owner's records.
    if matches!(caller, Caller::Key(_)) && !actor.may_write() {
        return Ok(false);
    }
    // A worker's key works: it creates nothing and moves nothing, but for the record whose lease it holds, and but for rows that name
    // it.
    let moves = match caller {
        Caller::Key(token) => actor.may_produce() || holds_lease(record, actor, token),
        Caller::Record | Caller::Engine => true,
    };
    if row.by.is_empty() {
        return Ok(moves);
    }
    for by in &row.by {
        if (moves || !matches!(by, By::Owner)) && admits(draft, by, record, actor, caller)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a caller for whom none of these rows is may know of why: its own roles, and whom the rows name.
pub(super) fn turned_away<'a>(
    actor: &Actor,
    lifecycle: &Lifecycle,
    rows: impl IntoIterator<Item = &'a Row> + Clone,
) -> String {
    let is_usual = |row: &Row| row.by.is_empty() || row.by.contains(&By::Owner);
    if !actor.may_produce() && rows.clone().into_iter().any(is_usual) {
        let roles: Vec<String> = actor.roles.iter().map(|role| format!("`{role}`")).collect();
        let roles =
            if roles.is_empty() { "no role".to_owned() } else { format!("no role but {}", roles.join(" and ")) };
        return format!("; it has {roles}, and making and moving records is for `producer`");
    }
    let mut named: Vec<&str> = Vec::new();
    for by in rows.into_iter().flat_map(|row| &row.by) {
        let name = match by {
            By::Owner => "owner",
            By::Operator => "operator",
            By::Worker => "worker",
            By::Record => "record",
            By::Who(number) => lifecycle.who.get(usize::from(*number)).map_or("", |who| &who.name),
        };
        if !named.contains(&name) {
            named.push(name);
        }
    }
    if named.is_empty() { String::new() } else { format!("; it is for {}", named.join(", ")) }
}

fn admits(draft: &Draft, by: &By, record: &Record, actor: &Actor, caller: Caller) -> Step<bool> {
    Ok(match by {
        By::Owner => actor.id == record.owner,
        By::Operator => actor.has_role("operator"),
        By::Worker => match caller {
            Caller::Key(token) => holds_lease(record, actor, token),
            _ => false,
        },
        By::Record => caller == Caller::Record,
        By::Who(number) => {
            let who = &record.lifecycle.who[usize::from(*number)];
            eval(&who.formula.expr, &Env { actor, ..draft.env(record) })? == Value::Bool(true)
        }
    })
}
