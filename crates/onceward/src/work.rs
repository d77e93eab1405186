//! `onceward work`: runs a program for each job.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration as Length;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use onceward_core::time::Duration;
use onceward_worker::{CommandWorker, CommandWorkerExit, ResultKind, SelfLauncher, StderrLine, WorkerConfig};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::logging::{self, LogFormat};
use crate::output::{CommandStatus, print_stderr};
use crate::remote::ServerArgs;
use crate::sighup::hangup_signal;
use crate::supervise::SUPERVISE_COMMAND;

/// Run a program for each job
///
/// The payload comes on its standard input; what it writes to standard output is the result, 1 MB at most: JSON, or else text, or else
/// bytes. In its environment it finds `ONCEWARD_ID`, `ONCEWARD_LIFECYCLE`, `ONCEWARD_OWNER`, `ONCEWARD_EXECUTION`, `ONCEWARD_ATTEMPT`,
/// `ONCEWARD_TOKEN`, `ONCEWARD_FIELDS` (JSON) and `ONCEWARD_URL`.
///
/// Exit code 0 commits the result. 75, or death by a signal, fails retryably. 126 and 127 give the job back and stop the worker. Any
/// other code fails for good. The last line on standard error is the message; `CODE: message` names the error's code.
///
/// The lease is kept while the program runs. It and its children are ended when the lease is lost, the job is to stop, or the worker
/// ends, however it ends; docs/workers.md tells what can escape. SIGTERM or Ctrl-C lets programs that run finish within the grace, and
/// gives their jobs back after it; a second one ends at once.
///
/// Exits with 0 when it was told to end, or has nothing left to do; with 1 if the program cannot be run or the server refuses the
/// worker, or on the second signal; with 2 on misuse, or if with `--until-idle` the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward work execution.job -- wc -w\n  onceward work execution.job --concurrency 4 --timeout 5m -- sh -c 'convert - png:- > out/$ONCEWARD_ID.png'"
)]
pub(crate) struct WorkArgs {
    /// Jobs of this lifecycle
    lifecycle: String,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Jobs at the same time
    #[arg(long, default_value = "1", value_name = "N", value_parser = parse_concurrency)]
    concurrency: NonZeroUsize,
    /// What the worker calls itself; the machine's name and the process by default
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A shorter or longer lease than the lifecycle's own
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    lease: Option<Length>,
    /// A program that runs longer is ended, and its job fails with TIMEOUT, retryably
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    timeout: Option<Length>,
    /// How long programs may go on when the worker is to end; the last of it, as long as `--kill-after`, is for ending them
    #[arg(long, default_value = "25s", value_name = "TIME", value_parser = parse_duration)]
    grace: Length,
    /// Between asking a program to end (SIGTERM) and ending it (SIGKILL)
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_duration)]
    kill_after: Length,
    /// How standard output becomes the result
    #[arg(long, default_value = "auto", value_name = "KIND")]
    result: ResultFormat,
    /// End when there is no job left, instead of waiting for more; or when there is no server at first
    #[arg(long)]
    until_idle: bool,
    /// Give programs a payload that is a JSON string as it is, quotes and all, and not its text
    #[arg(long)]
    raw: bool,
    /// Let programs have the worker's key in `ONCEWARD_KEY`
    #[arg(long)]
    pass_key: bool,
    /// How the log is written; for people on a terminal, JSON otherwise. `ONCEWARD_LOG` says how much
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    #[command(flatten)]
    remote: ServerArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum ResultFormat {
    /// JSON where it is some, else text, else bytes
    Auto,
    Json,
    Text,
    Bytes,
}

fn parse_duration(text: &str) -> Result<Length, String> {
    let wrong = || format!("`{text}` is no length of time: write 500ms, 30s, 5m or 2h");
    let micros = text.parse::<Duration>().map_err(|_| wrong())?.micros();
    u64::try_from(micros).map(Length::from_micros).map_err(|_| wrong())
}

/// Rejects zero: every program would time out at once.
fn parse_positive_duration(text: &str) -> Result<Length, String> {
    match parse_duration(text)? {
        Length::ZERO => Err("it must be longer than nothing".to_owned()),
        length => Ok(length),
    }
}

fn parse_concurrency(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "it is a whole number from 1 on".to_owned())
}

impl WorkArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let format = logging::start(self.log_format)?;
        let client = self.remote.client()?;
        // Without this, the programs could read the API key in `/proc/PID/environ`.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
        let command_worker = CommandWorker {
            timeout: self.timeout,
            kill_after: self.kill_after.min(self.grace),
            shutdown_grace: self.grace,
            result_kind: match self.result {
                ResultFormat::Auto => ResultKind::Auto,
                ResultFormat::Json => ResultKind::Json,
                ResultFormat::Text => ResultKind::Text,
                ResultFormat::Bytes => ResultKind::Bytes,
            },
            raw_payload: self.raw,
            api_key: self.remote.api_key().filter(|_| self.pass_key).map(str::to_owned),
            on_stderr_line: Arc::new(move |line| forward_stderr_line(line, format)),
            ..CommandWorker::new(
                self.command.clone(),
                SelfLauncher::current_program(&[SUPERVISE_COMMAND]).context("cannot find myself")?,
            )
        };
        let config = WorkerConfig {
            name: self.name.clone().unwrap_or_else(default_worker_name),
            concurrency: self.concurrency.get(),
            lease: self.lease,
            until_idle: self.until_idle,
            ..WorkerConfig::for_lifecycle(&self.lifecycle)
        };
        // The second thread sends heartbeats while the first is busy.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        announce(format, &format!("{} works on {} at {}", config.name, self.lifecycle, client.server_url()));
        // A worker that runs on retries until the server is up. With `--until-idle` it would wait forever for an
        // unreachable server to report that no job is left.
        if self.until_idle
            && let Err(error) = runtime.block_on(client.lifecycles())
        {
            return self.remote.report_error(error, false);
        }
        let exit = runtime.block_on(async {
            let shutdown = shutdown_signal(format)?;
            anyhow::Ok(command_worker.run(&client, config, shutdown).await)
        })?;
        match exit {
            Ok(CommandWorkerExit::Closed) => Ok(CommandStatus::Success),
            Ok(CommandWorkerExit::CannotRun(why)) => {
                print_stderr(&format!("error: the command cannot be run: {why}\n"));
                Ok(CommandStatus::Failure)
            }
            Err(error) => self.remote.report_error(error, false),
        }
    }
}

fn default_worker_name() -> String {
    let machine = rustix::system::uname();
    format!("{}:{}", machine.nodename().to_string_lossy(), std::process::id())
}

/// Prints a message, or logs it if the log is JSON.
fn announce(format: LogFormat, text: &str) {
    match format {
        LogFormat::Human => print_stderr(&format!("{text}\n")),
        LogFormat::Json => tracing::info!("{text}"),
    }
}

/// Forwards a program's standard error line in the log's format, regardless of the log level.
fn forward_stderr_line(stderr_line: &StderrLine<'_>, format: LogFormat) {
    match format {
        LogFormat::Human => print_stderr(&format!("{stderr_line}\n")),
        LogFormat::Json => {
            let StderrLine { record, token, line } = stderr_line;
            let time = jiff::Timestamp::now();
            let log_line = json!({ "timestamp": time, "level": "INFO", "message": line, "record": record, "token": token, "target": "program" });
            print_stderr(&format!("{log_line}\n"));
        }
    }
}

/// Resolves on the first SIGTERM or SIGINT, or when the terminal is closed (unless SIGHUP is ignored). The second
/// signal exits at once, and the supervisors kill the programs.
fn shutdown_signal(format: LogFormat) -> Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let terminal_closed = hangup_signal()?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = terminal_closed => {}
        }
        announce(format, "ending: what runs may finish within the grace; a second signal ends at once");
        tokio::spawn(async move {
            // Only SIGTERM and SIGINT count as the second signal: the shell and the terminal may both send SIGHUP.
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(CommandStatus::Failure as i32);
        });
    })
}
