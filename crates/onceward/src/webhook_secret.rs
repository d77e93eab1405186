//! `onceward webhook-secret`: shows and rotates the secret that signs the deliveries of an owner.

use anyhow::Result;
use clap::{Args, ValueEnum};
use onceward_api_types::WebhookSecretJson;
use serde_json::json;

use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::remote::{self, ServerArgs};

/// Show or rotate the secret that signs your deliveries
///
/// Prints the secret of the API key's owner; the first call creates it. A receiver checks with it that a delivery comes from this server;
/// see docs/deliveries.md. Needs an API key with the role producer.
///
/// Exit codes: 0 done; 1 refused; 2 the server cannot be reached.
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward webhook-secret\n  onceward webhook-secret rotate")]
pub(crate) struct WebhookSecretArgs {
    #[arg(default_value = "show")]
    action: Action,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Action {
    /// Print the current secret
    Show,
    /// Create a new secret; for 24 hours the previous one signs, too
    Rotate,
}

impl WebhookSecretArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let client = self.server.client()?;
        let reply = remote::build_runtime()?.block_on(async {
            match self.action {
                Action::Show => client.webhook_secret().await,
                Action::Rotate => client.rotate_webhook_secret().await,
            }
        });
        let secrets = match reply {
            Ok(secrets) => secrets,
            Err(onceward_worker::ClientError::Problem(problem)) => {
                return remote::report_problem(&problem, self.server.api_key(), self.json);
            }
            Err(error) => return Err(remote::with_hint(error)),
        };
        print_stdout(&if self.json { format!("{:#}\n", json!(secrets)) } else { format!("{}\n", secrets.secret) })?;
        if !self.json {
            print_stderr(&hint(&secrets));
        }
        Ok(CommandStatus::Success)
    }
}

fn hint(secrets: &WebhookSecretJson) -> String {
    match &secrets.previous_until {
        None => String::new(),
        Some(until) => format!("The previous secret signs, too, until {until}.\n"),
    }
}
