//! `onceward get`: prints a record.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use onceward_api_types::{Effect, Execution};
use onceward_core::count_noun;
use onceward_worker::{Client, ClientError, Record};
use serde::Serialize;
use uuid::Uuid;

use crate::output::CommandStatus;
use crate::record_id::parse_record_id;
use crate::remote::ServerArgs;
use crate::table::{format_time, format_value, sanitize_line};

/// How many attempts are read for their errors. More are in `/v1/records/{id}/executions`.
const MAX_SHOWN_ATTEMPTS: u64 = 5;

/// Print a record with the result of its work and the errors of its last five attempts
///
/// Exit codes: 0 the record was printed; 1 it does not exist, or you may not read it; 2 the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward get 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b\n  onceward get $id --json | jq .effect.result"
)]
pub(crate) struct GetArgs {
    /// Id of the record
    #[arg(value_parser = parse_record_id)]
    id: Uuid,
    #[command(flatten)]
    remote: ServerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl GetArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        self.remote.run_request(self.json, |client| self.fetch(client), render)
    }

    async fn fetch(&self, client: Client) -> Result<RecordWithEffect, ClientError> {
        let record = client.get(self.id).await?;
        let effect = match client.effect(self.id).await {
            Ok(effect) => Some(effect),
            // The record has no result, or the caller may not read it.
            Err(ClientError::Problem(_)) => None,
            Err(error) => return Err(error),
        };
        let mut executions = Vec::new();
        if record.attempt > 0 {
            match client.newest_executions(&record, MAX_SHOWN_ATTEMPTS).await {
                Ok(newest) => executions = newest,
                // The caller may not read them any more.
                Err(ClientError::Problem(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(RecordWithEffect { record, effect, executions })
    }
}

#[derive(Serialize)]
struct RecordWithEffect {
    #[serde(flatten)]
    record: Record,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<Effect>,
    /// The newest executions, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    executions: Vec<Execution>,
}

fn render(RecordWithEffect { record, effect, executions }: &RecordWithEffect) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    line("id", &record.id.to_string());
    line("lifecycle", &record.lifecycle);
    line("state", &record.state);
    line("version", &record.version.to_string());
    line("owner", &sanitize_line(&record.owner));
    line("attempt", &record.attempt.to_string());
    if let Some(payload) = &record.payload {
        line("payload", &format!("{}, sha256 {}", count_noun(payload.bytes, "byte", "bytes"), payload.sha256));
    }
    if let Some(stuck) = &record.stuck {
        line("stuck", &sanitize_line(stuck));
    }
    let times = [
        ("created", Some(record.created_at)),
        ("updated", Some(record.updated_at)),
        ("started", record.started_at),
        ("finished", record.finished_at),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            line(name, &format_time(time));
        }
    }
    for (name, field) in &record.fields {
        if !field.is_null() {
            line("field", &format!("{name} = {}", format_value(field)));
        }
    }
    for execution in executions {
        if let Some(aborted) = &execution.aborted {
            let message = if aborted.message.is_empty() { String::new() } else { format!(": {}", aborted.message) };
            line("error", &sanitize_line(&format!("attempt {}: {}{message}", execution.attempt, aborted.code)));
        }
    }
    if let Some(Effect { result, result_base64, .. }) = effect {
        let base64 = || result_base64.clone().map(Into::into);
        if let Some(result) = result.clone().or_else(base64) {
            line("result", &format_value(&result));
        }
    }
    text
}
