//! Real processes: started, listened to, paused, killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::play::{LONG, time};

/// A process that is just being started holds its parent's files for a moment, and with them the locks of databases that others
/// want to open again. So nobody opens one meanwhile.
pub(crate) static STARTING: Mutex<()> = Mutex::new(());

/// Start a process in here.
pub(crate) fn alone<T>(starts: impl FnOnce() -> T) -> T {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    starts()
}

/// The program in `lab/child`.
const CHILD: &str = env!("CARGO_BIN_EXE_lab-child");

pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
}

/// A worker of this name, on the other end of two pipes.
pub(crate) fn worker(name: &str) -> Process {
    Process::start(Command::new(CHILD).args(["worker", name]))
}

/// An engine in a process of its own, on this file, when the clock says so.
pub(crate) fn engine(file: &Path, seconds: i64) -> Process {
    Process::start(Command::new(CHILD).arg("engine").arg(file).arg(time(seconds).micros().to_string()))
}

/// One on a server's database under `strace`, which kills it as it is about to send its `nth` message.
pub(crate) fn engine_killed_at_message(url: &str, seconds: i64, nth: usize) -> Process {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto"]);
    command.args(["-e", &format!("inject=sendto:signal=KILL:when={nth}")]);
    command.args([CHILD, "engine", url, &time(seconds).micros().to_string()]);
    Process::start(&mut command)
}

/// The same under `strace`, which kills it as it is about to make its `nth` such call on the file's WAL: there an operation
/// leaves all that it writes.
pub(crate) fn engine_killed_at(file: &Path, seconds: i64, call: &str, nth: usize) -> Process {
    let wal = format!("{}-wal", file.display());
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-P", &wal, "-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
    command.arg(CHILD).arg("engine").arg(file).arg(time(seconds).micros().to_string());
    Process::start(&mut command)
}

impl Process {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = alone(|| command.spawn());
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
        Self { input: child.stdin.take(), child, said }
    }

    /// Its next words; `None` when it has ended.
    pub(crate) fn hear(&self) -> Option<String> {
        match self.said.recv_timeout(LONG) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the process says nothing"),
        }
    }

    pub(crate) fn must_say(&self, words: &str) {
        assert_eq!(self.hear().as_deref(), Some(words));
    }

    /// It may be dead already: then nobody hears it.
    pub(crate) fn say(&mut self, words: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{words}");
        }
    }

    /// SIGKILL, and gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("it ended");
    }

    /// It ends by itself, or is killed by another; nothing more is said to it.
    pub(crate) fn ended(mut self) -> ExitStatus {
        self.input = None;
        self.child.wait().expect("it ended")
    }

    /// SIGSTOP, and it stands still.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        let began = Instant::now();
        while !self.stands_still() {
            assert!(began.elapsed() < LONG, "it does not stop");
            std::thread::yield_now();
        }
    }

    /// SIGCONT.
    pub(crate) fn wake(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let sent = alone(|| Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status());
        assert!(sent.expect("a shell").success());
    }

    fn stands_still(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it lives");
        // The state follows the name, which stands in brackets.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
