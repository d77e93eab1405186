//! The pure core of Onceward: parses, compiles and analyzes lifecycle files, and decides with
//! [`decide`](decide::decide) what an operation changes. No I/O, no clock, no randomness, no async.

// This crate's clippy.toml lists the impure methods and types. Tests may use them.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod analysis;
pub mod bounds;
pub mod compile;
pub mod decide;
pub mod diagnostic;
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
