//! The stage: an in-memory world over `decide`.

mod attempt;
mod invariants;
mod look;
mod world;

pub use attempt::{Attempt, Lease, Outcome};
pub use world::{Entry, Stage};
