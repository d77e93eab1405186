//! What tests stand on: a [`Simulator`] that plays operations through `decide` in memory under a manual clock and watches
//! the invariants after every one, a loader for the shipped systems, the [`matrix`] of every state, event and caller, a
//! plain client for servers ([`http`]), the whole program as a process of its own ([`server_process`]), and a [`doc_runner`] who pastes
//! what a page says.
//!
//! Everything here panics with a message that names the refusal: a panic is how a test fails.

pub mod doc_runner;
pub mod fake_image_service;
pub mod fold;
pub mod fuzz;
pub mod http;
pub mod matrix;
pub mod postgres;
mod postgres_proxy;
pub mod random;
pub mod s3;
pub mod server_process;
mod server_script;
pub mod simulator;
mod sse_client;
pub mod stored_text;
pub mod systems;
mod temp_dir;

pub use postgres_proxy::{MessageFate, PostgresProxy, ProxiedMessage};
pub use simulator::{CallOutcome, SimulatedCall, SimulatedLease, Simulator};
pub use sse_client::SseClient;
pub use temp_dir::TempDir;

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use serde_json::Value as Json;

/// Somebody who makes records of their own: a producer key.
pub fn user(name: &str) -> Actor {
    Actor::new(name, &["producer"])
}

/// Somebody with these roles besides.
pub fn user_with_roles(name: &str, roles: &[&str]) -> Actor {
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
pub(crate) fn fill_result_template(job: RecordId, result: &Json) -> Json {
    match result {
        Json::String(text) => text.replace("{id}", &job.to_string()).into(),
        Json::Object(parts) => {
            parts.iter().map(|(name, part)| (name.clone(), fill_result_template(job, part))).collect()
        }
        other => other.clone(),
    }
}
