//! What must hold, one property a type; each is shown every decision and every world that follows from one.

mod dead;
mod keys;
mod ledger;
mod limits;
mod lives;
mod no_trace;
mod nulls;
mod orphans;
mod repeated;
mod sound;
mod tokens;

pub use dead::Dead;
pub use keys::Keys;
pub use ledger::Ledger;
pub use limits::Limits;
pub use lives::Lives;
pub use no_trace::NoTrace;
pub use nulls::Nulls;
pub use orphans::Orphans;
pub use repeated::{Batch, Partial, Reads, Refused, Repeated};
pub use sound::Sound;
pub use tokens::Tokens;

use onceward_core::decide::{Changes, Snapshot};
use onceward_core::model::Definitions;

use super::play::Step;

/// A property that does not hold, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub property: &'static str,
    pub detail: String,
}

impl Broken {
    pub fn new(property: &'static str, detail: impl Into<String>) -> Self {
        Self { property, detail: detail.into() }
    }
}

/// Holds, or is broken in this way.
pub(crate) fn ensure(holds: bool, property: &'static str, detail: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken::new(property, detail())) }
}

pub trait Property {
    /// Every answer of `decide`, before anything is applied.
    fn before(&mut self, _step: &Step) -> Result<(), Broken> {
        Ok(())
    }

    /// The world right after changes.
    fn after(
        &mut self,
        _definitions: &Definitions,
        _sound: bool,
        _world: &Snapshot,
        _changes: &Changes,
    ) -> Result<(), Broken> {
        Ok(())
    }
}
