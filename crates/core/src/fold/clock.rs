//! Hybrid logical time: the author's wall clock, and a counter for what happened within one of its ticks.

use serde::{Deserialize, Serialize};

use crate::time::{Duration, Time};

/// When an operation was authored, as its author's clock has it. Two nodes may say the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Moment {
    pub wall: Time,
    pub logical: u32,
}

impl Moment {
    /// The next moment of a node whose wall clock says `now` and that has seen, or itself said, this one: after it, and
    /// not before its own clock (MSH-25). `None` at the end of time.
    pub fn next(self, now: Time) -> Option<Self> {
        if now > self.wall {
            return Some(Self { wall: now, logical: 0 });
        }
        match self.logical.checked_add(1) {
            Some(logical) => Some(Self { wall: self.wall, logical }),
            None => self.wall.checked_add(Duration::from_micros(1)).map(|wall| Self { wall, logical: 0 }),
        }
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.wall, self.logical)
    }
}
