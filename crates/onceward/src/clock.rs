//! `onceward clock`: shows whether a server follows its clock, and accepts a jump.

use anyhow::Result;
use clap::{Args, Subcommand};
use onceward_api_types::ClockState;
use serde_json::json;

use crate::output::{CommandStatus, print_stdout};
use crate::remote::{self, ServerArgs};

/// Show whether a server follows its clock, and accept a jump
///
/// If the clock of the database's machine jumps, the server keeps its own time, so that no lease ends early and nothing is pruned. It
/// follows a jump of up to 24 hours after one minute, and a larger jump only after `onceward clock accept`; see docs/clock.md. Both
/// subcommands need an operator's API key.
///
/// Exit codes: 0 the server follows its clock; 1 it does not, or it refused; 2 the server cannot be reached.
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward clock status\n  onceward clock accept --server http://127.0.0.1:7171")]
pub(crate) struct ClockArgs {
    #[command(subcommand)]
    command: ClockCommand,
}

#[derive(Subcommand)]
enum ClockCommand {
    /// Show the server's time, and the clock's time if it jumped
    Status(ClockCallArgs),
    /// Accept the clock's time: the server and other servers on its database follow it at once
    Accept(ClockCallArgs),
}

#[derive(Args)]
struct ClockCallArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl ClockArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let (ClockCommand::Status(call) | ClockCommand::Accept(call)) = &self.command;
        let client = call.server.client()?;
        let reply = remote::build_runtime()?.block_on(async {
            match &self.command {
                ClockCommand::Status(_) => client.clock().await,
                ClockCommand::Accept(_) => client.accept_clock().await,
            }
        });
        let state = match reply {
            Ok(state) => state,
            Err(onceward_worker::ClientError::Problem(problem)) => {
                return remote::report_problem(&problem, call.server.api_key(), call.json);
            }
            Err(error) => return Err(remote::with_hint(error)),
        };
        print_stdout(&if call.json { format!("{:#}\n", json!(state)) } else { render(&state) })?;
        Ok(if state.hold.is_none() { CommandStatus::Success } else { CommandStatus::Failure })
    }
}

fn render(state: &ClockState) -> String {
    let Some(hold) = &state.hold else { return format!("{}: the server follows its clock\n", state.now) };
    let next = if hold.needs_operator {
        "if the clock is wrong, correct it; if it is right, run `onceward clock accept`"
    } else {
        "the server follows the clock after it has run evenly for one minute"
    };
    format!("{}: the server keeps its own time, because the clock jumped to {}\n{next}\n", state.now, hold.clock_time)
}
