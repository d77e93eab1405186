//! Random lifecycles, random operations on them, and what must hold whatever they are.
//!
//! Everything follows from one seed. A failing test prints it; `ONCEWARD_SEED=… cargo test -p onceward-core --test
//! properties_…` plays that one case again, and `ONCEWARD_CASES=…` plays more of them than the gate does.

mod calls;
mod chance;
mod lifecycle;
mod load;
mod outline;
mod play;
mod property;
mod run;
pub(crate) mod values;
mod wander;

pub use chance::Chance;
pub use lifecycle::{Taste, lifecycles};
pub use load::{Loader, answer_missing, only, reshuffled};
pub use outline::{changes, decision, record, with_plain_ids, world};
pub use play::{Play, Said, Step, Tally, definitions};
pub use property::{
    Batch, Broken, Dead, Keys, Ledger, Limits, Lives, NoTrace, Nulls, Orphans, Partial, Property, Reads, Refused,
    Repeated, Sound, Tokens,
};
pub use run::{Report, cases, run, seeds};
pub use wander::Wander;
