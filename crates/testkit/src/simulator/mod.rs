//! Simulator: an in-memory world that runs operations through `decide`.

mod attempt;
mod invariants;
mod queries;
mod world;

pub use attempt::{CallOutcome, SimulatedCall, SimulatedLease};
pub use world::{SimulatedOperation, Simulator};
