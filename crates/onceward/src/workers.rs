//! `onceward workers`: lists workers.

use anyhow::Result;
use clap::Args;
use onceward_api_types::{Worker, Workers};

use crate::output::CommandStatus;
use crate::remote::ServerArgs;
use crate::table::{format_table, format_time, sanitize_line};

/// List the workers that asked for jobs within the last day, most recent first
///
/// Lists workers of all server processes, and those that hold a lease. An operator sees all workers, other callers their own.
///
/// Exit codes: 0 listed, also if there are none; 1 the call was refused; 2 the server cannot be reached.
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward workers\n  onceward workers --json | jq '.workers[].last_seen'")]
pub(crate) struct WorkersArgs {
    #[command(flatten)]
    remote: ServerArgs,
    /// Print the workers as JSON
    #[arg(long)]
    json: bool,
}

impl WorkersArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        self.remote.run_request(self.json, async |client| client.workers().await, render)
    }
}

fn render(workers: &Workers) -> String {
    if workers.workers.is_empty() {
        return "no workers\n".to_owned();
    }
    let row = |worker: &Worker| {
        [
            sanitize_line(&worker.worker),
            worker.holding.to_string(),
            worker.last_seen.map_or_else(|| "-".to_owned(), format_time),
            worker.lifecycles.join(","),
            sanitize_line(&worker.owner),
        ]
    };
    let rows: Vec<_> = workers.workers.iter().map(row).collect();
    let mut text = format_table(["WORKER", "HOLDING", "LAST SEEN", "LIFECYCLES", "OWNER"], &rows);
    if !workers.complete {
        text.push_str("not all leases were counted, so HOLDING may be too low\n");
    }
    text
}
