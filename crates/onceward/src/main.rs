//! The binary. One file a subcommand; what they share is how files are read (`files`), which lifecycles ship with it
//! (`shipped`), which database is meant (`database`), how answers are printed (`answer`) and how far it is (`bar`).

mod answer;
mod backup;
mod bar;
mod check;
mod database;
mod doctor;
mod draw;
mod files;
mod lifecycle;
mod migrate;
mod prune;
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
    Backup(backup::BackUp),
    Check(check::Check),
    Doctor(doctor::Doctor),
    Draw(draw::Draw),
    Lifecycle(lifecycle::Lifecycle),
    Migrate(migrate::Migrate),
    Prune(prune::Prune),
    Verify(verify::Verify),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Backup(backup) => backup.run(),
        Verb::Check(check) => check.run(),
        Verb::Doctor(doctor) => doctor.run(),
        Verb::Draw(draw) => draw.run(),
        Verb::Lifecycle(lifecycle) => lifecycle.run(),
        Verb::Migrate(migrate) => migrate.run(),
        Verb::Prune(prune) => prune.run(),
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
