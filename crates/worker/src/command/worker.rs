//! The configuration of a command worker, and the worker.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::client::Client;
use crate::command::exit_status::{self, ProcessOutcome, ResultKind};
use crate::command::process;
use crate::command::process_cleanup;
use crate::command::stderr::{StderrLine, StderrSink};
use crate::error::ClientError;
use crate::work::{Failure, Handler, WorkerConfig};

/// How to start the current executable again in another role: as supervisor it must call
/// [`supervise`](crate::supervise), as the command's process [`execute`](crate::execute).
#[derive(Clone, Debug)]
pub struct SelfLauncher {
    pub program: PathBuf,
    /// Name in process lists.
    pub name: Option<OsString>,
    /// Arguments that select the role.
    pub arguments: Vec<OsString>,
}

impl SelfLauncher {
    /// Returns a launcher of the current executable with these arguments.
    pub fn current_program(arguments: &[&str]) -> std::io::Result<Self> {
        let program = current_executable()?;
        let name = std::env::args_os().next();
        Ok(Self { program, name, arguments: arguments.iter().map(Into::into).collect() })
    }
}

/// Works even if the file was replaced by a newer version.
fn current_executable() -> std::io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// Which command to run for each job, and how.
#[derive(Clone)]
pub struct CommandWorker {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    pub supervisor: SelfLauncher,
    /// A command that runs longer is stopped, and its job fails with a retryable error.
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL.
    pub kill_after: Duration,
    /// How long commands may continue when the worker shuts down.
    pub shutdown_grace: Duration,
    pub result_kind: ResultKind,
    /// Whether commands get a payload that is a JSON string unchanged, with its quotes, instead of as plain text.
    pub raw_payload: bool,
    /// API key for the command's environment; `None` removes the worker's own.
    pub api_key: Option<String>,
    /// Receives the lines that commands write to standard error.
    pub on_stderr_line: Arc<dyn Fn(&StderrLine<'_>) + Send + Sync>,
}

impl fmt::Debug for CommandWorker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CommandWorker").field("command", &self.command).finish_non_exhaustive()
    }
}

/// How a command worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandWorkerExit {
    /// The worker was closed, or no job was ready.
    Closed,
    /// The command cannot be run on this machine.
    CannotRun(String),
}

impl CommandWorker {
    pub fn new(command: Vec<OsString>, supervisor: SelfLauncher) -> Self {
        let on_stderr_line: StderrSink = Arc::new(|line| tracing::info!("{line}"));
        Self {
            command,
            supervisor,
            timeout: None,
            kill_after: Duration::from_secs(5),
            shutdown_grace: Duration::from_secs(30),
            result_kind: ResultKind::Auto,
            raw_payload: false,
            api_key: None,
            on_stderr_line,
        }
    }

    /// Runs the command for each job until `shutdown` completes, then lets running commands finish within the grace
    /// period. On Linux, this process becomes the parent of orphaned descendants, so that it can kill what a killed
    /// supervisor left behind.
    pub async fn run(
        self,
        client: &Client,
        config: WorkerConfig,
        shutdown: impl Future<Output = ()>,
    ) -> Result<CommandWorkerExit, ClientError> {
        process_cleanup::become_subreaper();
        let grace = self.shutdown_grace;
        let (cannot_run_sender, mut cannot_run) = watch::channel(None::<String>);
        let (command_worker, server_url) = (Arc::new(self), client.server_url());
        let handler: Handler = Arc::new(move |job| {
            let (commands, url, cannot) = (Arc::clone(&command_worker), server_url.clone(), cannot_run_sender.clone());
            Box::pin(async move {
                match process::run_command(&commands, &url, &job).await {
                    ProcessOutcome::Succeeded(output) => exit_status::result_from_stdout(output, commands.result_kind),
                    ProcessOutcome::Failed(failure) => Err(failure),
                    ProcessOutcome::CannotRun(why) => {
                        cannot.send_replace(Some(why));
                        // A worker that still runs would lease the returned job again.
                        job.wait_for_stop().await;
                        Err(Failure::yielded())
                    }
                }
            })
        });
        // One second more than the commands' own grace period, so that they end before their handlers are dropped.
        let config = WorkerConfig { shutdown_grace: grace + Duration::from_secs(1), ..config };
        let worker = client.start_worker(config, handler);
        tokio::select! {
            ended = worker.wait() => ended?,
            () = shutdown => worker.close().await?,
            () = wait_for_cannot_run(&mut cannot_run) => worker.close().await?,
        }
        let why = cannot_run.borrow().clone();
        Ok(why.map_or(CommandWorkerExit::Closed, CommandWorkerExit::CannotRun))
    }
}

async fn wait_for_cannot_run(cannot_run: &mut watch::Receiver<Option<String>>) {
    if cannot_run.wait_for(Option::is_some).await.is_err() {
        // All senders are gone.
        std::future::pending::<()>().await;
    }
}
