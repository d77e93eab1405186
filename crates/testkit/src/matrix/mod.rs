//! Tests the full matrix of a lifecycle: the outcome of every event in every state for every kind of caller.
//!
//! The matrix is compared with a reviewed file, and with a list of allowed transitions written by hand from the
//! requirement.

mod comparison;
mod driver_record;
mod participants;
mod runner;

pub use comparison::AllowedTransition;
pub use participants::{MatrixCaller, MatrixTrial, SceneSubject};
pub use runner::LifecycleMatrix;
