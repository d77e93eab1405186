//! `onceward list`: look at many records.

use anyhow::Result;
use clap::Args;
use onceward_worker::{Client, ClientError, Listing, Record};

use crate::answer::{Outcome, complain};
use crate::remote::Remote;
use crate::table::{plain, table, when};

/// Records in one question.
const PAGE: usize = 1_000;

/// List records, the oldest first
///
/// Where there are more than `--limit` shows, standard error says so.
///
/// Exits with 0 when they are listed, also if there are none; with 1 if there is no such lifecycle or state, or if that was refused; with
/// 2 if the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward list execution.job --state FAILED\n  onceward list execution.job --json | jq -r '.[].id'"
)]
pub(crate) struct List {
    /// Records of this lifecycle
    lifecycle: String,
    /// Only those in this state
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only those of this owner
    #[arg(long)]
    owner: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = at_least_one)]
    limit: usize,
    #[command(flatten)]
    remote: Remote,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("`{text}` is no number of records: 1 or more"))
}

impl List {
    pub(crate) fn run(&self) -> Result<Outcome> {
        self.remote.ask(self.json, |client| self.records(client), |records| shown(records))
    }

    async fn records(&self, client: Client) -> Result<Vec<Record>, ClientError> {
        let mut listing = Listing {
            lifecycle: Some(self.lifecycle.clone()),
            state: self.state.clone(),
            owner: self.owner.clone(),
            ..Listing::default()
        };
        let mut records = Vec::new();
        while records.len() < self.limit {
            listing.limit = Some((self.limit - records.len()).min(PAGE));
            let page = client.list(&listing).await?;
            records.extend(page.records);
            match page.next {
                Some(_) if records.len() >= self.limit => {
                    let these = match records.len() {
                        1 => "this is the first".to_owned(),
                        shown => format!("these are the first {shown}"),
                    };
                    complain(&format!("{these}, and there are more: --limit shows them\n"));
                }
                Some(next) => listing.cursor = Some(next),
                None => break,
            }
        }
        Ok(records)
    }
}

fn shown(records: &[Record]) -> String {
    if records.is_empty() {
        return "no records\n".to_owned();
    }
    let row = |record: &Record| {
        [
            record.id.to_string(),
            record.state.clone(),
            record.attempt.to_string(),
            when(record.updated_at),
            plain(&record.owner),
        ]
    };
    table(["ID", "STATE", "ATTEMPT", "UPDATED", "OWNER"], &records.iter().map(row).collect::<Vec<_>>())
}
