//! A worker: asks for a job, works on it until it is told to go on, commits, and says what it was told.

use std::process::{Command, ExitCode};

use crate::hear;

pub(crate) fn run() -> ExitCode {
    loop {
        println!("lease");
        let Some(job) = hear() else { return ExitCode::SUCCESS };
        let words: Vec<&str> = job.split(' ').collect();
        let ["job", id, token, kind] = words[..] else { return ExitCode::SUCCESS };
        if kind == "poison" {
            die();
        }
        println!("working");
        let Some(result) = hear() else { return ExitCode::SUCCESS };
        println!("commit {id} {token} {result}");
        let Some(told) = hear() else { return ExitCode::SUCCESS };
        println!("told {told}");
    }
}

/// What a poison pill does to its worker: no error, no last word.
fn die() {
    // Returns only where there is no shell; then the test finds a worker that lives.
    let _ = Command::new("sh").args(["-c", &format!("kill -KILL {}", std::process::id())]).status();
}
