//! Starts, pauses and kills child processes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::lab_engine::{WAIT_TIMEOUT, time_at};

/// A process that is being spawned briefly inherits its parent's files, including the locks of databases. So no test
/// may open a database at the same time.
pub(crate) static SPAWN_LOCK: Mutex<()> = Mutex::new(());

/// Runs `spawn` under [`SPAWN_LOCK`].
pub(crate) fn with_spawn_lock<T>(spawn: impl FnOnce() -> T) -> T {
    let _starting = SPAWN_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    spawn()
}

/// The program in `lab/child`.
const CHILD_PROGRAM: &str = env!("CARGO_BIN_EXE_lab-child");

pub(crate) struct LabProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
}

/// Starts a worker process, connected by pipes.
pub(crate) fn worker(name: &str) -> LabProcess {
    LabProcess::start(Command::new(CHILD_PROGRAM).args(["worker", name]))
}

/// Starts an engine process on this file with a fixed clock.
pub(crate) fn engine(file: &Path, seconds: i64) -> LabProcess {
    LabProcess::start(Command::new(CHILD_PROGRAM).arg("engine").arg(file).arg(time_at(seconds).micros().to_string()))
}

/// Starts an engine on a server's database under `strace`, which kills it before it sends its `nth` message.
pub(crate) fn engine_killed_at_message(url: &str, seconds: i64, nth: usize) -> LabProcess {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto"]);
    command.args(["-e", &format!("inject=sendto:signal=KILL:when={nth}")]);
    command.args([CHILD_PROGRAM, "engine", url, &time_at(seconds).micros().to_string()]);
    LabProcess::start(&mut command)
}

/// Starts an engine under `strace`, which kills it before its `nth` such call on the WAL, to which an operation writes
/// everything.
pub(crate) fn engine_killed_at_syscall(file: &Path, seconds: i64, call: &str, nth: usize) -> LabProcess {
    let wal = format!("{}-wal", file.display());
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-P", &wal, "-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
    command.arg(CHILD_PROGRAM).arg("engine").arg(file).arg(time_at(seconds).micros().to_string());
    LabProcess::start(&mut command)
}

impl LabProcess {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = with_spawn_lock(|| command.spawn());
        let mut child = spawned.unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
        let output = child.stdout.take().expect("a pipe");
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { input: child.stdin.take(), child, output: said }
    }

    /// Returns the next output line, or `None` after the process has ended.
    pub(crate) fn next_line(&self) -> Option<String> {
        match self.output.recv_timeout(WAIT_TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the process printed nothing before the timeout"),
        }
    }

    pub(crate) fn expect_line(&self, expected: &str) {
        assert_eq!(self.next_line().as_deref(), Some(expected));
    }

    /// Sends a line. Ignores errors, because the process may be dead.
    pub(crate) fn send_line(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("the process ended");
    }

    /// Closes the input and waits for the end.
    pub(crate) fn wait_for_exit(mut self) -> ExitStatus {
        self.input = None;
        self.child.wait().expect("the process ended")
    }

    /// Sends SIGSTOP and waits until the process has stopped.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        let began = Instant::now();
        while !self.is_stopped() {
            assert!(began.elapsed() < WAIT_TIMEOUT, "the process does not stop");
            std::thread::yield_now();
        }
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let sent =
            with_spawn_lock(|| Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status());
        assert!(sent.expect("a shell").success());
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("process is running");
        // The state follows the name, which is in brackets.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
