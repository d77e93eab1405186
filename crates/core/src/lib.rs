//! The heart of Onceward: lifecycle files (parsed, checked, compiled, drawn) and [`decide`](decide::decide), the one
//! function that says what an operation does. Pure: no I/O, no clock, no randomness, no async.

// What a pure crate may not call is named in this crate's clippy.toml; its tests may.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod bounds;
pub mod check;
pub mod compile;
mod counted;
pub mod decide;
pub mod diagnostic;
pub mod draw;
pub mod execution_id;
pub mod expr;
pub mod fold;
pub mod hex;
mod load;
pub mod model;
mod near;
pub mod project;
pub mod record;
pub mod syntax;
pub mod time;
pub mod trace;
pub mod value;

pub use counted::counted;
pub use load::{Loaded, load};
pub use near::nearest;
