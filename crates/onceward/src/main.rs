//! The `onceward` command line program: one module per subcommand.
//!
//! Shared modules: `files` reads lifecycle files, `shipped` holds the built-in ones, `database`, `target` and `remote`
//! find the database or server, and `output`, `table` and `progress_bar` print.

mod accounts;
mod backup;
mod check;
mod clock;
mod database;
mod database_args;
mod doctor;
mod draw;
mod files;
mod fire;
mod get;
mod history;
mod inactive_files;
mod key;
mod lifecycle;
mod list;
mod logging;
mod migrate;
mod new;
mod object_storage;
mod output;
mod progress_bar;
mod prune;
mod record_id;
mod remote;
mod retention;
mod serve;
mod shipped;
mod sighup;
mod stderr_thread;
mod supervise;
mod system_routes;
mod table;
mod target;
mod verify;
mod watch;
mod webhook_secret;
mod work;
mod workers;

use std::process::ExitCode;

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// One thread allocates a record and another frees it. The system's allocator is slow at that: it cost a third of a
/// job's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A durable lifecycle engine: declare states and transitions in one file; Onceward checks, draws and enforces them
#[derive(Parser)]
#[command(
    name = "onceward",
    version,
    after_help = "Examples:\n  onceward serve\n  onceward check systems/image\n  onceward draw image.job"
)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    Accounts(accounts::AccountsArgs),
    Backup(backup::BackupArgs),
    Check(check::CheckArgs),
    Clock(clock::ClockArgs),
    Doctor(doctor::DoctorArgs),
    Draw(draw::DrawArgs),
    Fire(fire::FireArgs),
    Get(get::GetArgs),
    History(history::HistoryArgs),
    Key(key::KeyArgs),
    Lifecycle(lifecycle::LifecycleArgs),
    List(list::ListArgs),
    Migrate(migrate::MigrateArgs),
    New(new::NewArgs),
    Prune(prune::PruneArgs),
    Serve(serve::ServeArgs),
    Verify(verify::VerifyArgs),
    Watch(watch::WatchArgs),
    WebhookSecret(webhook_secret::WebhookSecretArgs),
    Work(work::WorkArgs),
    Workers(workers::WorkersArgs),
}

/// Parses the command line. Usage lines of errors are fixed, because clap's own would list each option that an
/// environment variable sets, as if it were required.
fn parse_arguments() -> Cli {
    let mut command = Cli::command();
    command.build();
    let matches = with_fixed_usage(command).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn with_fixed_usage(command: Command) -> Command {
    command.mut_subcommands(|mut subcommand| {
        let usage = subcommand.render_usage().to_string();
        let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
        with_fixed_usage(subcommand).override_usage(usage)
    })
}

fn main() -> ExitCode {
    if let Some(exit_code) = supervise::run(std::env::args_os()) {
        return exit_code;
    }
    let result = match parse_arguments().command {
        CliCommand::Accounts(accounts) => accounts.run(),
        CliCommand::Backup(backup) => backup.run(),
        CliCommand::Check(check) => check.run(),
        CliCommand::Clock(clock) => clock.run(),
        CliCommand::Doctor(doctor) => doctor.run(),
        CliCommand::Draw(draw) => draw.run(),
        CliCommand::Fire(fire) => fire.run(),
        CliCommand::Get(get) => get.run(),
        CliCommand::History(history) => history.run(),
        CliCommand::Key(key) => key.run(),
        CliCommand::List(list) => list.run(),
        CliCommand::Lifecycle(lifecycle) => lifecycle.run(),
        CliCommand::Migrate(migrate) => migrate.run(),
        CliCommand::New(new) => new.run(),
        CliCommand::Prune(prune) => prune.run(),
        CliCommand::Serve(serve) => serve.run(),
        CliCommand::Verify(verify) => verify.run(),
        CliCommand::Watch(watch) => watch.run(),
        CliCommand::WebhookSecret(secret) => secret.run(),
        CliCommand::Work(work) => work.run(),
        CliCommand::Workers(workers) => workers.run(),
    };
    let status = result.unwrap_or_else(|error| {
        // The command could not start: for example, a file is missing or a name is unknown.
        output::print_stderr(&format!("error: {error:#}\n"));
        output::CommandStatus::UsageError
    });
    stderr_thread::flush();
    status.into()
}
