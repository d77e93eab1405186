//! The heart of Onceward: lifecycle files (parsed, checked, compiled, drawn) and [`decide`](decide::decide), the one
//! function that says what an operation does. Pure: no I/O, no clock, no randomness, no async.

// What a pure crate may not call is named in this crate's clippy.toml; its tests may.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod analysis;
pub mod bounds;
pub mod compile;
pub mod decide;
pub mod diagnostic;
pub mod draw;
pub mod execution_id;
pub mod expr;
pub mod fold;
pub mod hex;
mod load;
pub mod model;
mod plural;
pub mod projection;
pub mod record;
mod suggest;
pub mod syntax;
pub mod time;
pub mod trace;
pub mod value;

pub use load::{LoadResult, load_definitions};
pub use plural::count_noun;
pub use suggest::closest_name;
