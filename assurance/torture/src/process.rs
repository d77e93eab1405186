//! Controls engine processes: starts the lab's child, talks to it through pipes, and kills it with SIGKILL.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value as Json;

/// Longer than any operation takes on a busy machine, so a silent process hangs.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(2);

/// A message from a process.
pub(crate) enum ProcessMessage {
    /// Replies to the requests with this tag, in order.
    Replies(u64, Vec<Json>),
    /// The process could not open its database and will exit.
    OpenFailed(String),
    /// The process has ended, and no more messages follow.
    Exited,
}

/// Receives the messages of all processes.
pub(crate) struct ProcessMonitor {
    sender: Sender<(usize, String)>,
    receiver: Receiver<(usize, String)>,
}

pub(crate) struct EngineProcess {
    child: Child,
    input: Option<ChildStdin>,
    killed: bool,
    gave_up: bool,
}

impl ProcessMonitor {
    pub(crate) fn new() -> Self {
        let (sender, heard) = channel();
        Self { sender, receiver: heard }
    }

    /// Starts an engine on a file or on a server's database. Its messages carry `number`.
    pub(crate) fn start(&self, number: usize, database: &str, clock_offset_secs: i64) -> Result<EngineProcess> {
        self.start_with_wrapper(&[], number, database, clock_offset_secs)
    }

    /// Like [`start`](Self::start), but passes the command line to another program.
    pub(crate) fn start_with_wrapper(
        &self,
        wrapper: &[&str],
        number: usize,
        database: &str,
        clock_offset_secs: i64,
    ) -> Result<EngineProcess> {
        let program = child_program()?;
        let mut command = if let Some((first, rest)) = wrapper.split_first() {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(["server", database, &clock_offset_secs.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("the engine process")?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("a pipe")?);
        let sender = self.sender.clone();
        // Lines that the process wrote before it died are still in the pipe, and count.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send((number, line));
            }
            let _ = sender.send((number, String::new()));
        });
        Ok(EngineProcess { child, input, killed: false, gave_up: false })
    }

    /// Returns the next message of any process.
    pub(crate) fn next_message(&self) -> Result<(usize, ProcessMessage)> {
        loop {
            let (number, line) = match self.receiver.recv_timeout(SILENCE_TIMEOUT) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the process printed nothing for {} s", SILENCE_TIMEOUT.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the process has ended"),
            };
            match line.split_once(' ') {
                Some(("cannot", why)) => return Ok((number, ProcessMessage::OpenFailed(why.to_owned()))),
                Some((tag, answers)) => {
                    let tag = tag.parse().with_context(|| format!("process {number} printed `{line}`"))?;
                    let Json::Array(answers) = serde_json::from_str(answers)? else { bail!("not a list: {line}") };
                    return Ok((number, ProcessMessage::Replies(tag, answers)));
                }
                None if line.is_empty() => return Ok((number, ProcessMessage::Exited)),
                // The process has opened its store. It accepts requests before that, so no caller waits for this
                // message.
                None => {}
            }
        }
    }

    /// Sends each process its requests at the same time, and waits for all replies.
    pub(crate) fn request_all(&self, requests: Vec<(&mut EngineProcess, Vec<Json>)>) -> Result<Vec<Vec<Json>>> {
        let mut answers = vec![None; requests.len()];
        for (number, (process, questions)) in requests.into_iter().enumerate() {
            process.send_requests(number as u64, questions);
        }
        while answers.iter().any(Option::is_none) {
            match self.next_message()? {
                (_, ProcessMessage::Replies(tag, told)) => answers[usize::try_from(tag)?] = Some(told),
                (number, ProcessMessage::OpenFailed(why)) => bail!("process {number} failed: {why}"),
                (number, ProcessMessage::Exited) => bail!("process {number} exited"),
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Sends requests to one process and waits for the replies.
    pub(crate) fn request(&self, process: &mut EngineProcess, requests: Vec<Json>) -> Result<Vec<Json>> {
        let mut all = self.request_all(vec![(process, requests)])?;
        all.pop().context("a reply")
    }
}

impl EngineProcess {
    /// Sends requests. Ignores errors, because the process may be dead.
    pub(crate) fn send_requests(&mut self, tag: u64, requests: Vec<Json>) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{tag} {}", Json::Array(requests));
        }
    }

    /// Sends SIGKILL after a delay. Spins, because a sleep is too imprecise.
    pub(crate) fn kill_after(&mut self, micros: u64) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(micros) {
            std::hint::spin_loop();
        }
        self.killed = true;
        self.child.kill().context("SIGKILL")?;
        // If a wrapper was started, only the wrapper dies. The engine exits when its input closes.
        self.input = None;
        Ok(())
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed
    }

    /// Marks that the process reported an error and exits.
    pub(crate) fn mark_gave_up(&mut self) {
        self.gave_up = true;
    }

    /// Waits for a process that was killed or gave up.
    pub(crate) fn reap(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!((self.killed || self.gave_up) && !status.success(), "the process exited: {status}");
        Ok(())
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lab's child program is in the folder of this one. `cargo xtask torture` builds both.
fn child_program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name("lab-child");
    ensure!(program.exists(), "{} is missing; run `cargo xtask torture`, which builds it", program.display());
    Ok(program)
}
