//! Measures latency at a hundred jobs a second with waiting workers: from create to a durable lease.
//!
//! Alternates every second with a baseline that writes the same rows in one transaction, so that other load on the
//! machine slows both.

use std::collections::HashMap;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use onceward_core::value::RecordId;
use onceward_engine::{EngineError, LeaseRequest};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::baseline::Baseline;
use crate::bench_database::BenchDatabase;
use crate::engine::{self, BenchEngine, JOB_LIFECYCLE, JobSteps};
use crate::http::{BlockingHttpConnection, MeasuredServer, run_drivers};
use crate::reports::{BATCH_OPERATIONS, BenchResult, print_machine, print_times};

type SendableError = Box<dyn Error + Send + Sync>;

/// Jobs before the measurement. A new database appends to its WAL; after a WAL checkpoint it overwrites the WAL, which
/// is the steady state.
const WARMUP_JOBS: usize = 30_000;

/// One second of jobs per turn.
const JOBS_PER_TURN: usize = 100;
const CREATE_INTERVAL: Duration = Duration::from_millis(10);

/// A job that starts later than this was delayed by the job before.
const LATE_THRESHOLD: Duration = Duration::from_millis(1);

/// Enough that a worker always waits while others report.
const WAITING_WORKERS: usize = 4;

/// The `max_wait` of a lease call.
const LEASE_WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Sizes of real requests and responses, for the baseline behind a socket.
const CREATE_REQUEST_BYTES: usize = 152;
const CREATE_RESPONSE_BYTES: usize = 517;
const LEASE_RESPONSE_BYTES: usize = 687;
const REPORT_REQUEST_BYTES: usize = 232;
const REPORT_RESPONSE_BYTES: usize = 600;

/// Times from the call until the reply, and until the job's delivery to the worker.
#[derive(Debug, Default)]
struct LatencyTimes {
    answered: Vec<Duration>,
    delivered: Vec<Duration>,
}

/// Sleeps until the next job is due.
struct JobPacer(Instant);

impl JobPacer {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the start of the next job. If the job before took too long, that is the time when this job was due.
    fn wait_next(&mut self) -> Instant {
        self.0 += CREATE_INTERVAL;
        let early = self.0.saturating_duration_since(Instant::now());
        if early.is_zero() {
            return self.0;
        }
        std::thread::sleep(early);
        Instant::now()
    }
}

/// Measures from the call of create to the durable lease, in process.
pub(crate) fn in_process(bench_db: &BenchDatabase, seconds: u64) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let engine = bench_db.new_engine(&runtime, "latency")?;
    let mut baseline = bench_db.new_baseline("bare", &bench_db.job_log_texts(&runtime)?, "", 1)?;
    runtime.block_on(engine::run_jobs(&engine, WARMUP_JOBS, BATCH_OPERATIONS, 2, JobSteps::Three))?;
    baseline.run_jobs(i64::try_from(WARMUP_JOBS)?, i64::try_from(BATCH_OPERATIONS)?)?;
    let (sender, leased) = channel();
    let worker_task = runtime.spawn(run_worker(engine.clone(), sender));
    let (mut times, mut baseline_times) = (LatencyTimes::default(), Vec::new());
    let supports_create_leased = baseline.create_leased()?;
    baseline.commit_leased()?;
    for _ in 0..seconds {
        if let Err(error) = run_turn(&runtime, &engine, &leased, &mut times) {
            // The worker's error may be the cause.
            return Err(if worker_task.is_finished() { runtime.block_on(worker_task)?.into() } else { error });
        }
        let mut pacer = JobPacer::start();
        for _ in 0..if supports_create_leased { JOBS_PER_TURN } else { 0 } {
            let began = pacer.wait_next();
            baseline.create_leased()?;
            baseline_times.push(began.elapsed());
            baseline.commit_leased()?;
        }
    }
    worker_task.abort();
    print_times("durable create", &mut times.answered);
    print_times("create to durable lease", &mut times.delivered);
    if !baseline_times.is_empty() {
        print_times("baseline, create with lease", &mut baseline_times);
    }
    Ok(())
}

/// Leases jobs and reports the times, until an error occurs.
async fn run_worker(engine: BenchEngine, sender: Sender<(RecordId, Instant)>) -> EngineError {
    let lease_request =
        LeaseRequest { max_wait: LEASE_WAIT_TIMEOUT, ..LeaseRequest::single_job(JOB_LIFECYCLE, "worker-1") };
    let mut reports = JoinSet::new();
    loop {
        while let Some(reported) = reports.try_join_next() {
            if let Err(error) = reported.unwrap_or(Err(EngineError::Closed)) {
                return error;
            }
        }
        let leased = match engine.lease(&engine::worker_actor(), &lease_request).await {
            Ok(leased) => leased,
            Err(error) => return error,
        };
        let at = Instant::now();
        for job in leased {
            let _ = sender.send((job.record.id, at));
            let (reporter, id, token) = (engine.clone(), job.record.id, job.token);
            reports.spawn(async move {
                reporter.commit(&engine::worker_actor(), id, token, engine::job_result(), true).await
            });
        }
    }
}

fn run_turn(
    runtime: &Runtime,
    engine: &BenchEngine,
    leased: &Receiver<(RecordId, Instant)>,
    times: &mut LatencyTimes,
) -> BenchResult {
    let mut created_at = HashMap::new();
    let mut pacer = JobPacer::start();
    for _ in 0..JOBS_PER_TURN {
        let due = pacer.wait_next();
        let engine = engine.clone();
        let (id, began, took) = runtime.block_on(runtime.spawn(async move {
            // Waking a runtime thread for this task is not the engine's cost, but starting too late is.
            let began = if due.elapsed() < LATE_THRESHOLD { Instant::now() } else { due };
            let answer = engine.submit(engine::new_job()).await;
            answer.map(|answer| (answer.subject, began, began.elapsed()))
        }))??;
        times.answered.push(took);
        created_at.insert(id, began);
    }
    for _ in 0..JOBS_PER_TURN {
        let (id, at) = leased.recv_timeout(LEASE_WAIT_TIMEOUT)?;
        times.delivered.push(at - *created_at.get(&id).ok_or("a worker got a job that the benchmark did not create")?);
    }
    Ok(())
}

/// Measures from the create request to the job's delivery to a waiting worker, over HTTP.
pub(crate) fn over_http(bench_db: &BenchDatabase, seconds: u64) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let server = MeasuredServer::start(&runtime, &bench_db.new_database("latency"))?;
    let mut baseline = bench_db.new_baseline("bare", &bench_db.job_log_texts(&runtime)?, "", 1)?;
    run_drivers(&runtime, &server.host, WARMUP_JOBS, BATCH_OPERATIONS)?;
    baseline.run_jobs(i64::try_from(WARMUP_JOBS)?, i64::try_from(BATCH_OPERATIONS)?)?;
    // Run the socket baseline only if this database implements it.
    let supports_create_leased = baseline.create_leased()?;
    baseline.commit_leased()?;
    let stopped = AtomicBool::new(false);
    let (sender, leased) = channel();
    let (mut times, mut baseline_times) = (LatencyTimes::default(), LatencyTimes::default());
    std::thread::scope(|scope| {
        let worker = |_| {
            let (say, host, ends) = (sender.clone(), &server.host, &stopped);
            scope.spawn(move || run_http_worker(host, &say, ends))
        };
        let workers: Vec<_> = (0..WAITING_WORKERS).map(worker).collect();
        let done = (|| {
            let mut connection = BlockingHttpConnection::connect(&server.host)?;
            for _ in 0..seconds {
                run_http_turn(&mut connection, &leased, &mut times)?;
                if supports_create_leased {
                    run_baseline_turn(&mut *baseline, &mut baseline_times)?;
                }
            }
            Ok::<_, SendableError>(())
        })();
        stopped.store(true, Ordering::SeqCst);
        for worker in workers {
            worker.join().map_err(|_| "a worker failed")??;
        }
        done
    })
    .map_err(|error| error.to_string())?;
    print_times("create to response", &mut times.answered);
    print_times("create to delivery to the worker", &mut times.delivered);
    if supports_create_leased {
        print_times("baseline behind a socket, create to response", &mut baseline_times.answered);
        print_times("baseline behind a socket, create to delivery", &mut baseline_times.delivered);
    }
    Ok(())
}

fn run_http_worker(host: &str, sender: &Sender<(String, Instant)>, stopped: &AtomicBool) -> Result<(), SendableError> {
    let mut connection = BlockingHttpConnection::connect(host)?;
    let wait = u64::try_from(LEASE_WAIT_TIMEOUT.as_millis())?;
    let ask = json!({ "lifecycles": [JOB_LIFECYCLE], "worker": "w", "max": 1, "wait_ms": wait, "start": true });
    let ask = serde_json::to_vec(&ask)?;
    while !stopped.load(Ordering::SeqCst) {
        let leased = connection.post("/v1/leases", &ask)?;
        let at = Instant::now();
        let leased: Json = serde_json::from_slice(&leased)?;
        let Some(execution) = leased["executions"].get(0) else { continue };
        sender.send((execution["record"]["id"].to_string(), at))?;
        let report = json!({ "token": execution["token"], "result": engine::job_result(), "finish": true });
        let path = format!("/v1/executions/{}/commit", execution["id"].as_str().unwrap_or_default());
        connection.post(&path, &serde_json::to_vec(&report)?)?;
    }
    Ok(())
}

fn run_http_turn(
    connection: &mut BlockingHttpConnection,
    leased: &Receiver<(String, Instant)>,
    times: &mut LatencyTimes,
) -> Result<(), SendableError> {
    let path = format!("/v1/lifecycles/{JOB_LIFECYCLE}/records");
    let mut created_at = HashMap::new();
    let mut pacer = JobPacer::start();
    for _ in 0..JOBS_PER_TURN {
        let began = pacer.wait_next();
        let record = connection.post(&path, br#"{"fields":{"budget":3}}"#)?;
        times.answered.push(began.elapsed());
        let record: Json = serde_json::from_slice(&record)?;
        created_at.insert(record["id"].to_string(), began);
    }
    for _ in 0..JOBS_PER_TURN {
        let (id, at) = leased.recv_timeout(LEASE_WAIT_TIMEOUT)?;
        times.delivered.push(at - *created_at.get(&id).ok_or("a worker got a job that the benchmark did not create")?);
    }
    Ok(())
}

/// Runs the baseline behind a socket: reads a request, writes the rows, and sends responses of real size, first to the
/// worker and then to the caller.
fn run_baseline_turn(baseline: &mut dyn Baseline, times: &mut LatencyTimes) -> Result<(), SendableError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let connect = || -> std::io::Result<(TcpStream, TcpStream)> {
        let (near, far) = (TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0);
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        Ok((near, far))
    };
    let (mut asks, mut asked) = connect()?;
    let (mut works, mut given) = connect()?;
    std::thread::scope(|scope| {
        let creator = scope.spawn(move || {
            let mut pacer = JobPacer::start();
            let turns = (0..JOBS_PER_TURN).map(|_| {
                let began = pacer.wait_next();
                asks.write_all(&[b'c'; CREATE_REQUEST_BYTES])?;
                asks.read_exact(&mut [0; CREATE_RESPONSE_BYTES])?;
                Ok((began, began.elapsed()))
            });
            turns.collect::<std::io::Result<Vec<_>>>()
        });
        let worker = scope.spawn(move || {
            let turns = (0..JOBS_PER_TURN).map(|_| {
                works.read_exact(&mut [0; LEASE_RESPONSE_BYTES])?;
                let at = Instant::now();
                works.write_all(&[b'r'; REPORT_REQUEST_BYTES])?;
                works.read_exact(&mut [0; REPORT_RESPONSE_BYTES])?;
                Ok(at)
            });
            turns.collect::<std::io::Result<Vec<_>>>()
        });
        // This thread owns the database. If it fails, its sockets close, and both client threads end.
        let mut serve = move || {
            for _ in 0..JOBS_PER_TURN {
                asked.read_exact(&mut [0; CREATE_REQUEST_BYTES])?;
                baseline.create_leased().map_err(|error| error.to_string())?;
                given.write_all(&[b'l'; LEASE_RESPONSE_BYTES])?;
                asked.write_all(&[b'a'; CREATE_RESPONSE_BYTES])?;
                given.read_exact(&mut [0; REPORT_REQUEST_BYTES])?;
                baseline.commit_leased().map_err(|error| error.to_string())?;
                given.write_all(&[b'd'; REPORT_RESPONSE_BYTES])?;
            }
            Ok::<_, SendableError>(())
        };
        serve()?;
        let made = creator.join().map_err(|_| "the creator failed")??;
        let leased = worker.join().map_err(|_| "the worker failed")??;
        times.answered.extend(made.iter().map(|(_, took)| *took));
        times.delivered.extend(made.iter().zip(leased).map(|((began, _), at)| at - *began));
        Ok(())
    })
}
