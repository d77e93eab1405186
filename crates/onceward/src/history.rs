//! `onceward history`: prints the log entries of a record.

use anyhow::Result;
use clap::Args;
use onceward_worker::LogEntry;
use serde_json::Value;
use uuid::Uuid;

use crate::output::CommandStatus;
use crate::record_id::parse_record_id;
use crate::remote::ServerArgs;
use crate::table::{format_table, format_time, sanitize_line};

/// Print the log of a record: each event with time, states and actor
///
/// Exit codes: 0 the log was printed; 1 the record does not exist, or you may not read it; 2 the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward history 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b\n  onceward history $id --json | jq '.[].event'"
)]
pub(crate) struct HistoryArgs {
    /// Id of the record
    #[arg(value_parser = parse_record_id)]
    id: Uuid,
    #[command(flatten)]
    remote: ServerArgs,
    /// Print the entries as a JSON array
    #[arg(long)]
    json: bool,
}

impl HistoryArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        self.remote.run_request(
            self.json,
            |client| async move { client.history(self.id).await },
            |entries| format_table(HISTORY_HEADINGS, &history_rows(entries)),
        )
    }
}

pub(crate) const HISTORY_HEADINGS: [&str; 6] = ["WHEN", "EVENT", "STATE", "BY", "ATTEMPT", ""];

/// Formats one row per entry, oldest first.
pub(crate) fn history_rows(entries: &[LogEntry]) -> Vec<[String; 6]> {
    let mut state: Option<&str> = None;
    let rows = entries.iter().map(|entry| {
        let state_before = state;
        state = entry.state.as_deref().or(state);
        history_row(entry, state_before)
    });
    rows.collect()
}

/// Formats an entry as a table row, with the state before it if that is known.
pub(crate) fn history_row(entry: &LogEntry, state_before: Option<&str>) -> [String; 6] {
    let state = match (state_before, entry.state.as_deref()) {
        (Some(from), Some(to)) if from != to => format!("{from} -> {to}"),
        (None, Some(to)) => format!("-> {to}"),
        (_, Some(same)) | (Some(same), None) => same.to_owned(),
        (None, None) => String::new(),
    };
    let by = entry.actor.as_deref().unwrap_or_default();
    let worker = entry.execution.as_ref().filter(|_| entry.event == "lease").map(|execution| &*execution.worker);
    let by = worker.map_or_else(|| by.to_owned(), |worker| format!("{by} ({worker})"));
    let attempt = entry.execution.as_ref().map(|execution| execution.attempt.to_string()).unwrap_or_default();
    [format_time(entry.at), entry.event.clone(), state, sanitize_line(&by), attempt, entry_note(entry)]
}

/// Returns the reason for a refusal or failure, if the entry has one.
fn entry_note(entry: &LogEntry) -> String {
    if let Some(refusal) = &entry.refusal {
        return format!("refused: {}", sanitize_line(&refusal.code));
    }
    if let Some(aborted) = entry.execution.as_ref().and_then(|execution| execution.aborted.as_ref()) {
        let code = sanitize_line(&aborted.code);
        let error = entry.fields.get("lastError").and_then(Value::as_str).map(sanitize_line);
        return error
            .filter(|error| !error.is_empty())
            .map_or_else(|| code.clone(), |error| format!("{code}: {error}"));
    }
    if entry.effect.is_some() { "effect committed".to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn history_shows_state_before_and_after_each_entry() {
        let execution = |members: Value| {
            let mut execution = json!({
                "id": "x.1", "record": Uuid::nil(), "attempt": 1, "token": 1, "worker": "w1",
                "leased_at": "2026-01-02T03:04:06Z", "expires_at": "2026-01-02T03:05:06Z",
            });
            execution.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
            execution
        };
        let entries: Vec<LogEntry> = serde_json::from_value(json!([
            { "seq": 1, "version": 1, "at": "2026-01-02T03:04:05.678Z", "event": "create", "actor": "ann", "state": "PENDING" },
            { "seq": 2, "version": 2, "at": "2026-01-02T03:04:06Z", "event": "lease", "actor": "bob", "state": "RUNNING",
              "execution": execution(json!({ "status": "IN_PROGRESS" })) },
            { "seq": 3, "version": 3, "at": "2026-01-02T03:04:07Z", "event": "fail", "actor": "engine", "state": "PENDING",
              "fields": { "lastError": "gone" },
              "execution": execution(json!({ "status": "ABORTED", "aborted": { "code": "lost", "retryable": true } })) },
            { "seq": 4, "version": 4, "at": "2026-01-02T03:04:08Z", "event": "touch", "actor": "ann" }
        ]))
        .expect("entries");
        assert_eq!(
            format_table(HISTORY_HEADINGS, &history_rows(&entries)),
            "WHEN                      EVENT   STATE               BY        ATTEMPT\n\
             2026-01-02 03:04:05.678Z  create  -> PENDING          ann\n\
             2026-01-02 03:04:06.000Z  lease   PENDING -> RUNNING  bob (w1)  1\n\
             2026-01-02 03:04:07.000Z  fail    RUNNING -> PENDING  engine    1        lost: gone\n\
             2026-01-02 03:04:08.000Z  touch   PENDING             ann\n"
        );
    }
}
