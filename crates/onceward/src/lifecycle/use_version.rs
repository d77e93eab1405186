//! `onceward lifecycle use`: activates a version.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::backend::run_on_target;
use crate::output::{CommandStatus, print_stdout};
use crate::target::TargetArgs;

/// Activate a version of a lifecycle, older or newer than the current one
///
/// From then on, new records use this version in every process. Existing records keep theirs. The log records the caller and the time.
/// A server that restarts with the files of another version does not undo the activation.
#[derive(Args)]
#[command(after_help = "Example:\n  onceward lifecycle use shop.refund 3f1c9a0e")]
pub(crate) struct UseVersionArgs {
    /// Name of the lifecycle
    name: String,
    /// Hash of the version, or at least its first 8 characters
    hash: String,
    #[command(flatten)]
    target: TargetArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl UseVersionArgs {
    pub(super) fn run(&self) -> Result<CommandStatus> {
        run_on_target(&self.target, self.json, async |backend| {
            let hash = backend.activate_version(&self.name, &self.hash).await?;
            let text = if self.json {
                format!("{:#}\n", json!({ "lifecycle": self.name, "hash": hash }))
            } else {
                format!("{} {hash} is now current\n", self.name)
            };
            print_stdout(&text)?;
            Ok(CommandStatus::Success)
        })
    }
}
