//! `decide`: the state of the world, an operation and a time give changes, or a reason why not.

mod access;
mod carry;
mod changes;
mod create;
mod draft;
mod halt;
mod input;
mod keys;
mod ledger;
mod links;
mod moving;
mod operation;
mod outside;
mod plan;
mod readiness;
mod reading;
mod run;
mod snapshot;
mod timers;
mod view;
mod work;

pub use changes::{
    Account, AuditEntry, Changes, Decision, Effect, LedgerMove, NewPayload, NoOp, NoOpReason, Question, RecordChange,
    Refusal,
};
pub use input::fits;
pub use moving::{Misfit, carry_over};
pub use operation::{Answer, Call, Create, ErrorReport, Move, Operation};
pub use readiness::{Waiting, in_order, readiness};
pub use reading::{Reading, Shown, reading, sees_all, shown_to};
pub use run::decide;
pub(crate) use snapshot::ref_changes;
pub use snapshot::{
    CountKey, Key, LinkChange, LinkKey, QueueKey, Snapshot, UniqueKey, key_parts, link_changes, queue_of,
};
pub use timers::{is_due, next_due};

/// Raised by every change by which the same operation on the same world may be decided otherwise. Each log entry names the
/// version that decided it, so that `verify` knows which ones it may decide again.
pub const DECIDING_VERSION: u32 = 3;
