//! Runs one command. Dropping the future closes the pipe to the supervisor, which then kills the command.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};

use crate::command::control_pipe::ControlPipe;
use crate::command::exit_status::{self, ProcessOutcome};
use crate::command::worker::CommandWorker;
use crate::command::{process_cleanup, stderr};
use crate::payload::Payload;
use crate::transport::Backoff;
use crate::work::{Failure, Job, SIZE_EXCEEDED_CODE, StopReason, sleep_until_deadline};

/// The server's limit on results.
const MAX_RESULT_BYTES: usize = 1 << 20;

/// Below the kernel's limit of 128 KB per environment variable.
const MAX_FIELDS_ENV_BYTES: usize = 100 << 10;

/// Time to read what remains in the pipes after the command has ended.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to retry if the machine cannot start a process.
const SPAWN_RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// A signal to the whole process group may reach the command before the worker. Wait this long for the worker's own
/// shutdown.
const SHARED_SIGNAL_TIMEOUT: Duration = Duration::from_millis(500);

/// Why a command was terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TerminationCause {
    TimedOut,
    ResultTooLarge,
    StopRequested,
}

pub(super) async fn run_command(config: &CommandWorker, server_url: &str, job: &Job) -> ProcessOutcome {
    let yielded = || ProcessOutcome::Failed(Failure::yielded());
    let Some(mut child) = spawn_with_retries(config, server_url, job).await else { return yielded() };
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return yielded();
    };
    let mut control_pipe = ControlPipe(stdin);
    let as_bytes = if config.raw_payload { Payload::into_raw_bytes } else { Payload::into_stdin_bytes };
    let payload = job.payload().cloned().map(as_bytes).unwrap_or_default();
    // If this fails, the command has already ended; the exit status below tells how.
    let _ = control_pipe.send_payload(&payload).await;
    drop(payload);
    let mut output = Vec::new();
    let (status, cause, last) = {
        let mut read_output = std::pin::pin!(read_bounded_result(stdout, &mut output));
        let mut forward_stderr =
            std::pin::pin!(stderr::forward_stderr(stderr, job.record.id, job.token, &config.on_stderr_line));
        let (mut is_output_read, mut last_line, mut cause) = (false, None, None);
        let mut deadline = config.timeout.map(|timeout| Instant::now() + timeout);
        let (mut stop, mut is_stop_watched) = (job.stop_receiver.clone(), true);
        let mut lease = job.held_lease.subscribe_expiry();
        stop.mark_changed();
        lease.mark_changed();
        let status = loop {
            tokio::select! {
                biased;
                fits = &mut read_output, if !is_output_read => {
                    is_output_read = true;
                    if !fits {
                        cause = Some(TerminationCause::ResultTooLarge);
                        control_pipe.send_kill().await;
                    }
                }
                line = &mut forward_stderr, if last_line.is_none() => last_line = Some(line),
                status = child.wait() => break status,
                // The supervisor enforces the lease, too, in case this process is stopped or stuck.
                Ok(()) = lease.changed() => {
                    let expires_at = *lease.borrow_and_update();
                    control_pipe.send_lease(expires_at.saturating_duration_since(Instant::now())).await;
                }
                changed = stop.changed(), if is_stop_watched => {
                    is_stop_watched = changed.is_ok();
                    let why = *stop.borrow_and_update();
                    match why {
                        None => {}
                        Some(StopReason::Requested) => {
                            cause = cause.or(Some(TerminationCause::StopRequested));
                            control_pipe.send_terminate(config.kill_after).await;
                        }
                        // Let it finish within the grace period, minus the time that termination takes.
                        Some(StopReason::Closing) => {
                            let closing = Instant::now() + config.shutdown_grace.saturating_sub(config.kill_after);
                            deadline = Some(deadline.map_or(closing, |up| up.min(closing)));
                        }
                        // The lease is lost or about to be, so kill the command.
                        Some(StopReason::LeaseLost) => {
                            cause = cause.or(Some(TerminationCause::StopRequested));
                            control_pipe.send_kill().await;
                        }
                    }
                }
                () = sleep_until_deadline(deadline) => {
                    deadline = None;
                    let is_closing = *stop.borrow() == Some(StopReason::Closing);
                    cause = cause.or(Some(if is_closing { TerminationCause::StopRequested } else { TerminationCause::TimedOut }));
                    control_pipe.send_terminate(config.kill_after).await;
                }
            }
        };
        if status.as_ref().is_ok_and(|status| status.signal().is_some()) {
            // A signal may have killed the supervisor instead of the command, before it could clean up.
            process_cleanup::kill_execution_processes(&job.execution).await;
        }
        // A process that survived may hold the pipes open; do not wait for it.
        let drain_deadline = Instant::now() + PIPE_DRAIN_TIMEOUT;
        if !is_output_read && timeout_at(drain_deadline, read_output).await.is_ok_and(|fits| !fits) {
            cause = Some(TerminationCause::ResultTooLarge);
        }
        let last_line = match last_line {
            Some(last) => last,
            None => timeout_at(drain_deadline, forward_stderr).await.unwrap_or_default(),
        };
        (status, cause, last_line)
    };
    match (cause, status) {
        (None, Ok(status)) if is_termination_signal(status) && is_worker_closing(job).await => yielded(),
        // A terminated command may exit with 0 without having done its work.
        (Some(TerminationCause::StopRequested), _) | (_, Err(_)) => yielded(),
        (Some(TerminationCause::TimedOut), _) => {
            let limit = config.timeout.unwrap_or_default();
            ProcessOutcome::Failed(Failure::retryable(
                "TIMEOUT",
                format!("the command was still running after {} s", limit.as_secs_f64()),
            ))
        }
        (Some(TerminationCause::ResultTooLarge), _) => {
            let message = format!("the result exceeds {MAX_RESULT_BYTES} bytes");
            ProcessOutcome::Failed(Failure::terminal(SIZE_EXCEEDED_CODE, message))
        }
        (None, Ok(status)) => exit_status::from_exit_status(status, output, &last),
    }
}

/// Whether SIGHUP, SIGINT or SIGTERM from outside ended the command.
fn is_termination_signal(status: ExitStatus) -> bool {
    status.signal().is_some_and(|signal| [1, 2, 15].contains(&signal))
}

/// Returns whether the worker shuts down, too. If so, the signal went to the whole process group, and the job did
/// not fail.
async fn is_worker_closing(job: &Job) -> bool {
    tokio::time::timeout(SHARED_SIGNAL_TIMEOUT, job.wait_for_stop()).await.is_ok()
}

/// Starts the supervisor with retries. The job is held meanwhile, because a returned job would come back at once.
async fn spawn_with_retries(config: &CommandWorker, server_url: &str, job: &Job) -> Option<Child> {
    let deadline = Instant::now() + SPAWN_RETRY_TIMEOUT;
    let mut backoff = Backoff::default();
    loop {
        let error = match spawn_supervisor(config, server_url, job) {
            Ok(child) => return Some(child),
            Err(error) => error,
        };
        let delay = backoff.next_delay();
        if Instant::now() + delay > deadline || tokio::time::timeout(delay, job.wait_for_stop()).await.is_ok() {
            tracing::warn!(%error, "starting a process failed; the job is yielded");
            return None;
        }
    }
}

fn spawn_supervisor(config: &CommandWorker, server_url: &str, job: &Job) -> std::io::Result<Child> {
    let mut command = Command::new(&config.supervisor.program);
    if let Some(name) = &config.supervisor.name {
        command.arg0(name);
    }
    command
        .args(&config.supervisor.arguments)
        .arg("--")
        .args(&config.command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C in a terminal must reach only the worker, which stops the commands itself.
        .process_group(0)
        .env("ONCEWARD_ID", job.record.id.to_string())
        .env("ONCEWARD_LIFECYCLE", &job.record.lifecycle)
        .env("ONCEWARD_OWNER", &job.record.owner)
        .env("ONCEWARD_EXECUTION", &*job.execution)
        .env("ONCEWARD_ATTEMPT", job.token.to_string())
        .env("ONCEWARD_TOKEN", job.token.to_string())
        .env("ONCEWARD_URL", server_url);
    let fields = serde_json::to_string(&job.record.fields).unwrap_or_default();
    match fields.len() {
        ..=MAX_FIELDS_ENV_BYTES => command.env("ONCEWARD_FIELDS", fields),
        _ => command.env_remove("ONCEWARD_FIELDS"),
    };
    match &job.traceparent {
        Some(traceparent) => command.env("TRACEPARENT", &**traceparent),
        None => command.env_remove("TRACEPARENT"),
    };
    match &config.api_key {
        Some(key) => command.env("ONCEWARD_KEY", key),
        None => command.env_remove("ONCEWARD_KEY"),
    };
    command.spawn()
}

/// Reads the output and returns whether it fits the limit.
async fn read_bounded_result(stdout: impl AsyncRead + Unpin, output: &mut Vec<u8>) -> bool {
    // One byte more than the limit, to detect longer output. A read error counts as the end.
    let _ = stdout.take(MAX_RESULT_BYTES as u64 + 1).read_to_end(output).await;
    output.len() <= MAX_RESULT_BYTES
}
