//! Hybrid logical time: the author's wall clock, and a counter for what happened within one of its ticks.

use serde::{Deserialize, Serialize};

use crate::time::{Duration, Time};

/// When an operation was authored, as its author's clock has it. Two nodes may say the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HybridTimestamp {
    pub wall_time: Time,
    pub logical_counter: u32,
}

impl HybridTimestamp {
    /// The next moment of a node whose wall clock says `now` and that has seen, or itself said, this one: after it, and
    /// not before its own clock (MSH-25). `None` at the end of time.
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
