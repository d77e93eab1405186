//! The stage: an in-memory world over `decide`.

mod attempt;
mod invariants;
mod queries;
mod world;

pub use attempt::{CallOutcome, SimulatedCall, SimulatedLease};
pub use world::{SimulatedOperation, Simulator};
