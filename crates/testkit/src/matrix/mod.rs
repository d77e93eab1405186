//! The full matrix of a lifecycle: in every state, every event, from every kind of caller, and what comes of it. Kept as
//! a reviewed file, and held against a list of allowed moves that somebody typed from the requirement.

mod comparison;
mod driver_record;
mod participants;
mod runner;

pub use comparison::AllowedTransition;
pub use participants::{MatrixCaller, MatrixTrial, SceneSubject};
pub use runner::LifecycleMatrix;
