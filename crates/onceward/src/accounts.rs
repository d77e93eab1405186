//! `onceward accounts`: lists the balances of accounts, or the statement of one.

use anyhow::Result;
use clap::Args;
use onceward_api_types::{Account, AccountEntry};

use crate::output::CommandStatus;
use crate::remote::ServerArgs;
use crate::table::{format_table, format_time, sanitize_line};

/// List accounts with their balances, or the statement of one account
///
/// The first command lists all accounts, sorted by asset and name. With an account, the command lists its transfers, newest first. Needs
/// an operator's API key.
///
/// Exit codes: 0 listed, also if there are none; 1 the account does not exist, or the call was refused; 2 the server cannot be reached.
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward accounts\n  onceward accounts credit:user:ann --json")]
pub(crate) struct AccountsArgs {
    /// Account: asset and name, separated by a colon
    account: Option<String>,
    #[command(flatten)]
    remote: ServerArgs,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl AccountsArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        match &self.account {
            None => self.remote.run_request(
                self.json,
                async |client| client.accounts().await,
                |accounts| render_accounts(accounts),
            ),
            Some(account) => self.remote.run_request(
                self.json,
                async |client| client.statement(account).await,
                |lines| render_statement(lines),
            ),
        }
    }
}

fn render_accounts(accounts: &[Account]) -> String {
    if accounts.is_empty() {
        return "no accounts\n".to_owned();
    }
    let row = |account: &Account| {
        let outside = if account.outside { "outside" } else { "" };
        [sanitize_line(&account.id), account.balance.to_string(), outside.to_owned()]
    };
    format_table(["ACCOUNT", "BALANCE", ""], &accounts.iter().map(row).collect::<Vec<_>>())
}

fn render_statement(lines: &[AccountEntry]) -> String {
    if lines.is_empty() {
        return "no transfers\n".to_owned();
    }
    let row = |line: &AccountEntry| {
        let hold = line.other.hold.map(|record| format!("hold of {record}"));
        [
            format_time(line.at),
            line.amount.to_string(),
            line.balance.to_string(),
            line.event.clone(),
            line.record.to_string(),
            sanitize_line(&line.other.account.clone().or(hold).unwrap_or_default()),
        ]
    };
    let headings = ["TIME", "AMOUNT", "BALANCE", "EVENT", "RECORD", "OTHER SIDE"];
    format_table(headings, &lines.iter().map(row).collect::<Vec<_>>())
}
