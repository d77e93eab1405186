//! The binary. One file a subcommand; what they share is how files are read (`files`), which lifecycles ship with it
//! (`shipped`), which database or server is meant (`database`, `remote`), how answers are printed (`answer`, `table`, `voice`) and how
//! far it is (`bar`).

mod answer;
mod backup;
mod bar;
mod check;
mod database;
mod doctor;
mod draw;
mod files;
mod fire;
mod get;
mod hang_up;
mod history;
mod id;
mod key;
mod lifecycle;
mod list;
mod logging;
mod migrate;
mod new;
mod objects;
mod parts;
mod place;
mod prune;
mod remote;
mod serve;
mod shipped;
mod supervise;
mod table;
mod verify;
mod voice;
mod watch;
mod work;

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
    Fire(fire::Fire),
    Get(get::Get),
    History(history::History),
    Key(key::Key),
    List(list::List),
    Lifecycle(lifecycle::Lifecycle),
    Migrate(migrate::Migrate),
    New(new::New),
    Prune(prune::Prune),
    Serve(serve::Serve),
    Verify(verify::Verify),
    Watch(watch::Watch),
    Work(work::Work),
}

fn main() -> ExitCode {
    if let Some(ended) = supervise::run(std::env::args_os()) {
        return ended;
    }
    let done = match Cli::parse().verb {
        Verb::Backup(backup) => backup.run(),
        Verb::Check(check) => check.run(),
        Verb::Doctor(doctor) => doctor.run(),
        Verb::Draw(draw) => draw.run(),
        Verb::Fire(fire) => fire.run(),
        Verb::Get(get) => get.run(),
        Verb::History(history) => history.run(),
        Verb::Key(key) => key.run(),
        Verb::List(list) => list.run(),
        Verb::Lifecycle(lifecycle) => lifecycle.run(),
        Verb::Migrate(migrate) => migrate.run(),
        Verb::New(new) => new.run(),
        Verb::Prune(prune) => prune.run(),
        Verb::Serve(serve) => serve.run(),
        Verb::Verify(verify) => verify.run(),
        Verb::Watch(watch) => watch.run(),
        Verb::Work(work) => work.run(),
    };
    let outcome = done.unwrap_or_else(|error| {
        // What could not even be tried: a file that is not there, a name nobody knows.
        answer::complain(&format!("error: {error:#}\n"));
        answer::Outcome::Misuse
    });
    voice::end();
    outcome.into()
}
