//! The binary. One file a subcommand; what they share is how files are read (`files`), which lifecycles ship with it
//! (`shipped`), which database is meant (`database`) and how answers are printed (`answer`).

mod answer;
mod check;
mod database;
mod draw;
mod files;
mod shipped;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Records are made on one thread and dropped on another, which the system's allocator is slow at: a third of a job's cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A durable lifecycle engine: declare how a thing lives in one file; Onceward checks it, draws it and enforces it.
#[derive(Parser)]
#[command(
    name = "onceward",
    version,
    after_help = "Example:\n  onceward check systems/image\n  onceward draw image.job"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Check(check::Check),
    Draw(draw::Draw),
    Verify(verify::Verify),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Check(check) => check.run(),
        Verb::Draw(draw) => draw.run(),
        Verb::Verify(verify) => verify.run(),
    };
    match done {
        Ok(outcome) => outcome.into(),
        // What could not even be tried: a file that is not there, a name nobody knows.
        Err(error) => {
            answer::complain(&format!("error: {error:#}\n"));
            answer::Outcome::Misuse.into()
        }
    }
}
