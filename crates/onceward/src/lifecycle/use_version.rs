//! `onceward lifecycle use`: activates a version.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::backend::BackendArgs;
use crate::output::{CommandStatus, print_stdout};

/// Make a version the current one of its lifecycle: back to an older one, or forward again
///
/// New records are made by it from now on, in every process; those that are there keep theirs. Who did so, and when, is in the log.
/// A process that starts again with the files of another version does not change it back.
#[derive(Args)]
#[command(after_help = "Example:\n  onceward lifecycle use shop.refund 3f1c9a0e")]
pub(crate) struct UseVersionArgs {
    /// The lifecycle
    name: String,
    /// The version's hash, or its beginning: 8 characters at least
    hash: String,
    #[command(flatten)]
    backend: BackendArgs,
    /// Print the answer as JSON on standard output
    #[arg(long)]
    json: bool,
}

impl UseVersionArgs {
    pub(super) fn run(&self) -> Result<CommandStatus> {
        self.backend.run(self.json, async |desk| {
            let hash = desk.activate_version(&self.name, &self.hash).await?;
            let text = if self.json {
                format!("{:#}\n", json!({ "lifecycle": self.name, "hash": hash }))
            } else {
                format!("{} {hash} is current\n", self.name)
            };
            print_stdout(&text)?;
            Ok(CommandStatus::Success)
        })
    }
}
