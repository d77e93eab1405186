//! Runs an engine that serves concurrent requests until it is killed. Each input line is a tag and a list of requests,
//! which run concurrently. Once all are durable, the replies follow as one line with the tag.
//!
//! The torture tests choose the requests, judge the replies and kill the process.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_core::record::Actor;
use onceward_core::time::{Duration as Span, Time};
use onceward_engine::{Engine, EngineConfig, EngineError, LeaseRequest, Receipt, Submission};
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, StoreError};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::sync::Barrier;

use crate::{outside, read_line};

/// Resolution of a clock with an offset: fine against leases of one second.
const CLOCK_TICK_INTERVAL: Duration = Duration::from_millis(2);

#[derive(Deserialize)]
pub(crate) struct ChildRequest {
    actor: Actor,
    /// The idempotency key.
    #[serde(default)]
    key: Option<String>,
    /// The payload of a create.
    #[serde(default)]
    bytes: Option<String>,
    #[serde(default)]
    call: Option<Call>,
    #[serde(default)]
    lease: Option<ChildLeaseRequest>,
}

/// Leases any ready job.
#[derive(Deserialize)]
struct ChildLeaseRequest {
    lifecycle: String,
    worker: String,
    seconds: i64,
}

pub(crate) fn run(database: &str, clock_offset_secs: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let (Ok(runtime), Ok(wrong_by)) = (runtime, clock_offset_secs.parse()) else { return ExitCode::FAILURE };
    match runtime.block_on(serve(database, wrong_by)) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            println!("cannot {error}");
            ExitCode::FAILURE
        }
    }
}

/// Opens a file with a clock that is off by some seconds, or a server's database with the server's clock.
async fn open_store(database: &str, clock_offset_secs: i64) -> Result<AnyStore, StoreError> {
    if database.starts_with("postgres://") {
        return Ok(AnyStore::Postgres(PostgresStore::open(database).await?));
    }
    let right = Clock::machine();
    if clock_offset_secs == 0 {
        return Ok(AnyStore::Sqlite(SqliteStore::open(database, right)?));
    }
    let shifted_now = move |right: &Clock| Time::from_micros(right.now().micros() + clock_offset_secs * 1_000_000);
    let clock = Clock::manual(shifted_now(&right));
    let moved = clock.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(CLOCK_TICK_INTERVAL);
        loop {
            ticks.tick().await;
            moved.set(shifted_now(&right));
        }
    });
    Ok(AnyStore::Sqlite(SqliteStore::open(database, clock)?))
}

async fn serve(database: &str, clock_offset_secs: i64) -> Result<(), EngineError> {
    let config = EngineConfig { checks: outside::checks(), ..EngineConfig::default() };
    let engine = Engine::open(open_store(database, clock_offset_secs).await?, config);
    println!("open");
    // Read standard input on a thread of its own, so that reading never blocks replies.
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Some(line) = read_line() {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        let engine = engine.clone();
        tokio::spawn(async move {
            let (tag, questions) = line.split_once(' ').unwrap_or((&line, "[]"));
            match serde_json::from_str(questions) {
                Ok(questions) => println!("{tag} {}", Json::Array(execute_all(&engine, questions).await)),
                Err(error) => println!("cannot read {questions}: {error}"),
            }
        });
    }
    Ok(())
}

/// Runs all requests concurrently. They start together.
async fn execute_all(engine: &Engine<AnyStore>, requests: Vec<ChildRequest>) -> Vec<Json> {
    let barrier = Arc::new(Barrier::new(requests.len().max(1)));
    let tasks = requests.into_iter().map(|question| {
        let (engine, line) = (engine.clone(), Arc::clone(&barrier));
        tokio::spawn(async move {
            line.wait().await;
            reply_json(execute(&engine, question).await)
        })
    });
    let mut answers = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        answers.push(task.await.unwrap_or_else(|panic| json!({ "unknown": format!("panicked: {panic}") })));
    }
    answers
}

pub(crate) async fn execute(engine: &Engine<AnyStore>, request: ChildRequest) -> Result<Json, EngineError> {
    let ChildRequest { actor, key, bytes, call, lease } = request;
    if let Some(ChildLeaseRequest { lifecycle, worker, seconds }) = lease {
        let lease_request = LeaseRequest {
            lease_duration: Some(Span::from_secs(seconds)),
            ..LeaseRequest::single_job(&lifecycle, &worker)
        };
        let held = engine.lease(&actor, &lease_request).await?.pop();
        return Ok(held.map_or(
            json!({}),
            |held| json!({ "id": held.record.id, "token": held.token, "version": held.record.version }),
        ));
    }
    let done = match (call, bytes) {
        (Some(Call::Create(create)), Some(bytes)) => {
            engine.create_with_payload(&actor, create, bytes.into_bytes()).await?
        }
        (Some(call), _) => {
            let submission = Submission::new(&actor, call);
            engine.submit(if let Some(key) = key { submission.with_idempotency_key(&key) } else { submission }).await?
        }
        (None, _) => return Ok(json!({})),
    };
    let Receipt { subject, version, token, no_op: already, replayed, .. } = done;
    let already = already.is_some() || replayed;
    Ok(json!({ "id": subject, "version": version, "token": token, "already": already }))
}

/// Encodes the result: done, certainly not done (with the reason), or unknown.
fn reply_json(answer: Result<Json, EngineError>) -> Json {
    match answer {
        Ok(done) => json!({ "ok": done }),
        Err(error) => match &error {
            EngineError::Closed | EngineError::WriterDied | EngineError::RandomUnavailable(_) => {
                json!({ "unknown": error.to_string() })
            }
            EngineError::Store(store) if matches!(**store, StoreError::Unavailable(_) | StoreError::Corrupt(_)) => {
                json!({ "unknown": error.to_string() })
            }
            EngineError::Store(_) => json!({ "no": error.to_string() }),
            _ => json!({ "no": error.code() }),
        },
    }
}
