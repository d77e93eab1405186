//! The supervisor: a process beside each command that a worker runs. It kills the command when the pipe to the worker
//! closes, and ends with the command.
//!
//! ```text
//! worker ──▶ supervise ──▶ execute, which becomes the command
//!   pipe: payload, stop     own process group; killed when the supervisor dies
//! ```

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

use crate::command::control_pipe::{self, ControlMessage};
use crate::command::exit_status::EX_TEMPFAIL;
use crate::command::process_cleanup::{self, CLEANUP_POLL_INTERVAL, CLEANUP_TIMEOUT, child_pids};
use crate::command::worker::SelfLauncher;

/// Exit codes that shells use for these errors.
const EXIT_CANNOT_RUN: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;

/// A machine without free processes or memory may recover within seconds.
const SPAWN_RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_SPAWN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Passed instead of the supervisor's pid to make [`execute`] die by a signal.
const NO_SUPERVISOR_PID: u32 = 0;

/// A terminal or service manager may signal all processes. The worker handles that and tells the supervisor over
/// the pipe.
const NOOP_HANDLED_SIGNALS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// How the command ended.
#[derive(Clone, Copy, Debug)]
enum ProgramExit {
    Code(u8),
    Signal(i32),
}

enum SupervisorEvent {
    ProgramExited(ProgramExit),
    MessageReceived(ControlMessage),
}

/// Runs a command under supervision and exits as the command does. `launcher` starts a process that calls
/// [`execute`]; `command` includes the arguments.
pub fn supervise(launcher: &SelfLauncher, command: &[OsString]) -> ExitCode {
    install_noop_signal_handlers();
    process_cleanup::become_subreaper();
    let (child, stdin) = match retry_spawn(|| spawn_program(launcher, command)) {
        Ok(started) => started,
        Err(error) => {
            let _ = writeln!(io::stderr(), "onceward: cannot start a process: {error}");
            return ExitCode::from(u8::try_from(EX_TEMPFAIL).unwrap_or(EXIT_CANNOT_RUN));
        }
    };
    let pid = Pid::from_child(&child);
    let (event_sender, events) = mpsc::channel();
    spawn_control_reader(stdin, event_sender.clone());
    std::thread::spawn(move || {
        let _ = event_sender.send(SupervisorEvent::ProgramExited(wait_for_exit(pid)));
    });
    let exit = supervise_until_exit(pid, &events);
    kill_descendants(pid);
    exit_like(launcher, exit)
}

/// Installs handlers that do nothing. Unlike ignored signals, the command does not inherit them. The handlers
/// remain after the runtime is dropped.
fn install_noop_signal_handlers() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    let _inside = runtime.enter();
    for ignored in NOOP_HANDLED_SIGNALS {
        let _ = signal(SignalKind::from_raw(ignored.as_raw()));
    }
}

/// Retries for a while, because the command did not cause the failure.
fn retry_spawn<T>(mut start: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + SPAWN_RETRY_TIMEOUT;
    let mut delay = Duration::from_millis(20);
    loop {
        match start() {
            Err(_) if Instant::now() + delay < deadline => std::thread::sleep(delay),
            done => return done,
        }
        delay = (delay * 2).min(MAX_SPAWN_RETRY_DELAY);
    }
}

fn spawn_program(execute: &SelfLauncher, command: &[OsString]) -> io::Result<(Child, ChildStdin)> {
    let mut child = launcher_command(execute)
        .arg(std::process::id().to_string())
        .arg("--")
        .args(command)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok((child, stdin))
}

fn launcher_command(execute: &SelfLauncher) -> Command {
    let mut command = Command::new(&execute.program);
    if let Some(name) = &execute.name {
        command.arg0(name);
    }
    command.args(&execute.arguments);
    command
}

/// Passes the payload to the command, and the worker's messages to the supervisor.
fn spawn_control_reader(mut stdin: ChildStdin, event_sender: mpsc::Sender<SupervisorEvent>) {
    std::thread::spawn(move || {
        let mut control = io::stdin().lock();
        match control_pipe::read_payload(&mut control) {
            Ok(payload) => {
                // In its own thread, because a command that does not read its input must not block messages.
                std::thread::spawn(move || {
                    // Fails if the command does not read all of its input, which is fine.
                    let _ = stdin.write_all(&payload);
                });
            }
            Err(_) => drop(stdin),
        }
        loop {
            let message = control_pipe::read_message(&mut control);
            // `Kill` is the last message.
            if event_sender.send(SupervisorEvent::MessageReceived(message)).is_err() || message == ControlMessage::Kill
            {
                return;
            }
        }
    });
}

/// Does not reap the command, so that its pid, which is also its group id, is not reused.
fn wait_for_exit(pid: Pid) -> ProgramExit {
    loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Ok(Some(status)) => {
                let code = |code: i32| ProgramExit::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX));
                let signal = status.terminating_signal().map(ProgramExit::Signal);
                return signal.or(status.exit_status().map(code)).unwrap_or(ProgramExit::Signal(Signal::KILL.as_raw()));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ProgramExit::Signal(Signal::KILL.as_raw()),
        }
    }
}

fn supervise_until_exit(pid: Pid, events: &mpsc::Receiver<SupervisorEvent>) -> ProgramExit {
    // Each heartbeat extends the first; the earlier one applies.
    let (mut lease_deadline, mut grace_deadline): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let next = match lease_deadline.into_iter().chain(grace_deadline).min() {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(end) => events.recv_timeout(end.saturating_duration_since(Instant::now())),
        };
        // A duration beyond the clock's range means no deadline.
        let end = |length: Duration| Instant::now().checked_add(length);
        match next {
            Ok(SupervisorEvent::ProgramExited(ended)) => return ended,
            Ok(SupervisorEvent::MessageReceived(ControlMessage::LeaseRemaining(rest))) => lease_deadline = end(rest),
            Ok(SupervisorEvent::MessageReceived(ControlMessage::Terminate(length))) => {
                let _ = rustix::process::kill_process_group(pid, Signal::TERM);
                grace_deadline = grace_deadline.into_iter().chain(end(length)).min();
            }
            // Afterwards, `kill_descendants` kills the command.
            Ok(SupervisorEvent::MessageReceived(ControlMessage::Kill)) | Err(_) => {
                return ProgramExit::Signal(Signal::KILL.as_raw());
            }
        }
    }
}

/// Kills the command's process group and the orphans that left it.
fn kill_descendants(pid: Pid) {
    let deadline = Instant::now() + CLEANUP_TIMEOUT;
    let mut is_reaped = false;
    loop {
        if !is_reaped {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        for orphan in child_pids() {
            let _ = rustix::process::kill_process(orphan, Signal::KILL);
        }
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((dead, _))) => is_reaped |= dead == pid,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(CLEANUP_POLL_INTERVAL),
            Err(rustix::io::Errno::INTR) => {}
            // No children are left, or they cannot be killed.
            _ => return,
        }
    }
}

/// Exits like the command, because the worker examines this process's exit status.
fn exit_like(execute: &SelfLauncher, exit: ProgramExit) -> ExitCode {
    let signal = match exit {
        ProgramExit::Code(code) => return ExitCode::from(code),
        ProgramExit::Signal(signal) => Signal::from_named_raw(signal).unwrap_or(Signal::KILL),
    };
    if NOOP_HANDLED_SIGNALS.contains(&signal) {
        // This process has handlers for these signals, so replace it by one without them.
        let number = signal.as_raw().to_string();
        let _ = launcher_command(execute).arg(NO_SUPERVISOR_PID.to_string()).arg("--").arg(number).exec();
    }
    die_by_signal(signal)
}

fn die_by_signal(signal: Signal) -> ExitCode {
    // The command has already dumped core, if it was configured to.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    // Twice, because the first may only remove a handler.
    for signal in [signal, signal, Signal::KILL] {
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    ExitCode::FAILURE
}

/// Replaces this process by the command, which is killed when the supervisor dies. Returns only on failure.
pub fn execute(supervisor_pid: u32, command: &[OsString]) -> ExitCode {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The supervisor may have died before the death signal was set.
    let parent = rustix::process::getppid().map(Pid::as_raw_nonzero).and_then(|pid| u32::try_from(pid.get()).ok());
    let Some((program, arguments)) = command.split_first() else { return ExitCode::from(EXIT_CANNOT_RUN) };
    if supervisor_pid == NO_SUPERVISOR_PID {
        let signal = program.to_str().and_then(|signal| signal.parse().ok()).and_then(Signal::from_named_raw);
        return die_by_signal(signal.unwrap_or(Signal::KILL));
    }
    if parent != Some(supervisor_pid) {
        return ExitCode::from(EXIT_CANNOT_RUN);
    }
    let error = Command::new(program).args(arguments).exec();
    let _ = writeln!(io::stderr(), "onceward: cannot run {}: {error}", program.display());
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_CANNOT_RUN })
}
