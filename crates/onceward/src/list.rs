//! `onceward list`: lists records.

use anyhow::Result;
use clap::Args;
use onceward_worker::{Client, ClientError, ListQuery, Record};

use crate::output::{CommandStatus, print_stderr};
use crate::remote::ServerArgs;
use crate::table::{format_table, format_time, sanitize_line};

/// The server's limit for one page.
const MAX_PAGE_RECORDS: usize = 1_000;

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
pub(crate) struct ListArgs {
    /// Records of this lifecycle
    lifecycle: String,
    /// Only those in this state
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only those of this owner
    #[arg(long)]
    owner: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = parse_limit)]
    limit: usize,
    #[command(flatten)]
    remote: ServerArgs,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

fn parse_limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("`{text}` is no number of records: 1 or more"))
}

impl ListArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        self.remote.run_request(self.json, |client| self.fetch_records(client), |records| render(records))
    }

    async fn fetch_records(&self, client: Client) -> Result<Vec<Record>, ClientError> {
        let mut query = ListQuery {
            lifecycle: Some(self.lifecycle.clone()),
            state: self.state.clone(),
            owner: self.owner.clone(),
            ..ListQuery::default()
        };
        let mut records = Vec::new();
        while records.len() < self.limit {
            query.limit = Some((self.limit - records.len()).min(MAX_PAGE_RECORDS));
            let page = client.list(&query).await?;
            records.extend(page.records);
            match page.next {
                Some(_) if records.len() >= self.limit => {
                    let shown_part = match records.len() {
                        1 => "this is the first".to_owned(),
                        shown => format!("these are the first {shown}"),
                    };
                    print_stderr(&format!("{shown_part}, and there are more: --limit shows them\n"));
                }
                Some(next) => query.cursor = Some(next),
                None => break,
            }
        }
        Ok(records)
    }
}

fn render(records: &[Record]) -> String {
    if records.is_empty() {
        return "no records\n".to_owned();
    }
    let row = |record: &Record| {
        [
            record.id.to_string(),
            record.state.clone(),
            record.attempt.to_string(),
            format_time(record.updated_at),
            sanitize_line(&record.owner),
        ]
    };
    format_table(["ID", "STATE", "ATTEMPT", "UPDATED", "OWNER"], &records.iter().map(row).collect::<Vec<_>>())
}
