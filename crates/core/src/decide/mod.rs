//! `decide`: the state of the world, an operation and a time give changes, or a reason why not.

mod changes;
mod operation;
mod snapshot;

pub use changes::{
    Account, AuditEntry, Changes, Decision, Effect, LedgerMove, NewPayload, NoOp, NoOpReason, Question, RecordChange,
    Refusal,
};
pub use operation::{Answer, Call, Create, ErrorReport, Operation};
pub use snapshot::{CountKey, Key, LinkKey, Snapshot, UniqueKey};
