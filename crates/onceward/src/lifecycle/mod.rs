//! `onceward lifecycle`: lists and activates lifecycle versions, and migrates records between them.

mod backend;
mod list;
mod move_records;
mod use_version;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::output::CommandStatus;

/// Versions of lifecycles: look at them, make one current, move records from one to another
///
/// A database keeps every version of a lifecycle that it was ever given. A version that it never saw becomes the current one, by which
/// new records are made; records that are there keep the one that they were made by. docs/lifecycle-versions.md tells the whole of it.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward lifecycle list shop.refund\n  onceward lifecycle use shop.refund 3f1c9a0e\n  onceward lifecycle move shop.refund --map approved=to_pay --dry-run"
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
            LifecycleCommand::Use(turn) => turn.run(),
            LifecycleCommand::Move(moving) => moving.run(),
        }
    }
}
