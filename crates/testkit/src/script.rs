//! A server of somebody else's, run for tests by a small shell script: the script starts it, does what it is told word by word, and when its
//! standard input ends it stops the server and removes its folder. That happens also when the test is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The script, which runs as long as this is there.
#[derive(Debug)]
pub(crate) struct Scripted(Mutex<Script>);

#[derive(Debug)]
struct Script {
    shell: Child,
    words: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Scripted {
    /// Runs the command, and waits until it says `started`.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let words = shell.stdin.take();
        let said = BufReader::new(shell.stdout.take().expect("a pipe"));
        let mut script = Script { shell, words, said };
        script.hear("started");
        Self(Mutex::new(script))
    }

    /// Says a word to it, and waits for the answer.
    pub(crate) fn tell(&self, word: &str, answer: &str) {
        let mut script = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words = script.words.as_mut().expect("it is still there");
        writeln!(words, "{word}").and_then(|()| words.flush()).expect("the script listens");
        script.hear(answer);
    }
}

impl Script {
    fn hear(&mut self, expected: &str) {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let read = self.said.read_line(&mut line).expect("the script's words");
            said += &line;
            assert!(read > 0 && line.trim() != "failed", "the server did not say `{expected}`:\n{said}");
            if line.trim() == expected {
                return;
            }
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(self.words.take());
        let _ = self.shell.wait();
    }
}

/// An empty folder for a server of this kind; its script removes it.
pub(crate) fn new_folder(kind: &str) -> PathBuf {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("onceward-{kind}-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the server");
    folder
}
