//! `onceward list`: lists records.

use anyhow::Result;
use clap::Args;
use onceward_worker::{Client, ClientError, ListQuery, Record};

use crate::output::{CommandStatus, print_stderr};
use crate::remote::ServerArgs;
use crate::table::{format_table, format_time, sanitize_line};

/// The server's limit for one page.
const MAX_PAGE_RECORDS: usize = 1_000;

/// List records, oldest first
///
/// If there are more records than --limit, a note on standard error says so.
///
/// Exit codes: 0 the records were listed, also if there are none; 1 the lifecycle or the state does not exist, or the call was refused; 2
/// the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward list execution.job --state FAILED\n  onceward list execution.job --json | jq -r '.[].id'"
)]
pub(crate) struct ListArgs {
    /// Name of the lifecycle
    lifecycle: String,
    /// Only records in this state
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only records of this owner
    #[arg(long)]
    owner: Option<String>,
    /// Maximum number of records
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = parse_limit)]
    limit: usize,
    #[command(flatten)]
    remote: ServerArgs,
    /// Print the records as a JSON array
    #[arg(long)]
    json: bool,
}

fn parse_limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("`{text}` is not a whole number of 1 or more"))
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
                    print_stderr(&format!(
                        "note: more than {} records match; raise --limit to list them\n",
                        self.limit
                    ));
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
