//! The decision function: [`decide`] maps a snapshot, an operation and a time to changes or a refusal.

mod access;
mod apply;
mod changes;
mod checks;
mod constraints;
mod create;
mod draft;
mod draft_source;
mod halt;
mod input;
mod leases;
mod ledger;
mod links;
mod operation;
mod plan;
mod readiness;
mod run;
mod snapshot;
mod state_map;
mod timers;
mod version_migration;
mod visibility;

pub use changes::{
    Account, AuditEntry, Changes, CheckQuery, Decision, Effect, NewPayload, NoOp, NoOpReason, RecordChange, Refusal,
    Transfer,
};
pub use input::validate_value;
pub use operation::{Call, CheckAnswer, CreateRecord, FailureReport, Operation, RecordMigration};
pub use readiness::{Readiness, ordered_queue_key, readiness};
pub use run::decide;
pub(crate) use snapshot::ref_changes;
pub use snapshot::{
    ConcurrencyKey, CounterKey, LinkChange, LinkKey, ReadKey, Snapshot, UniqueKey, canonical_key_parts,
    concurrency_key, link_changes,
};
pub use state_map::effect_states;
pub use timers::{is_due, next_due};
pub use version_migration::{VersionMismatch, find_mismatches};
pub use visibility::{ReadAccess, Visibility, read_access, reads_everything, visibility};

/// Raise it with every change that may decide the same operation on the same snapshot differently. Each log entry
/// stores the version that decided it, so that `verify` re-decides only entries of its own version.
pub const DECIDE_VERSION: u32 = 5;
