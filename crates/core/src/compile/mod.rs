//! From files to the model: names resolved, expressions typed. Says nothing of what the rows may lead to; that is for
//! [`check`](crate::check).

mod account;
mod asks;
mod bounded;
mod callers;
mod cause;
mod declared;
mod files;
mod hash;
mod keys;
mod lifecycle;
mod links;
mod literal;
mod placement;
mod row;
mod shape;
mod work;

pub use files::{Compiled, compile, declared};
