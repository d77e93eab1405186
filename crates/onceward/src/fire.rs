//! `onceward fire`: fires an event on a record.

use anyhow::Result;
use clap::Args;
use onceward_worker::EventRequest;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::output::CommandStatus;
use crate::record_id::parse_record_id;
use crate::remote::ServerArgs;

/// Send a record an event, and print the state that it led to
///
/// Exits with 0 when it was taken; with 1 if it was refused; with 2 if the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward fire 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b cancel\n  onceward fire $id price --input '{\"amount\": 12}' --once price-17"
)]
pub(crate) struct FireArgs {
    /// The record's id
    #[arg(value_parser = parse_record_id)]
    id: Uuid,
    /// The event's name
    event: String,
    /// What the event brings, a JSON object
    #[arg(long, value_name = "JSON", value_parser = parse_json_object)]
    input: Option<Map<String, Value>>,
    /// Only if the record still has this version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// However often this is run with the same key, it happens once
    #[arg(long, value_name = "KEY")]
    once: Option<String>,
    #[command(flatten)]
    remote: ServerArgs,
    /// Print the record, and those that were made, as JSON
    #[arg(long)]
    json: bool,
}

fn parse_json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

impl FireArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let request = EventRequest {
            input: self.input.clone().unwrap_or_default(),
            version: self.version,
            key: self.once.clone(),
            ..EventRequest::new(self.id, &self.event)
        };
        let send = |client: onceward_worker::Client| async move { client.fire(&request).await };
        self.remote.run_request(self.json, send, |result| {
            let state = result.record.as_ref().map(|record| record.state.as_str()).unwrap_or_default();
            format!("{state}\n")
        })
    }
}
