//! One program from its start to its verdict. Whoever drops this drops the line to the supervisor, and with it the program.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};

use crate::command::lifeline::Lifeline;
use crate::command::verdict::{self, Verdict};
use crate::command::worker::Commands;
use crate::command::{complaints, orphans};
use crate::payload::Payload;
use crate::wire::Backoff;
use crate::work::{Failure, Job, SIZE_EXCEEDED, Stopping, until};

/// Bytes of a result.
const LARGEST_RESULT: usize = 1 << 20;

/// One value of the environment must fit into what the kernel takes, 128 KB.
const LARGEST_FIELDS: usize = 100 << 10;

/// For what a program that has ended still has in its pipes.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long to go on trying to start a process, on a machine that has none to spare.
const STARTING: Duration = Duration::from_secs(10);

/// Whoever ends the worker may send its signal to the program as well, and before the worker.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Why a program was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    TimedOut,
    TooLarge,
    Stopping,
}

pub(super) async fn run(commands: &Commands, url: &str, job: &Job) -> Verdict {
    let yielded = || Verdict::Failed(Failure::yielded());
    let Some(mut child) = start_patiently(commands, url, job).await else { return yielded() };
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return yielded();
    };
    let mut line = Lifeline(stdin);
    let as_bytes = if commands.raw { Payload::into_raw } else { Payload::into_bytes };
    let payload = job.payload().cloned().map(as_bytes).unwrap_or_default();
    // Should it not be heard, the program has ended already, and how is told below.
    let _ = line.send_payload(&payload).await;
    drop(payload);
    let mut output = Vec::new();
    let (status, cause, last) = {
        let mut reading = std::pin::pin!(read_result(stdout, &mut output));
        let mut complaints = std::pin::pin!(complaints::pass_on(stderr, job.record.id, job.token, &commands.tell));
        let (mut is_read, mut last, mut cause) = (false, None, None);
        let mut time_is_up = commands.timeout.map(|timeout| Instant::now() + timeout);
        let (mut stop, mut is_kept) = (job.stop.clone(), true);
        let mut lease = job.held.watch();
        stop.mark_changed();
        lease.mark_changed();
        let status = loop {
            tokio::select! {
                biased;
                fits = &mut reading, if !is_read => {
                    is_read = true;
                    if !fits {
                        cause = Some(Cause::TooLarge);
                        line.kill().await;
                    }
                }
                said = &mut complaints, if last.is_none() => last = Some(said),
                status = child.wait() => break status,
                // The supervisor knows the lease, too: should this process be stopped or stuck, the program still ends with it.
                Ok(()) = lease.changed() => {
                    let gone = *lease.borrow_and_update();
                    line.leased(gone.saturating_duration_since(Instant::now())).await;
                }
                changed = stop.changed(), if is_kept => {
                    is_kept = changed.is_ok();
                    let why = *stop.borrow_and_update();
                    match why {
                        None => {}
                        Some(Stopping::Asked) => {
                            cause = cause.or(Some(Cause::Stopping));
                            line.terminate(commands.kill_after).await;
                        }
                        // It may finish by itself; what is left of the grace then is for ending it.
                        Some(Stopping::Closing) => {
                            let closing = Instant::now() + commands.grace.saturating_sub(commands.kill_after);
                            time_is_up = Some(time_is_up.map_or(closing, |up| up.min(closing)));
                        }
                        // The lease is gone, or as good as gone: so is the program.
                        Some(Stopping::Lost) => {
                            cause = cause.or(Some(Cause::Stopping));
                            line.kill().await;
                        }
                    }
                }
                () = until(time_is_up) => {
                    time_is_up = None;
                    let is_closing = *stop.borrow() == Some(Stopping::Closing);
                    cause = cause.or(Some(if is_closing { Cause::Stopping } else { Cause::TimedOut }));
                    line.terminate(commands.kill_after).await;
                }
            }
        };
        if status.as_ref().is_ok_and(|status| status.signal().is_some()) {
            // It may have been the supervisor that was killed; then it has not seen to what the program left.
            orphans::sweep(&job.execution).await;
        }
        // Something that could not be killed may keep the pipes open: what it says is not waited for.
        let late = Instant::now() + LAST_WORDS;
        if !is_read && timeout_at(late, reading).await.is_ok_and(|fits| !fits) {
            cause = Some(Cause::TooLarge);
        }
        let last = match last {
            Some(last) => last,
            None => timeout_at(late, complaints).await.unwrap_or_default(),
        };
        (status, cause, last)
    };
    match (cause, status) {
        (None, Ok(status)) if is_told_to_end(status) && closes_with_it(job).await => yielded(),
        // A program that was told to end may well end with 0, without having done its work.
        (Some(Cause::Stopping), _) | (_, Err(_)) => yielded(),
        (Some(Cause::TimedOut), _) => {
            let limit = commands.timeout.unwrap_or_default();
            Verdict::Failed(Failure::retryable("TIMEOUT", format!("still running after {} s", limit.as_secs_f64())))
        }
        (Some(Cause::TooLarge), _) => {
            let message = format!("the result has more than {LARGEST_RESULT} bytes");
            Verdict::Failed(Failure::terminal(SIZE_EXCEEDED, message))
        }
        (None, Ok(status)) => verdict::of(status, output, &last),
    }
}

/// By somebody else's SIGTERM, SIGINT or SIGHUP.
fn is_told_to_end(status: ExitStatus) -> bool {
    status.signal().is_some_and(|signal| [1, 2, 15].contains(&signal))
}

/// Whether the worker is to end, too: then it was a signal to all of its processes, and the job did not fail.
async fn closes_with_it(job: &Job) -> bool {
    tokio::time::timeout(SAME_SIGNAL, job.stopped()).await.is_ok()
}

/// The job is held meanwhile: given back, it or the next would be here again at once.
async fn start_patiently(commands: &Commands, url: &str, job: &Job) -> Option<Child> {
    let until = Instant::now() + STARTING;
    let mut backoff = Backoff::default();
    loop {
        let error = match start(commands, url, job) {
            Ok(child) => return Some(child),
            Err(error) => error,
        };
        let pause = backoff.pause();
        if Instant::now() + pause > until || tokio::time::timeout(pause, job.stopped()).await.is_ok() {
            tracing::warn!(%error, "cannot start a process: the job is given back");
            return None;
        }
    }
}

fn start(commands: &Commands, url: &str, job: &Job) -> std::io::Result<Child> {
    let mut command = Command::new(&commands.supervisor.program);
    if let Some(name) = &commands.supervisor.name {
        command.arg0(name);
    }
    command
        .args(&commands.supervisor.arguments)
        .arg("--")
        .args(&commands.command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // What a terminal tells the worker, by Ctrl-C say, is for the worker alone to pass on.
        .process_group(0)
        .env("ONCEWARD_ID", job.record.id.to_string())
        .env("ONCEWARD_LIFECYCLE", &job.record.lifecycle)
        .env("ONCEWARD_OWNER", &job.record.owner)
        .env("ONCEWARD_EXECUTION", &*job.execution)
        .env("ONCEWARD_ATTEMPT", job.token.to_string())
        .env("ONCEWARD_TOKEN", job.token.to_string())
        .env("ONCEWARD_URL", url);
    let fields = serde_json::to_string(&job.record.fields).unwrap_or_default();
    match fields.len() {
        ..=LARGEST_FIELDS => command.env("ONCEWARD_FIELDS", fields),
        _ => command.env_remove("ONCEWARD_FIELDS"),
    };
    match &job.traceparent {
        Some(traceparent) => command.env("TRACEPARENT", &**traceparent),
        None => command.env_remove("TRACEPARENT"),
    };
    match &commands.key {
        Some(key) => command.env("ONCEWARD_KEY", key),
        None => command.env_remove("ONCEWARD_KEY"),
    };
    command.spawn()
}

/// Whether it fits.
async fn read_result(from: impl AsyncRead + Unpin, output: &mut Vec<u8>) -> bool {
    // One byte more than may be, to tell. What cannot be read is at its end.
    let _ = from.take(LARGEST_RESULT as u64 + 1).read_to_end(output).await;
    output.len() <= LARGEST_RESULT
}
