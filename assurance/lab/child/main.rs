//! A child process for the lab's tests: a worker, or an engine on a database. Communicates in lines.

mod engine;
#[path = "../outside.rs"]
mod outside;
mod server;
mod worker;

use std::io::BufRead as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["worker", _] => worker::run(),
        ["engine", place, micros] => engine::run(place, micros),
        ["server", place, wrong_by] => server::run(place, wrong_by),
        _ => {
            eprintln!("lab-child worker NAME | engine FILE|URL MICROSECONDS | server FILE|URL WRONG_BY_SECONDS");
            ExitCode::FAILURE
        }
    }
}

/// Reads the next line, or `None` at the end of the input.
fn read_line() -> Option<String> {
    std::io::stdin().lock().lines().next()?.ok()
}
