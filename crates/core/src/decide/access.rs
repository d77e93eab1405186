//! Who may read a record, and who may take a row.

use super::draft::Draft;
use super::halt::Step;
use crate::expr::{Env, eval};
use crate::model::{Access, By, Row};
use crate::record::{Actor, Record, Token};
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

/// One owner never sees another's records unless the lifecycle says so; a live lease grants reading while it lasts.
pub(super) fn may_read(draft: &Draft, record: &Record, actor: &Actor, token: Option<Token>) -> Step<bool> {
    if token.is_some() && record.live_execution().map(|execution| execution.token) == token {
        return Ok(true);
    }
    let lifecycle = &record.lifecycle;
    for access in &lifecycle.access {
        let admitted = match access {
            Access::Anyone => true,
            Access::By(by) => admits(draft, by, record, actor, Caller::Key(token))?,
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
    if row.by.is_empty() {
        return Ok(match caller {
            Caller::Record | Caller::Engine => true,
            Caller::Key(_) => actor.may_write(),
        });
    }
    for by in &row.by {
        if admits(draft, by, record, actor, caller)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn admits(draft: &Draft, by: &By, record: &Record, actor: &Actor, caller: Caller) -> Step<bool> {
    Ok(match by {
        By::Owner => actor.id == record.owner,
        By::Operator => actor.has_role("operator"),
        By::Worker => match caller {
            Caller::Key(Some(token)) => record.live_execution().is_some_and(|execution| execution.token == token),
            _ => false,
        },
        By::Record => caller == Caller::Record,
        By::Who(number) => {
            let who = &record.lifecycle.who[usize::from(*number)];
            let env =
                Env { world: draft, record, now: draft.now, actor, input: &[], result: &[], error: None, answers: &[] };
            eval(&who.formula.expr, &env)? == Value::Bool(true)
        }
    })
}
