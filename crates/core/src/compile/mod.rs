//! Compiles lifecycle files to the model: resolves names and types expressions. [`analysis`](crate::analysis) then
//! examines which transitions can run.

mod actions;
mod callers;
mod checks;
mod constraints;
mod field_bounds;
mod fields;
mod files;
mod hash;
mod lifecycle;
mod links;
mod literal;
mod signature;
mod transfers;
mod transition;
mod validate;
mod work;

pub use files::{CompileResult, compile, declared_lifecycles};
