//! Measures job throughput and latency on SQLite or PostgreSQL with fsync on, next to a baseline. Run by
//! `cargo run --profile dist -p onceward-bench --bin jobs`.
//!
//! ```text
//! jobs [--on postgres] beside COUNT ROUNDS          baseline and engine in turn, in batches of 1,000
//! jobs [--on postgres] rows COUNT ROUNDS            the baseline without each of its parts in turn
//! jobs [--on postgres] callers COUNT                256 callers, one call at a time each
//! jobs [--on postgres] single COUNT                 one job at a time: transactions and time
//! jobs [--on postgres] waiting JOBS COUNT [SECONDS] with JOBS ready jobs, with none, and with an open snapshot
//! jobs [--on postgres] later JOBS COUNT             with JOBS delayed jobs, with none, and in the ready table
//! jobs [--on postgres] latency SECONDS              100 jobs a second, from create to a durable lease
//! jobs [--on postgres] minute SECONDS               sustained load, each part next to the baseline
//! jobs [--on postgres] churn COUNT PARTS            growth of tables and indexes
//! jobs --on postgres statements COUNT               cost of each statement on the server
//! jobs [--on postgres] wire jobs COUNT ROUNDS       over HTTP in batches of 100 and 1,000, and in process
//! jobs [--on postgres] wire creates SECONDS         single creates from 64 connections
//! jobs [--on postgres] wire latency SECONDS         100 jobs a second, from create to a waiting worker
//! jobs [--on postgres] wire ready JOBS              time until a server is ready
//! jobs [--on postgres] wire idle WORKERS            cost of idle long polls
//! jobs [--on postgres] fill JOBS DATABASE           runs JOBS jobs in a database (path or URL) and keeps it
//! jobs [--on postgres] verify DATABASE              duration of each part of `verify`
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
            eprintln!("jobs: {error}");
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
        _ => return Err("--on takes sqlite or postgres".into()),
    };
    match words {
        ["beside", job_count, rounds] => reports::against_baseline(&bench_db, job_count.parse()?, rounds.parse()?),
        ["rows", job_count, rounds] => reports::without_each_part(&bench_db, job_count.parse()?, rounds.parse()?),
        ["callers", job_count] => reports::many_callers(&bench_db, job_count.parse()?),
        ["single", job_count] => reports::one_at_a_time(&bench_db, job_count.parse()?),
        ["waiting", jobs, job_count] => churn::with_waiting_jobs(&bench_db, jobs.parse()?, job_count.parse()?, 60),
        ["waiting", jobs, job_count, seconds] => {
            churn::with_waiting_jobs(&bench_db, jobs.parse()?, job_count.parse()?, seconds.parse()?)
        }
        ["later", jobs, job_count] => delayed_jobs::with_delayed_jobs(&bench_db, jobs.parse()?, job_count.parse()?),
        ["fill", jobs, database] => verify::fill(&bench_db, jobs.parse()?, database),
        ["verify", database] => verify::measure_verify(&bench_db, database),
        ["latency", seconds] => latency::in_process(&bench_db, seconds.parse()?),
        ["minute", seconds] => churn::sustained(&bench_db, seconds.parse()?),
        ["churn", job_count, parts] => churn::table_growth(&bench_db, job_count.parse()?, parts.parse()?),
        ["statements", job_count] => churn::statement_costs(&bench_db, job_count.parse()?),
        ["wire", "jobs", job_count, rounds] => http::jobs_over_http(&bench_db, job_count.parse()?, rounds.parse()?),
        ["wire", "creates", seconds] => http::single_creates(&bench_db, seconds.parse()?),
        ["wire", "latency", seconds] => latency::over_http(&bench_db, seconds.parse()?),
        ["wire", "ready", jobs] => http::startup_time(&bench_db, jobs.parse()?),
        ["wire", "idle", workers] => http::idle_workers(&bench_db, workers.parse()?),
        _ => Err("usage: jobs [--on postgres] beside COUNT ROUNDS | rows COUNT ROUNDS | callers COUNT | single COUNT | \
                  waiting JOBS COUNT [SECONDS] | later JOBS COUNT | latency SECONDS | minute SECONDS | churn COUNT PARTS | \
                  statements COUNT | fill JOBS DATABASE | verify DATABASE | wire jobs COUNT ROUNDS | wire creates SECONDS | \
                  wire latency SECONDS | wire ready JOBS | wire idle WORKERS"
            .into()),
    }
}
