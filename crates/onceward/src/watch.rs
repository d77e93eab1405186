//! `onceward watch`: see what happens, as it happens.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::pin::pin;

use anyhow::Result;
use clap::Args;
use onceward_worker::{Client, ClientError, Entry, Following, Listing};
use tokio::io::Interest;
use tokio::net::unix::pipe;
use uuid::Uuid;

use crate::answer::{Outcome, complain, is_heard};
use crate::history;
use crate::id::id;
use crate::remote::{Remote, runtime};

/// States of so many records are remembered, to tell where an event led from.
const REMEMBERED: usize = 10_000;

/// See what happens, as it happens
///
/// With an id: the record's story so far, and what follows. Without: everything that you may see, from now on. Ends with Ctrl-C, when
/// the state of `--until` is reached or the record has ended in another, or when nobody reads what it prints.
///
/// Exits with 0 when the state is reached; with 1 if the record ended in another, if there is no such state or lifecycle, or if it was
/// refused; with 2 if the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward watch\n  onceward watch 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b --until SUCCEEDED"
)]
pub(crate) struct Watch {
    /// Only this record
    #[arg(value_parser = id)]
    id: Option<Uuid>,
    /// Only records of this lifecycle
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    lifecycle: Option<String>,
    /// From the log entry after this one
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// End when a record enters this state
    #[arg(long, value_name = "STATE")]
    until: Option<String>,
    #[command(flatten)]
    remote: Remote,
    /// Print the entries as JSON, one a line
    #[arg(long)]
    json: bool,
}

impl Watch {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let client = self.remote.client()?;
        runtime()?.block_on(async {
            match self.follow(&client).await {
                Ok(Shown::Reached | Shown::Unread) => Ok(Outcome::Done),
                Ok(Shown::Ended(state)) => {
                    complain(&format!("error: it has ended in {state}\n"));
                    Ok(Outcome::Wanting)
                }
                Ok(Shown::Failed(error)) => Err(error),
                Err(error) => self.remote.refused(error, self.json),
            }
        })
    }

    /// A state that no record can come to would be waited for without end; the server knows which there are, also of old versions.
    async fn may_be_reached(&self, client: &Client, state: &str) -> Result<(), ClientError> {
        let lifecycle = match self.id {
            Some(id) => Some(client.get(id).await?.lifecycle),
            None => self.lifecycle.clone(),
        };
        let listing = Listing { lifecycle, state: Some(state.to_owned()), limit: Some(1), ..Listing::default() };
        client.list(&listing).await.map(|_| ())
    }

    async fn follow(&self, client: &Client) -> Result<Shown, ClientError> {
        if let Some(state) = &self.until {
            self.may_be_reached(client, state).await?;
        }
        let mut following = Following { after: self.after, lifecycle: self.lifecycle.clone(), record: self.id };
        let mut states = HashMap::new();
        if self.after.is_none()
            && let Some(end) = self.catch_up(client, &mut following, &mut states).await?
        {
            return Ok(end);
        }
        let mut stream = client.follow(&following);
        let mut unread = pin!(until_nobody_reads());
        loop {
            // What has ended never comes to another state: it would be waited for in vain.
            if let (Some(id), Some(_)) = (self.id, &self.until) {
                let record = client.get(id).await?;
                let is_shown = states.get(&id) == Some(&record.state);
                if record.finished_at.is_some() && is_shown {
                    return Ok(Shown::Ended(record.state));
                }
            }
            let entry = tokio::select! {
                entry = stream.next() => entry,
                () = &mut unread => return Ok(Shown::Unread),
            };
            let entry = match (entry, self.after) {
                (Ok(entry), _) => entry,
                // The log was pruned behind the record's last entry. Of a record that is there nothing was: its story, asked for
                // now, is whole up to that place.
                (Err(error), None) if self.id.is_some() && pruned_up_to(&error) > following.after => {
                    let place = pruned_up_to(&error);
                    if let Some(end) = self.catch_up(client, &mut following, &mut states).await? {
                        return Ok(end);
                    }
                    following.after = following.after.max(place);
                    stream = client.follow(&following);
                    continue;
                }
                (Err(error), _) => return Err(error),
            };
            following.after = Some(entry.seq);
            if let Some(end) = self.show(&entry, &mut states) {
                return Ok(end);
            }
        }
    }

    /// Show what of the record's story was not shown yet; the stream goes on right where it ends.
    async fn catch_up(
        &self,
        client: &Client,
        following: &mut Following,
        states: &mut HashMap<Uuid, String>,
    ) -> Result<Option<Shown>, ClientError> {
        let Some(id) = self.id else { return Ok(None) };
        for entry in client.history(id).await? {
            if following.after.is_some_and(|shown| entry.seq <= shown) {
                continue;
            }
            following.after = Some(entry.seq);
            if let Some(end) = self.show(&entry, states) {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn show(&self, entry: &Entry, states: &mut HashMap<Uuid, String>) -> Option<Shown> {
        let line = if self.json {
            match serde_json::to_string(entry) {
                Ok(line) => line,
                Err(error) => return Some(Shown::Failed(error.into())),
            }
        } else {
            let before = entry.record.and_then(|record| states.get(&record)).map(String::as_str);
            let [when, event, state, by, attempt, note] = history::line(entry, before);
            let attempt = if attempt.is_empty() { attempt } else { format!("#{attempt}") };
            let record = entry.record.filter(|_| self.id.is_none()).map(|record| format!("{record}  "));
            let line =
                format!("{when}  {}{event:<10}  {state:<24}  {by}  {attempt}  {note}", record.unwrap_or_default());
            line.trim_end().to_owned()
        };
        match is_heard(&format!("{line}\n")) {
            Ok(true) => {}
            Ok(false) => return Some(Shown::Unread),
            Err(error) => return Some(Shown::Failed(error)),
        }
        let (record, state) = (entry.record?, entry.state.clone()?);
        let is_reached = self.until.as_ref() == Some(&state);
        if states.len() >= REMEMBERED {
            states.clear();
        }
        states.insert(record, state);
        is_reached.then_some(Shown::Reached)
    }
}

/// The place after which the log can be had, where what was asked for is gone.
fn pruned_up_to(error: &ClientError) -> Option<u64> {
    match error {
        ClientError::Problem(problem) if problem.code == "pruned" => problem.more.get("oldest")?.as_u64(),
        _ => None,
    }
}

enum Shown {
    Reached,
    /// In another state than the one that is waited for.
    Ended(String),
    /// By anybody any more.
    Unread,
    Failed(anyhow::Error),
}

/// Also where nothing is written for long. Files and the like are always read.
async fn until_nobody_reads() {
    let registered = match std::io::stdout().as_fd().try_clone_to_owned() {
        // Not checked, so that it stays as blocking as it is: nothing is written to it here.
        Ok(out) => pipe::Sender::from_owned_fd_unchecked(out).ok(),
        Err(_) => None,
    };
    match registered {
        Some(out) => drop(out.ready(Interest::ERROR).await),
        None => std::future::pending().await,
    }
}
