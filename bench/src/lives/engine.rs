//! Whole lives through the engine: create, lease with start, commit with finish.

use std::time::Duration;

use onceward_core::decide::{Call, Create};
use onceward_core::diagnostic::{File, Files};
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_engine::{Config, Engine, EngineError, Leased, Submission, Wanted};
use onceward_store::{AnyStore, Store};
use serde_json::{Map, Value as Json, json};

pub(crate) const JOB: &str = "execution.job";

pub(crate) type Lives = Engine<AnyStore>;

/// How a life is told: in three operations, or with start and finish as steps of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steps {
    Three,
    Five,
}

pub(crate) async fn open(store: AnyStore) -> Result<Lives, EngineError> {
    let config = Config { queue: 20_000, ..Config::default() };
    let engine = Engine::open(store, config);
    let text = include_str!("../../../systems/execution/job.toml");
    let files = Files { files: vec![File { name: "systems/execution/job.toml".to_owned(), text: text.into() }] };
    engine.define(&files).await?;
    Ok(engine)
}

pub(crate) fn new_job() -> Submission {
    job(Map::from_iter([("budget".to_owned(), Json::from(3))]))
}

fn job(fields: Map<String, Json>) -> Submission {
    let create = Create { lifecycle: JOB.into(), id: None, owner: None, fields, payload: None };
    Submission::new(&Actor::new("ann", &["producer"]), Call::Create(create))
}

pub(crate) fn worker() -> Actor {
    Actor::new("worker-1", &["worker"])
}

pub(crate) fn wanted(most: usize, steps: Steps) -> Wanted {
    let start = steps == Steps::Three;
    Wanted { most, start, wait: Duration::from_mins(1), ..Wanted::one(JOB, "worker-1") }
}

pub(crate) fn result() -> Json {
    json!({ "rows": 12_000, "checksum": "9f86d081884c7d65" })
}

pub(crate) async fn create(engine: &Lives, count: usize) -> Result<(), EngineError> {
    all(engine, (0..count).map(|_| new_job())).await
}

/// Jobs that may be leased from a time on.
pub(crate) async fn create_for(engine: &Lives, count: usize, time: Time) -> Result<(), EngineError> {
    let fields = Map::from_iter([("readyAt".to_owned(), Json::from(time.to_string()))]);
    all(engine, (0..count).map(|_| job(fields.clone()))).await
}

/// What one of several drivers does: batches of creates, leases and reports, one after the other.
pub(crate) async fn drive(engine: Lives, mut lives: usize, batch: usize, steps: Steps) -> Result<(), EngineError> {
    let actor = worker();
    while lives > 0 {
        let size = lives.min(batch);
        create(&engine, size).await?;
        let mut leased: Vec<Leased> = Vec::new();
        while leased.len() < size {
            leased.extend(engine.lease(&actor, &wanted(size - leased.len(), steps)).await?);
        }
        let report = |call: fn(&Leased, Steps) -> Call| {
            leased.iter().map(|job| Submission::new(&actor, call(job, steps))).collect::<Vec<_>>()
        };
        if steps == Steps::Five {
            all(&engine, report(|job, _| Call::Start { record: job.record.id, token: job.token })).await?;
        }
        all(&engine, report(commit)).await?;
        if steps == Steps::Five {
            all(&engine, report(|job, _| Call::Finish { record: job.record.id, token: job.token })).await?;
        }
        lives -= size;
    }
    Ok(())
}

fn commit(job: &Leased, steps: Steps) -> Call {
    Call::Commit { record: job.record.id, token: job.token, result: result(), finish: steps == Steps::Three }
}

async fn all(engine: &Lives, submissions: impl IntoIterator<Item = Submission>) -> Result<(), EngineError> {
    for reply in engine.submit_all(submissions.into_iter().collect()).await? {
        reply?;
    }
    Ok(())
}

/// So many lives, shared among drivers.
pub(crate) async fn lives(
    engine: &Lives,
    lives: usize,
    batch: usize,
    drivers: usize,
    steps: Steps,
) -> Result<(), EngineError> {
    let tasks: Vec<_> =
        (0..drivers).map(|_| tokio::spawn(drive(engine.clone(), lives / drivers, batch, steps))).collect();
    for task in tasks {
        task.await.unwrap_or(Err(EngineError::Closed))?;
    }
    Ok(())
}

/// Callers that each live one job after another, one call at a time.
pub(crate) async fn callers(engine: &Lives, callers: usize, each: usize) -> Result<(), EngineError> {
    lives(engine, callers * each, 1, callers, Steps::Three).await
}

/// What the log says of one life: three texts, for the floor to write.
pub(crate) async fn texts(engine: &Lives) -> Result<[String; 3], Box<dyn std::error::Error>> {
    lives(engine, 1, 1, 1, Steps::Three).await?;
    let log = engine.store().log(0, 3).await?;
    engine.close().await;
    let texts: Vec<String> = log.iter().map(|entry| entry.text.to_string()).collect();
    texts.try_into().map_err(|_| "a life has three entries".into())
}
