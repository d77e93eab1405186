//! `onceward watch`: prints log entries as they are committed.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::pin::pin;

use anyhow::Result;
use clap::Args;
use onceward_worker::{Client, ClientError, ListQuery, LogEntry, StreamOptions};
use tokio::io::Interest;
use tokio::net::unix::pipe;
use uuid::Uuid;

use crate::history;
use crate::output::{CommandStatus, print_stderr, try_print_stdout};
use crate::record_id::parse_record_id;
use crate::remote::{ServerArgs, build_runtime};

/// Bounds the memory for the previous states. Beyond it, the map is cleared, and entries show only their new state.
const MAX_TRACKED_RECORDS: usize = 10_000;

/// Follow the log and print entries as they are committed
///
/// With an id, prints the record's log so far and then new entries. Without, prints new entries of all records that you may read. Ends on
/// Ctrl-C, when a record reaches the state of --until, when the watched record ends in another state, or when standard output is closed.
///
/// Exit codes: 0 the state was reached, or standard output was closed; 1 the record ended in another state, the state or the lifecycle
/// does not exist, or the call was refused; 2 the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward watch\n  onceward watch 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b --until SUCCEEDED"
)]
pub(crate) struct WatchArgs {
    /// Only this record
    #[arg(value_parser = parse_record_id)]
    id: Option<Uuid>,
    /// Only records of this lifecycle
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    lifecycle: Option<String>,
    /// Start after this `seq` of the log
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Exit when a record enters this state
    #[arg(long, value_name = "STATE")]
    until: Option<String>,
    #[command(flatten)]
    remote: ServerArgs,
    /// Print the entries as JSON, one per line
    #[arg(long)]
    json: bool,
}

impl WatchArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let client = self.remote.client()?;
        build_runtime()?.block_on(async {
            match self.watch_log(&client).await {
                Ok(WatchEnd::Reached | WatchEnd::ReaderGone) => Ok(CommandStatus::Success),
                Ok(WatchEnd::Ended(state)) => {
                    print_stderr(&format!("error: the record ended in state {state}\n"));
                    Ok(CommandStatus::Failure)
                }
                Ok(WatchEnd::OutputFailed(error)) => Err(error),
                Err(error) => self.remote.report_error(error, self.json),
            }
        })
    }

    /// Fails if no version of the lifecycle has this state: the command would wait forever.
    async fn require_known_state(&self, client: &Client, state: &str) -> Result<(), ClientError> {
        let lifecycle = match self.id {
            Some(id) => Some(client.get(id).await?.lifecycle),
            None => self.lifecycle.clone(),
        };
        let query = ListQuery { lifecycle, state: Some(state.to_owned()), limit: Some(1), ..ListQuery::default() };
        client.list(&query).await.map(|_| ())
    }

    async fn watch_log(&self, client: &Client) -> Result<WatchEnd, ClientError> {
        if let Some(state) = &self.until {
            self.require_known_state(client, state).await?;
        }
        let mut options = StreamOptions { after: self.after, lifecycle: self.lifecycle.clone(), record: self.id };
        let mut states = HashMap::new();
        if self.after.is_none()
            && let Some(end) = self.print_history(client, &mut options, &mut states).await?
        {
            return Ok(end);
        }
        let mut stream = client.follow(&options);
        let mut reader_gone = pin!(wait_until_reader_gone());
        loop {
            // An ended record never changes state again, so waiting would never end.
            if let (Some(id), Some(_)) = (self.id, &self.until) {
                let record = client.get(id).await?;
                let is_shown = states.get(&id) == Some(&record.state);
                if record.finished_at.is_some() && is_shown {
                    return Ok(WatchEnd::Ended(record.state));
                }
            }
            let entry = tokio::select! {
                entry = stream.next() => entry,
                () = &mut reader_gone => return Ok(WatchEnd::ReaderGone),
            };
            let entry = match (entry, self.after) {
                (Ok(entry), _) => entry,
                // The log was pruned past the record's last printed entry. No entry of a record that still exists was
                // pruned, so its history is complete up to the pruned `seq`.
                (Err(error), None) if self.id.is_some() && oldest_available_seq(&error) > options.after => {
                    let oldest_seq = oldest_available_seq(&error);
                    if let Some(end) = self.print_history(client, &mut options, &mut states).await? {
                        return Ok(end);
                    }
                    options.after = options.after.max(oldest_seq);
                    stream = client.follow(&options);
                    continue;
                }
                (Err(error), _) => return Err(error),
            };
            options.after = Some(entry.seq);
            if let Some(end) = self.print_entry(&entry, &mut states) {
                return Ok(end);
            }
        }
    }

    /// Prints the record's entries that were not printed yet, and lets the stream continue after them.
    async fn print_history(
        &self,
        client: &Client,
        options: &mut StreamOptions,
        states: &mut HashMap<Uuid, String>,
    ) -> Result<Option<WatchEnd>, ClientError> {
        let Some(id) = self.id else { return Ok(None) };
        for entry in client.history(id).await? {
            if options.after.is_some_and(|shown| entry.seq <= shown) {
                continue;
            }
            options.after = Some(entry.seq);
            if let Some(end) = self.print_entry(&entry, states) {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn print_entry(&self, entry: &LogEntry, states: &mut HashMap<Uuid, String>) -> Option<WatchEnd> {
        let line = if self.json {
            match serde_json::to_string(entry) {
                Ok(line) => line,
                Err(error) => return Some(WatchEnd::OutputFailed(error.into())),
            }
        } else {
            let before = entry.record.and_then(|record| states.get(&record)).map(String::as_str);
            let [when, event, state, by, attempt, note] = history::history_row(entry, before);
            let attempt = if attempt.is_empty() { attempt } else { format!("#{attempt}") };
            let record = entry.record.filter(|_| self.id.is_none()).map(|record| format!("{record}  "));
            let line =
                format!("{when}  {}{event:<10}  {state:<24}  {by}  {attempt}  {note}", record.unwrap_or_default());
            line.trim_end().to_owned()
        };
        match try_print_stdout(&format!("{line}\n")) {
            Ok(true) => {}
            Ok(false) => return Some(WatchEnd::ReaderGone),
            Err(error) => return Some(WatchEnd::OutputFailed(error)),
        }
        let (record, state) = (entry.record?, entry.state.clone()?);
        let is_reached = self.until.as_ref() == Some(&state);
        if states.len() >= MAX_TRACKED_RECORDS {
            states.clear();
        }
        states.insert(record, state);
        is_reached.then_some(WatchEnd::Reached)
    }
}

/// Returns the `seq` after which the log is available, if the requested part was pruned.
fn oldest_available_seq(error: &ClientError) -> Option<u64> {
    match error {
        ClientError::Problem(problem) if problem.code == "pruned" => problem.extra.get("oldest")?.as_u64(),
        _ => None,
    }
}

enum WatchEnd {
    Reached,
    /// The record ended in another state than the one waited for.
    Ended(String),
    /// The reader of standard output closed it.
    ReaderGone,
    OutputFailed(anyhow::Error),
}

/// Resolves when the reader of standard output closes it, even if nothing is written. Never resolves for a file.
async fn wait_until_reader_gone() {
    let registered = match std::io::stdout().as_fd().try_clone_to_owned() {
        // The unchecked constructor leaves the descriptor in blocking mode. This sender never writes.
        Ok(out) => pipe::Sender::from_owned_fd_unchecked(out).ok(),
        Err(_) => None,
    };
    match registered {
        Some(out) => drop(out.ready(Interest::ERROR).await),
        None => std::future::pending().await,
    }
}
