//! `onceward lifecycle`: lists and activates lifecycle versions, and migrates records between them.

mod backend;
mod list;
mod move_records;
mod use_version;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::output::CommandStatus;

/// List and activate lifecycle versions, and migrate records between them
///
/// A database keeps every version of a lifecycle. A new version becomes current, and new records use it; existing records keep the version
/// that they were created with. See docs/lifecycle-versions.md.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward lifecycle list shop.refund\n  onceward lifecycle use shop.refund 3f1c9a0e\n  onceward lifecycle move shop.refund --map approved=to_pay --dry-run"
)]
pub(crate) struct LifecycleArgs {
    #[command(subcommand)]
    command: LifecycleCommand,
}

#[derive(Subcommand)]
enum LifecycleCommand {
    List(list::LifecycleListArgs),
    Use(use_version::UseVersionArgs),
    Move(move_records::MoveRecordsArgs),
}

impl LifecycleArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        match &self.command {
            LifecycleCommand::List(list) => list.run(),
            LifecycleCommand::Use(use_version) => use_version.run(),
            LifecycleCommand::Move(move_records) => move_records.run(),
        }
    }
}
