//! Read access to records, for callers that read without firing events.

use super::access::{can_read, is_worker};
use super::draft::Draft;
use super::halt::Halt;
use super::operation::{Call, Operation};
use super::snapshot::{ReadKey, Snapshot};
use crate::model::{AllowedCaller, AllowedReader, Definitions, Lifecycle};
use crate::record::{Actor, Record};
use crate::time::Time;
use crate::value::RecordId;

/// Result of a read access check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadAccess {
    Allowed,
    /// Reply as for a missing record.
    Denied,
    /// Load these keys and check again.
    Missing(Vec<ReadKey>),
    /// Fire these due records and check again.
    Due(Vec<RecordId>),
}

/// INV-9: an owner may read its own records, an operator all, a worker the record whose lease it holds, and other
/// callers what the lifecycle shows them. `record` must not be due.
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
    // The token is not a secret. What counts is that this API key took the lease.
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

/// Whether an actor may read every record.
pub fn reads_everything(actor: &Actor) -> bool {
    actor.has_role("operator") || actor.has_role("engine")
}

/// How far a lifecycle shows its records to callers other than their owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// At most to their owners.
    Owners,
    /// To callers that `[who]` admits, record by record.
    SomeCallers,
    Anyone,
}

/// Returns how far a lifecycle shows its records to callers that are not operators.
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
