//! Measures and prints results over HTTP.

use std::error::Error;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use super::http_connection::HttpConnection;
use super::server::MeasuredServer;
use crate::bench_database::BenchDatabase;
use crate::engine::{self, JOB_LIFECYCLE, JobSteps};
use crate::machine::{BenchRuns, measure_run};
use crate::reports::{BenchResult, print_headers, print_machine, print_runs, print_times, to_millis};

type SendableError = Box<dyn Error + Send + Sync>;

/// Connections that create jobs one at a time.
const CREATOR_CONNECTIONS: usize = 64;

/// Runs jobs in batches of 100 and of 1,000, alternating with the engine in this process.
pub(crate) fn jobs_over_http(bench_db: &BenchDatabase, job_count: usize, rounds: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let in_process = bench_db.new_engine(&runtime, "inside")?;
    let server = MeasuredServer::start(&runtime, &bench_db.new_database("outside"))?;
    let sizes = [100, 1_000];
    let mut runs: [BenchRuns; 4] = Default::default();
    for _ in 0..rounds {
        for (size, pair) in sizes.into_iter().zip(runs.chunks_mut(2)) {
            let within = || Ok(runtime.block_on(engine::run_jobs(&in_process, job_count, size, 2, JobSteps::Three))?);
            pair[0].0.push(measure_run(bench_db, job_count, within)?);
            pair[1].0.push(measure_run(bench_db, job_count, || run_drivers(&runtime, &server.host, job_count, size))?);
        }
    }
    print_headers();
    for (size, pair) in sizes.into_iter().zip(runs.chunks(2)) {
        print_runs(&format!("engine in process, batches of {size}"), &pair[0], None);
        print_runs(&format!("over HTTP, batches of {size}"), &pair[1], Some(&pair[0]));
    }
    println!("(of baseline: of the engine in process; the server's processor time is not counted)");
    Ok(())
}

/// Runs two drivers, as in process.
pub(crate) fn run_drivers(runtime: &Runtime, host: &str, job_count: usize, batch: usize) -> BenchResult {
    let tasks: Vec<_> = (0..2).map(|_| runtime.spawn(run_batches(host.to_owned(), job_count / 2, batch))).collect();
    for task in tasks {
        runtime.block_on(task)?.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Runs batches of creates, leases and commits, one after the other.
async fn run_batches(host: String, mut job_count: usize, batch: usize) -> Result<(), SendableError> {
    let mut connection = HttpConnection::connect(&host).await?;
    while job_count > 0 {
        let size = job_count.min(batch);
        let records: Vec<Json> = (0..size).map(|_| json!({ "fields": { "budget": 3 } })).collect();
        let body = serde_json::to_vec(&json!({ "records": records }))?;
        let made: Json = serde_json::from_slice(
            &connection.post(&format!("/v1/lifecycles/{JOB_LIFECYCLE}/records/batch"), &body).await?,
        )?;
        ensure_all_accepted(&made, size)?;
        let mut reported = 0;
        while reported < size {
            let lease_request = json!({ "lifecycles": [JOB_LIFECYCLE], "worker": "w", "max": size - reported, "wait_ms": 60_000, "start": true });
            let leased: Json =
                serde_json::from_slice(&connection.post("/v1/leases", &serde_json::to_vec(&lease_request)?).await?)?;
            let leased = leased["executions"].as_array().ok_or("no executions")?;
            let report = |execution: &Json| json!({ "execution": execution["id"], "token": execution["token"], "do": "commit", "result": engine::job_result(), "finish": true });
            let reports: Vec<Json> = leased.iter().map(report).collect();
            let body = serde_json::to_vec(&json!({ "reports": reports }))?;
            let done: Json = serde_json::from_slice(&connection.post("/v1/executions/batch", &body).await?)?;
            ensure_all_accepted(&done, reports.len())?;
            reported += reports.len();
        }
        job_count -= size;
    }
    Ok(())
}

/// Fails unless all items of a batch succeeded.
fn ensure_all_accepted(answer: &Json, size: usize) -> Result<(), SendableError> {
    let results = answer["results"].as_array().ok_or("no results")?;
    match results.iter().find(|result| !result["error"].is_null()) {
        Some(bad) => Err(bad.to_string().into()),
        None if results.len() == size => Ok(()),
        None => Err(format!("{} results for {size}", results.len()).into()),
    }
}

/// Measures single creates from 64 connections.
pub(crate) fn single_creates(bench_db: &BenchDatabase, seconds: u64) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let server = MeasuredServer::start(&runtime, &bench_db.new_database("creates"))?;
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let path = format!("/v1/lifecycles/{JOB_LIFECYCLE}/records");
    let create_until_deadline = |host: String, path: String| async move {
        let mut wire = HttpConnection::connect(&host).await?;
        let mut times = Vec::new();
        while Instant::now() < deadline {
            let began = Instant::now();
            wire.post(&path, br#"{"fields":{"budget":3}}"#).await?;
            times.push(began.elapsed());
        }
        Ok::<_, SendableError>(times)
    };
    let tasks: Vec<_> = (0..CREATOR_CONNECTIONS)
        .map(|_| runtime.spawn(create_until_deadline(server.host.clone(), path.clone())))
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(runtime.block_on(task)?.map_err(|error| error.to_string())?);
    }
    let rate = u64::try_from(times.len())? / seconds.max(1);
    println!(
        "{CREATOR_CONNECTIONS} connections: {rate} single creates a second; the server has {} MB",
        server.memory_mb()?
    );
    print_times("create to response", &mut times);
    Ok(())
}

/// Measures the time until a server is ready, on an empty database and with `jobs` jobs.
pub(crate) fn startup_time(bench_db: &BenchDatabase, jobs: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let database = bench_db.new_database("ready");
    for round in 1..=5 {
        let server = MeasuredServer::start(
            &runtime,
            &if round == 1 { database.clone() } else { bench_db.new_database(&format!("ready{round}")) },
        )?;
        println!("empty: ready after {:.0} ms, {} MB", to_millis(server.startup_time), server.memory_mb()?);
    }
    let engine = bench_db.engine_at(&runtime, &database)?;
    for _ in 0..jobs.div_ceil(crate::reports::BATCH_OPERATIONS) {
        runtime.block_on(engine::create_jobs(&engine, crate::reports::BATCH_OPERATIONS))?;
    }
    runtime.block_on(engine.close());
    drop(engine);
    for _ in 0..3 {
        let server = MeasuredServer::start(&runtime, &database)?;
        println!("{jobs} jobs: ready after {:.0} ms, {} MB", to_millis(server.startup_time), server.memory_mb()?);
    }
    Ok(())
}

/// Creates that are measured while workers wait.
const CREATES_BESIDE_WAITERS: u32 = 300;

/// Creates a hundred jobs a second, one at a time, and returns how long each took.
async fn paced_creates(host: &str, count: u32) -> Result<Vec<Duration>, SendableError> {
    let (mut wire, mut times) = (HttpConnection::connect(host).await?, Vec::new());
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..count {
        ticks.tick().await;
        let began = Instant::now();
        wire.post("/v1/lifecycles/execution.job/records", br#"{"fields":{"budget":3}}"#).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// Measures the memory and processor time that idle long polls cost the server.
pub(crate) fn idle_workers(bench_db: &BenchDatabase, workers: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let server = MeasuredServer::start(&runtime, &bench_db.new_database("idle"))?;
    let before = server.memory_mb()?;
    let lease_request =
        serde_json::to_vec(&json!({ "lifecycles": [JOB_LIFECYCLE], "worker": "w", "max": 1, "wait_ms": 30_000 }))?;
    let began = Instant::now();
    let wait = |host: String, ask: Vec<u8>| async move {
        let mut wire = HttpConnection::connect(&host).await?;
        wire.post("/v1/leases", &ask).await
    };
    let tasks: Vec<_> = (0..workers).map(|_| runtime.spawn(wait(server.host.clone(), lease_request.clone()))).collect();
    // By then all long polls have arrived.
    std::thread::sleep(Duration::from_secs(10));
    println!("{workers} waiting workers: {} MB for {before} with none", server.memory_mb()?);
    let before = server.cpu_seconds()?;
    std::thread::sleep(Duration::from_secs(5));
    let idle = server.cpu_seconds()? - before;
    println!("they use {:.1} % of a processor while idle", idle / 5.0 * 1e2);
    let (before, host) = (server.cpu_seconds()?, server.host.clone());
    let mut creates =
        runtime.block_on(paced_creates(&host, CREATES_BESIDE_WAITERS)).map_err(|error| error.to_string())?;
    print_times("create to response beside them", &mut creates);
    let each = (server.cpu_seconds()? - before) / f64::from(CREATES_BESIDE_WAITERS);
    println!("the server uses {:.2} ms of processor time for a create and its lease", each * 1e3);
    let mut with_job = 0;
    for task in tasks {
        let answer = runtime.block_on(task)?.map_err(|error| error.to_string())?;
        with_job += u32::from(answer.windows(8).any(|window| window == b"\"token\":"));
    }
    println!("all answered after {:.0} s, {with_job} with a job", began.elapsed().as_secs_f64());
    if with_job == CREATES_BESIDE_WAITERS {
        Ok(())
    } else {
        Err(format!("expected {CREATES_BESIDE_WAITERS} of them with one job each").into())
    }
}
