//! The log: one entry for each record that an operation changed. All other tables can be rebuilt from it.

mod checkpoint;
mod diff;
mod entry;
mod replay;
mod seq_ranges;

pub use checkpoint::{Checkpoint, PrunedCount, ReleasedKeys};
pub use diff::RecordDiff;
pub use entry::result_hash;
pub use entry::{
    EffectRef, LogEntry, LogEntryBody, LoggedRefusal, Sha256Hash, VersionActivated, ZERO_HASH, expected_entries,
    has_same_outcome,
};
pub(crate) use entry::{NewLogEntry, activation_entry, api_key_entry, checkpoint_entry, operation_entries};
pub use replay::{LogReplay, ReplayError};
pub use seq_ranges::SeqRanges;
