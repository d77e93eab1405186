//! Who may look at a record, for those who look without moving anything.

use super::access::{is_worker, may_read};
use super::draft::Draft;
use super::halt::Halt;
use super::operation::{Call, Operation};
use super::snapshot::{Key, Snapshot};
use crate::model::{Access, By, Definitions, Lifecycle};
use crate::record::{Actor, Record};
use crate::time::Time;
use crate::value::RecordId;

/// Whether an actor may look at a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    Yes,
    /// To be told like a record that is not there.
    No,
    /// Load these and ask again.
    Missing(Vec<Key>),
    /// These are due: bring them up to date and ask again.
    Due(Vec<RecordId>),
}

/// INV-9: an owner sees its own records, an operator all, a worker the one whose lease it holds; anybody else those that
/// the record's lifecycle shows to it. The record's own state must be up to date.
pub fn reading(definitions: &Definitions, snapshot: &Snapshot, record: &Record, actor: &Actor, now: Time) -> Reading {
    if sees_all(actor) {
        return Reading::Yes;
    }
    // A token is no secret: that the lease is this key's own is what counts.
    let token = record.live_execution().filter(|_| is_worker(actor)).map(|execution| execution.token);
    let operation = Operation {
        seed: 0,
        actor: actor.clone(),
        call: Call::Due { record: record.id },
        answers: Vec::new(),
        trace: None,
    };
    let mut now = now.max(record.updated_at);
    loop {
        let draft = Draft::new(definitions, snapshot, &operation, now);
        return match may_read(&draft, record, actor, token) {
            Ok(true) => Reading::Yes,
            Err(Halt::Missing(keys)) => Reading::Missing(keys),
            Err(Halt::Due(records)) => Reading::Due(records),
            Err(Halt::Later(later)) => {
                now = later;
                continue;
            }
            Ok(false) | Err(Halt::Ask(_) | Halt::Refuse(_) | Halt::Fault(_) | Halt::Holder(_)) => Reading::No,
        };
    }
}

/// Whether an actor may look at every record there is.
pub fn sees_all(actor: &Actor) -> bool {
    actor.has_role("operator") || actor.has_role("engine")
}

/// How far a lifecycle opens its records beyond their owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// To their owners at most.
    ToOwners,
    /// To some, as its `[who]` says of each record.
    ToSome,
    ToAnyone,
}

/// How far a lifecycle shows its records to those who are no operators.
pub fn shown_to(lifecycle: &Lifecycle) -> Shown {
    let of = |access: &Access| match access {
        Access::Anyone => Shown::ToAnyone,
        Access::By(By::Who(_)) => Shown::ToSome,
        Access::By(_) => Shown::ToOwners,
    };
    let widest = |one, other| match (one, other) {
        (Shown::ToAnyone, _) | (_, Shown::ToAnyone) => Shown::ToAnyone,
        (Shown::ToSome, _) | (_, Shown::ToSome) => Shown::ToSome,
        (Shown::ToOwners, Shown::ToOwners) => Shown::ToOwners,
    };
    lifecycle.access.iter().map(of).fold(Shown::ToOwners, widest)
}
