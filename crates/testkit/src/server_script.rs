//! Runs a third-party server through a shell script.
//!
//! The script starts the server and executes one command per line. When its standard input ends, it stops the server
//! and removes its folder. This also happens if the test is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The script, which runs until this value is dropped.
#[derive(Debug)]
pub(crate) struct ScriptedServer(Mutex<ServerScript>);

#[derive(Debug)]
struct ServerScript {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl ScriptedServer {
    /// Runs the command and waits for `started`.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let words = shell.stdin.take();
        let said = BufReader::new(shell.stdout.take().expect("a pipe"));
        let mut script = ServerScript { child: shell, stdin: words, stdout: said };
        script.wait_for_line("started");
        Self(Mutex::new(script))
    }

    /// Sends a command and waits for the answer.
    pub(crate) fn send_command(&self, command: &str, answer: &str) {
        let mut script = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words = script.stdin.as_mut().expect("the script still runs");
        writeln!(words, "{command}").and_then(|()| words.flush()).expect("the script reads commands");
        script.wait_for_line(answer);
    }
}

impl ServerScript {
    fn wait_for_line(&mut self, expected: &str) {
        let mut output = String::new();
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).expect("the script's output");
            output += &line;
            assert!(read > 0 && line.trim() != "failed", "the server did not print `{expected}`:\n{output}");
            if line.trim() == expected {
                return;
            }
        }
    }
}

impl Drop for ServerScript {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// Creates an empty folder for a server. Its script removes the folder.
pub(crate) fn new_server_dir(kind: &str) -> PathBuf {
    static NEXT_DIR_NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NEXT_DIR_NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("onceward-{kind}-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the server");
    folder
}
