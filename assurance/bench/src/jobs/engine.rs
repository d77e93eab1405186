//! Runs jobs through the engine: create, lease with start, commit with finish.

use std::time::Duration;

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_engine::{Engine, EngineConfig, EngineError, LeaseRequest, LeasedJob, Submission};
use onceward_store::{AnyStore, Store};
use serde_json::{Map, Value as Json, json};

pub(crate) const JOB_LIFECYCLE: &str = "execution.job";

pub(crate) type BenchEngine = Engine<AnyStore>;

/// The operations of a job: three, or five with separate start and finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobSteps {
    Three,
    Five,
}

pub(crate) async fn open_engine(store: AnyStore) -> Result<BenchEngine, EngineError> {
    let config = EngineConfig { max_queued_operations: 20_000, ..EngineConfig::default() };
    let engine = Engine::open(store, config);
    let text = include_str!("../../../../systems/execution/job.toml");
    let files =
        InputFiles { files: vec![InputFile { name: "systems/execution/job.toml".to_owned(), text: text.into() }] };
    engine.put_lifecycles(&files).await?;
    Ok(engine)
}

pub(crate) fn new_job() -> Submission {
    job_submission(Map::from_iter([("budget".to_owned(), Json::from(3))]))
}

fn job_submission(fields: Map<String, Json>) -> Submission {
    let create = CreateRecord { lifecycle: JOB_LIFECYCLE.into(), id: None, owner: None, fields, payload: None };
    Submission::new(&Actor::new("ann", &["producer"]), Call::Create(create))
}

pub(crate) fn worker_actor() -> Actor {
    Actor::new("worker-1", &["worker"])
}

pub(crate) fn lease_request(max_jobs: usize, steps: JobSteps) -> LeaseRequest {
    let start = steps == JobSteps::Three;
    LeaseRequest {
        max_jobs,
        start,
        max_wait: Duration::from_mins(1),
        ..LeaseRequest::single_job(JOB_LIFECYCLE, "worker-1")
    }
}

pub(crate) fn job_result() -> Json {
    json!({ "rows": 12_000, "checksum": "9f86d081884c7d65" })
}

pub(crate) async fn create_jobs(engine: &BenchEngine, count: usize) -> Result<(), EngineError> {
    submit_all(engine, (0..count).map(|_| new_job())).await
}

/// Creates jobs that become ready at `ready_at`.
pub(crate) async fn create_delayed_jobs(engine: &BenchEngine, count: usize, ready_at: Time) -> Result<(), EngineError> {
    let fields = Map::from_iter([("readyAt".to_owned(), Json::from(ready_at.to_string()))]);
    submit_all(engine, (0..count).map(|_| job_submission(fields.clone()))).await
}

/// Runs one driver: batches of creates, leases and commits, one after the other.
pub(crate) async fn run_batches(
    engine: BenchEngine,
    mut job_count: usize,
    batch: usize,
    steps: JobSteps,
) -> Result<(), EngineError> {
    let actor = worker_actor();
    while job_count > 0 {
        let size = job_count.min(batch);
        create_jobs(&engine, size).await?;
        let mut leased: Vec<LeasedJob> = Vec::new();
        while leased.len() < size {
            leased.extend(engine.lease(&actor, &lease_request(size - leased.len(), steps)).await?);
        }
        let report = |call: fn(&LeasedJob, JobSteps) -> Call| {
            leased.iter().map(|job| Submission::new(&actor, call(job, steps))).collect::<Vec<_>>()
        };
        if steps == JobSteps::Five {
            submit_all(&engine, report(|job, _| Call::Start { record: job.record.id, token: job.token })).await?;
        }
        submit_all(&engine, report(commit)).await?;
        if steps == JobSteps::Five {
            submit_all(&engine, report(|job, _| Call::Finish { record: job.record.id, token: job.token })).await?;
        }
        job_count -= size;
    }
    Ok(())
}

fn commit(job: &LeasedJob, steps: JobSteps) -> Call {
    Call::Commit { record: job.record.id, token: job.token, result: job_result(), finish: steps == JobSteps::Three }
}

async fn submit_all(
    engine: &BenchEngine,
    submissions: impl IntoIterator<Item = Submission>,
) -> Result<(), EngineError> {
    for reply in engine.submit_all(submissions.into_iter().collect()).await? {
        reply?;
    }
    Ok(())
}

/// Runs `job_count` jobs, shared among the drivers.
pub(crate) async fn run_jobs(
    engine: &BenchEngine,
    job_count: usize,
    batch: usize,
    drivers: usize,
    steps: JobSteps,
) -> Result<(), EngineError> {
    let tasks: Vec<_> =
        (0..drivers).map(|_| tokio::spawn(run_batches(engine.clone(), job_count / drivers, batch, steps))).collect();
    for task in tasks {
        task.await.unwrap_or(Err(EngineError::Closed))?;
    }
    Ok(())
}

/// Runs concurrent callers. Each runs one job after another, with one call at a time.
pub(crate) async fn run_callers(
    engine: &BenchEngine,
    callers: usize,
    jobs_per_caller: usize,
) -> Result<(), EngineError> {
    run_jobs(engine, callers * jobs_per_caller, 1, callers, JobSteps::Three).await
}

/// Returns the log text of one job's three operations, for the baseline to write.
pub(crate) async fn job_log_texts(engine: &BenchEngine) -> Result<[String; 3], Box<dyn std::error::Error>> {
    run_jobs(engine, 1, 1, 1, JobSteps::Three).await?;
    let log = engine.store().log(0, 3).await?;
    engine.close().await;
    let texts: Vec<String> = log.iter().map(|entry| entry.text.to_string()).collect();
    texts.try_into().map_err(|_| "a job has three log entries".into())
}
