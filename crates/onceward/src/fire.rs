//! `onceward fire`: an event by hand.

use anyhow::Result;
use clap::Args;
use onceward_worker::EventCall;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::answer::Outcome;
use crate::id::id;
use crate::remote::Remote;

/// Send a record an event, and print the state that it led to
///
/// Exits with 0 when it was taken; with 1 if it was refused; with 2 if the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward fire 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b cancel\n  onceward fire $id price --input '{\"amount\": 12}' --once price-17"
)]
pub(crate) struct Fire {
    /// The record's id
    #[arg(value_parser = id)]
    id: Uuid,
    /// The event's name
    event: String,
    /// What the event brings, a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    input: Option<Map<String, Value>>,
    /// Only if the record still has this version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// However often this is run with the same key, it happens once
    #[arg(long, value_name = "KEY")]
    once: Option<String>,
    #[command(flatten)]
    remote: Remote,
    /// Print the record, and those that were made, as JSON
    #[arg(long)]
    json: bool,
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

impl Fire {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let call = EventCall {
            input: self.input.clone().unwrap_or_default(),
            version: self.version,
            key: self.once.clone(),
            ..EventCall::new(self.id, &self.event)
        };
        let ask = |client: onceward_worker::Client| async move {
            let fired = client.fire(&call).await?;
            Ok(json!({ "record": fired.record, "spawned": fired.spawned }))
        };
        self.remote.ask(self.json, ask, |fired| {
            let state = fired["record"]["state"].as_str().unwrap_or_default();
            format!("{state}\n")
        })
    }
}
