//! Whole job lives a second, on SQLite with fsync on, beside a floor. Run by `cargo run --release -p onceward-bench --bin lives`.
//!
//! ```text
//! lives beside LIVES ROUNDS    floor and engine turn and turn about, in batches of 1,000
//! lives rows LIVES ROUNDS      the floor without each of its rows in turn
//! lives callers LIVES          from 256 callers, one call at a time each
//! lives single LIVES           one job at a time: how many transactions, and how long
//! lives waiting JOBS LIVES     with so many jobs waiting and with none; also beside a snapshot held open
//! lives latency SECONDS        100 jobs a second: from create to a durable lease
//! lives minute SECONDS         sustained: each tenth of it beside the floor
//! ```

mod engine;
mod floor;
mod machine;
mod reports;

use std::error::Error;
use std::process::ExitCode;

/// As the `onceward` binary does it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lives: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["beside", lives, rounds] => reports::beside(lives.parse()?, rounds.parse()?),
        ["rows", lives, rounds] => reports::rows(lives.parse()?, rounds.parse()?),
        ["callers", lives] => reports::callers(lives.parse()?),
        ["single", lives] => reports::single(lives.parse()?),
        ["waiting", jobs, lives] => reports::waiting(jobs.parse()?, lives.parse()?),
        ["latency", seconds] => reports::latency(seconds.parse()?),
        ["minute", seconds] => reports::minute(seconds.parse()?),
        _ => Err("usage: lives beside LIVES ROUNDS | rows LIVES ROUNDS | callers LIVES | single LIVES | waiting JOBS LIVES | \
                  latency SECONDS | minute SECONDS"
            .into()),
    }
}
