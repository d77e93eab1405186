//! The full matrix of a lifecycle: in every state, every event, from every kind of caller, and what comes of it. Kept as
//! a reviewed file, and held against a list of allowed moves that somebody typed from the requirement.

mod cast;
mod compare;
mod play;
mod puppet;

pub use cast::{Caller, Cast, Trial};
pub use compare::Allowed;
pub use play::Matrix;
