//! `onceward fire`: fires an event on a record.

use anyhow::Result;
use clap::Args;
use onceward_worker::EventRequest;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::output::CommandStatus;
use crate::record_id::parse_record_id;
use crate::remote::ServerArgs;

/// Fire an event on a record and print its new state
///
/// Exit codes: 0 the event was fired; 1 it was refused; 2 the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward fire 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b cancel\n  onceward fire $id price --input '{\"amount\": 12}' --once price-17"
)]
pub(crate) struct FireArgs {
    /// Id of the record
    #[arg(value_parser = parse_record_id)]
    id: Uuid,
    /// Name of the event
    event: String,
    /// Input of the event, a JSON object
    #[arg(long, value_name = "JSON", value_parser = parse_json_object)]
    input: Option<Map<String, Value>>,
    /// Fire only if the record still has this version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Idempotency key: with the same key, the event is fired only once
    #[arg(long, value_name = "KEY")]
    once: Option<String>,
    #[command(flatten)]
    remote: ServerArgs,
    /// Print the record and the records that the event created as JSON
    #[arg(long)]
    json: bool,
}

fn parse_json_object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(input)) => Ok(input),
        Ok(_) => Err("expected a JSON object, such as {\"amount\": 12}".to_owned()),
        Err(error) => Err(format!("invalid JSON: {error}")),
    }
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
