//! Test support.
//!
//! - [`Simulator`]: runs operations through `decide` in memory with a manual clock, and checks invariants after each.
//! - [`systems`]: loads the shipped systems.
//! - [`matrix`]: tries every event in every state for every caller.
//! - [`http`]: a plain client. [`server_process`]: the whole program as a process.
//! - [`doc_runner`]: runs the commands of documentation pages.
//!
//! Everything panics on an unexpected result, with a message that names the refusal.

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

/// Returns a user: the owner of an API key with the producer role.
pub fn user(name: &str) -> Actor {
    Actor::new(name, &["producer"])
}

/// Like [`user`], but with further roles.
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

/// Replaces `{id}` in the texts of a worker's result with the job's id.
pub(crate) fn fill_result_template(job: RecordId, result: &Json) -> Json {
    match result {
        Json::String(text) => text.replace("{id}", &job.to_string()).into(),
        Json::Object(parts) => {
            parts.iter().map(|(name, part)| (name.clone(), fill_result_template(job, part))).collect()
        }
        other => other.clone(),
    }
}
