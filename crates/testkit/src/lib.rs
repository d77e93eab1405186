//! What tests stand on: a [`Stage`] that plays operations through `decide` in memory under a manual clock and watches
//! the invariants after every one, a loader for the shipped systems, the [`matrix`] of every state, event and caller, a
//! plain client for servers ([`http`]), the whole program as a process of its own ([`served`]), and a [`reader`] who pastes
//! what a page says.
//!
//! Everything here panics with a message that names the refusal: a panic is how a test fails.

pub mod fold;
mod folder;
mod follow;
pub mod fuzz;
pub mod http;
pub mod kept;
pub mod matrix;
pub mod pictures;
pub mod postgres;
mod proxy;
pub mod random;
pub mod reader;
pub mod s3;
mod script;
pub mod served;
pub mod stage;
pub mod systems;

pub use folder::Folder;
pub use follow::Following;
pub use proxy::{Fate, Passing, Proxy};
pub use stage::{Attempt, Lease, Outcome, Stage};

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use serde_json::Value as Json;

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

/// What a worker brings of this job: `{id}` in the texts of a result stands for the job's id.
pub(crate) fn brought(job: RecordId, result: &Json) -> Json {
    match result {
        Json::String(text) => text.replace("{id}", &job.to_string()).into(),
        Json::Object(parts) => parts.iter().map(|(name, part)| (name.clone(), brought(job, part))).collect(),
        other => other.clone(),
    }
}
