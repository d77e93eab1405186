//! `onceward lifecycle`: the versions of lifecycles, which one is current, and by which one records live.

mod desk;
mod list;
mod moving;
mod turn;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::answer::Outcome;

/// Versions of lifecycles: look at them, make one current, move records from one to another
///
/// A database keeps every version of a lifecycle that it was ever given. A version that it never saw becomes the current one, by which
/// new records are made; records that are there keep the one that they were made by. docs/lifecycle-versions.md tells the whole of it.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward lifecycle list shop.refund\n  onceward lifecycle use shop.refund 3f1c9a0e\n  onceward lifecycle move shop.refund --map approved=to_pay --dry-run"
)]
pub(crate) struct Lifecycle {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    List(list::List),
    Use(turn::Use),
    Move(moving::MoveRecords),
}

impl Lifecycle {
    pub(crate) fn run(&self) -> Result<Outcome> {
        match &self.verb {
            Verb::List(list) => list.run(),
            Verb::Use(turn) => turn.run(),
            Verb::Move(moving) => moving.run(),
        }
    }
}
