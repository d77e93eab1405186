//! Hybrid logical clock: the author's wall clock, and a counter for operations within one tick.

use serde::{Deserialize, Serialize};

use crate::time::{Duration, Time};

/// Time of an operation by its author's clock. Two nodes may produce equal timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HybridTimestamp {
    pub wall_time: Time,
    pub logical_counter: u32,
}

impl HybridTimestamp {
    /// Returns the next timestamp for a node that has seen or issued this one, with `now` on its wall clock: later than
    /// this one, and not before `now` (MSH-25). Returns `None` at the end of the time range.
    pub fn next(self, now: Time) -> Option<Self> {
        if now > self.wall_time {
            return Some(Self { wall_time: now, logical_counter: 0 });
        }
        match self.logical_counter.checked_add(1) {
            Some(logical) => Some(Self { wall_time: self.wall_time, logical_counter: logical }),
            None => self
                .wall_time
                .checked_add(Duration::from_micros(1))
                .map(|wall| Self { wall_time: wall, logical_counter: 0 }),
        }
    }
}

impl std::fmt::Display for HybridTimestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.wall_time, self.logical_counter)
    }
}
