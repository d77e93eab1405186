//! A worker: asks for a job, works on it until it is told to go on, commits, and says what it was told.

use std::process::{Command, ExitCode};

use crate::read_line;

pub(crate) fn run() -> ExitCode {
    loop {
        println!("lease");
        let Some(job) = read_line() else { return ExitCode::SUCCESS };
        let words: Vec<&str> = job.split(' ').collect();
        let ["job", id, token, kind] = words[..] else { return ExitCode::SUCCESS };
        if kind == "poison" {
            kill_self();
        }
        println!("working");
        let Some(result) = read_line() else { return ExitCode::SUCCESS };
        println!("commit {id} {token} {result}");
        let Some(reply) = read_line() else { return ExitCode::SUCCESS };
        println!("told {reply}");
    }
}

/// What a poison pill does to its worker: no error, no last word.
fn kill_self() {
    // Returns only where there is no shell; then the test finds a worker that lives.
    let _ = Command::new("sh").args(["-c", &format!("kill -KILL {}", std::process::id())]).status();
}
