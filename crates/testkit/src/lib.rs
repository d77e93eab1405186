//! What tests stand on: a [`Stage`] that plays operations through `decide` in memory under a manual clock and watches
//! the invariants after every one, a loader for the shipped systems, the [`matrix`] of every state, event and caller, a
//! plain client for servers ([`http`]), and a [`reader`] who pastes what a page says.
//!
//! Everything here panics with a message that names the refusal: a panic is how a test fails.

pub mod fold;
mod folder;
pub mod fuzz;
pub mod http;
pub mod matrix;
pub mod pictures;
pub mod postgres;
pub mod random;
pub mod reader;
pub mod s3;
pub mod stage;
pub mod systems;

pub use folder::Folder;
pub use stage::{Attempt, Lease, Outcome, Stage};

use onceward_core::record::Actor;

/// Somebody who makes records of their own: a producer key.
pub fn user(name: &str) -> Actor {
    Actor::new(name, &["producer"])
}

/// Somebody with these roles besides.
pub fn user_with(name: &str, roles: &[&str]) -> Actor {
    let mut all = vec!["producer"];
    all.extend(roles);
    Actor::new(name, &all)
}

pub fn operator(name: &str) -> Actor {
    Actor::new(name, &["operator"])
}

pub fn worker(name: &str) -> Actor {
    Actor::new(name, &["worker"])
}
