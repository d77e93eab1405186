//! The log: what happened, one entry for each record that an operation changed, from which everything else can be built
//! again.

mod checkpoint;
mod diff;
mod entry;
mod places;
mod replay;

pub use checkpoint::{Checkpoint, Freed, Share};
pub use diff::Diff;
pub use entry::result_hash;
pub use entry::{Body, EffectMark, Entry, Hash, NO_HASH, RefusalMark, Used, as_logged, same_outcome};
pub(crate) use entry::{NewEntry, entries_of, entry_of, entry_of_use, key_entry};
pub use places::Places;
pub use replay::{Replay, ReplayError};
