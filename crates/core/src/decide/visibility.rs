//! Who may look at a record, for those who look without moving anything.

use super::access::{can_read, is_worker};
use super::draft::Draft;
use super::halt::Halt;
use super::operation::{Call, Operation};
use super::snapshot::{ReadKey, Snapshot};
use crate::model::{AllowedCaller, AllowedReader, Definitions, Lifecycle};
use crate::record::{Actor, Record};
use crate::time::Time;
use crate::value::RecordId;

/// Whether an actor may look at a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadAccess {
    Allowed,
    /// To be told like a record that is not there.
    Denied,
    /// Load these and ask again.
    Missing(Vec<ReadKey>),
    /// These are due: bring them up to date and ask again.
    Due(Vec<RecordId>),
}

/// INV-9: an owner sees its own records, an operator all, a worker the one whose lease it holds; anybody else those that
/// the record's lifecycle shows to it. The record's own state must be up to date.
pub fn read_access(
    definitions: &Definitions,
    snapshot: &Snapshot,
    record: &Record,
    actor: &Actor,
    now: Time,
) -> ReadAccess {
    if reads_everything(actor) {
        return ReadAccess::Allowed;
    }
    // A token is no secret: that the lease is this key's own is what counts.
    let token = record.live_execution().filter(|_| is_worker(actor)).map(|execution| execution.token);
    let operation = Operation {
        seed: 0,
        actor: actor.clone(),
        call: Call::FireDue { record: record.id },
        check_answers: Vec::new(),
        trace: None,
    };
    let mut now = now.max(record.updated_at);
    loop {
        let draft = Draft::new(definitions, snapshot, &operation, now);
        return match can_read(&draft, record, actor, token) {
            Ok(true) => ReadAccess::Allowed,
            Err(Halt::Missing(keys)) => ReadAccess::Missing(keys),
            Err(Halt::Due(records)) => ReadAccess::Due(records),
            Err(Halt::ClockBehind(later)) => {
                now = later;
                continue;
            }
            Ok(false) | Err(Halt::NeedsChecks(_) | Halt::Refuse(_) | Halt::Fault(_) | Halt::ExistingRecord(_)) => {
                ReadAccess::Denied
            }
        };
    }
}

/// Whether an actor may look at every record there is.
pub fn reads_everything(actor: &Actor) -> bool {
    actor.has_role("operator") || actor.has_role("engine")
}

/// How far a lifecycle opens its records beyond their owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// To their owners at most.
    Owners,
    /// To some, as its `[who]` says of each record.
    SomeCallers,
    Anyone,
}

/// How far a lifecycle shows its records to those who are no operators.
pub fn visibility(lifecycle: &Lifecycle) -> Visibility {
    let visibility_of = |access: &AllowedReader| match access {
        AllowedReader::Anyone => Visibility::Anyone,
        AllowedReader::Caller(AllowedCaller::Predicate(_)) => Visibility::SomeCallers,
        AllowedReader::Caller(_) => Visibility::Owners,
    };
    let widest = |one, other| match (one, other) {
        (Visibility::Anyone, _) | (_, Visibility::Anyone) => Visibility::Anyone,
        (Visibility::SomeCallers, _) | (_, Visibility::SomeCallers) => Visibility::SomeCallers,
        (Visibility::Owners, Visibility::Owners) => Visibility::Owners,
    };
    lifecycle.allowed_readers.iter().map(visibility_of).fold(Visibility::Owners, widest)
}
