//! From files to the model: names resolved, expressions typed. Says nothing of what the rows may lead to; that is for
//! [`check`](crate::check).

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
