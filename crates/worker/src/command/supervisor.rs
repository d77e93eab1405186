//! The supervisor: a process of its own beside each program that a worker runs. It lives as long as the program, and the program at
//! most as long as the line to the worker.
//!
//! ```text
//! worker ──▶ supervise ──▶ execute, which becomes the program
//!   line: payload, stop     group of its own; signalled when the supervisor dies
//! ```

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

use crate::command::lifeline::{self, Word};
use crate::command::orphans::{self, GLANCE, SWEEPING, children};
use crate::command::verdict::TRY_AGAIN;
use crate::command::worker::Launcher;

/// As shells say it.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A machine that has no process or no memory to spare may have some in a moment.
const STARTING: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// In place of a supervisor's number, for what becomes no program but dies by a signal.
const NOBODY: u32 = 0;

/// What is sent to all processes of a terminal or of a unit is for the worker to mind: it tells us by the line what to do.
const UNMINDED: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// How the program ended.
#[derive(Clone, Copy, Debug)]
enum Ended {
    Code(u8),
    Signal(i32),
}

enum News {
    Ended(Ended),
    Heard(Word),
}

/// Run a program under supervision: `execute` starts what calls [`execute`]; `command` is the program with its arguments. Ends as
/// the program ends.
pub fn supervise(execute: &Launcher, command: &[OsString]) -> ExitCode {
    outlive_signals();
    orphans::adopt();
    let (child, stdin) = match patiently(|| start(execute, command)) {
        Ok(started) => started,
        Err(error) => {
            let _ = writeln!(io::stderr(), "onceward: cannot start a process: {error}");
            return ExitCode::from(u8::try_from(TRY_AGAIN).unwrap_or(CANNOT_RUN));
        }
    };
    let pid = Pid::from_child(&child);
    let (news, heard) = mpsc::channel();
    listen(stdin, news.clone());
    std::thread::spawn(move || {
        let _ = news.send(News::Ended(wait(pid)));
    });
    let ended = until_it_ends(pid, &heard);
    sweep(pid);
    end_like(execute, ended)
}

/// With handlers that do nothing: unlike signals that are ignored, those are not handed on to the program. They stay when the runtime
/// that set them up is gone.
fn outlive_signals() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    let _inside = runtime.enter();
    for unminded in UNMINDED {
        let _ = signal(SignalKind::from_raw(unminded.as_raw()));
    }
}

/// Nothing of it is the program's fault, so it is tried for a while.
fn patiently<T>(mut start: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + STARTING;
    let mut pause = Duration::from_millis(20);
    loop {
        match start() {
            Err(_) if Instant::now() + pause < until => std::thread::sleep(pause),
            done => return done,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn start(execute: &Launcher, command: &[OsString]) -> io::Result<(Child, ChildStdin)> {
    let mut child = launched(execute)
        .arg(std::process::id().to_string())
        .arg("--")
        .args(command)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok((child, stdin))
}

fn launched(execute: &Launcher) -> Command {
    let mut command = Command::new(&execute.program);
    if let Some(name) = &execute.name {
        command.arg0(name);
    }
    command.args(&execute.arguments);
    command
}

/// The payload to the program, and the worker's words to us.
fn listen(mut stdin: ChildStdin, news: mpsc::Sender<News>) {
    std::thread::spawn(move || {
        let mut line = io::stdin().lock();
        match lifeline::payload(&mut line) {
            Ok(payload) => {
                // In a thread of its own: a program that does not read must not keep the line from being heard.
                std::thread::spawn(move || {
                    // Nor does it have to read.
                    let _ = stdin.write_all(&payload);
                });
            }
            Err(_) => drop(stdin),
        }
        loop {
            let word = lifeline::word(&mut line);
            // After the last word comes none.
            if news.send(News::Heard(word)).is_err() || word == Word::Kill {
                return;
            }
        }
    });
}

/// Leaves it unburied: until then its number, which is its group's, is nobody else's.
fn wait(pid: Pid) -> Ended {
    loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Ok(Some(status)) => {
                let code = |code: i32| Ended::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX));
                let signal = status.terminating_signal().map(Ended::Signal);
                return signal.or(status.exit_status().map(code)).unwrap_or(Ended::Signal(Signal::KILL.as_raw()));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Ended::Signal(Signal::KILL.as_raw()),
        }
    }
}

fn until_it_ends(pid: Pid, heard: &mpsc::Receiver<News>) -> Ended {
    // Whichever comes first: the lease, which is prolonged again and again, or the end of the grace.
    let (mut lease, mut grace): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let next = match lease.into_iter().chain(grace).min() {
            None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(end) => heard.recv_timeout(end.saturating_duration_since(Instant::now())),
        };
        // A length that no clock can tell is none.
        let end = |length: Duration| Instant::now().checked_add(length);
        match next {
            Ok(News::Ended(ended)) => return ended,
            Ok(News::Heard(Word::Leased(rest))) => lease = end(rest),
            Ok(News::Heard(Word::Terminate(length))) => {
                let _ = rustix::process::kill_process_group(pid, Signal::TERM);
                grace = grace.into_iter().chain(end(length)).min();
            }
            // What is swept away ends so.
            Ok(News::Heard(Word::Kill)) | Err(_) => return Ended::Signal(Signal::KILL.as_raw()),
        }
    }
}

/// Nothing of the program stays: neither its group, nor what has left the group and become an orphan.
fn sweep(pid: Pid) {
    let until = Instant::now() + SWEEPING;
    let mut is_buried = false;
    loop {
        if !is_buried {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        for orphan in children() {
            let _ = rustix::process::kill_process(orphan, Signal::KILL);
        }
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((dead, _))) => is_buried |= dead == pid,
            Ok(None) if Instant::now() < until => std::thread::sleep(GLANCE),
            Err(rustix::io::Errno::INTR) => {}
            // There are no children left, or none that can be ended.
            _ => return,
        }
    }
}

/// The worker looks at how this process ends.
fn end_like(execute: &Launcher, ended: Ended) -> ExitCode {
    let signal = match ended {
        Ended::Code(code) => return ExitCode::from(code),
        Ended::Signal(signal) => Signal::from_named_raw(signal).unwrap_or(Signal::KILL),
    };
    if UNMINDED.contains(&signal) {
        // They do nothing here, and do what they mean in what this becomes.
        let number = signal.as_raw().to_string();
        let _ = launched(execute).arg(NOBODY.to_string()).arg("--").arg(number).exec();
    }
    end_by(signal)
}

fn end_by(signal: Signal) -> ExitCode {
    // The program has left its core, if any was wanted.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    // Twice: the first may meet a handler that only takes itself away.
    for signal in [signal, signal, Signal::KILL] {
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    ExitCode::FAILURE
}

/// Become the program, which is killed when the supervisor dies. Returns only where that cannot be.
pub fn execute(supervisor: u32, command: &[OsString]) -> ExitCode {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // It may have died before the signal was asked for.
    let parent = rustix::process::getppid().map(Pid::as_raw_nonzero).and_then(|pid| u32::try_from(pid.get()).ok());
    let Some((program, arguments)) = command.split_first() else { return ExitCode::from(CANNOT_RUN) };
    if supervisor == NOBODY {
        let signal = program.to_str().and_then(|signal| signal.parse().ok()).and_then(Signal::from_named_raw);
        return end_by(signal.unwrap_or(Signal::KILL));
    }
    if parent != Some(supervisor) {
        return ExitCode::from(CANNOT_RUN);
    }
    let error = Command::new(program).args(arguments).exec();
    let _ = writeln!(io::stderr(), "onceward: cannot run {}: {error}", program.display());
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN })
}
