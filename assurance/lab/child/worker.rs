//! A worker: leases a job, waits for the result to commit, commits it and prints the reply.

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

/// Simulates a poison pill: the worker dies without reporting an error.
fn kill_self() {
    // Returns only on a machine without a shell. Then the test finds the worker alive and fails.
    let _ = Command::new("sh").args(["-c", &format!("kill -KILL {}", std::process::id())]).status();
}
