//! Measures job throughput and latency on SQLite or PostgreSQL with fsync on, next to a baseline. Run by
//! `cargo run --release -p onceward-bench --bin lives`.
//!
//! ```text
//! lives [--on postgres] beside LIVES ROUNDS          baseline and engine in turn, in batches of 1,000
//! lives [--on postgres] rows LIVES ROUNDS            the baseline without each of its parts in turn
//! lives [--on postgres] callers LIVES                256 callers, one call at a time each
//! lives [--on postgres] single LIVES                 one job at a time: transactions and time
//! lives [--on postgres] waiting JOBS LIVES [SECONDS] with JOBS ready jobs, with none, and with an open snapshot
//! lives [--on postgres] later JOBS LIVES             with JOBS delayed jobs, with none, and in the ready table
//! lives [--on postgres] latency SECONDS              100 jobs a second, from create to a durable lease
//! lives [--on postgres] minute SECONDS               sustained load, each part next to the baseline
//! lives [--on postgres] churn LIVES PARTS            growth of tables and indexes
//! lives --on postgres statements LIVES               cost of each statement on the server
//! lives [--on postgres] wire lives LIVES ROUNDS      over HTTP in batches of 100 and 1,000, and in process
//! lives [--on postgres] wire creates SECONDS         single creates from 64 connections
//! lives [--on postgres] wire latency SECONDS         100 jobs a second, from create to a waiting worker
//! lives [--on postgres] wire ready JOBS              time until a server is ready
//! lives [--on postgres] wire idle WORKERS            cost of idle long polls
//! lives [--on postgres] fill JOBS DATABASE           runs JOBS jobs in a database (path or URL) and keeps it
//! lives [--on postgres] verify DATABASE              duration of each part of `verify`
//! ```
//!
//! The run starts a PostgreSQL server in a temporary folder, or uses the one whose URL (without a database)
//! `ONCEWARD_POSTGRES` holds.

mod baseline;
mod bench_database;
mod churn;
mod delayed_jobs;
mod engine;
mod http;
mod latency;
mod machine;
mod reports;
mod verify;

use std::error::Error;
use std::process::ExitCode;

use bench_database::BenchDatabase;

/// The allocator of the `onceward` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run_command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lives: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_command() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (words, on) = match words.as_slice() {
        ["--on", on, words @ ..] => (words, *on),
        words => (words, "sqlite"),
    };
    let bench_db = match on {
        "sqlite" => BenchDatabase::sqlite()?,
        "postgres" => BenchDatabase::postgres(words.first() == Some(&"statements"))?,
        _ => return Err("lives are lived on sqlite or on postgres".into()),
    };
    match words {
        ["beside", lives, rounds] => reports::against_baseline(&bench_db, lives.parse()?, rounds.parse()?),
        ["rows", lives, rounds] => reports::without_each_part(&bench_db, lives.parse()?, rounds.parse()?),
        ["callers", lives] => reports::many_callers(&bench_db, lives.parse()?),
        ["single", lives] => reports::one_at_a_time(&bench_db, lives.parse()?),
        ["waiting", jobs, lives] => churn::with_waiting_jobs(&bench_db, jobs.parse()?, lives.parse()?, 60),
        ["waiting", jobs, lives, seconds] => {
            churn::with_waiting_jobs(&bench_db, jobs.parse()?, lives.parse()?, seconds.parse()?)
        }
        ["later", jobs, lives] => delayed_jobs::with_delayed_jobs(&bench_db, jobs.parse()?, lives.parse()?),
        ["fill", jobs, database] => verify::fill(&bench_db, jobs.parse()?, database),
        ["verify", database] => verify::measure_verify(&bench_db, database),
        ["latency", seconds] => latency::in_process(&bench_db, seconds.parse()?),
        ["minute", seconds] => churn::sustained(&bench_db, seconds.parse()?),
        ["churn", lives, parts] => churn::table_growth(&bench_db, lives.parse()?, parts.parse()?),
        ["statements", lives] => churn::statement_costs(&bench_db, lives.parse()?),
        ["wire", "lives", lives, rounds] => http::jobs_over_http(&bench_db, lives.parse()?, rounds.parse()?),
        ["wire", "creates", seconds] => http::single_creates(&bench_db, seconds.parse()?),
        ["wire", "latency", seconds] => latency::over_http(&bench_db, seconds.parse()?),
        ["wire", "ready", jobs] => http::startup_time(&bench_db, jobs.parse()?),
        ["wire", "idle", workers] => http::idle_workers(&bench_db, workers.parse()?),
        _ => Err("usage: lives [--on postgres] beside LIVES ROUNDS | rows LIVES ROUNDS | callers LIVES | single LIVES | \
                  waiting JOBS LIVES [SECONDS] | later JOBS LIVES | latency SECONDS | minute SECONDS | churn LIVES PARTS | \
                  statements LIVES | fill JOBS DATABASE | verify DATABASE | wire lives LIVES ROUNDS | wire creates SECONDS | \
                  wire latency SECONDS | wire ready JOBS | wire idle WORKERS"
            .into()),
    }
}
