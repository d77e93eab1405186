//! `onceward work`: runs a command for each job.

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

/// Run a worker that starts a command for each job
///
/// The command reads the payload from standard input and writes the result to standard output, at most 1 MB: JSON, otherwise text,
/// otherwise bytes. Its environment has `ONCEWARD_ID`, `ONCEWARD_LIFECYCLE`, `ONCEWARD_OWNER`, `ONCEWARD_EXECUTION`, `ONCEWARD_ATTEMPT`,
/// `ONCEWARD_TOKEN`, `ONCEWARD_FIELDS` (JSON), `ONCEWARD_URL` and, if the job has one, `TRACEPARENT`.
///
/// The command's exit code decides: 0 commits the result; after 75, or if a signal kills the command, the job fails and may be retried; 126
/// and 127 (the command cannot be run) yield the job and stop the worker; any other code fails the job permanently. The last line on standard
/// error is the error message; in `CODE: message`, CODE is the error code.
///
/// Heartbeats keep the lease while the command runs. The worker ends the command and its children when the lease is lost, the job must stop,
/// or the worker itself ends; docs/workers.md describes the exceptions. After SIGTERM or Ctrl-C, commands may finish within --grace; then the
/// worker yields their jobs. A second signal ends the worker at once.
///
/// Exit codes: 0 a signal ended the worker, or no job is left with --until-idle; 1 the command cannot be run, the server refuses the worker,
/// or a second signal came; 2 invalid arguments, or with --until-idle the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward work execution.job -- wc -w\n  onceward work execution.job --concurrency 4 --timeout 5m -- sh -c 'convert - png:- > out/$ONCEWARD_ID.png'"
)]
pub(crate) struct WorkArgs {
    /// Name of the lifecycle
    lifecycle: String,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Maximum number of jobs that run at the same time
    #[arg(long, default_value = "1", value_name = "N", value_parser = parse_concurrency)]
    concurrency: NonZeroUsize,
    /// Name of the worker. Default: host name and process id
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Lease duration, such as 30s. Default: the lease of the lifecycle
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    lease: Option<Length>,
    /// Maximum run time of a command, such as 5m; then its job fails with TIMEOUT and may be retried. Default: no limit
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    timeout: Option<Length>,
    /// Time that commands have to finish after the first signal, including --kill-after
    #[arg(long, default_value = "25s", value_name = "TIME", value_parser = parse_duration)]
    grace: Length,
    /// Time between SIGTERM and SIGKILL when the worker ends a command
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_duration)]
    kill_after: Length,
    /// Type of the result on standard output
    #[arg(long, default_value = "auto", value_name = "KIND")]
    result: ResultFormat,
    /// Exit when no job is left, or if the server cannot be reached at the start
    #[arg(long)]
    until_idle: bool,
    /// Pass a JSON string payload with its quotes instead of as plain text
    #[arg(long)]
    raw: bool,
    /// Pass the worker's API key to commands in `ONCEWARD_KEY`
    #[arg(long)]
    pass_key: bool,
    /// Format of the log. Default: human on a terminal, otherwise json. `ONCEWARD_LOG` sets the level
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    #[command(flatten)]
    remote: ServerArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum ResultFormat {
    /// JSON if it is valid JSON, otherwise text, otherwise bytes
    Auto,
    Json,
    Text,
    Bytes,
}

fn parse_duration(text: &str) -> Result<Length, String> {
    let invalid = || format!("`{text}` is not a duration; examples: 500ms, 30s, 5m, 2h");
    let micros = text.parse::<Duration>().map_err(|_| invalid())?.micros();
    u64::try_from(micros).map(Length::from_micros).map_err(|_| invalid())
}

/// Rejects zero: every command would time out at once.
fn parse_positive_duration(text: &str) -> Result<Length, String> {
    match parse_duration(text)? {
        Length::ZERO => Err("the duration must be greater than zero".to_owned()),
        length => Ok(length),
    }
}

fn parse_concurrency(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number of 1 or more".to_owned())
}

impl WorkArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let format = logging::start(self.log_format)?;
        let client = self.remote.worker_client()?;
        // Without this, the commands could read the API key in `/proc/PID/environ`.
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
                SelfLauncher::current_program(&[SUPERVISE_COMMAND]).context("cannot find the path of this program")?,
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
        let (worker, lifecycle, server) = (&config.name, &self.lifecycle, client.server_url());
        match format {
            LogFormat::Human => print_stderr(&format!("worker {worker} leases jobs of {lifecycle} from {server}\n")),
            LogFormat::Json => tracing::info!(worker, lifecycle, server, "worker started"),
        }
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
            Ok(CommandWorkerExit::CannotRun(reason)) => {
                print_stderr(&format!("error: the command cannot be run: {reason}\n"));
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

/// Forwards a line of a command's standard error in the log's format, regardless of the log level.
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
/// signal exits at once, and the supervisors kill the commands.
fn shutdown_signal(format: LogFormat) -> Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let terminal_closed = hangup_signal()?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = terminal_closed => {}
        }
        match format {
            LogFormat::Human => print_stderr(
                "draining: running commands may finish within the grace period; a second signal stops the worker at once\n",
            ),
            LogFormat::Json => tracing::info!("worker is draining; a second signal stops the worker at once"),
        }
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
